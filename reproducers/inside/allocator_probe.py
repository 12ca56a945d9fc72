"""Do a sequence of steps on a release's `CuMemAllocator`; run by that release's interpreter, in a process of its own.

    python allocator_probe.py DRIVER STEP…

DRIVER is `cuda` for the GPU, or a driver of `vllm_rl_repro_driver`. It begins with 64 MiB under the tag `weights`,
random bytes from a fixed seed, and 128 MiB under `kv_cache`. A step is a verb with its arguments:

    sleep [TAG…]        `sleep(offload_tags=…)`: these are kept on the host, all others are discarded
    discard TAG…        `discard(tags)`
    wake [TAG…]         `wake_up(tags)`, all without tags
    free TAG            drop the tensors of a tag, so that the allocator's free callback runs
    arm SECONDS TAG     put work in flight that writes to the tag's pages when it has spun for so long

Each step prints a line of JSON when it begins and one when it has ended, so that a process that dies shows where; the
last line says whether the weights are what they were, byte for byte.
"""

import gc
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "plugin"))

SIZES = {"weights": 64 * 2**20, "kv_cache": 128 * 2**20}


def say(**line):
    """Print one line of JSON at once."""
    print(json.dumps(line), flush=True)


class Emulated:
    """The allocator over the emulated driver."""

    def __init__(self):
        import vllm_rl_repro_driver

        self._emulated = vllm_rl_repro_driver
        self.allocator = self._emulated.install_allocator()

    def allocate(self, tag, size):
        """Allocate under a tag; returns the bytes as a tensor."""
        with self.allocator.use_memory_pool(tag=tag):
            self.address = self._emulated.malloc(self.allocator, size)
        return self._emulated.bytes_at(self.address, size)

    def free(self, tag):
        """Free what a tag has."""
        for address in [a for a, data in self.allocator.pointer_to_data.items() if data.tag == tag]:
            self._emulated.free(self.allocator, address)

    def free_bytes(self):
        """Free bytes of the device."""
        return self._emulated.driver().info()[0]


class Cuda:
    """The allocator on the GPU."""

    def __init__(self):
        from vllm.device_allocator.cumem import CuMemAllocator

        self.allocator = CuMemAllocator.get_instance()

    def allocate(self, tag, size):
        """Allocate under a tag; returns the bytes as a tensor."""
        import torch

        with self.allocator.use_memory_pool(tag=tag):
            return torch.zeros(size, dtype=torch.uint8, device="cuda")

    def free(self, tag):
        """Free what a tag has."""
        import torch

        self.allocator.allocator_and_pools.pop(tag, None)
        gc.collect()
        torch.cuda.empty_cache()

    def free_bytes(self):
        """Free bytes of the device."""
        import torch

        return torch.cuda.mem_get_info()[0]


def do(device, tensors, verb, arguments):
    """Do one step."""
    allocator = device.allocator
    if verb == "sleep":
        allocator.sleep(offload_tags=tuple(arguments))
    elif verb == "discard":
        allocator.discard(tuple(arguments))
    elif verb == "wake":
        allocator.wake_up(list(arguments) or None)
    elif verb == "free":
        tensors.pop(arguments[0], None)
        device.free(arguments[0])
    elif verb == "arm":
        import vllm_rl_repro_extension as extension

        extension.arm(float(arguments[0]), arguments[1], write=True)
    else:
        raise SystemExit(f"unknown step {verb!r}: sleep, discard, wake, free, arm")


def main():
    """Do the steps of the command line."""
    driver, *steps = sys.argv[1:]
    if driver != "cuda":
        os.environ["REPRO_DRIVER"] = driver
    import torch
    import vllm_rl_repro_extension as extension

    device = Cuda() if driver == "cuda" else Emulated()
    tensors = {tag: device.allocate(tag, size) for tag, size in SIZES.items()}
    weights = torch.randint(0, 256, (SIZES["weights"],), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    tensors["weights"].copy_(weights)
    say(step="begin", tags=extension.bytes_by_tag(), free=device.free_bytes())
    for step in steps:
        verb, *arguments = step.split()
        if verb == "discard" and not hasattr(device.allocator, "discard"):
            say(step=step, missing="this release's allocator has no discard()")
            continue
        say(step=step, begins=True)
        began = time.monotonic()
        try:
            do(device, tensors, verb, arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
            say(step=step, error=f"{type(error).__name__}: {error}", seconds=round(time.monotonic() - began, 3))
            break
        took = round(time.monotonic() - began, 3)
        say(step=step, seconds=took, tags=extension.bytes_by_tag(), free=device.free_bytes())
    else:
        try:
            same = torch.equal(tensors["weights"].cpu(), weights)
        except Exception as error:  # noqa: BLE001
            say(step="compare", error=f"{type(error).__name__}: {error}")
        else:
            say(step="compare", weights_equal=same)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # what happens when the interpreter takes the pools apart is another matter
