"""Run a bug's notebook: whole, which makes a record, or its cells in this process, up to the verdict."""

import warnings
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbformat import NotebookNode
from nbformat.v4 import new_output
from papermill.exceptions import PapermillExecutionError

from reproducers.allocator import Allocator
from reproducers.catalog import catalog, notebooks_folder
from reproducers.engine import Engine
from reproducers.judgement import Judgement
from reproducers.record.check import check
from reproducers.record.metadata import failed_cell, harness_judgement
from reproducers.record.read import Record, read
from reproducers.values import Verdict

SHORT = {"patience_s": 1.0, "repeats": 1}
"""Parameters that make a run short, where a notebook has them."""


def path_of(name: str) -> Path:
    return notebooks_folder() / catalog()[name].notebook


def given(declared: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (SHORT | parameters).items() if f"{name}:" in declared}


def executed(name: str, target: Path, engine: str, **parameters: Any) -> Record:
    """The record of a whole run, made as every record is; it must pass `check`, and no cell after the verdict fails."""
    known = given(path_of(name).read_text(), parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            papermill.execute_notebook(
                path_of(name),
                target,
                parameters=known | {"engine": engine, "require": "nothing"},
                engine_name="reproducers",
                progress_bar=False,
                budget_s=200,
            )
        except PapermillExecutionError:
            assert target.exists()
    assert check(target) == []
    record = read(target)
    untold = record.judgement.verdict in {Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE}
    assert untold or failed_cell(record.node) is None  # a cell after the verdict, too
    return record


def changed(name: str, old: str, new: str | None) -> NotebookNode:
    """A notebook with a text replaced in its one cell, or with the lines that hold it deleted."""
    node: NotebookNode = nbformat.read(path_of(name), as_version=4)
    found = 0
    for cell in node.cells:
        if cell.cell_type == "code" and old in cell.source:
            found += 1
            if new is None:
                cell.source = "\n".join(line for line in cell.source.splitlines() if old not in line)
            else:
                cell.source = cell.source.replace(old, new)
    assert found == 1, f"{old!r} stands in {found} cells"
    return node


def judged(name: str, node: NotebookNode, engine: Engine, **parameters: Any) -> Judgement:
    """The verdict of a notebook's own cells, run in this process on an engine that is lent, which is left as found.

    A cell that fails gives the verdict that a record of it would have.
    """
    namespace: dict[str, Any] = {"__name__": "notebook", "__annotations__": {}}
    try:
        for cell in node.cells:
            if cell.cell_type != "code":
                continue
            try:
                exec(compile(cell.source, f"<cell {cell['id']}>", "exec", dont_inherit=True), namespace)
            except Exception as error:  # noqa: BLE001  whatever the cell raises
                cell.outputs = [new_output("error", ename=type(error).__name__, evalue=str(error), traceback=[])]
                return harness_judgement(node, name)
            if cell["id"] == "parameters":
                namespace |= given(cell.source, parameters) | {"engine": engine.url, "require": "nothing"}
            if cell["id"] == "verdict":
                break
        verdict = namespace["verdict"]
        assert isinstance(verdict, Judgement)
        return verdict
    finally:
        for name in ("vllm", "allocator"):
            if isinstance(opened := namespace.get(name), Engine | Allocator):
                assert opened.close().clean
