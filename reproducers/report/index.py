"""The index of the records that are kept as evidence."""

from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from reproducers.catalog import Bug
from reproducers.processor import Processor, named_in
from reproducers.record.metadata import output_of
from reproducers.record.read import Record, read
from reproducers.states import ENVIRONMENT_MIME
from reproducers.texts import code_span

__all__ = ["index"]


def index(bugs: Sequence[Bug], folder: Path) -> str:
    """Return a Markdown page over all records of a folder, one table a bug.

    Args:
        bugs: in the order of the page.
        folder: where the records are, one folder a bug.
    """
    parts = ["# Records", "Executed notebooks, as they were made; `repro index --write` makes this page."]
    for bug in bugs:
        records = [read(path) for path in (folder / bug.id).glob("*.ipynb")]
        if not records:
            continue
        records.sort(key=lambda r: (Version((r.said["engine"] or {}).get("release", "0")), r.path.name))
        rows = ["| record | release | device | processor | verdict | signature |", "|---|---|---|---|---|---|"]
        for r in records:
            engine = r.said["engine"] or {}
            cells = (
                f"[{r.path.stem}]({bug.id}/{r.path.name})",
                engine.get("release", ""),
                engine.get("device", ""),
                _processor(r),
                r.judgement.verdict,
                code_span(r.judgement.signature[:80]).replace("|", "\\|"),
            )
            rows.append("| " + " | ".join(map(str, cells)) + " |")
        parts += [f"## {bug.id}: {bug.title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def _processor(record: Record) -> str:
    """On which processor a record was made: by its metadata, or, of an older one, by its collect_env."""
    kept = record.said.get("processor")
    if kept is not None:
        return str(Processor.from_json(kept))
    return str(named_in((output_of(record.node, ENVIRONMENT_MIME) or {}).get("collect_env", "")) or "not recorded")
