"""The table of measured verdicts in README: each notebook on the stock engine, and with its fix, from the records."""

from collections.abc import Iterable
from pathlib import Path

from reproducers.catalog import Bug
from reproducers.errors import UsageError
from reproducers.record.read import Record, read

__all__ = ["BEGIN", "END", "replaced", "verdict_table"]

BEGIN, END = "<!-- repro table: begin -->", "<!-- repro table: end -->"


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


def _cell(records: list[Record], folder: Path) -> str:
    def shown(record: Record) -> str:
        link = f"notebooks/records/{record.path.relative_to(folder).as_posix()}"
        fix = "" if _fix(record) == "none" else f", {_fix(record)}"
        device = "" if _device(record) == "cpu" else f", {_device(record).removeprefix('NVIDIA ')}"
        return f"[{record.judgement.verdict}]({link}) ({record.said['engine']['release']}{device}{fix})"

    return "<br>".join(shown(record) for record in records) or "not measured"


def replaced(page: str, table: str) -> str:
    """Return a page with the table between the two marks replaced.

    Raises:
        UsageError: the page does not have both marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"the page lacks {BEGIN} or {END}: put both where the table shall stand")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"
