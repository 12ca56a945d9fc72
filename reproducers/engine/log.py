"""What an engine's log says: how far a start has come, and why it failed."""

import re
from pathlib import Path

__all__ = ["root_cause", "stage", "tail"]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(
    r"^(?:\([\w:. =-]+\) )*(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[^\]]*\] ?)?)?"
)
_LAST_LINE = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit)\b.*")
_CONSEQUENCE = re.compile(r"Engine core initialization failed|See root cause above|EngineDeadError|died unexpectedly")

_STAGES = (
    ("Application startup complete", "serving"),
    ("Capturing CUDA graph", "capturing CUDA graphs"),
    ("init engine", "starting the server"),
    ("KV cache size", "warming up"),
    ("Loading weights took", "making the KV cache"),
    ("Starting to load model", "loading the weights"),
    ("Initializing a V1 LLM engine", "starting the engine core"),
)


def _lines(log: Path, limit: int = 4 << 20) -> list[str]:
    """The lines of a log without colours and vLLM's prefixes; only the last `limit` bytes of a long one."""
    if not log.is_file():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - limit))
        text = file.read().decode(errors="replace")
    return [_PREFIX.sub("", _ANSI.sub("", line)).rstrip() for line in text.splitlines()]


def stage(log: Path) -> str:
    """How far a start has come, in a few words."""
    text = "\n".join(_lines(log, 1 << 18))
    return next((words for marker, words in _STAGES if marker in text), "importing vLLM")


def root_cause(log: Path) -> str:
    """The error that a failed start began with, in one line; the last line of the log where there is no error.

    vLLM reports the death of its engine core once more in every process above it, so that the last lines of the log
    are about the consequences. The cause is the first exception that is not such a report.
    """
    lines = _lines(log)
    errors = [_with_detail(lines, i) for i, line in enumerate(lines) if _LAST_LINE.match(line)]
    causes = [line for line in errors if not _CONSEQUENCE.search(line)]
    usage = [line for line in lines if "api_server.py: error:" in line]
    last = [line for line in lines if line]
    return (usage[-1:] or causes[:1] or errors[:1] or last[-1:] or ["the log is empty"])[0].strip()[:500]


def _with_detail(lines: list[str], at: int) -> str:
    """An exception's line; pydantic says what is wrong only in the indented line that follows."""
    following = lines[at + 1] if at + 1 < len(lines) else ""
    detail = following.partition(" [type=")[0].strip() if following.startswith("  ") else ""
    return f"{lines[at]}: {detail}" if detail else lines[at]


def tail(log: Path, lines: int = 40) -> str:
    """The last lines of a log, without colours and prefixes."""
    return "\n".join(_lines(log, 1 << 18)[-lines:])
