"""Is a record whole, honest, clean and small enough; told without running it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reproducers.catalog import catalog
from reproducers.errors import RecordError
from reproducers.judgement import VERDICT_MIME, Judgement
from reproducers.privacy import findings
from reproducers.record.metadata import digest, failed_cell, output_of, own_cells, status_of
from reproducers.record.read import Record, read
from reproducers.record.small import largest_cell
from reproducers.states import ENGINE_MIME
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

_WITHOUT_CELL = {Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE}
"""Verdicts that a record can have although its verdict cell was not reached."""

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
    if str(record.said.get("bug")) not in catalog():
        yield f"the catalog has no bug {record.said.get('bug')!r}"
    ids = [cell.get("id") for cell in own_cells(record.node)]
    if missing := [name for name in CELLS if name not in ids]:
        yield f"the cell '{missing[0]}' is missing"
    elif [i for i in ids if i in CELLS] != list(CELLS):
        yield "its cells are not in order"


def _honest(record: Record) -> Iterator[str]:
    if digest(record.node) != record.said.get("digest"):
        yield "it was changed after it was made: its digest is another"
    outputs = [
        output["data"]
        for cell in own_cells(record.node)
        for output in cell.get("outputs", [])
        if VERDICT_MIME in output.get("data", {})
    ]
    if not outputs and not (record.judgement.verdict in _WITHOUT_CELL and failed_cell(record.node)):
        yield f"its metadata say {record.judgement.verdict}, but no cell shows a verdict"
    for data in outputs:
        yield from _shown(record, data)
    proven = record.judgement.verdict in {Verdict.REPRODUCED, Verdict.FIXED}
    if proven and not record.judgement.control.startswith("passed"):
        yield f"it says {record.judgement.verdict} without a passed control"
    if record.said.get("control") != record.judgement.control:
        yield "its metadata have another control than its verdict"
    if outputs and record.said.get("engine") != output_of(record.node, ENGINE_MIME):
        yield "its metadata have another engine than the cell that shows it"
    residue = record.said.get("residue")
    if not isinstance(residue, dict) or residue.get("clean") is not True:
        yield f"something was left after it: {residue}"
    yield from _statuses(record)


def _shown(record: Record, data: Mapping[str, Any]) -> Iterator[str]:
    """Compare one verdict that a cell shows with the metadata, and its texts with its data."""
    try:
        judgement = Judgement.from_json(data[VERDICT_MIME])
    except (KeyError, TypeError, ValueError):
        yield "the verdict that its cell shows cannot be read"
        return
    if judgement != record.judgement:
        yield f"its metadata say {record.judgement.verdict}, but the verdict cell says {judgement.verdict}"
    for mime, text in judgement._repr_mimebundle_().items():
        if mime != VERDICT_MIME and data.get(mime) != text:
            yield f"the verdict cell's {mime} does not match its verdict"


def _statuses(record: Record) -> Iterator[str]:
    """See that each cell ran as its status says: completed up to the first failure, and none after it."""
    stopped = ""
    for cell in own_cells(record.node):
        name, status = cell.get("id"), status_of(cell)
        errors = any(output.output_type == "error" for output in cell.get("outputs", []))
        allowed = "raises-exception" in cell.metadata.get("tags", [])
        if stopped:
            if status != "pending" or cell.get("outputs"):
                yield f"the cell '{name}' is said to have run after '{stopped}' had stopped the notebook"
        elif status == "failed":
            stopped = str(name)
            if not errors:
                yield f"the cell '{name}' failed, but shows no error"
        elif status == "running":
            yield f"it breaks off in the cell '{name}'"
        elif status != "completed":
            yield f"the cell '{name}' did not run, and nothing says why"
        elif errors and not allowed:
            yield f"the cell '{name}' shows an error and is said to be completed"


def _small(record: Record) -> Iterator[str]:
    size = record.path.stat().st_size
    if size > SIZE_LIMIT:
        yield f"it is {size:,} bytes, more than {SIZE_LIMIT:,}: {largest_cell(record.node.cells)}"
