"""What vLLM's own collect_env says of the machine and the engine's environment; for a report, never for a verdict."""

import hashlib
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from reproducers.engine.installation import Installation
from reproducers.engine.launch import EngineSettings, environment_of
from reproducers.models import cache_folder

__all__ = ["collected", "from_server_info"]

BOUND_S = 120.0
KEPT_S = 24 * 3600.0
"""It takes 10 to 20 s, most of it importing torch, and says the same for days."""


def collected(installation: Installation) -> str:
    """Return the output of `python -m vllm.collect_env` of a release's interpreter; empty where it says nothing.

    It is kept for a day, for each interpreter and release.
    """
    key = hashlib.sha256(repr(installation).encode()).hexdigest()[:16]
    kept = cache_folder() / "environments" / f"{key}.txt"
    if kept.is_file() and time.time() - kept.stat().st_mtime < KEPT_S:
        return kept.read_text(encoding="utf-8")
    try:
        done = subprocess.run(
            [installation.python, "-m", "vllm.collect_env"],
            env=environment_of(installation, EngineSettings()),
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    said = done.stdout.strip() if done.returncode == 0 else ""
    if said:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(said, encoding="utf-8")
    return said


def from_server_info(answer: Mapping[str, Any]) -> str:
    """Return what a server says of its environment (`/server_info` of recent releases) as lines, a field each."""
    fields = answer.get("system_env")
    if not isinstance(fields, Mapping):
        return ""
    return "\n".join(f"{name:<30}: {value}" for name, value in fields.items() if value not in {None, ""})
