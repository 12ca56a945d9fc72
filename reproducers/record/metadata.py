"""What a record says about itself: gathered from its outputs, sealed by a digest."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nbformat import NotebookNode

from reproducers.bugs.finding import normalised
from reproducers.declaration import declared_in
from reproducers.errors import NotApplicable
from reproducers.judgement import VERDICT_MIME, Judgement
from reproducers.processor import processor
from reproducers.states import ENGINE_MIME, Residue
from reproducers.values import Verdict

__all__ = ["KEY", "digest", "failed_cell", "gathered", "output_of", "outputs_of", "own_cells", "status_of"]

KEY = "reproducers"
"""Where the notebook's metadata keep it."""

_MARKER = "papermill-error-cell-tag"


def own_cells(node: NotebookNode) -> list[NotebookNode]:
    """The cells of a record without the error markers that papermill puts in."""
    return [cell for cell in node.cells if _MARKER not in cell.metadata.get("tags", [])]


def status_of(cell: NotebookNode) -> str:
    """Papermill's status of a cell: pending, running, completed or failed; empty where there is none."""
    kept = cell.metadata.get("papermill", {})
    return str(kept.get("status", "")) if isinstance(kept, dict) else ""


def output_of(node: NotebookNode, mime: str) -> Mapping[str, Any] | None:
    """The last output of a MIME type in a notebook."""
    for cell in reversed(node.cells):
        for output in reversed(cell.get("outputs", [])):
            if mime in output.get("data", {}):
                data: Mapping[str, Any] = output["data"][mime]
                return data
    return None


def outputs_of(node: NotebookNode, name: str) -> list[NotebookNode]:
    """The outputs of the cell with an id."""
    return [output for cell in node.cells if cell.get("id") == name for output in cell.get("outputs", [])]


def failed_cell(node: NotebookNode) -> tuple[str, str, str] | None:
    """Name, error name and error text of the first failure, a failed assertion apart; None where there is none."""
    for cell in own_cells(node):
        for output in cell.get("outputs", []):
            required = cell.get("id") == "assertion" and output.get("ename") == "AssertionError"
            if output.output_type == "error" and not required:
                return str(cell.get("id")), str(output.ename), str(output.evalue)
    return None


def harness_judgement(node: NotebookNode, bug: str) -> Judgement:
    """The verdict on a notebook that stopped before its own: NOT_APPLICABLE or INCONCLUSIVE, with where and why."""
    cell, kind, text = failed_cell(node) or ("unknown", "NoVerdict", "the notebook gave no verdict")
    line = (text.strip().splitlines() or ["no text"])[0]
    if kind == NotApplicable.__name__:
        return Judgement(
            bug, Verdict.NOT_APPLICABLE, (f"Not applicable: {line}.",), "not needed", signature=normalised(line)
        )
    sentence = f"The notebook stopped in the cell '{cell}', before a verdict: {line}"
    signature = f"harness:{kind}:{normalised(line)}"
    return Judgement(bug, Verdict.INCONCLUSIVE, (sentence,), "not reached or not judged", signature=signature)


def gathered(node: NotebookNode, *, bug: str, duration_s: float, residue: Residue, kit: str) -> dict[str, Any]:
    """Return what the record's metadata say.

    Args:
        node: the executed notebook.
        bug: the bug's number or name.
        duration_s: how long the notebook ran, in seconds.
        residue: what was left after its kernel had ended.
        kit: the kit's version.
    """
    verdict = output_of(node, VERDICT_MIME) or harness_judgement(node, bug).to_json()
    given = node.metadata.get("papermill", {}).get("parameters", {})
    defaults = {name: p.default for name, p in declared_in(node, "the notebook").items()}
    engine = output_of(node, ENGINE_MIME)
    if engine is not None and not engine["owned"]:
        residue = replace(residue, device_bytes=None)  # of a server that goes on running it says nothing
    return {
        "kit": kit,
        "bug": bug,
        "verdict": dict(verdict),
        "control": verdict["control"],
        "engine": engine,
        "parameters": defaults | dict(given),
        "processor": processor().to_json(),
        "duration_s": round(duration_s, 1),
        "residue": residue.to_json(),
    }


def digest(node: NotebookNode) -> str:
    """Return the hash of all that a record states: sources, outputs and what it says about itself."""
    said = {k: v for k, v in node.metadata.get(KEY, {}).items() if k != "digest"}
    cells = [[c.get("id"), c.cell_type, c.source, c.get("outputs", []), status_of(c)] for c in own_cells(node)]
    return hashlib.sha256(json.dumps([said, cells], sort_keys=True, default=str).encode()).hexdigest()
