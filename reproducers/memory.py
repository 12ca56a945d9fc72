"""Device memory by NVML: of the whole device, and of the engine's processes."""

import warnings
from collections.abc import Collection
from dataclasses import dataclass
from types import ModuleType

__all__ = ["DeviceMemory", "device_names", "used_by_device", "used_bytes"]

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # where the discontinued package `pynvml` shadows nvidia-ml-py
    import pynvml


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes in use over all devices."""

    device: int
    """By everybody."""
    engine: int | None
    """By the given processes; None where the driver does not say (as inside some containers)."""
    unclaimed: int
    """By no living process that the driver names: what a dead one has left, and the driver's own."""


def _nvml() -> ModuleType | None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml  # type: ignore[no-any-return]


def device_names() -> list[str]:
    """The names of the NVIDIA devices of this machine; empty without a driver."""
    if (nvml := _nvml()) is None:
        return []
    return [str(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(i))) for i in range(nvml.nvmlDeviceGetCount())]


def used_by_device(pids: Collection[int] = ()) -> tuple[int, ...]:
    """Bytes in use now on each device; empty without one, or where the driver does not tell.

    Args:
        pids: the processes of the engine: their bytes alone count where the driver names processes, since engines
            side by side come and go. Without, everybody's.
    """
    if (nvml := _nvml()) is None:
        return ()
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        shares = [_shares(nvml, handle) for handle in handles]
        if pids and any(shares):
            return tuple(sum(used for pid, used in there if pid in pids) for there in shares)
        return tuple(int(nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
    except nvml.NVMLError:
        return ()


def used_bytes(pids: Collection[int] = ()) -> DeviceMemory | None:
    """Bytes in use now, over all devices; None without a device, or where the driver does not tell.

    Args:
        pids: the processes of the engine.
    """
    if (nvml := _nvml()) is None:
        return None
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        device = sum(int(nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
    except nvml.NVMLError:  # a device that shares the host's memory, or a slice of one
        return None
    shares = [share for handle in handles for share in _shares(nvml, handle)]
    ours = [used for pid, used in shares if pid in pids]
    return DeviceMemory(device, sum(ours) if ours else None, device - sum(used for _, used in shares))


def _shares(nvml: ModuleType, handle: object) -> list[tuple[int, int]]:
    """Process and bytes of each process on one device, where the driver tells."""
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError:
        return []
    return [(int(p.pid), int(p.usedGpuMemory)) for p in running if p.usedGpuMemory is not None]
