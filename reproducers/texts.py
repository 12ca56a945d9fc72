"""Texts for other people's eyes: cut to a size, and put into Markdown so that nothing comes of what they contain."""

import html
import re

__all__ = ["code_block", "code_span", "cut_middle", "folded", "in_cell", "left_out", "plain", "quoted"]

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Escape sequences of terminals, other control characters but tab and line feed, and what turns text around."""


def plain(text: str) -> str:
    """A text without control characters."""
    return _CONTROL.sub("", text)


def cut_middle(text: str, limit: int) -> str:
    """Cut a text in its middle, with a note of how much was left out."""
    if len(text) <= limit:
        return text
    note = left_out(len(text) - limit)
    kept = max(0, limit - len(note) - 10)
    return text[: kept // 2] + note + text[len(text) - (kept - kept // 2) :]


def left_out(characters: int) -> str:
    """The note that stands where a text was cut."""
    return f"\n… {characters} characters left out …\n"


def folded(title: str, text: str) -> str:
    """A fold: its title, and a text that is Markdown."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def code_block(text: str) -> str:
    """A block of plain text that its text cannot break."""
    marks = _fence(text, 3)
    return f"{marks}text\n{text}\n{marks}"


def code_span(text: str) -> str:
    """A code span that its text cannot break."""
    text = plain(" ".join(text.split()))
    if not text:
        return ""
    marks = _fence(text, 1)
    pad = " " if "`" in text else ""
    return f"{marks}{pad}{text}{pad}{marks}"


def in_cell(text: str, limit: int = 160) -> str:
    """A code span in a cell of a table; empty for no text."""
    text = " ".join(text.split())
    return code_span(text[:limit] + ("…" if len(text) > limit else "")).replace("|", "\\|")


def _fence(text: str, least: int) -> str:
    """Backticks, one more than the longest run of them in a text."""
    return "`" * max(least, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))


def quoted(text: str) -> str:
    """A sentence as it is read: no tag, link, picture, emphasis, issue or mention of somebody comes of it."""
    escaped = html.escape(plain(" ".join(text.split())), quote=False)
    escaped = re.sub(r"([\\`*_\[\]|~!#])", r"\\\1", escaped).replace("@", "@\u200b")
    return re.sub(r"(?i)\b(https?|www|ftp)(?=[:.])", "\\1\u200b", escaped)
