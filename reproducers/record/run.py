"""Run a bug's notebook and keep its record."""

import contextlib
import logging
import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import papermill
from jupyter_client.kernelspec import NoSuchKernel
from papermill.exceptions import PapermillException, PapermillExecutionError

from reproducers.catalog import Bug, notebooks_folder
from reproducers.declaration import declared
from reproducers.engine import choose
from reproducers.errors import EngineUnavailable, HarnessError, RecordError, UsageError
from reproducers.parameters import Parameter, checked
from reproducers.record.metadata import failed_cell
from reproducers.record.papermill_engine import BUDGET_S, CELL_TIMEOUT_S, Follower
from reproducers.record.read import Record, read
from reproducers.values import Verdict

__all__ = ["Finished", "run"]


@dataclass(frozen=True)
class Finished:
    """A run that has ended, and the record that it left."""

    record: Record
    failure: str
    """The first cell that failed, the assertion apart, and how; empty where none did."""
    unmet: str
    """How the verdict missed what was required; empty where it did not."""

    @property
    def exit_code(self) -> int:
        """0 as required or not applicable, 1 not as required, 3 the harness could not tell."""
        if self.record.judgement.verdict is Verdict.NOT_APPLICABLE:
            return 0
        if self.failure or self.record.judgement.verdict is Verdict.INCONCLUSIVE:
            return 3
        return 1 if self.unmet else 0


def run(
    bug: Bug,
    parameters: Mapping[str, Any],
    *,
    out: Path | None = None,
    budget_s: float = BUDGET_S,
    cell_s: float = CELL_TIMEOUT_S,
    follow: Follower = lambda _cell, _text: None,
) -> Finished:
    """Run one bug's notebook and keep the record.

    Args:
        bug: which one.
        parameters: values for its parameters.
        out: a file, or a folder in which the record is named by release, device and settings.
        budget_s: how long the notebook may take.
        cell_s: how long a cell may take.
        follow: is told what happens.

    Raises:
        UsageError: a parameter, the engine or `out` is wrong; nothing was started.
        RecordError: the run left nothing that can be read.
    """
    notebook = notebooks_folder() / bug.notebook
    known = declared(notebook)
    given = checked(parameters, known)
    with contextlib.suppress(EngineUnavailable):  # that is for the notebook to say, in a record
        choose(str(given.get("engine", "auto")), str(given.get("release", "")), lambda text: follow("run", text))
    target = out or notebooks_folder() / "records" / bug.id
    folder = target.parent if target.suffix == ".ipynb" else target
    try:
        if target.suffix == ".ipynb" and target.is_dir():
            raise UsageError(f"records cannot be written to {target}: it is a folder, name it without .ipynb")
        folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".running-", dir=folder))
    except OSError as error:
        raise UsageError(f"records cannot be written to {folder}: {error.strerror}") from error
    made = scratch / bug.notebook
    kept = target
    try:
        _execute(notebook, made, given, budget_s, cell_s, follow)
    finally:  # also when the run was stopped from outside: the record says so
        if made.exists():
            kept = target if target.suffix == ".ipynb" else folder / _name_of_file(made, known)
            made.replace(kept)
        shutil.rmtree(scratch, ignore_errors=True)
    return _finished(read(kept))


def _execute(
    notebook: Path, made: Path, given: Mapping[str, Any], budget_s: float, cell_s: float, follow: Follower
) -> None:
    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # papermill's and jupyter's own, about themselves
            papermill.execute_notebook(
                notebook,
                made,
                parameters=dict(given),
                engine_name="reproducers",
                progress_bar=False,
                budget_s=budget_s,
                execution_timeout=cell_s,
                follow=follow,
            )
    except PapermillExecutionError:
        return  # the record says which cell, and how
    except click.UsageError as error:
        raise UsageError(error.message) from error
    except (PapermillException, NoSuchKernel, RuntimeError, OSError) as error:
        raise HarnessError(f"the notebook could not be run: {str(error).splitlines()[0][:200]}") from error
    if not made.exists():
        raise RecordError("the run left no record")


def _finished(record: Record) -> Finished:
    failed = failed_cell(record.node)
    failure = f"the cell '{failed[0]}' failed: {failed[1]}: {(failed[2].splitlines() or [''])[0]}" if failed else ""
    unmet = ""
    for cell in record.node.cells:
        for output in cell.get("outputs", []):
            if cell.get("id") == "assertion" and output.get("ename") == "AssertionError":
                unmet = str(output.evalue)
    return Finished(record, failure, unmet)


def _name_of_file(path: Path, known: Mapping[str, Parameter]) -> str:
    try:
        return name_of(read(path), known)
    except RecordError:  # stopped before the record could be finished
        return "inconclusive.ipynb"


def name_of(record: Record, known: Mapping[str, Parameter]) -> str:
    """Return the file name of a record: release, device and the settings that are not the defaults."""
    engine = record.said.get("engine")
    if record.judgement.verdict is Verdict.NOT_APPLICABLE:
        return "not-applicable.ipynb"
    if record.judgement.verdict is Verdict.INCONCLUSIVE or not engine or failed_cell(record.node):
        return "inconclusive.ipynb"
    device = re.sub(r"^NVIDIA ", "", str(engine["device"])).lower()
    quiet = {"engine", "release", "require", "patience_s"}
    settings = [
        f"{name}-{value}".lower()
        for name, value in record.said["parameters"].items()
        if name not in quiet and name in known and value != known[name].default
    ]
    parts = [f"vllm-{engine['release']}", device, *settings]
    return "-".join(re.sub(r"[^\w.]+", "-", part).strip("-") for part in parts) + ".ipynb"
