"""How two records differ: verdict, evidence, control, engine, settings, calls."""

import copy
import io
from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice

from nbformat import NotebookNode

from reproducers.record.read import Record
from reproducers.report.comment import rerun_command
from reproducers.report.steps import steps_of

__all__ = ["calls_of", "cell_differences", "difference"]

LINES = 80
"""How many lines of differing calls are shown."""


def difference(one: Record, other: Record) -> list[str]:
    """Return how two records differ, a line each; empty where they say the same."""
    return list(_differences(one, other))


def calls_of(record: Record) -> list[str]:
    """The calls and requests of a record in their order, each with its status or outcome."""
    steps = [step for step in steps_of(record) if step.target]
    return [
        f"{f'{s.name}: ' if s.name else ''}`{s.method} {s.target}` → {s.said.split(' ')[0].rstrip(',')}" for s in steps
    ]


def cell_differences(one: Record, other: Record) -> str:
    """Return how the cells of two records differ, as nbdime tells it; pictures and metadata are left out."""
    from nbdime import diff_notebooks  # noqa: PLC0415  it takes a second to import
    from nbdime.prettyprint import PrettyPrintConfig, pretty_print_notebook_diff  # noqa: PLC0415

    first, second = _compared(one), _compared(other)
    told = io.StringIO()
    config = PrettyPrintConfig(out=told, use_color=False, use_git=False, use_diff=False)
    pretty_print_notebook_diff("", "", first, diff_notebooks(first, second), config)
    return told.getvalue()


def _compared(record: Record) -> NotebookNode:
    """A copy with what can be compared by reading: no pictures, no data beside the texts, no metadata."""
    node = copy.deepcopy(record.node)
    node.metadata = NotebookNode()
    for cell in node.cells:
        cell.metadata = NotebookNode()
        for output in cell.get("outputs", []):
            shown = output.get("data", {})
            for mime in [m for m in shown if not m.startswith("text/")]:
                del shown[mime]
    return node


def _differences(one: Record, other: Record) -> Iterator[str]:
    first, second = one.judgement, other.judgement
    pairs = {
        "bug": (one.said["bug"], other.said["bug"]),
        "verdict": (first.verdict, second.verdict),
        "signature": (first.signature, second.signature),
        "control": (first.control, second.control),
        "runs": (f"{first.hits} of {first.runs}", f"{second.hits} of {second.runs}"),
        "run again": (rerun_command(one), rerun_command(other)),
    }
    for name in ("release", "device", "model"):
        first_engine, second_engine = (record.said["engine"] or {} for record in (one, other))
        pairs[name] = (str(first_engine.get(name, "none")), str(second_engine.get(name, "none")))
    for name, (a, b) in pairs.items():
        if a != b:
            yield f"{name}: {a} | {b}"
    yield from _mappings("parameter", one.said["parameters"], other.said["parameters"])
    settings = [(record.said["engine"] or {}).get("settings", {}) for record in (one, other)]
    yield from _mappings("setting", *settings)
    for sentence in first.evidence:
        if sentence not in second.evidence:
            yield f"evidence, first only: {sentence}"
    for sentence in second.evidence:
        if sentence not in first.evidence:
            yield f"evidence, second only: {sentence}"
    changed = unified_diff(calls_of(one), calls_of(other), lineterm="", n=1)
    yield from (f"calls: {line}" for line in islice(changed, 2, LINES))


def _mappings(what: str, one: dict[str, object], other: dict[str, object]) -> Iterator[str]:
    for name in sorted({*one, *other}):
        a, b = one.get(name, "not given"), other.get(name, "not given")
        if a != b:
            yield f"{what} {name}: {a} | {b}"
