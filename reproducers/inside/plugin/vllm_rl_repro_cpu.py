"""What the CPU engine leaves undone on some machines: a vLLM general plugin, where REPRO_CPU asks for it.

On a processor with AMX vLLM computes attention of bfloat16 with tile instructions. Linux lets a process use them only
after it has asked, and 0.30.0 to 0.32.0 do not ask (some of oneDNN's kernels do by the way): the worker is then killed
by SIGILL at the first request, measured on an Intel Xeon with amx_tile. This asks.

Engine core and worker wait for each other in a loop around sched_yield. On two cores and Linux 6.18 the API server and
its clients were not run for as long as a generation took, up to 13 s of `/load` without an answer. They sleep instead.
"""

import os
import time

WAIT_S = 5e-5
"""A step of the tiny model takes a millisecond."""


def apply():
    """Ask for the tile registers in this process, where the processor has them, and wait without spinning."""
    if "REPRO_CPU" not in os.environ:
        return
    os.sched_yield = lambda: time.sleep(WAIT_S)
    import torch

    if torch.cpu._is_amx_tile_supported() and not torch.cpu._init_amx():
        raise RuntimeError(
            "the processor has AMX, and Linux does not let this process use it: vLLM would die of SIGILL"
        )
