"""What must not leave a machine in a record: secrets, paths, ports, host and user names."""

import getpass
import re
import socket
from typing import Any

__all__ = ["SECRET", "findings", "mask", "mask_text"]

SECRET = re.compile(
    r"\b(?:sk|rk|pk)-[\w-]{16,}|\b(?:hf|gh[oprsu]|glpat|npm|pypi)[_-][\w-]{16,}|\bgithub_pat_\w{20,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bxox[abprs]-[\w-]{10,}|\beyJ[\w-]{10,}\.[\w-]{10,}"
    r"|(?i:\bbearer\s+[\w.~+/-]{8,}|\bpassword\s*[=:]\s*\S+)|(?<=://)[^/\s@]+@"
)
_PORT = re.compile(r"\b(127\.\d+\.\d+\.\d+|localhost|\[::1\]):\d{1,5}\b")
_ROOTS = "home|root|Users|tmp|var|opt|work|mnt|data|usr|srv|scratch|private|workspace"
_PATH = re.compile(rf"(?:(?<![\w.:/<])|(?<=file://))/(?:{_ROOTS})/[^\s'\"`:,;()<>|]*")
_PATH_TAIL = re.compile(r"(?:site-packages|dist-packages|lib/python[\d.]+)/(.*)")
_TIME = re.compile(
    r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?|(?<=\"created\":)\s*\d{9,}"
)
_PICTURES = ("image/png", "image/jpeg")


def _names() -> re.Pattern[str] | None:
    """This machine's host and user names, where they are not ordinary words."""
    ordinary = {"root", "user", "runner", "ubuntu", "localhost", "jovyan", "vllm", "main", "nobody", "docker"}
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # an id without an entry, as in some containers
        user = ""
    names = sorted(n for n in {socket.gethostname(), user} if len(n) > 3 and n.lower() not in ordinary)
    return re.compile(r"\b(?:" + "|".join(map(re.escape, names)) + r")\b") if names else None


def _short_path(found: re.Match[str]) -> str:
    tail = _PATH_TAIL.search(found[0])
    return tail[1] if tail else found[0].rstrip("/").rpartition("/")[2]


def mask_text(text: str) -> str:
    """Return a text without secrets, ports, paths (their last part is kept), times and names of this machine."""
    text = SECRET.sub("[masked]", text)
    text = _PORT.sub(r"\1:PORT", text)
    text = _TIME.sub("[time]", text)
    text = _PATH.sub(_short_path, text)
    names = _names()
    return names.sub("[name]", text) if names else text


def mask(value: Any, host: str = "") -> Any:
    """Return JSON data with every text in it masked; pictures are left alone.

    Args:
        value: texts, lists and mappings.
        host: the host and port of a server that was attached to; masked too, unless it is this machine.
    """
    if isinstance(value, str):
        remote = host and not _PORT.fullmatch(host)
        return mask_text(value.replace(host, "HOST:PORT") if remote else value)
    if isinstance(value, dict):
        return type(value)({k: v if k in _PICTURES else mask(v, host) for k, v in value.items()})
    if isinstance(value, list):
        return [mask(v, host) for v in value]
    return value


def findings(value: Any) -> list[str]:
    """Say what in JSON data should have been masked, without repeating it."""
    texts: list[str] = []

    def collect(part: Any) -> None:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            for key, inner in part.items():
                if key not in _PICTURES:
                    collect(inner)
        elif isinstance(part, list):
            for inner in part:
                collect(inner)

    collect(value)
    kinds = {"a secret": SECRET, "a port": _PORT, "a time": _TIME, "a path of a machine": _PATH, "a name": _names()}
    counts = {k: sum(len(p.findall(t)) for t in texts) for k, p in kinds.items() if p is not None}
    return [f"it contains {kind} ({n} times)" for kind, n in counts.items() if n]
