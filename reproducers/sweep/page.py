"""The page of a sweep: bugs by releases, readable without JavaScript."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
from packaging.version import Version

from reproducers.catalog import catalog
from reproducers.sweep.results import Outcome, Row

__all__ = ["write_page"]

_STYLES = {Outcome.AS_EXPECTED: "ok", Outcome.NOT_APPLICABLE: "na", Outcome.HARNESS: "odd", Outcome.NOT_RUN: "na"}
_RUN = set(Outcome) - {Outcome.NOT_APPLICABLE, Outcome.NOT_RUN}
_QUIET = {Outcome.AS_EXPECTED, Outcome.NOT_APPLICABLE, Outcome.NOT_RUN}


def write_page(rows: Sequence[Row], path: Path, *, seconds: float, starts: int) -> None:
    """Write the page; its links go to the records beside it."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(replace(row.configuration, release="", model="dense")).removeprefix("vllm--"), []).append(
            row
        )
    tables = []
    for name, inside in groups.items():
        releases = sorted({row.configuration.release for row in inside}, key=Version)
        bugs = [bug for bug in catalog() if any(row.bug == bug for row in inside)]
        at = {(row.bug, row.configuration.release): row for row in inside}
        table = [(bug, catalog()[bug].title, [_cell(at.get((bug, release))) for release in releases]) for bug in bugs]
        tables.append((name, releases, table))
    counted = Counter(row.outcome.value for row in rows)
    odd = [row for row in rows if row.outcome not in _QUIET]
    headline = "Everything as expected" if not odd else f"{len(odd)} of {len(rows)} not as expected"
    if missing := counted[Outcome.NOT_RUN.value]:
        run = any(row.outcome in _RUN for row in rows)
        headline = f"{headline} so far, {missing} not run" if run else f"Nothing was run of {missing}"
    source = Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8")
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(source)
    text = template.render(
        headline=headline,
        counts=", ".join(f"{n} {name}" for name, n in counted.items()),
        starts=starts,
        seconds=seconds,
        tables=tables,
        odd=[
            {
                "bug": row.bug,
                "configuration": str(row.configuration),
                "said": row.said,
                "evidence": list(dict.fromkeys(text for r in row.results for text in (*r.evidence, *r.faults))),
            }
            for row in odd
        ],
    )
    path.write_text(text, encoding="utf-8", errors="replace")


def _cell(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    result = row.results[0]
    notes = {Outcome.NOT_APPLICABLE: result.evidence[0], Outcome.NOT_RUN: "interrupted"}
    return {
        "style": _STYLES.get(row.outcome, "bad"),
        "verdict": "not run" if row.outcome is Outcome.NOT_RUN else " / ".join(row.verdicts),
        "device": result.device or row.configuration.device,
        "links": [r.record for r in row.results if r.record],
        "note": notes.get(row.outcome, row.outcome.value),
    }
