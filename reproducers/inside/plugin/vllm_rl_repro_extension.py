"""A worker extension: what the device memory of one worker holds, and work put in flight on purpose.

Loaded with `--worker-extension-cls vllm_rl_repro_extension.Inside` and called through `/collective_rpc`, past the
scheduler and the sleep state. Arguments and answers are text, as that endpoint wants them; an answer is JSON. Works on
both model runners, and on the CPU engine where it runs over the emulated driver.
"""

import ctypes
import functools
import json
import os
import time

CHUNK = 64 * 2**20
"""Bytes that are looked at in one go."""

TICKS_AT_ONCE = 2**30
"""`torch.cuda._sleep` does not spin when it is given 2**31 ticks or more."""


class _CudaDevice:
    """Pages and streams of a real GPU."""

    def __init__(self):
        self._stream, self._done, self._ticks_per_s = None, None, 0.0
        self._libcuda = ctypes.CDLL("libcuda.so.1")

    def bytes_at(self, address, size):
        import torch

        layout = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}
        return torch.as_tensor(type("Pages", (), {"__cuda_array_interface__": layout})(), device="cuda")

    def put_in_flight(self, seconds, address, size, write):
        import torch

        if self._stream is None:
            self._stream = torch.cuda.Stream()
            self._ticks_per_s = self._measured(10_000_000)
        kept = self.bytes_at(address, size).clone()
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            left = int(seconds * self._ticks_per_s)
            while left > 0:
                torch.cuda._sleep(min(left, TICKS_AT_ONCE))
                left -= TICKS_AT_ONCE
            pages = self.bytes_at(address, size)
            pages.copy_(kept) if write else kept.copy_(pages)
            self._done = torch.cuda.Event()
            self._done.record(self._stream)
        self._kept = kept

    def _measured(self, ticks):
        """Ticks of the spinning kernel in one second; the first run also compiles it."""
        import torch

        for _ in range(2):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record(self._stream)
            with torch.cuda.stream(self._stream):
                torch.cuda._sleep(ticks)
            ended.record(self._stream)
            ended.synchronize()
        return ticks / (began.elapsed_time(ended) / 1000)

    def mapped(self, address):
        """Whether the driver has pages mapped at an address; releases differ in what their allocator notes of it."""
        import torch

        location = (ctypes.c_int * 2)(1, torch.cuda.current_device())  # CU_MEM_LOCATION_TYPE_DEVICE and which
        access = ctypes.c_ulonglong(0)
        status = self._libcuda.cuMemGetAccess(ctypes.byref(access), location, ctypes.c_ulonglong(address))
        return status == 0 and access.value != 0

    def working(self):
        return self._done is not None and not self._done.query()

    def synchronize(self):
        import torch

        torch.cuda.synchronize()


class _EmulatedDevice:
    """Pages and work of the emulated driver."""

    def __init__(self):
        import vllm_rl_repro_driver as emulated

        self._emulated = emulated
        self.bytes_at = emulated.bytes_at

    def put_in_flight(self, seconds, address, size, write):
        self._emulated.driver().put_in_flight(seconds, address, size, write)

    def mapped(self, address):
        return self._emulated.driver().mapped(address)

    def working(self):
        return self._emulated.driver().working()

    def synchronize(self):
        self._emulated.driver().synchronize()


@functools.cache
def device():
    """The device of this process, one for all calls."""
    return _EmulatedDevice() if "REPRO_DRIVER" in os.environ else _CudaDevice()


def allocator():
    """The release's allocator in this process; None where the worker has none, as on a CPU."""
    try:
        from vllm.device_allocator.cumem import CuMemAllocator
    except ImportError:
        return None
    return CuMemAllocator.instance


def allocations(tag=None):
    """The allocations as address, bytes, tag, and whether the driver has pages mapped there."""
    known = allocator()
    data = [] if known is None else known.pointer_to_data.items()
    found = [(address, d.handle[1], d.tag, device().mapped(address)) for address, d in data]
    return [a for a in found if tag in {None, a[2]}]


def bytes_by_tag():
    """Bytes that each tag holds, and how many of them are mapped."""
    tags = {}
    for _, size, tag, is_mapped in allocations():
        held, mapped = tags.get(tag, (0, 0))
        tags[tag] = (held + size, mapped + (size if is_mapped else 0))
    return {tag: {"held": held, "mapped": mapped} for tag, (held, mapped) in sorted(tags.items())}


def pages(tag, byte):
    """What a tag's mapped pages hold: bytes, and how many of them are zero, a given byte, or part of a bfloat16 NaN."""
    import torch

    counts = {"bytes": 0, "zero": 0, "byte": 0, "nan": 0}
    for address, size, _, is_mapped in allocations(tag):
        for start in range(0, size if is_mapped else 0, CHUNK):
            part = device().bytes_at(address + start, min(CHUNK, size - start))
            counts["bytes"] += part.numel()
            counts["zero"] += int((part == 0).sum())
            counts["byte"] += int((part == byte).sum())
            counts["nan"] += 2 * int(part.view(torch.bfloat16).isnan().sum())
    return counts


def poison(tag, byte):
    """Set every byte of a tag's mapped pages; returns how many that were."""
    filled = 0
    for address, size, _, is_mapped in allocations(tag):
        if is_mapped:
            device().bytes_at(address, size).fill_(byte)
            filled += size
    device().synchronize()
    return filled


def arm(seconds, tag, write, size=2**20):
    """Put work in flight: a spin of some seconds, then a read or write of the first bytes of a tag's pages.

    What it writes is what is there already, so that it harms nothing where the pages are still mapped.
    """
    mapped = [a for a in allocations(tag) if a[3]]
    if not mapped:
        raise RuntimeError(f"nothing of {tag} is mapped")
    began = time.monotonic()
    address, length, *_ = max(mapped, key=lambda a: a[1])
    device().put_in_flight(seconds, address, min(size, length), write)
    return {"seconds": seconds, "arming": round(time.monotonic() - began, 3), "working": device().working()}


class _Seen:
    """Whether work was in flight when a sleep reached the worker, and when it unmapped the first pages."""

    reached = None
    unmapped = None

    def note(self, name):
        if getattr(self, name) is None:
            setattr(self, name, device().working())


def see_next_sleep(worker):
    """Note what is in flight at the steps of the next sleep: the first call for the worker, and the first unmapping.

    From 0.29 on a finished pause waits for the device in a call of its own, before the worker is told to sleep.
    """
    from vllm.device_allocator import cumem

    seen, known = _Seen(), vars(worker).get("_repro_seen")
    worker._repro_seen = seen
    if known is not None:
        return
    for owner, name, step in (
        (worker, "synchronize_device", "reached"),
        (worker, "sleep", "reached"),
        (cumem, "unmap_and_release", "unmapped"),
    ):
        if hasattr(owner, name):
            setattr(owner, name, _noting(worker, getattr(owner, name), step))


def _noting(worker, original, step):
    @functools.wraps(original)
    def noting(*args, **kwargs):
        worker._repro_seen.note(step)
        return original(*args, **kwargs)

    return noting


class Inside:
    """What is called by name through `/collective_rpc`, on every worker."""

    def repro_device(self):
        """Which device memory the worker has."""
        emulated = os.environ.get("REPRO_DRIVER")
        return json.dumps("emulated driver" if emulated else "cuda" if allocator() else "no device memory")

    def repro_bytes_by_tag(self):
        """Bytes by tag, held and mapped."""
        return json.dumps(bytes_by_tag())

    def repro_pages(self, tag, byte="0"):
        """What a tag's pages hold."""
        return json.dumps(pages(tag, int(byte)))

    def repro_poison(self, tag, byte):
        """Fill a tag's pages."""
        return json.dumps(poison(tag, int(byte)))

    def repro_arm(self, seconds, tag, access="write"):
        """Put work in flight."""
        see_next_sleep(self)
        return json.dumps(arm(float(seconds), tag, access == "write"))

    def repro_working(self):
        """Whether that work is in flight now, and whether it was at the steps of the sleep; None where none was."""
        seen = self._repro_seen
        return json.dumps({"now": device().working(), "reached": seen.reached, "unmapped": seen.unmapped})

    def repro_elsewhere(self):
        """Which parameters have their bytes outside of the emulated memory."""
        import vllm_rl_repro_driver as emulated

        return json.dumps(emulated.elsewhere(self.model_runner.model))

    def repro_driver(self, name):
        """Let the emulated driver behave as named."""
        import vllm_rl_repro_driver as emulated

        emulated.set_driver(name)
        return json.dumps(name)
