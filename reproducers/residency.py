"""Residency: what memory there is at one moment, and what the engine says of itself."""

from dataclasses import dataclass

from reproducers.calls import answered
from reproducers.engine import Engine
from reproducers.memory import used_by_device
from reproducers.metrics import sleep_state

__all__ = ["Residency", "gate_and_memory", "residency"]

TAGS = ("kv_cache", "weights")
FREED = 0.1
"""Share of a worker's or GPU's bytes that a sleep frees at least: weights and KV cache are most of what it has."""


@dataclass(frozen=True)
class Residency:
    """Bytes and flags, read one after the other."""

    workers: tuple[int, ...]
    """Bytes mapped by the allocator, of each worker that answered; empty where there is no device memory."""
    devices: tuple[int, ...]
    """Bytes of the engine's processes on each GPU, by NVML, or all bytes in use where it names no process, or the
    engine's are not known; empty without a GPU."""
    sleeping: bool | None
    """`/is_sleeping`; None where it was not answered."""
    awake: float | None
    """The metric's value for the state awake; None where it cannot be read."""

    def freed_since(self, before: "Residency") -> list[bool]:
        """Of each worker and each GPU that had something before, whether it has clearly less now."""
        pairs = [*zip(before.workers, self.workers, strict=False), *zip(before.devices, self.devices, strict=False)]
        return [now <= (1 - FREED) * then for then, now in pairs if then]

    def __str__(self) -> str:
        mib = [f"{b / 2**20:.0f}" for b in (*self.workers, *self.devices)]
        awake = "unknown" if self.awake is None else f"{self.awake:g}"
        return f"{' + '.join(mib) or 'no'} MiB, is_sleeping {str(self.sleeping).lower()}, metric awake={awake}"


def residency(vllm: Engine) -> Residency:
    """Read it now; what a dead engine does not answer is None or empty."""
    metrics = answered(vllm.metrics)
    return Residency(
        answered(vllm.workers.mapped_by_worker) or (),
        used_by_device(vllm.pids()) if vllm.facts.kind == "cuda" else (),
        answered(vllm.is_sleeping),
        None if metrics is None else sleep_state(metrics).get("awake"),
    )


def gate_and_memory(vllm: Engine) -> tuple[bool | None, tuple[str, ...] | None]:
    """Whether the gate is shut (`/is_sleeping`), and the tags with mapped memory; None for what cannot be told."""
    tags = answered(vllm.workers.bytes_by_tag)
    mapped = tuple(sorted(tag for tag in TAGS if tag in tags and tags[tag].mapped)) if tags else None
    return answered(vllm.is_sleeping), mapped
