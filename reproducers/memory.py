"""Device memory by NVML: of the whole device, and of the engine's processes."""

import warnings
from collections.abc import Collection
from dataclasses import dataclass
from types import ModuleType

__all__ = ["DeviceMemory", "device_names", "used_bytes"]

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


def used_bytes(pids: Collection[int] = ()) -> DeviceMemory | None:
    """Bytes in use now, over all devices; None without a device.

    Args:
        pids: the processes of the engine.
    """
    if (nvml := _nvml()) is None:
        return None
    device, engine, told = 0, 0, False
    for i in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(i)
        device += int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
            if process.pid in pids and process.usedGpuMemory is not None:
                engine, told = engine + int(process.usedGpuMemory), True
    return DeviceMemory(device, engine if told else None)
