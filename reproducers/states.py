"""The states of an engine: the control before the trigger, the probe after it, what it is, what it leaves behind."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from packaging.version import InvalidVersion, Version

from reproducers.values import Completion, RequestLife

__all__ = [
    "EMULATED",
    "ENGINE_MIME",
    "ENVIRONMENT_MIME",
    "RESIDUE_MIME",
    "UNKNOWN",
    "Control",
    "EngineFacts",
    "Probe",
    "Residue",
    "kind_of",
]

ENGINE_MIME = "application/vnd.reproducers.engine+json"
RESIDUE_MIME = "application/vnd.reproducers.residue+json"
ENVIRONMENT_MIME = "application/vnd.reproducers.environment+json"
EMULATED = "emulated driver"
"""The device of an engine whose memory is a model of the driver."""
UNKNOWN = "unknown"
"""The device of a server that does not say what it runs on."""


def kind_of(device: str) -> str:
    """The choice of engine that a device belongs to: `cpu`, `emulated` or `cuda`; a choice is its own."""
    return {"cpu": "cpu", "emulated": "emulated", EMULATED: "emulated"}.get(device, "cuda")


@dataclass(frozen=True)
class Probe:
    """Whether an engine is well: its processes, /health, and a completion compared with the control."""

    process: bool | None
    """Whether every process of the engine is alive; None for an engine that the kit did not start."""
    health: int | None
    """Status of /health, or None where no answer came."""
    completion: str
    """`equal to the control`, or how it differed or failed."""

    @property
    def dead(self) -> bool:
        """Whether a process has died, or `/health` says that the engine has."""
        return self.process is False or self.health != 200

    @property
    def lost(self) -> bool:
        """Whether it is dead, or lives and answers no completion, as with a lost device."""
        return self.dead or self.completion.startswith("not answered")

    @property
    def well(self) -> bool:
        """Whether all three are as they were at the control."""
        return not self.dead and self.completion == "equal to the control"

    def __str__(self) -> str:
        process = {True: "all processes alive", False: "a process has died", None: "processes not visible"}
        health = "no answer" if self.health is None else self.health
        return f"{process[self.process]}; /health {health}; completion {self.completion}"


@dataclass(frozen=True)
class Control:
    """The healthy path before the trigger; without a passed one there is no verdict."""

    passed: bool
    reason: str
    """What was checked, or what failed."""
    completion: Completion | None = None
    idle_load: int | None = None
    """What `GET /load` says without a request of ours, where it was seen to count one in flight; else None."""

    def difference(self, life: RequestLife) -> str:
        """How a request's answer differs from the control's; empty where both are the same generation."""
        if self.completion is None or life.completion is None:
            return "nothing to compare"
        return self.completion.difference(life.completion)

    def __str__(self) -> str:
        return f"{'passed' if self.passed else 'failed'}: {self.reason}"


@dataclass(frozen=True)
class Residue:
    """What an engine left behind; an attached one is left running and so leaves nothing to look for."""

    processes: tuple[str, ...] = ()
    """Names of processes that are still alive."""
    listening: int = 0
    """How many ports they still listen on."""
    device_bytes: int | None = None
    """Device memory that no living process claims, beyond what none claimed before; None without a device."""
    left_as_found: bool = True
    """Whether a server that was attached to is awake and unpaused again."""

    @property
    def clean(self) -> bool:
        """Whether nothing is left; 64 MiB of device memory are what other tenants may come and go with."""
        nothing = not self.processes and not self.listening and (self.device_bytes or 0) <= 64 * 2**20
        return nothing and self.left_as_found

    def to_json(self) -> dict[str, Any]:
        """Return the residue as stored in outputs and metadata."""
        return asdict(self) | {"processes": list(self.processes), "clean": self.clean}

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return {"text/plain": str(self), RESIDUE_MIME: self.to_json()}

    def __str__(self) -> str:
        if self.clean:
            return "no process, no port" + ("" if self.device_bytes is None else ", no device memory") + " left"
        if not self.left_as_found:
            return "the server could not be brought back: it is asleep, paused or gone"
        mib = "" if self.device_bytes is None else f", {self.device_bytes / 2**20:.0f} MiB of device memory"
        return f"left: {len(self.processes)} processes ({', '.join(self.processes)}), {self.listening} ports{mib}"


@dataclass(frozen=True)
class EngineFacts:
    """Which engine it is, without anything that belongs to one machine."""

    release: str
    device: str
    """`cpu`, `emulated driver`, or the name of the GPU."""
    model: str
    owned: bool
    """Whether the kit started it."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Flags and environment that it was started with."""

    @property
    def kind(self) -> str:
        """The engine's name as a choice: `cpu`, `emulated` or `cuda`."""
        return kind_of(self.device)

    def at_least(self, release: str) -> bool:
        """Whether it is that release or a later one; a build that is no release counts as later than all."""
        try:
            return Version(self.release) >= Version(release)
        except InvalidVersion:
            return True

    def to_json(self) -> dict[str, Any]:
        """Return the facts as stored in outputs and metadata."""
        return asdict(self) | {"settings": dict(self.settings)}

    def __str__(self) -> str:
        origin = "started by the kit" if self.owned else "attached"
        return f"vLLM {self.release} on {self.device}, model {self.model}, {origin}"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        rows = {"release": self.release, "device": self.device, "model": self.model}
        rows |= {"engine": "started by the kit" if self.owned else "attached"}
        rows |= {"settings": " ".join(f"`{k}={v}`" if v else f"`{k}`" for k, v in self.settings.items())}
        table = "\n".join(f"| {name} | {text} |" for name, text in rows.items() if text)
        markdown = f"| vLLM | |\n|---|---|\n{table}"
        return {"text/plain": str(self), "text/markdown": markdown, ENGINE_MIME: self.to_json()}
