"""Device memory, over answers as NVML gives them."""

from types import SimpleNamespace

import pytest

from reproducers import memory
from reproducers.memory import DeviceMemory, device_names, used_by_device, used_bytes


class NVMLError(Exception):
    pass


def nvml(**changes: object) -> SimpleNamespace:
    """Two devices with one process of ours on each and one of somebody else's."""
    running = [SimpleNamespace(pid=1, usedGpuMemory=5), SimpleNamespace(pid=2, usedGpuMemory=7)]
    answers: dict[str, object] = {
        "NVMLError": NVMLError,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda i: i,
        "nvmlDeviceGetName": lambda _: "NVIDIA H200",
        "nvmlDeviceGetMemoryInfo": lambda i: SimpleNamespace(used=100 * (i + 1)),
        "nvmlDeviceGetComputeRunningProcesses": lambda _: running,
    }
    return SimpleNamespace(**answers | changes)


def refuse(*_: object) -> object:
    raise NVMLError


def test_bytes_are_summed_over_devices_and_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_nvml", nvml)
    assert used_bytes([1]) == DeviceMemory(300, 10, 276)
    assert used_bytes() == DeviceMemory(300, None, 276)
    assert device_names() == ["NVIDIA H200"] * 2


def test_each_device_counts_what_the_engine_has_there_and_not_what_its_neighbours_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_nvml", nvml)
    assert used_by_device([1]) == (5, 5)
    assert used_by_device([1, 2]) == (12, 12)
    ours = [SimpleNamespace(pid=1, usedGpuMemory=5)]
    on_the_second = nvml(nvmlDeviceGetComputeRunningProcesses=lambda i: ours if i else [])
    monkeypatch.setattr(memory, "_nvml", lambda: on_the_second)
    assert used_by_device([1]) == (0, 5)
    assert used_by_device([3]) == (0, 0)  # it has ended, and its neighbour's bytes are not its own
    assert used_by_device() == (100, 200)
    unnamed = nvml(nvmlDeviceGetComputeRunningProcesses=lambda _: [])
    monkeypatch.setattr(memory, "_nvml", lambda: unnamed)
    assert used_by_device([1]) == (100, 200)


def test_what_the_driver_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = [SimpleNamespace(pid=1, usedGpuMemory=None)]
    monkeypatch.setattr(memory, "_nvml", lambda: nvml(nvmlDeviceGetComputeRunningProcesses=lambda _: hidden))
    assert used_bytes([1]) == DeviceMemory(300, None, 300)
    monkeypatch.setattr(memory, "_nvml", lambda: nvml(nvmlDeviceGetComputeRunningProcesses=refuse))
    assert used_bytes([1]) == DeviceMemory(300, None, 300)
    monkeypatch.setattr(memory, "_nvml", lambda: nvml(nvmlDeviceGetMemoryInfo=refuse))
    assert used_bytes([1]) is None


def test_without_a_driver_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_nvml", lambda: None)
    assert used_bytes() is None
    assert device_names() == []
