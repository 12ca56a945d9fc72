"""A notebook's parameters: the types that its `parameters` cell declares, and the check against that declaration.

A parameter is declared in the notebook as `name: Type = default  # what it is`. The types below carry the ranges, so
that the declaration alone decides what is accepted: on the command line before anything is started, and again by the
notebook itself, whoever runs it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from reproducers.errors import UsageError
from reproducers.privacy import SECRET

__all__ = [
    "Count",
    "DriverModel",
    "Dtype",
    "EngineChoice",
    "Factor",
    "Fix",
    "Framework",
    "Level",
    "Model",
    "Parameter",
    "PauseModes",
    "Release",
    "Require",
    "Runner",
    "Seconds",
    "Size",
    "Streams",
    "TransferBackend",
    "WakeOrder",
    "WakeStages",
    "check_parameters",
    "checked",
    "parsed",
]


def _engine_choice(value: str) -> str:
    if value in {"auto", "cpu", "cuda", "emulated"}:
        return value
    if found := re.fullmatch(r"https?://(?:[\w.@-]+|\[[0-9a-fA-F:]+\])(?::(\d{1,5}))?/?", value):
        if int(found[1] or 1) in range(1, 65536):
            return value
        raise ValueError(f"{found[1]} is not a port")
    raise ValueError("auto, cpu, cuda, emulated or the URL of a server without a path, such as http://127.0.0.1:8000")


def _release(value: str) -> str:
    if value == "" or re.fullmatch(r"\d+\.\d+\.\d+(rc\d+|\.post\d+)?", value):
        return value
    raise ValueError("a release such as 0.30.0, or nothing for the one at hand")


EngineChoice = Annotated[str, AfterValidator(_engine_choice)]
"""Which engine: `auto`, `cpu`, `cuda`, `emulated` or a URL."""
Level = Annotated[int, Field(ge=1, le=2)]
"""A sleep level that releases memory: 1 offloads the weights, 2 discards them."""
Seconds = Annotated[float, Field(ge=0.5, le=600)]
"""A stretch of time, in seconds."""
Count = Annotated[int, Field(ge=1, le=100)]
"""How often."""
Release = Annotated[str, AfterValidator(_release)]
"""A release of vLLM, such as `0.30.0`; empty for the one at hand."""
Fix = Literal["none", "proposed", "undo"]
"""The release as it is, the fix proposed for the bug, or the shipped fix taken out again."""
Runner = Annotated[int, Field(ge=0, le=2)]
"""The model runner; 0 for the one that the release chooses."""
PauseModes = Literal["all", "abort", "wait", "keep"]
"""Which modes of `/pause` are run."""
WakeOrder = Literal["weights_first", "kv_cache_first"]
"""The order of a wake-up in two steps."""
DriverModel = Literal["scrubs", "keeps", "rocm"]
"""How an emulated driver hands pages out: zeroed, with old bytes, or so under an allocator for ROCm."""
Model = Literal["falcon-h1", "qwen3-next", "dense"]
"""The family of a tiny model: Mamba 2 beside attention, gated delta nets between attention, or attention alone."""
WakeStages = Literal["whole", "staged"]
"""Whether a wake-up maps everything at once, or the weights first."""
Size = Annotated[int, Field(ge=1, le=8)]
"""A tensor- or data-parallel size: how many GPUs."""
Framework = Literal[
    "sound", "all", "openrlhf", "verl", "skyrl-async", "verl-async", "open-instruct", "both-tags", "roll"
]
"""An RL framework's order of calls; sound: those whose every call the engine promises."""
Factor = Annotated[float, Field(ge=0.5, le=2)]
"""What something is multiplied with."""
TransferBackend = Literal["auto", "checkpoint", "ipc", "nccl"]
"""How weights get to the engine: from the disk, from memory on the same GPU, or broadcast from another one."""
Dtype = Literal["auto", "float32", "bfloat16"]
"""What the engine computes in; auto: float32, and bfloat16 on the emulated driver."""
Streams = Annotated[int, Field(ge=0, le=100)]
"""How many streams decode."""
Require = Literal["fixed", "reproduced", "expected", "nothing"]
"""What the assertion cell asks for; `expected` is what the catalog says for the release."""


@dataclass(frozen=True)
class Parameter:
    """One parameter as the notebook declares it."""

    name: str
    type: Any
    default: Any
    comment: str


def parsed(pairs: list[str], parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Read `name=value` pairs from a command line and check them.

    Raises:
        UsageError: as `checked`, or a pair without `=`.
    """
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"parameter {pair!r} is not of the form name=value")
        values[name] = text
    return checked(values, parameters, from_text=True)


def checked(
    values: Mapping[str, Any], parameters: Mapping[str, Parameter], *, from_text: bool = False
) -> dict[str, Any]:
    """Check values against a notebook's declaration and return them with their declared types.

    Args:
        values: what was given.
        parameters: what the notebook declares.
        from_text: whether the values are still text, as on a command line.

    Raises:
        UsageError: an unknown name, a wrong type, out of range, or a value that looks like a secret.
    """
    result = {}
    for name, value in values.items():
        if name not in parameters:
            known = ", ".join(parameters)
            raise UsageError(f"unknown parameter {name!r}: this notebook has {known}")
        _refuse_secrets(name, value)
        adapter: TypeAdapter[Any] = TypeAdapter(parameters[name].type)
        try:
            result[name] = adapter.validate_strings(value) if from_text else adapter.validate_python(value, strict=True)
        except ValidationError as error:
            said = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise UsageError(f"parameter {name}={value!r}: {said}") from error
    return result


def check_parameters(namespace: Mapping[str, Any]) -> None:
    """Check the parameters of the running notebook, given its `globals()`, before anything is started.

    Raises:
        UsageError: a value has the wrong type or is out of range.
    """
    hints = get_type_hints(_Namespace(namespace.get("__annotations__", {})), include_extras=True)
    parameters = {name: Parameter(name, kind, None, "") for name, kind in hints.items()}
    checked({name: namespace[name] for name in parameters if name in namespace}, parameters)


class _Namespace:
    """What `get_type_hints` reads annotations from."""

    def __init__(self, annotations: Mapping[str, Any]) -> None:
        self.__annotations__ = dict(annotations)


def _refuse_secrets(name: str, value: Any) -> None:
    text = str(value)
    if SECRET.search(text):
        raise UsageError(
            f"parameter {name} looks like a secret, and parameters are written into the record: "
            "pass it to the server's own environment instead"
        )
