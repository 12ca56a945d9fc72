"""A running vLLM: start one, attach to one, watch it, end it, see that nothing is left."""

import os
import re
from collections.abc import Callable

from reproducers.engine.attach import attached_facts
from reproducers.engine.installation import Installation, installed
from reproducers.engine.launch import EngineSettings, start
from reproducers.engine.server import Engine
from reproducers.errors import EngineUnavailable, UsageError
from reproducers.memory import device_names
from reproducers.progress import progress_line
from reproducers.states import EngineFacts

__all__ = ["Engine", "EngineSettings", "attached_facts", "choose", "installed", "open_engine", "release_at_hand"]

_URL = re.compile(r"https?://[^/\s]+/?")


def choose(choice: str) -> str | Installation:
    """Return the URL or the installation that `choice` names.

    Args:
        choice: `auto` (REPRO_ENGINE, else a GPU with a vLLM for it, else the CPU), `cpu`, `cuda` or a URL.

    Raises:
        UsageError: it names none of these.
        EngineUnavailable: what it names is not on this machine.
    """
    if choice == "auto":
        choice = os.environ.get("REPRO_ENGINE") or "auto"
    if _URL.fullmatch(choice):
        return choice.rstrip("/")
    if choice not in {"auto", "cpu", "cuda"}:
        raise UsageError(f"unknown engine {choice!r}: auto, cpu, cuda or the URL of a server (http://127.0.0.1:8000)")
    found = {i.device: i for i in installed()}
    if choice == "auto":
        choice = "cuda" if "cuda" in found and device_names() else "cpu"
    if choice == "cuda" and not device_names():
        raise EngineUnavailable("engine 'cuda' needs an NVIDIA GPU and its driver, and there is none: use engine 'cpu'")
    if choice not in found:
        raise EngineUnavailable(
            f"engine {choice!r} needs vLLM, and the interpreter has none: pip install 'vllm-rl-repro[{choice}]', "
            "or name another interpreter in REPRO_PYTHON"
        )
    return found[choice]


def open_engine(
    choice: str = "auto", settings: EngineSettings | None = None, progress: Callable[[str], None] | None = None
) -> Engine:
    """Start the engine that `choice` names, or attach to it.

    Raises:
        UsageError, EngineUnavailable, EngineFailed: there is none; the text says why and what to do.
    """
    chosen = choose(choice)
    if isinstance(chosen, str):
        return Engine(attached_facts(chosen), chosen)
    say = progress or progress_line(f"vLLM {chosen.release} for {chosen.device}")
    started = start(chosen, settings or EngineSettings(), say)
    say("serving")
    device = "cpu" if chosen.device == "cpu" else ", ".join(sorted(set(device_names())))
    return Engine(
        EngineFacts(chosen.release, device, started.model, True, started.settings), started.url, started.process
    )


def release_at_hand() -> tuple[str, str]:
    """Release and device of the engine that `auto` would take; empty where there is none."""
    try:
        chosen = choose("auto")
        if isinstance(chosen, Installation):
            return chosen.release, chosen.device
        facts = attached_facts(chosen)
    except EngineUnavailable:
        return "", ""
    return facts.release, facts.device
