"""A comment for an issue, in GitHub Markdown: the verdict first, then what it rests on."""

import re
from collections.abc import Iterable, Sequence

from reproducers.catalog import title_of
from reproducers.errors import RecordError
from reproducers.journal import JOURNAL_MIME
from reproducers.record.metadata import output_of, outputs_of
from reproducers.record.read import Record
from reproducers.report.steps import steps_of
from reproducers.texts import code_block, code_span, cut_middle, folded, in_cell, plain, quoted

__all__ = ["COMMENT_LIMIT", "calls_table", "comment", "duplicates", "rerun_command"]

COMMENT_LIMIT = 65_536
"""Characters that GitHub takes in one comment."""

TRACEBACK_LIMIT = 30_000
CALLS_LIMIT = 20_000
"""Characters of the folded parts."""


def comment(records: Sequence[Record], same: Sequence[Record] = ()) -> str:
    """Return the comment over one or more records of a bug; the first one is told in full.

    Args:
        records: of one bug.
        same: other records with the signature of the first one.

    Raises:
        RecordError: the records are of different bugs.
    """
    first = records[0]
    bugs = {str(record.said["bug"]) for record in records}
    if len(bugs) > 1:
        raise RecordError(f"the records are of different bugs ({', '.join(sorted(bugs))}): make a report of each")
    parts = [_headline(first), _table(records)]
    parts += [f"Control {quoted(first.judgement.control)}.", _sentences(first)]
    if calls := calls_table(first):
        parts.append(folded("What was called when", cut_middle(calls, CALLS_LIMIT)))
    if memory := _memory(first):
        parts.append(folded("Memory", memory))
    parts += [folded("Last traceback", code_block(cut_middle(text, TRACEBACK_LIMIT))) for text in _traceback(first)]
    parts += [_left(first), f"Run it again: `{rerun_command(first)}`"]
    if same:
        names = ", ".join(f"`{record.path.parent.name}/{record.path.name}`" for record in same)
        parts.append(f"Other records with the same signature ({code_span(first.judgement.signature)}): {names}.")
    parts.append(f"<sub>vllm-rl-repro {first.said['kit']}, record sha256 `{first.said['digest']}`</sub>")
    return cut_middle("\n\n".join(filter(None, parts)) + "\n", COMMENT_LIMIT - 1)


def rerun_command(record: Record) -> str:
    """The one command that runs the notebook again as it was."""
    for output in outputs_of(record.node, "report"):
        if found := re.search(r"`(repro run [^`]*)`", str(output.get("data", {}).get("text/markdown", ""))):
            return found[1]
    options = "".join(f" -p {k}={v}" for k, v in record.said["parameters"].items() if k != "engine")
    return f"repro run {record.said['bug']}{options}"


def duplicates(record: Record, others: Iterable[Record]) -> list[Record]:
    """Other records with the same signature: the same kind of failure, with the same normalised last error."""
    signature = record.judgement.signature
    return [o for o in others if o.judgement.signature == signature and o.said["digest"] != record.said["digest"]]


def _headline(record: Record) -> str:
    judgement, engine = record.judgement, record.said["engine"] or {}
    on = f" on vLLM {engine['release']}, {engine['device']}" if engine else ""
    runs = f" ({judgement.hits} of {judgement.runs} runs)" if judgement.runs else ""
    title = title_of(str(record.said["bug"]))
    return f"**{judgement.verdict}**{on}{runs}: {quoted(judgement.evidence[0])}\n\n{title} — `{record.said['bug']}`"


def _sentences(record: Record) -> str:
    return "\n".join(f"- {quoted(sentence)}" for sentence in record.judgement.evidence[1:])


def _table(records: Sequence[Record]) -> str:
    rows = ["| release | device | settings | verdict | evidence |", "|---|---|---|---|---|"]
    for record in records:
        engine = record.said["engine"] or {"release": "", "device": ""}
        quiet = {"engine", "require", "release"}
        settings = ", ".join(f"{k}={v}" for k, v in record.said["parameters"].items() if k not in quiet)
        evidence = quoted(record.judgement.evidence[0][:300])
        cells = (engine["release"], engine["device"], settings, f"**{record.judgement.verdict}**", evidence)
        rows.append("| " + " | ".join(str(cell).replace("\n", " ") for cell in cells) + " |")
    return "\n".join(rows)


def calls_table(record: Record) -> str:
    """What was called when, as a table; empty where no server was called."""
    rows = []
    for step in steps_of(record):
        what = "**event**" if not step.target else f"`{step.method}` {in_cell(step.target)}"
        took = "" if step.end is None else f"{step.end - step.start:.2f}"
        kind, _, rest = step.said.partition(" ")
        answer = in_cell(step.said) if not step.target else f"{quoted(kind)} {in_cell(rest)}".strip()
        rows.append(f"| {step.start:.2f} | {took} | {f'{step.name}: ' if step.name else ''}{what} | {answer} |")
    return "\n".join(["| at, s | took, s | call | answer |", "|---:|---:|---|---|", *rows]) if rows else ""


def _memory(record: Record) -> str:
    series = (output_of(record.node, JOURNAL_MIME) or {}).get("memory", {})
    rows = [
        f"| {quoted(name.removesuffix(' bytes'))} | "
        + " | ".join(f"{readings[at] / 2**20:,.0f}" for at in ("first", "least", "greatest", "last"))
        + " |"
        for name, readings in series.items()
    ]
    head = ["| MiB | at first | least | greatest | at last |", "|---|---:|---:|---:|---:|"]
    return "\n".join([*head, *rows]) if rows else ""


def _traceback(record: Record) -> list[str]:
    for cell in reversed(record.node.cells):
        for output in reversed(cell.get("outputs", [])):
            if output.output_type == "error" and cell.get("id") != "assertion":
                return [plain("\n".join(output.get("traceback", [])))]
    return []


def _left(record: Record) -> str:
    residue = record.said["residue"]
    memory = residue.get("device_bytes")
    said = "nothing was left" if residue["clean"] else f"left behind: {', '.join(residue['processes']) or 'see record'}"
    return f"Afterwards {said}" + ("." if memory is None else f"; device memory {memory / 2**20:.0f} MiB above before.")
