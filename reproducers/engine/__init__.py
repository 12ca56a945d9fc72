"""A running vLLM: start one, attach to one, watch it, end it, see that nothing is left."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from IPython.core.getipython import get_ipython
from packaging.version import Version

from reproducers.engine.attach import attached_facts, lent
from reproducers.engine.environments import release_installation
from reproducers.engine.installation import Installation, installed
from reproducers.engine.launch import EngineSettings, parallel_flags, start
from reproducers.engine.server import Engine
from reproducers.engine.switch import FIX_VARIABLE
from reproducers.errors import EndpointError, EngineUnavailable, NotApplicable, UsageError
from reproducers.memory import device_names
from reproducers.progress import progress_line
from reproducers.states import EMULATED, EngineFacts

__all__ = [
    "Engine",
    "EngineSettings",
    "Installation",
    "attached_facts",
    "choose",
    "device_of",
    "installed",
    "lent",
    "open_engine",
    "parallel",
    "parallel_flags",
    "release_at_hand",
]

_URL = re.compile(r"https?://[^/\s]+/?")

Progress = Callable[[str], None]


def choose(
    choice: str, release: str = "", progress: Progress = lambda _: None, *, memory: bool = False
) -> str | Installation:
    """Return the URL or the installation that `choice` names.

    Args:
        choice: `auto` (REPRO_ENGINE, else a GPU with a vLLM for it, else the CPU), `cpu`, `cuda`, `emulated` (the CPU
            build over the emulated driver) or a URL.
        release: a release of vLLM, for which an environment is made where there is none; empty for the one at hand.
        progress: is told when an environment is made.
        memory: whether device memory is needed; then `auto` takes the emulated driver where there is no GPU.

    Raises:
        UsageError: it names none of these, or there is no such release.
        EngineUnavailable: what it names is not on this machine.
        NotApplicable: device memory is needed, and the CPU engine has none.
    """
    if choice == "auto":
        choice = os.environ.get("REPRO_ENGINE") or "auto"
    if _URL.fullmatch(choice):
        return choice.rstrip("/")
    if choice not in {"auto", "cpu", "cuda", "emulated"}:
        raise UsageError(
            f"unknown engine {choice!r}: auto, cpu, cuda, emulated or the URL of a server (http://127.0.0.1:8000)"
        )
    found = {i.device: i for i in installed()}
    if choice == "auto":
        gpu = device_names() and ("cuda" in found or os.environ.get("REPRO_SITES"))
        choice = "cuda" if gpu else "emulated" if memory else "cpu"
    if choice == "cpu" and memory:
        raise NotApplicable("this bug is wrong in device memory, and a CPU engine has none: use engine 'emulated'")
    if choice == "emulated":
        return replace(_on_this_machine("cpu", release, found, progress), device="emulated")
    if choice == "cuda" and not device_names():
        raise EngineUnavailable("engine 'cuda' needs an NVIDIA GPU and its driver, and there is none: use engine 'cpu'")
    return _on_this_machine(choice, release, found, progress)


def _on_this_machine(device: str, release: str, found: Mapping[str, Installation], progress: Progress) -> Installation:
    if release:
        return release_installation(release, device, progress)
    if device not in found:
        raise EngineUnavailable(
            f"engine {device!r} needs vLLM, and the interpreter has none: pip install 'vllm-rl-repro[{device}]', "
            "or name another interpreter in REPRO_PYTHON"
        )
    return found[device]


def parallel(tensor: int = 1, data: int = 1) -> EngineSettings:
    """Return the settings of an engine over several GPUs.

    Args:
        tensor: over how many GPUs the model is split.
        data: how many copies of it there are.

    Raises:
        NotApplicable: this machine has fewer GPUs.
    """
    needed, there = tensor * data, len(device_names())
    if needed > max(1, there):
        raise NotApplicable(f"TP={tensor}, DP={data} needs {needed} GPUs, and this machine has {there}")
    return EngineSettings(flags=parallel_flags(tensor, data))


def device_of(installation: Installation) -> str:
    """What an engine of an installation runs on, as the facts name it."""
    names = {"cpu": "cpu", "emulated": EMULATED}
    return names.get(installation.device) or ", ".join(sorted(set(device_names())))


def open_engine(
    choice: str = "auto",
    *,
    release: str = "",
    fix: str = "",
    runner: int = 0,
    settings: EngineSettings | None = None,
    memory: bool = False,
    progress: Progress | None = None,
) -> Engine:
    """Start the engine that `choice` names, or attach to it.

    Args:
        choice: see `choose`.
        release: a release of vLLM; empty for the one at hand.
        fix: a fix to load into the engine (`45326:proposed`); empty, or with `none`, for the release as it is.
        runner: the model runner, 1 or 2; 0 for 2 where it is the release's default (from 0.29 on, on a GPU).
        settings: what else it is started with.
        memory: whether the bug is one of device memory: a CPU engine will not do, and a server that is attached to
            must have been started with the kit's worker extension.
        progress: is told how far the start is.

    Raises:
        UsageError, EngineUnavailable, EngineFailed: there is none; the text says why and what to do.
        NotApplicable: the device lacks what was asked for.
    """
    say = progress or progress_line("vLLM")
    chosen = choose(choice, release, say, memory=memory)
    fix = "" if fix.endswith(":none") else fix
    if isinstance(chosen, str):
        return _attached(chosen, release, fix, runner, memory=memory)
    if runner == 2 and chosen.device != "cuda":
        raise NotApplicable("model runner V2 needs a GPU: on a CPU it does not start (it requires Triton)")
    if runner == 0:
        runner = 2 if chosen.device == "cuda" and Version(chosen.release) >= Version("0.29") else 1
    base = settings or EngineSettings()
    environment = dict(base.environment) | {"VLLM_USE_V2_MODEL_RUNNER": str(runner - 1)}
    started = start(chosen, replace(base, fix=fix, environment=environment), say)
    say(f"{chosen.release} for {chosen.device} is serving")
    facts = EngineFacts(chosen.release, device_of(chosen), started.model, True, started.settings)
    return _remembered(Engine(facts, started.url, started.process, chosen, started.switch))


_opened: list[Engine] = []


def _remembered(engine: Engine) -> Engine:
    """In a notebook, close what an earlier run of the same cell opened; its variable is about to be overwritten."""
    if get_ipython() is not None:
        while _opened:
            _opened.pop().close()
        _opened.append(engine)
    return engine


def _attached(url: str, release: str, fix: str, runner: int, *, memory: bool) -> Engine:
    known = lent(url)
    if unmet := _unmet(known.facts if known else None, fix, runner):
        raise UsageError(f"{unmet} can be asked for only of an engine that the kit starts, and {url} runs already")
    facts = attached_facts(url)
    if known is not None:
        facts = replace(facts, device=known.facts.device, settings=known.facts.settings)
    if release and facts.release != release:
        raise UsageError(f"the server at {url} is vLLM {facts.release}, not {release}")
    engine = _remembered(Engine(facts, url))
    return _with_memory(engine) if memory else engine


def _unmet(facts: EngineFacts | None, fix: str, runner: int) -> str:
    """What is asked for and not known to be so of a server that runs already; empty where nothing is."""
    settings = facts.settings if facts else {}
    if fix and fix not in settings.get(FIX_VARIABLE, "").split(","):
        return f"the fix {fix}"
    if runner and settings.get("VLLM_USE_V2_MODEL_RUNNER") != str(runner - 1):
        return f"model runner V{runner}"
    return ""


def _with_memory(engine: Engine) -> Engine:
    """See that an attached engine has device memory that can be looked at, and say which."""
    try:
        device = engine.workers.device()
    except EndpointError as error:
        engine.close()
        raise EngineUnavailable(
            f"the server at {engine.url} lacks the kit's worker extension: start it with reproducers/inside/plugin on "
            "PYTHONPATH and --worker-extension-cls=vllm_rl_repro_extension.Inside"
        ) from error
    if device == "no device memory":
        engine.close()
        raise NotApplicable("this bug is wrong in device memory, and the server runs without sleep mode or on a CPU")
    engine.facts = replace(engine.facts, device=EMULATED) if device == EMULATED else engine.facts
    return engine


def release_at_hand() -> tuple[str, str]:
    """Release and device of the engine that `auto` would take; empty where there is none."""
    try:
        chosen = choose("auto")
        if isinstance(chosen, Installation):
            return chosen.release, chosen.device
        facts = attached_facts(chosen)
    except EngineUnavailable:
        return "", ""
    return facts.release, facts.device
