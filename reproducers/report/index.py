"""The index of the records that are kept as evidence."""

from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from reproducers.catalog import Bug
from reproducers.record.read import read
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
        rows = ["| record | release | device | verdict | signature |", "|---|---|---|---|---|"]
        for r in records:
            engine = r.said["engine"] or {}
            cells = (
                f"[{r.path.stem}]({bug.id}/{r.path.name})",
                engine.get("release", ""),
                engine.get("device", ""),
                r.judgement.verdict,
                code_span(r.judgement.signature[:80]).replace("|", "\\|"),
            )
            rows.append("| " + " | ".join(map(str, cells)) + " |")
        parts += [f"## {bug.id}: {bug.title}", "\n".join(rows)]
    return "\n\n".join(parts) + "\n"
