"""What the CPU engine leaves undone on some processors: a vLLM general plugin, where REPRO_CPU asks for it.

On a processor with AMX vLLM computes attention of bfloat16 with tile instructions. Linux lets a process use them only
after it has asked, and 0.30.0 to 0.32.0 do not ask (some of oneDNN's kernels do by the way): the worker is then killed
by SIGILL at the first request, measured on an Intel Xeon with amx_tile. This asks.
"""

import os


def apply():
    """Ask for the tile registers in this process, where the processor has them."""
    if "REPRO_CPU" not in os.environ:
        return
    import torch

    if torch.cpu._is_amx_tile_supported() and not torch.cpu._init_amx():
        raise RuntimeError(
            "the processor has AMX, and Linux does not let this process use it: vLLM's CPU engine would die"
        )
