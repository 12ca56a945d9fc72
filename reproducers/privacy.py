"""What must not leave a machine in a record: secrets, personal details, paths, ports, addresses, host names."""

import getpass
import ipaddress
import os
import re
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

__all__ = ["SECRET", "findings", "mask", "mask_text"]

_KNOWN_FORMATS = (
    r"\b(?:sk|rk|pk|nvapi|pypi)-[\w-]{16,}|\b(?:sk|rk|pk|whsec)_(?:live|test)_\w{16,}|\bwhsec_[\w+/=]{16,}"
    r"|\b(?:hf|gh[oprsu]|gsk|r8|npm|dop_v1|dckr_pat|glpat|shpat)[_-][\w-]{16,}|\bgithub_pat_\w{20,}"
    r"|\bA(?:KIA|SIA)[0-9A-Z]{16}\b|\bAIza[\w-]{35}|\bya29\.[\w-]{16,}|\bxox[abeoprs]-[\w-]{10,}"
    r"|\bSG\.[\w-]{16,}\.[\w-]{16,}|\beyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]+)?|\bssh-(?:rsa|ed25519)\s+[\w+/=]{20,}"
    r"|https://hooks\.slack\.com/services/\S+|https://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\S+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
)
_HEADERS = (
    r"(?i:\b(?:proxy-)?authorization{Q}\s*[:=]\s*{Q}(?:basic|bearer|token|digest)?\s*[^\s\"',}\[]{3,}"
    r"|\bbearer\s+[\w.~+/-]{8,}=*|\b(?:set-)?cookie{Q}\s*:\s*[^\n\"'\[]{4,}"
    r"|\bx-(?:api-key|auth-token|amz-security-token){Q}\s*:\s*{Q}[^\s\"',\[]{4,})"
)
_NAMED = (
    r"(?i:(?<![a-z0-9])(?:[a-z0-9]+[_-]){0,4}(?:password|passwd|passphrase|pwd|secret|api[_-]?key|apikey|private[_-]key"
    r"|secret[_-]?key|access[_-]?key(?:[_-]id)?|account[_-]?key|client[_-]secret|credentials?){Q}\s*[=:]\s*)"
    r"(?!{Q}(?:(?i:none|null|true|false|not set|yes|no|str)\b|\*|\[)){Q}[^\s\"',;&)}\]]{3,}"
    r"|(?i:(?<![a-z0-9])(?:[a-z0-9]+[_-]){0,4}token{Q}\s*[=:]\s*){Q}(?!token_id:)(?=[^\s\"',]*\d)(?=[^\s\"',]*[a-z])"
    r"[\w.+/=~-]{12,}"
    r"|[?&](?:amp;)?(?i:(?:access_|auth_|id_)?token|sig|signature|key|api_?key|x-amz-(?:signature|credential|security-token))="
    r"[^\s&\"'\[]{4,}"
)
_USER_INFO = r"(?<=://)[^/\s@\[\]]+@"

_QUOTE = r"(?:[\"']|&quot;|&#x?\d+;)?"
"""A quotation mark, or none; in HTML it is escaped. It stands in the patterns above as `{Q}`."""

SECRET = re.compile("|".join([_KNOWN_FORMATS, _HEADERS, _NAMED, _USER_INFO]).replace("{Q}", _QUOTE))
"""Secrets by their known formats, by the header or the name that they stand behind, and in URLs."""

_NAME_OF_SECRET = re.compile(rf"(?i)([?&]?(?:amp;)?(?:proxy-)?[a-z][\w-]*{_QUOTE}\s*[=:]\s*{_QUOTE})(?!//)")

_PORT = re.compile(r"\b(127\.\d+\.\d+\.\d+|localhost|\[::1\]|HOST):\d{1,5}\b")
_ROOTS = "home|root|Users|tmp|var|opt|work|mnt|data|usr|srv|scratch|private|workspace|nfs|shared|gpfs|lustre|export"
_PATH = re.compile(
    rf"(?:(?<![\w.:/<])|(?<=file://))/(?:{_ROOTS})/[^\s'\"`:,;()<>|\\]*|\b[A-Za-z]:\\\\?(?:[\w .-]+\\\\?)+[\w.-]*"
)
_PATH_TAIL = re.compile(r"(?:site-packages|dist-packages|lib/python[\d.]+)/(.*)")
_HOME = re.compile(r"(?:/home|/Users|/export/home|\\Users|[A-Za-z]:\\\\Users)[/\\]+[^/\\]+[/\\]*")
_TIME = re.compile(
    r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?|(?<=\"created\":)\s*\d{9,}"
)
_MAIL = re.compile(r"(?<![\w.@/])[\w.+-]+@(?:[\w-]+\.)+[A-Za-z]{2,}\b|(?<![\w.@/])[a-z][\w.-]*@[\w.-]+(?=:[~/])")
_PHONE = re.compile(r"(?<![\w.+])\+\d{1,3}[ -]\(?\d{1,4}\)?(?:[ -]\d{2,5}){2,4}\b")
_V4 = re.compile(r"(?<![\w.=+-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.-])(?::\d{2,5}\b)?")
_V6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?:%\w+)?(?![\w:.])")
_MAC = re.compile(r"\b(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}\b")
_VERSION = re.compile(r"(?i)(?:version|cudnn|cublas|nccl|driver|release|==|vllm|torch)\W*(?:\w+\W+)?$")
_URL_HOST = re.compile(r"(?<=://)(?!\[masked\])([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z][\w-]*(?=:\d))(:\d{1,5})?")
_INTERNAL = re.compile(
    r"(?<![\w./@-])(?:[\w-]+\.)+(?:internal|local|lan|corp|intra|intranet|home|svc|localdomain|amazonaws\.com)\b(?::\d+)?"
)
_PUBLIC = re.compile(
    r"(?:^|\.)(?:github\.com|githubusercontent\.com|huggingface\.co|hf\.co|vllm\.ai|pytorch\.org|pypi\.org|python\.org"
    r"|pythonhosted\.org|nvidia\.com|jupyter\.org|readthedocs\.io|pydantic\.dev|w3\.org|gnu\.org|apache\.org|ray\.io"
    r"|example|matplotlib\.org|ipython\.org|json-schema\.org)$|^(?:localhost|HOST)$|^127\."
)
_VARIABLE = re.compile(
    r"(?<![\w.$/-])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|HOME|USER|LOGNAME|HOSTNAME|PWD|MAIL)=([^\s\"',;]+)"
)
_ALLOWED = re.compile(
    r"VLLM_\w+|REPRO_\w+|CUDA_\w+|NVIDIA_VISIBLE_DEVICES|NCCL_\w+|TORCH\w*|PYTORCH_\w+|TRITON_\w+|OMP_\w+|MKL_\w+"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|PYTHON\w+|HF_HUB_OFFLINE|TOKENIZERS_PARALLELISM|SPT_NOENV|RAY_\w+|MAX_\w+|PROMPT"
)
_SECRET_NAME = re.compile(r"(?i)key|token|secret|passw|credential|auth")
_PICTURES = ("image/png", "image/jpeg")
_ORDINARY = {"root", "user", "runner", "ubuntu", "localhost", "jovyan", "vllm", "main", "nobody", "docker", "true"}


def _short_path(found: re.Match[str]) -> str:
    if tail := _PATH_TAIL.search(found[0]):
        return tail[1]
    rest = _HOME.sub("", found[0], count=1)
    return re.split(r"[/\\]+", rest.rstrip("/\\"))[-1] or "[home]"


def _address(found: re.Match[str]) -> str:
    text = found[0].partition("%")[0]
    host = text.rpartition(":")[0] if text.count(":") == 1 else text
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return found[0]
    harmless = address.is_loopback or address.is_unspecified or _VERSION.search(found.string[: found.start()][-40:])
    return found[0] if harmless else "[address]"


def _host(found: re.Match[str]) -> str:
    return found[0] if _PUBLIC.search(found[1]) else "[host]"


def _variable(found: re.Match[str]) -> str:
    name, value = found.groups()
    kept = _ALLOWED.fullmatch(name) and not re.search(r"(?i)key|secret|passw|credential|token(?!s|izers)", name)
    return found[0] if kept or value.startswith("[") else f"{name}=[masked]"


@dataclass(frozen=True, eq=False)
class _Rule:
    """Equal only to itself, so that a set of rules is quickly looked up."""

    kind: str
    pattern: re.Pattern[str]
    instead: str | Callable[[re.Match[str]], str]


_RULES = (
    _Rule("a secret", SECRET, lambda found: _behind_its_name(found[0])),
    _Rule("an environment variable", _VARIABLE, _variable),
    _Rule("a mail address", _MAIL, "[mail]"),
    _Rule("a host", _URL_HOST, _host),
    _Rule("a host", _INTERNAL, "[host]"),
    _Rule("a port", _PORT, r"\1:PORT"),
    _Rule("a time", _TIME, "[time]"),
    _Rule("a path of a machine", _PATH, _short_path),
    _Rule("a hardware address", _MAC, "[address]"),
    _Rule("an address", _V4, _address),
    _Rule("an address", _V6, _address),
    _Rule("a telephone number", _PHONE, "[telephone]"),
)


def _behind_its_name(text: str) -> str:
    """Mask a secret, and keep the name or header that it stands behind, so that it can be seen what was there."""
    if text.endswith("@"):  # who and with what password, in a URL
        return "[masked]"
    named = _NAME_OF_SECRET.match(text)
    return f"{named[1]}[masked]" if named and text != named[1] else "[masked]"


@cache
def _own(names: tuple[str, ...], secrets: tuple[str, ...]) -> tuple[_Rule, ...]:
    rules = []
    for kind, texts, instead in (("a secret", secrets, "[masked]"), ("a name", names, "[name]")):
        if texts:
            rules.append(_Rule(kind, re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, texts)) + r")(?!\w)"), instead))
    return tuple(rules)


def _rules() -> tuple[_Rule, ...]:
    """All rules, with this machine's host and user names where they are no ordinary words, and its secrets."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # an id without an entry, as in some containers
        user = ""
    here = {socket.gethostname(), user, *(os.environ.get(n, "") for n in ("USER", "LOGNAME", "HOSTNAME", "SUDO_USER"))}
    names = tuple(sorted(n for n in here if len(n) > 3 and n.lower() not in _ORDINARY))
    secrets = {v for n, v in os.environ.items() if _SECRET_NAME.search(n) and len(v) >= 8 and not v.startswith("/")}
    return _own(names, tuple(sorted(secrets))) + _RULES


def mask_text(text: str, masked: "Counter[str] | None" = None) -> str:
    """Return a text without what must not leave the machine; of a path the last part is kept.

    Args:
        text: any text.
        masked: what was masked is counted there, by kind.
    """
    return _mask_text(text, _rules(), masked)


def _mask_text(text: str, rules: tuple[_Rule, ...], masked: "Counter[str] | None") -> str:
    new, counts = _applied(text, rules)
    if masked is not None and counts:
        masked.update(dict(counts))
    return new


@lru_cache(maxsize=8192)
def _applied(text: str, rules: tuple[_Rule, ...]) -> tuple[str, tuple[tuple[str, int], ...]]:
    """A text with every rule applied, and how often each kind changed something; records repeat most of their texts."""
    counts: Counter[str] = Counter()
    for rule in rules:
        changed = 0

        def replaced(found: re.Match[str], rule: _Rule = rule) -> str:
            nonlocal changed
            new = found.expand(rule.instead) if isinstance(rule.instead, str) else rule.instead(found)
            changed += new != found[0]
            return new

        text = rule.pattern.sub(replaced, text)
        if changed:
            counts[rule.kind] += changed
    return text, tuple(counts.items())


def mask(value: Any, host: str = "", masked: "Counter[str] | None" = None) -> Any:
    """Return JSON data with every text in it masked; pictures are left alone.

    Args:
        value: texts, lists and mappings.
        host: the host and port of a server that was attached to; masked too, unless it is this machine.
        masked: what was masked is counted there, by kind.
    """
    rules = _rules()  # once for all texts: they ask the machine for its names
    remote = "" if _PORT.fullmatch(host) else host

    def of(text: str) -> str:
        return _mask_text(text.replace(remote, "HOST:PORT") if remote else text, rules, masked)

    def walk(part: Any) -> Any:
        if isinstance(part, str):
            return of(part)
        if isinstance(part, dict):
            return type(part)({k: v if k in _PICTURES else field(k, v) for k, v in part.items()})
        if isinstance(part, list):
            return [walk(v) for v in part]
        return part

    def field(key: str, part: Any) -> Any:
        """Mask one field; the lines of a traceback as one text, since a key in PEM stands on several."""
        if key == "traceback" and isinstance(part, list) and all(isinstance(line, str) for line in part):
            return of("\n".join(part)).split("\n")
        return walk(part)

    return walk(value)


def findings(value: Any) -> list[str]:
    """Say what in JSON data should have been masked, without repeating it."""
    found: Counter[str] = Counter()
    mask(value, masked=found)
    return [f"it contains {kind} ({n} times)" for kind, n in found.items()]
