"""A model of the CUDA driver's virtual memory, over the memory of this process: reservations, handles, mappings, work.

Physical pages are ranges of a memory file, so that a mapped address can really be read and written, and an unmapped
one cannot. Calls answer with the driver's error codes, as its documentation and an H200 (driver 580) have them:

- unmapping what is not mapped, or releasing a handle twice, is CUDA_ERROR_INVALID_VALUE;
- mapping over a mapping is CUDA_ERROR_ALREADY_MAPPED;
- unmapping pages that work in flight will touch answers at once; the work then faults, and from there on every call
  answers CUDA_ERROR_ILLEGAL_ADDRESS, since the context is lost;
- a driver that scrubs hands out zeroed pages; one that does not hands out what their last owner wrote.
"""

import ctypes
import mmap
import os
import threading
import time

GRANULARITY = 2 * 2**20
"""Bytes: the smallest physical allocation."""

INVALID_VALUE, OUT_OF_MEMORY, ALREADY_MAPPED, ILLEGAL_ADDRESS = 1, 2, 208, 700
TEXTS = {
    INVALID_VALUE: "invalid argument",
    OUT_OF_MEMORY: "out of memory",
    ALREADY_MAPPED: "resource already mapped",
    ILLEGAL_ADDRESS: "an illegal memory access was encountered",
}

_MAP_FIXED, _PROT_NONE, _PUNCH_HOLE_KEEP_SIZE = 0x10, 0, 3


class DriverError(RuntimeError):
    """A call of the driver that failed, in the words of vLLM's allocator extension."""

    def __init__(self, code):
        super().__init__(f"CUDA Error: {TEXTS[code]} (emulated driver)")
        self.code = code


class _Work:
    """Something in flight: after some seconds it reads or writes a range, if the range is still mapped then."""

    def __init__(self, seconds, address, size, write):
        self.due = time.monotonic() + seconds
        self.address, self.size, self.write = address, size, write


class Driver:
    """One device. Every method may be called from any thread.

    Args:
        total: bytes of physical memory.
        scrubs: whether pages are zeroed before they are handed out again.
    """

    def __init__(self, total=4 * 2**30, scrubs=True):
        self.total, self.scrubs = total, scrubs
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        self._libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
        self._file = os.memfd_create("emulated-device-memory")
        os.ftruncate(self._file, total)
        self._free = [(0, total)]
        self._reserved = {}
        self._handles = {}
        self._mapped = {}
        self._next = 1
        self._work = []
        self._lost = False
        self._lock = threading.RLock()

    def reserve(self, size):
        """Reserve addresses; returns the first one."""
        with self._lock:
            self._check()
            address = self._map_nothing(None, size)
            self._reserved[address] = size
            return address

    def free_reservation(self, address):
        """Give a reservation back; it must not be mapped."""
        with self._lock:
            self._check()
            if address not in self._reserved or address in self._mapped:
                raise DriverError(INVALID_VALUE)
            self._libc.munmap(address, self._reserved.pop(address))

    def create(self, size):
        """Allocate physical memory; returns its handle."""
        with self._lock:
            self._check()
            fitting = [free for free in self._free if free[1] >= size]
            if not fitting:
                raise DriverError(OUT_OF_MEMORY)
            start, length = min(fitting, key=lambda free: free[1])
            self._free.remove((start, length))
            if length > size:
                self._free.append((start + size, length - size))
            if self.scrubs:
                self._libc.fallocate(self._file, _PUNCH_HOLE_KEEP_SIZE, start, size)
            handle, self._next = self._next, self._next + 1
            self._handles[handle] = (start, size)
            return handle

    def release(self, handle):
        """Free physical memory; what is asked for next gets it again where the size is the same."""
        with self._lock:
            self._check()
            if handle not in self._handles:
                raise DriverError(INVALID_VALUE)
            self._free.append(self._handles.pop(handle))

    def map(self, address, handle):
        """Map physical memory at a reserved address."""
        with self._lock:
            self._check()
            if handle not in self._handles or self._reserved.get(address) != self._handles[handle][1]:
                raise DriverError(INVALID_VALUE)
            if address in self._mapped:
                raise DriverError(ALREADY_MAPPED)
            start, size = self._handles[handle]
            both = mmap.PROT_READ | mmap.PROT_WRITE
            self._libc.mmap(address, size, both, mmap.MAP_SHARED | _MAP_FIXED, self._file, start)
            self._mapped[address] = handle

    def unmap(self, address):
        """Take a mapping away; nothing is waited for."""
        with self._lock:
            self._check()
            if address not in self._mapped:
                raise DriverError(INVALID_VALUE)
            del self._mapped[address]
            self._map_nothing(address, self._reserved[address])

    def mapped(self, address):
        """Whether pages are mapped at an address."""
        with self._lock:
            return address in self._mapped

    def copy(self, to, start, size):
        """Copy between host and device, in either direction; does not wait for work on other streams."""
        with self._lock:
            self._check()
            if not all(self._touchable(address, size) for address in (to, start)):
                raise DriverError(INVALID_VALUE)
            ctypes.memmove(to, start, size)

    def fill(self, address, byte, size):
        """Set every byte of a range."""
        with self._lock:
            self._check()
            if not self._touchable(address, size):
                raise DriverError(INVALID_VALUE)
            ctypes.memset(address, byte, size)

    def put_in_flight(self, seconds, address, size, write=True):
        """Queue work that reads or writes a range after some seconds; returns at once."""
        with self._lock:
            self._check()
            self._work.append(_Work(seconds, address, size, write))

    def working(self):
        """Whether work is in flight."""
        with self._lock:
            self._finish()
            return bool(self._work)

    def synchronize(self):
        """Wait until nothing is in flight."""
        while self.working():
            with self._lock:
                due = max(work.due for work in self._work)
            time.sleep(max(0.0, due - time.monotonic()) + 0.001)
        self._check()

    def touch(self, address, size):
        """What a kernel does that uses a range: an unmapped one loses the context."""
        with self._lock:
            self._check()
            if not self._touchable(address, size):
                self._lost = True
                raise DriverError(ILLEGAL_ADDRESS)

    def info(self):
        """Free and total bytes."""
        with self._lock:
            self._check()
            return self.total - sum(size for _, size in self._handles.values()), self.total

    def _map_nothing(self, address, size):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (_MAP_FIXED if address else 0)
        return self._libc.mmap(address, size, _PROT_NONE, flags, -1, 0)

    def _touchable(self, address, size):
        """Whether all of a range may be used: device addresses must be mapped, the rest is the host's."""
        for start, length in self._reserved.items():
            if start < address + size and address < start + length:
                return start in self._mapped and start <= address and address + size <= start + length
        return True

    def _finish(self):
        """Let the work that is due happen."""
        now = time.monotonic()
        due, self._work = [w for w in self._work if w.due <= now], [w for w in self._work if w.due > now]
        for work in due:
            if not self._touchable(work.address, work.size):
                self._lost, self._work = True, []
            elif work.write:
                ctypes.memmove(work.address, ctypes.string_at(work.address, work.size), work.size)

    def _check(self):
        self._finish()
        if self._lost:
            raise DriverError(ILLEGAL_ADDRESS)
