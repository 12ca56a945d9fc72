"""The command `repro`: parsing and printing only.

What needs papermill is imported by the command that needs it: papermill and nbformat take seconds to import.
"""

import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from reproducers.catalog import catalog, find_bug, notebooks_folder
from reproducers.doctor import findings as machine_findings
from reproducers.engine import release_at_hand
from reproducers.errors import HarnessError, RecordError, ReproError, UsageError
from reproducers.parameters import parsed
from reproducers.report.command import diff_records, index_records, report_records
from reproducers.run_progress import RunProgress
from reproducers.sweep.command import bisect_releases, run_sweep

__all__ = ["app", "main"]

app = typer.Typer(
    help="Reproduce and triage bugs of vLLM's reinforcement-learning lifecycle.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def _version(wanted: bool) -> None:
    if wanted:
        out.print(importlib.metadata.version("vllm-rl-repro"))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Reproduce and triage bugs of vLLM's reinforcement-learning lifecycle."""


@app.command("list")
def list_bugs() -> None:
    """List the bugs: their part of the matrix, what they need, and what is expected on the release at hand."""
    release, device = release_at_hand()
    at_hand = f"vLLM {release} on {device}" if release else "no vLLM here"
    table = Table("bug", "title", "part", "needs", f"expected ({at_hand})")
    for bug in catalog().values():
        kind = "emulated" if bug.memory and device == "cpu" else device  # as `auto` chooses
        expectation = bug.expected(release, kind) if release else None
        expected = f"{expectation.verdict} ({expectation.source})" if expectation else "unknown"
        table.add_row(bug.id, bug.title, bug.part, ", ".join(bug.needs) or "any vLLM", expected)
    out.print(table)


@app.command()
def run(
    bug: Annotated[str, typer.Argument(help="The bug's number or name; `repro list` shows them.")],
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="A parameter of the notebook.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda, emulated or the URL of a running server.")
    ] = None,
    vllm: Annotated[str | None, typer.Option(help="A release of vLLM; its environment is made where needed.")] = None,
    repeat: Annotated[int | None, typer.Option(help="How often the trigger is run.")] = None,
    output: Annotated[Path | None, typer.Option("--out", help="A file or folder for the record.")] = None,
    budget: Annotated[float, typer.Option(min=1, help="Bound for the notebook, in seconds.")] = 1200,
    cell_timeout: Annotated[float, typer.Option(min=1, help="Bound for one cell, in seconds.")] = 900,
) -> None:
    """Run one bug's notebook, print the verdict with its evidence, and keep the record."""
    from reproducers.declaration import declared  # noqa: PLC0415
    from reproducers.record.run import run as run_notebook  # noqa: PLC0415

    found = find_bug(bug)
    pairs = list(parameter or [])
    pairs += [f"engine={engine}"] if engine is not None else []
    pairs += [f"release={vllm}"] if vllm is not None else []
    pairs += [f"repeats={repeat}"] if repeat is not None else []
    values: dict[str, Any] = parsed(pairs, declared(notebooks_folder() / found.notebook))
    with RunProgress(err, found.notebook, budget) as progress:
        finished = run_notebook(found, values, out=output, budget_s=budget, cell_s=cell_timeout, follow=progress.follow)
    out.print(str(finished.record.judgement), markup=False)
    out.print(f"record: {finished.record.path}", markup=False)
    for line in filter(None, (finished.failure, finished.unmet)):
        err.print(line, markup=False)
    raise typer.Exit(finished.exit_code)


@app.command()
def check(records: Annotated[list[Path], typer.Argument(help="Executed notebooks.")]) -> None:
    """Say whether records are whole, honest, clean of secrets and small enough, without running them."""
    from reproducers.record.check import check as check_record  # noqa: PLC0415

    bad = 0
    for path in records:
        faults = check_record(path)
        bad += bool(faults)
        out.print(f"{path}: {'; '.join(faults) if faults else 'ok'}", markup=False)
    raise typer.Exit(1 if bad else 0)


@app.command()
def table(
    write: Annotated[Path | None, typer.Option(help="A page in which the tables are put between their marks.")] = None,
    device: Annotated[str, typer.Option(help="The device, as the records name it.")] = "cpu",
) -> None:
    """Print the tables of measured verdicts and of the RL CI matrix, or write them into README."""
    from reproducers.coverage import rows  # noqa: PLC0415
    from reproducers.record.table import COVERAGE, VERDICTS, coverage_table, replaced, verdict_table  # noqa: PLC0415

    records = notebooks_folder() / "records"
    verdicts, coverage = verdict_table(catalog().values(), records, device), coverage_table(rows().values(), records)
    if write is None:
        out.print(f"{verdicts}\n\n{coverage}", markup=False, soft_wrap=True)
        return
    try:
        page = replaced(write.read_text(encoding="utf-8"), verdicts, VERDICTS)
        write.write_text(replaced(page, coverage, COVERAGE), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{write} cannot be read and written: {error.strerror}") from error


@app.command()
def doctor() -> None:
    """Say what this machine can run and what is missing."""
    table = Table("what", "here", "so")
    can_run = False
    for finding in machine_findings():
        can_run |= finding.runs_an_engine
        table.add_row(finding.what, finding.here, finding.so)
    out.print(table)
    raise typer.Exit(0 if can_run else 1)


@app.command()
def new(
    bug: Annotated[str, typer.Argument(help="The issue's number, or a name of small letters and hyphens.")],
    title: Annotated[str, typer.Option(help="What goes wrong, in one line.")],
    link: Annotated[str, typer.Option(help="Where it is reported; vLLM's issue of that number where not given.")] = "",
) -> None:
    """Add a bug: a notebook, a judge with its test, and an entry in the catalog, ready to be filled."""
    from reproducers.scaffold import add_bug  # noqa: PLC0415

    root = Path(__file__).parents[1]
    for path in add_bug(bug, title, link, root):
        out.print(f"written: {path.relative_to(root)}", markup=False)
    out.print("Next: the trigger, the judge and its test; README says how, under 'Adding a bug'.", markup=False)


app.command("report")(report_records)
app.command("diff")(diff_records)
app.command("index")(index_records)
app.command("sweep")(run_sweep)
app.command("bisect")(bisect_releases)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; every error of the kit is one line and an exit code."""
    try:
        app(args=list(arguments) if arguments is not None else None)
    except ReproError as error:
        code = {UsageError: 2, RecordError: 1}
        err.print(f"error: {error}", markup=False)
        sys.exit(
            next(
                (c for kind, c in code.items() if isinstance(error, kind)), 3 if isinstance(error, HarnessError) else 1
            )
        )


if __name__ == "__main__":
    main()
