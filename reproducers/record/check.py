"""Is a record whole, honest, clean and small enough; told without running it."""

from collections.abc import Iterator
from pathlib import Path

from reproducers.catalog import catalog
from reproducers.errors import RecordError
from reproducers.judgement import VERDICT_MIME, Judgement
from reproducers.privacy import findings
from reproducers.record.metadata import digest, failed_cell, own_cells
from reproducers.record.read import Record, read
from reproducers.values import Verdict

__all__ = ["CELLS", "check"]

CELLS = (
    "title",
    "parameters",
    "environment",
    "control",
    "trigger",
    "observe",
    "verdict",
    "timeline",
    "assertion",
    "report",
)
"""The cells that every notebook has, in this order."""

SIZE_LIMIT = 1_000_000
"""How large a record may be, in bytes, to be read on GitHub."""

_NEEDED = ("kit", "bug", "verdict", "control", "engine", "parameters", "duration_s", "residue", "digest")


def check(path: Path) -> list[str]:
    """Return what is wrong with a record, one line each; empty where nothing is."""
    try:
        record = read(path)
    except RecordError as error:
        return [str(error)]
    return [*_whole(record), *_honest(record), *findings(record.node), *_small(record)]


def _whole(record: Record) -> Iterator[str]:
    for field in _NEEDED:
        if field not in record.said:
            yield f"its metadata lack '{field}'"
    if record.said.get("bug") not in catalog():
        yield f"the catalog has no bug {record.said.get('bug')!r}"
    ids = [cell.get("id") for cell in own_cells(record.node)]
    if missing := [name for name in CELLS if name not in ids]:
        yield f"the cell '{missing[0]}' is missing"
    elif [i for i in ids if i in CELLS] != list(CELLS):
        yield "its cells are not in order"
    for cell in own_cells(record.node):
        if cell.metadata.get("papermill", {}).get("status") == "running":
            yield f"it breaks off in the cell '{cell.get('id')}'"


def _honest(record: Record) -> Iterator[str]:
    if digest(record.node) != record.said.get("digest"):
        yield "it was changed after it was made: its digest is another"
    shown = _shown_verdicts(record)
    stopped = failed_cell(record.node)
    if not shown and not (record.judgement.verdict is Verdict.INCONCLUSIVE and stopped):
        yield f"its metadata say {record.judgement.verdict}, but no cell shows a verdict"
    for judgement, bundle in shown:
        if judgement != record.judgement:
            yield f"its metadata say {record.judgement.verdict}, but the verdict cell says {judgement.verdict}"
        for mime, text in judgement._repr_mimebundle_().items():
            if mime != VERDICT_MIME and bundle.get(mime) != text:
                yield f"the verdict cell's {mime} does not match its verdict"
    if record.judgement.verdict in {Verdict.REPRODUCED, Verdict.FIXED} and not record.judgement.control.startswith(
        "passed"
    ):
        yield f"it says {record.judgement.verdict} without a passed control"
    yield from _statuses(record)


def _shown_verdicts(record: Record) -> list[tuple[Judgement, dict[str, str]]]:
    shown = []
    for cell in own_cells(record.node):
        for output in cell.get("outputs", []):
            if VERDICT_MIME in output.get("data", {}):
                shown.append((Judgement.from_json(output["data"][VERDICT_MIME]), dict(output["data"])))
    return shown


def _statuses(record: Record) -> Iterator[str]:
    stopped = ""
    for cell in own_cells(record.node):
        status = cell.metadata.get("papermill", {}).get("status")
        errors = any(output.output_type == "error" for output in cell.get("outputs", []))
        if status == "failed" and not errors:
            yield f"the cell '{cell.get('id')}' failed, but shows no error"
        if stopped and (status != "pending" or cell.get("outputs")):
            yield f"the cell '{cell.get('id')}' is said to have run after '{stopped}' had stopped the notebook"
        if status == "failed":
            stopped = str(cell.get("id"))


def _small(record: Record) -> Iterator[str]:
    size = record.path.stat().st_size
    if size > SIZE_LIMIT:
        largest = max(record.node.cells, key=lambda cell: len(str(cell)))
        yield f"it is {size:,} bytes, more than {SIZE_LIMIT:,}: the largest cell is '{largest.get('id')}'"
