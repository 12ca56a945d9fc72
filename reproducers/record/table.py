"""The tables in README, made from the records: measured verdicts, and what covers the RL CI matrix (#45585)."""

import re
from collections.abc import Iterable
from pathlib import Path

from reproducers.catalog import Bug, catalog
from reproducers.coverage import ROWS_MIME, Row
from reproducers.errors import UsageError
from reproducers.record.metadata import output_of
from reproducers.record.read import Record, read

__all__ = ["COVERAGE", "VERDICTS", "coverage_table", "replaced", "verdict_table"]

VERDICTS, COVERAGE = "repro table", "repro coverage"
"""What the marks are called between which a table stands."""
MATRIX = "45585"


def verdict_table(bugs: Iterable[Bug], folder: Path, device: str) -> str:
    """Return a Markdown table over the records of one device.

    Args:
        bugs: the rows.
        folder: where the records are, one folder a bug.
        device: `cpu`, or the name of a GPU as the records have it; bugs of device memory are shown on all others.
    """
    rows = []
    for bug in bugs:
        records = [read(path) for path in sorted((folder / bug.id).glob("*.ipynb"))]
        if not records:  # a bug that was added and not measured yet
            continue
        here = [r for r in records if _device(r) == device or (bug.memory and _device(r) != "cpu")]
        stock = [r for r in here if _fix(r) == "none"]
        fixed = [r for r in here if _fix(r) != "none"]
        rows.append(f"| [{bug.id}](notebooks/{bug.notebook}) | {_cell(stock, folder)} | {_cell(fixed, folder)} |")
    return "\n".join(["| notebook | as released | with a fix, or with one undone |", "|---|---|---|", *rows])


def _device(record: Record) -> str:
    return str((record.said["engine"] or {}).get("device", ""))


def _fix(record: Record) -> str:
    return str(record.said["parameters"].get("fix", "none"))


def _settings(record: Record) -> str:
    """The settings that the name of a record's file gives after release and device, the fix apart."""
    device = _device(record).removeprefix("NVIDIA ").replace(" ", "-").lower()
    rest = record.path.stem.partition(f"{record.said['engine']['release']}-{device}")[2].removeprefix("-")
    return re.sub(r"-?\bfix-(proposed|undo)\b", "", rest).removeprefix("-").replace("-", " ")


def _cell(records: list[Record], folder: Path) -> str:
    def shown(record: Record) -> str:
        link = f"notebooks/records/{record.path.relative_to(folder).as_posix()}"
        fix = "" if _fix(record) == "none" else f", {_fix(record)}"
        fix += f", {settings}" if (settings := _settings(record)) else ""
        device = "" if _device(record) == "cpu" else f", {_device(record).removeprefix('NVIDIA ')}"
        return f"[{record.judgement.verdict}]({link}) ({record.said['engine']['release']}{device}{fix})"

    return "<br>".join(shown(record) for record in records) or "not measured"


def coverage_table(rows: Iterable[Row], folder: Path) -> str:
    """Return a Markdown table of the RL CI matrix: what covers each row, and on which engines it was seen to pass.

    Args:
        rows: the rows.
        folder: where the records are, one folder a bug.
    """
    records = [read(path) for path in sorted((folder / MATRIX).glob("*.ipynb"))]
    stock = [record for record in records if _fix(record) == "none"]
    lines = ["| row | part | kind | needs | covered by | seen |", "|---|---|---|---|---|---|"]
    for row in rows:
        covers = [f"[{name}](notebooks/{catalog()[name].notebook})" for name in row.notebooks]
        covers = ([f"check `{row.name}`"] if row.check else []) + covers
        seen = "by its notebooks" if row.notebooks else ""
        if row.check:
            seen = "; ".join(filter(None, (_outcome(record, row.name, folder) for record in stock)))
        by = ", ".join(covers) or f"not run: {row.not_run}"
        lines.append(f"| {row.title} | {row.part} | {row.kind} | {row.needs} | {by} | {seen} |")
    return "\n".join(lines)


def _outcome(record: Record, row: str, folder: Path) -> str:
    """How a row came out in a record, with a link to it; empty where it was not run."""
    outcome = ((output_of(record.node, ROWS_MIME) or {}).get(row) or {}).get("outcome", "not run")
    link = f"notebooks/records/{record.path.relative_to(folder).as_posix()}"
    device = _device(record).removeprefix("NVIDIA ")
    return "" if outcome == "not run" else f"[{outcome}]({link}) ({record.said['engine']['release']}, {device})"


def replaced(page: str, table: str, name: str = VERDICTS) -> str:
    """Return a page with the table between its two marks replaced.

    Args:
        page: the page.
        table: what shall stand there.
        name: what the marks are called.

    Raises:
        UsageError: the page does not have both marks.
    """
    marks = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, begin, rest = page.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise UsageError(f"the page lacks {marks[0]} or {marks[1]}: put both where the table shall stand")
    return f"{before}{begin}\n{table}\n{end}{after}"
