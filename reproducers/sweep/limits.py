"""What a machine cannot do of a matrix: each such cell is NOT_APPLICABLE, with the reason."""

from reproducers.catalog import catalog
from reproducers.memory import device_names
from reproducers.sweep.cell import Cell

__all__ = ["reason_not_applicable"]


def reason_not_applicable(cell: Cell, *, elsewhere: bool = False) -> str:
    """Why a cell cannot be run; empty where it can.

    Args:
        cell: which one.
        elsewhere: whether it would run on other machines, whose GPUs are not known here.
    """
    bug, c = catalog()[cell.bug], cell.configuration
    gpus = len(device_names())
    if c.fix != "none" and c.fix not in bug.fixes:
        return f"there is no fix {c.fix!r} for {bug.id}"
    if bug.memory and c.device == "cpu":
        return "the bug is one of device memory, and a CPU engine has none"
    if not bug.memory and c.device == "emulated":
        return "the bug is not one of device memory: the CPU engine shows it"
    if c.runner == 2 and c.device != "cuda":
        return "model runner V2 needs a GPU: on a CPU it does not start (it requires Triton)"
    if c.mode == "graphs" and c.device != "cuda":
        return "CUDA graphs need a GPU"
    needed = c.tensor_parallel * c.data_parallel
    if c.device != "cuda" and needed > 1:
        return f"TP={c.tensor_parallel}, DP={c.data_parallel} needs {needed} GPUs"
    if c.device in bug.own_engines and (c.mode == "graphs" or needed > 1):
        return "its notebook starts engines of its own, eager and on one GPU"
    if c.device == "cuda" and gpus < needed and not elsewhere:
        return f"needs {needed} NVIDIA GPU{'s' if needed > 1 else ''}, and there {'is' if gpus == 1 else 'are'} {gpus}"
    return ""
