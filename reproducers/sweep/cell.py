"""One cell of a sweep: a bug on one configuration of an engine; and what decides which cells share an engine."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Cell", "Configuration", "Device", "FixName", "Mode"]

Device = Literal["cpu", "cuda", "emulated"]
Mode = Literal["eager", "graphs"]
FixName = Literal["none", "proposed", "undo"]


@dataclass(frozen=True, order=True)
class Configuration:
    """How an engine is started."""

    release: str
    device: Device
    runner: int
    """The model runner, 1 or 2."""
    mode: Mode
    tensor_parallel: int
    data_parallel: int
    fix: FixName
    """Which kind of fix is in the engine: all of the bugs that share it."""
    model: str

    def __str__(self) -> str:
        parts = [f"vllm-{self.release}", self.device, f"v{self.runner}", self.mode]
        parts += [f"tp{self.tensor_parallel}"] if self.tensor_parallel > 1 else []
        parts += [f"dp{self.data_parallel}"] if self.data_parallel > 1 else []
        parts += [self.fix] if self.fix != "none" else []
        parts += [self.model] if self.model != "dense" else []
        return "-".join(parts)

    @property
    def devices(self) -> int:
        """How many GPUs it takes."""
        return self.tensor_parallel * self.data_parallel if self.device == "cuda" else 0


@dataclass(frozen=True, order=True)
class Cell:
    """One run of one notebook."""

    bug: str
    configuration: Configuration
    repeat: int
    """Which of the repeats, from 1 on."""

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.bug}-{self.configuration}-{self.repeat}"
