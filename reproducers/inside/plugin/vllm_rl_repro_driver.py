"""The emulated driver under a release's own `CuMemAllocator`: a vLLM general plugin for the CPU engine.

REPRO_DRIVER names the driver: `scrubs` or `keeps` (pages come back zeroed, or with old bytes), `rocm` for one that
keeps them under an allocator that takes itself to be on ROCm. The worker's weights and KV cache move into emulated
device memory, so that a forward pass really reads it; sleep and wake-up are those of the release's GPU worker; and a
forward pass over unmapped pages, or after the context was lost, fails as a kernel would.
"""

import ctypes
import functools
import gc
import importlib
import os
import sys
from contextlib import contextmanager

from vllm_rl_repro_driver_model import GRANULARITY, Driver, DriverError

_slots = {}
_pending = []


@functools.cache
def driver():
    """The device of this process."""
    return Driver(scrubs=os.environ.get("REPRO_DRIVER", "scrubs") == "scrubs")


def malloc(allocator, size):
    """Allocate as the allocator's C extension does: reserve, create, map, and tell the Python side."""
    size = -(-size // GRANULARITY) * GRANULARITY
    address = driver().reserve(size)
    slot = len(_slots)
    _create_and_map(0, size, address, slot)
    allocator._python_malloc_callback((0, size, address, slot))
    return address


def free(allocator, address):
    """Free as the C extension does: ask the Python side for the handle, unmap, release, give the addresses back.

    It has nobody to raise an error to: it prints it, and the next call from Python raises it (measured on an H200).
    """
    handle = allocator._python_free_callback(address)
    try:
        if handle[3] != []:
            driver().unmap(address)
            driver().release(_slots[handle[3]])
    except DriverError as error:
        print(error, file=sys.stderr)
        _pending.append(error)
    driver().free_reservation(address)


def bytes_at(address, size):
    """A tensor of bytes over emulated memory."""
    import torch

    return torch.frombuffer((ctypes.c_ubyte * size).from_address(address), dtype=torch.uint8)


def _create_and_map(_device, size, address, slot):
    _slots[slot] = driver().create(size)
    driver().map(address, _slots[slot])
    _raise_pending()


def _unmap_and_release(_device, _size, address, slot):
    driver().unmap(address)
    driver().release(_slots[slot])
    _raise_pending()


def _raise_pending():
    if _pending:
        raise _pending.pop()


class _Runtime:
    """The two calls of the CUDA runtime that the allocator makes."""

    def cudaMemcpy(self, to, start, size):  # noqa: N802
        driver().copy(getattr(to, "value", to), getattr(start, "value", start), size)

    def cudaMemset(self, address, byte, size):  # noqa: N802
        driver().fill(getattr(address, "value", address), byte, size)


class _Rocm:
    """A platform that says of itself that it is ROCm, and is what it was in everything else."""

    def __init__(self, platform):
        self.real = platform

    def is_rocm(self):
        return True

    def __getattr__(self, name):
        return getattr(self.real, name)


class _Pool:
    """A memory pool of which nothing is cached."""

    def snapshot(self):
        return []


@contextmanager
def _pool_and_allocator(_malloc, _free):
    yield _Pool(), None


def set_driver(name):
    """Let the device behave as `scrubs`, `keeps` or `rocm` from here on."""
    cumem = importlib.import_module("vllm.device_allocator.cumem")
    platform = cumem.current_platform
    if isinstance(platform, _Rocm):
        platform = platform.real
    cumem.current_platform = _Rocm(platform) if name == "rocm" else platform
    driver().scrubs = name == "scrubs"


@functools.cache
def install_allocator():
    """Put the device under the release's allocator, once; returns the allocator."""
    import torch

    cumem = importlib.import_module("vllm.device_allocator.cumem")
    package = importlib.import_module("vllm.device_allocator")
    cumem.cumem_available = True
    cumem.libcudart = _Runtime()
    cumem.python_create_and_map, cumem.python_unmap_and_release = _create_and_map, _unmap_and_release
    cumem.use_memory_pool_with_allocator = _pool_and_allocator
    cumem.PIN_MEMORY = False
    cumem.is_pin_memory_available = lambda: False
    if not hasattr(cumem, "current_platform"):  # a release whose allocator knows no difference
        cumem.current_platform = importlib.import_module("vllm.platforms").current_platform
    allocator = cumem.CuMemAllocator.get_instance()
    package.get_mem_allocator_instance = lambda: allocator

    # a function of its own for each: the compiler registers each of them, and refuses one that it has seen
    torch.cuda.synchronize = lambda *_: driver().synchronize()
    torch.accelerator.synchronize = lambda *_: driver().synchronize()
    torch.cuda.empty_cache = lambda: None
    torch.accelerator.empty_cache = lambda: None
    torch.accelerator.get_memory_info = lambda *_: driver().info()
    set_driver(os.environ.get("REPRO_DRIVER", "scrubs"))
    return allocator


def _moved(allocator, tensors, tag):
    """Move tensors into one allocation of emulated memory, each where its storage begins."""
    import torch

    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    places, end = {}, 0
    for start, size in storages.items():
        places[start] = end
        end += -(-size // 256) * 256
    with allocator.use_memory_pool(tag=tag):
        address = malloc(allocator, end)
    whole = bytes_at(address, end)
    for start, size in storages.items():
        old = (ctypes.c_ubyte * size).from_address(start)
        if tag == "weights":  # a KV cache is empty so far
            whole[places[start] : places[start] + size] = torch.frombuffer(old, dtype=torch.uint8)
    for tensor in tensors:
        start = tensor.untyped_storage().data_ptr()
        size = storages[start]
        place = whole[places[start] : places[start] + size].view(tensor.dtype)
        offset = place.storage_offset() + tensor.storage_offset()
        tensor.data = place.as_strided(tensor.size(), tensor.stride(), offset)


def _flat(value):
    """All tensors in nested lists, tuples and dicts."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    return [t for item in value for t in _flat(item)] if hasattr(value, "__iter__") else []


def elsewhere(model):
    """The parameters of a model whose bytes are not all in emulated memory, each with what is there of it."""
    ranges = [(address, address + data.handle[1]) for address, data in install_allocator().pointer_to_data.items()]
    outside = []
    for name, parameter in model.named_parameters():
        storage = parameter.untyped_storage()
        start, size = storage.data_ptr(), parameter.numel() * parameter.element_size()
        if not size or not any(low <= start and start + size <= high for low, high in ranges):
            outside.append(f"{name} ({size} bytes)")
    return outside


def _keep_plain_linear():
    """Let every two-dimensional weight keep torch's own linear, which reads the parameter at each call.

    With AVX-512 and bfloat16 (else in float32) the CPU's kernels keep a packed copy of their own, and leave a parameter
    of 0 elements: the model would go on reading weights that the device has unmapped. Convolution weights are packed
    in place, and stay.
    """
    import torch

    utils = importlib.import_module("vllm.model_executor.layers.utils")
    packing = utils.dispatch_cpu_unquantized_gemm

    def dispatch(layer, *args, **kwargs):
        if layer.weight.ndim == 2:
            layer.cpu_linear = torch.nn.functional.linear
        else:
            packing(layer, *args, **kwargs)

    utils.dispatch_cpu_unquantized_gemm = dispatch  # its callers look it up when they run


def apply():
    """Give the CPU worker an emulated device, where REPRO_DRIVER asks for it."""
    if "REPRO_DRIVER" not in os.environ:
        return
    worker = importlib.import_module("vllm.v1.worker.cpu_worker").CPUWorker
    for name in ("sleep", "wake_up", "discard"):
        if name in vars(worker):
            delattr(worker, name)  # the GPU worker's own, which it inherits
    load_model, initialize, execute = worker.load_model, worker.initialize_from_config, worker.execute_model

    def load(self, *args, **kwargs):
        _keep_plain_linear()
        answer = load_model(self, *args, **kwargs)
        allocator = install_allocator()
        model = self.model_runner.model
        if empty := [name for name, parameter in model.named_parameters() if not parameter.numel()]:
            raise RuntimeError(
                f"the CPU's kernels have packed {len(empty)} weights away from the emulated driver: {empty[0]}"
            )
        _moved(allocator, list(model.parameters()), "weights")
        if outside := elsewhere(model):
            raise RuntimeError(f"{len(outside)} weights are not in the emulated driver's memory: {outside[0]}")
        gc.collect()
        return answer

    def initialize_from_config(self, *args, **kwargs):
        answer = initialize(self, *args, **kwargs)
        layers = self.vllm_config.compilation_config.static_forward_context.values()
        caches = _flat(self.model_runner.kv_caches) + _flat([getattr(layer, "kv_cache", None) for layer in layers])
        _moved(install_allocator(), list({id(t): t for t in caches}.values()), "kv_cache")
        return answer

    def execute_model(self, *args, **kwargs):
        for address, data in install_allocator().pointer_to_data.items():
            driver().touch(address, data.handle[1])
        return execute(self, *args, **kwargs)

    worker.load_model, worker.initialize_from_config = load, initialize_from_config
    worker.execute_model = execute_model
