"""The fields of vLLM's bug form, in its order: environment, what is wrong, and the box to tick."""

from reproducers.catalog import catalog, title_of
from reproducers.record.metadata import output_of
from reproducers.record.read import Record
from reproducers.report.comment import COMMENT_LIMIT, comment
from reproducers.states import ENVIRONMENT_MIME
from reproducers.texts import code_block, cut_middle, plain, quoted

__all__ = ["form"]

ENVIRONMENT_LIMIT = 25_000
"""Characters of the environment; it is the middle that is left out, which lists libraries."""


def form(record: Record) -> str:
    """Return the text of a bug report as vLLM's form (`400-bug-report.yml`) makes it of what is filled in.

    Args:
        record: of the bug.
    """
    bug = str(record.said["bug"])
    parts = [
        f"<!-- title: [Bug]: {quoted(title_of(bug) or bug)} -->",
        "### Your current environment",
        _environment(record),
        "### 🐛 Describe the bug",
        _described(record),
        "### Before submitting a new issue...",
        "- [ ] Make sure you already searched for relevant issues, and asked the chatbot living at the bottom right "
        "corner of the [documentation page](https://docs.vllm.ai/en/latest/), which can answer lots of frequently "
        "asked questions.",
    ]
    return "\n\n".join(parts) + "\n"


def _environment(record: Record) -> str:
    data = output_of(record.node, ENVIRONMENT_MIME) or {}
    said = plain(str(data.get("collect_env", ""))).strip()
    if not said:
        engine = record.said["engine"] or {}
        lines = [f"{name}: {engine[name]}" for name in ("release", "device", "model") if name in engine]
        settings = engine.get("settings", {})
        lines += [f"{name}{f'={value}' if value else ''}" for name, value in settings.items()]
        lines += ["(The record holds no output of collect_env: run `python -m vllm.collect_env` there.)"]
        said = plain("\n".join(lines))
    block = code_block(cut_middle(said, ENVIRONMENT_LIMIT))
    summary = "<summary>The output of <code>python collect_env.py</code></summary>"
    return f"<details>\n{summary}\n\n{block}\n\n</details>"


def _unwrapped(text: str) -> str:
    """A text with its paragraphs in one line each: in an issue a line feed is a break."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def _described(record: Record) -> str:
    bug = catalog().get(str(record.said["bug"]))
    text = _unwrapped(bug.report) if bug else ""
    script = "The calls of this run as a script that needs nothing but httpx: `repro report --script RECORD`."
    room = COMMENT_LIMIT - ENVIRONMENT_LIMIT - 2_000 - len(text)
    return "\n\n".join(filter(None, (text, cut_middle(comment([record]), room).strip(), script)))
