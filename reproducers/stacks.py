"""Stacks of a process tree, for a cell that did not come back."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil

__all__ = ["find_py_spy", "stacks_of"]

DUMP_BOUND_S = 10
LINES = 40


def stacks_of(pid: int, names: int = 12) -> list[str]:
    """Return one text for each process of the tree: what it is, and its Python stacks where py-spy can read them.

    Args:
        pid: the root of the tree.
        names: how many processes are described at most.
    """
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    return [_described(process) for process in tree[:names]]


def find_py_spy() -> str | None:
    """Where py-spy is: beside the interpreter, or on the PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _described(process: psutil.Process) -> str:
    try:
        head = f"{process.name()} ({process.status()})"
        stack = _stack(process.pid) if "python" in process.name().lower() or "vllm" in process.name().lower() else ""
    except psutil.NoSuchProcess:
        return "a process that has ended"
    return f"{head}\n{stack}" if stack else head


def _stack(pid: int) -> str:
    if (tool := find_py_spy()) is None:
        return "  no stack: py-spy is not installed"
    try:
        command = [tool, "dump", "--pid", str(pid)]
        dump = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_BOUND_S, check=False)
    except subprocess.TimeoutExpired:
        return f"  no stack: py-spy took more than {DUMP_BOUND_S} s"
    if dump.returncode:
        return f"  no stack: {(dump.stderr.strip().splitlines() or ['py-spy failed'])[0]}"
    lines = [
        line for line in dump.stdout.splitlines() if not line.startswith(("Process ", "Python v")) and line.strip()
    ]
    return "\n".join("  " + re.sub(r"^Thread \d+", "Thread", line) for line in lines[:LINES])
