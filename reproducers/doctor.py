"""What this machine can run, and what is missing."""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass

import psutil

from reproducers.engine import attached_facts, installed
from reproducers.errors import ReproError
from reproducers.memory import device_names, used_bytes
from reproducers.models import cache_folder
from reproducers.processor import FEATURES, processor

__all__ = ["MachineFinding", "findings"]

_TRAPS = ("torchvision", "torchaudio", "torchcodec")


@dataclass(frozen=True)
class MachineFinding:
    """One thing that was looked at."""

    what: str
    here: str
    so: str
    """What follows from it, or what to do."""
    runs_an_engine: bool = False


def findings() -> list[MachineFinding]:
    """Look at this machine; no engine is started."""
    return [*_tools(), *_engines(), _devices(), *_room()]


def _tools() -> list[MachineFinding]:
    kit = importlib.metadata.version("vllm-rl-repro")
    here = f"{kit}, Python {sys.version.split()[0]}"
    spy = shutil.which("py-spy", path=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""))  # noqa: PTH120
    stacks = (
        "a cell that hangs is recorded with its stacks" if spy else "pip install py-spy, to see stacks of hung cells"
    )
    compiler = "" if shutil.which("g++") else "install g++: torch compiles kernels with it"
    return [
        MachineFinding("kit", here, ""),
        MachineFinding("py-spy", "installed" if spy else "missing", stacks),
        MachineFinding("g++", "missing" if compiler else "installed", compiler),
    ]


def _engines() -> list[MachineFinding]:
    result = []
    try:
        builds = installed()
    except ReproError as error:
        return [MachineFinding("vLLM", "unknown", str(error))]
    for build in builds:
        usable = build.device == "cpu" or bool(device_names())
        so = f"repro run … --engine {build.device}" if usable else "needs an NVIDIA GPU"
        result.append(MachineFinding("vLLM", f"{build.release} for {build.device}", so, usable))
        traps = [name for name in _TRAPS if build.device == "cpu" and importlib.util.find_spec(name)]
        if traps:
            remedy = f"pip uninstall {' '.join(traps)}: beside a CPU torch they keep transformers from loading"
            result.append(MachineFinding("torch", f"with {', '.join(traps)}", remedy))
    if not builds:
        result.append(MachineFinding("vLLM", "none", "pip install 'vllm-rl-repro[cpu]' or 'vllm-rl-repro[cuda]'"))
    if (url := os.environ.get("REPRO_ENGINE", "")).startswith("http"):
        try:
            result.append(MachineFinding("REPRO_ENGINE", str(attached_facts(url)), "used by default", True))
        except ReproError as error:
            result.append(MachineFinding("REPRO_ENGINE", url, str(error)))
    return result


def _devices() -> MachineFinding:
    names, used = device_names(), used_bytes()
    if not names or used is None:
        return MachineFinding("GPU", "none", "bugs in device memory run on the emulated driver")
    return MachineFinding("GPU", ", ".join(names), f"{used.device / 2**30:.1f} GiB in use")


def _room() -> list[MachineFinding]:
    memory, folder = psutil.virtual_memory().available / 2**30, cache_folder()
    cores = len(os.sched_getaffinity(0))
    enough = "enough for one engine" if memory >= 6 and cores >= 2 else "an engine wants 2 cores and 6 GiB"
    result = [MachineFinding("machine", f"{cores} cores, {memory:.0f} GiB free", enough)]
    here = processor()
    follows = "; ".join(f"{name}: {FEATURES[name]}" for name in here.features)
    result.append(MachineFinding("processor", str(here), follows or "vLLM packs float32 weights, not bfloat16 ones"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free / 2**30
        writable = os.access(folder, os.W_OK)
        result.append(
            MachineFinding("cache", f"{free:.0f} GiB free", "" if writable else "not writable: set REPRO_CACHE")
        )
    except OSError as error:
        result.append(MachineFinding("cache", "cannot be made", f"{error.strerror}: set REPRO_CACHE"))
    return result
