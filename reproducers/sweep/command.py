"""The commands `repro sweep` and `repro bisect`: parsing and printing only."""

import importlib.metadata
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from reproducers.catalog import find_bug
from reproducers.errors import UsageError

if TYPE_CHECKING:
    from reproducers.sweep.run import Executor

__all__ = ["bisect_releases", "run_sweep"]

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

KIT = Path(__file__).parent.parent


def run_sweep(
    matrix: Annotated[Path, typer.Option(help="The matrix file.")] = Path("ci/matrix.toml"),
    folder: Annotated[
        Path, typer.Option("--out", help="Where the sweep is kept; one that was interrupted goes on.")
    ] = Path("sweep"),
    jobs: Annotated[int, typer.Option(min=0, help="Groups at once; 0 for as many as the machine allows.")] = 0,
    executor: Annotated[str, typer.Option(help="local, or ray[:ADDRESS] for a Ray cluster.")] = "local",
    update_expectations: Annotated[bool, typer.Option(help="Write measured verdicts to the catalog.")] = False,
) -> None:
    """Run many notebooks over releases and settings, on as few engine starts as possible."""
    from reproducers.sweep.expectations import updated  # noqa: PLC0415
    from reproducers.sweep.matrix import load_matrix  # noqa: PLC0415
    from reproducers.sweep.page import write_page  # noqa: PLC0415
    from reproducers.sweep.progress import SweepProgress  # noqa: PLC0415
    from reproducers.sweep.results import exit_code, rows_of, write_junit, write_results  # noqa: PLC0415
    from reproducers.sweep.run import sweep  # noqa: PLC0415
    from reproducers.sweep.state import finished  # noqa: PLC0415

    plan, cells = load_matrix(matrix)
    where = _executor(executor)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends the job gets what is done, as with Ctrl-C
    done = sum(finished(folder, cell) for cell in cells)
    with SweepProgress(err, len(cells), done) as progress:
        swept = sweep(plan, cells, folder, jobs=jobs, executor=where, follow=progress.follow)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a second one must not come between the files
    rows = rows_of(swept.results, plan.against)
    seconds, starts = sum(r.seconds for r in swept.results), sum(r.starts for r in swept.results)
    write_results(
        rows, folder / "results.json", kit=importlib.metadata.version("vllm-rl-repro"), seconds=seconds, starts=starts
    )
    write_junit(rows, folder / "junit.xml")
    write_page(rows, folder / "index.html", seconds=seconds, starts=starts)
    for row in rows:
        out.print(f"{row.bug} on {row.configuration}: {row.said}", markup=False)
    for configuration, how in swept.lost.items():
        err.print(f"{configuration}: {how}", markup=False)
    out.print(f"{starts} engine starts; page: {folder / 'index.html'}", markup=False)
    if swept.interrupted:
        done = sum(finished(folder, cell) for cell in cells)
        err.print(f"interrupted: {done} of {len(cells)} cells are done; the same command goes on from there")
    if update_expectations and not swept.interrupted:
        catalog_file = KIT / "catalog.toml"
        text, difference = updated(catalog_file, rows)
        out.print(difference or "the catalog says so already", markup=False)
        catalog_file.write_text(text, encoding="utf-8")
    raise typer.Exit(exit_code(rows))


def _executor(name: str) -> "Executor | None":
    if name == "local":
        return None
    kind, _, address = name.partition(":")
    if kind != "ray":
        raise UsageError(f"unknown executor {name!r}: local, ray or ray:ADDRESS")
    from reproducers.sweep.fleet import RayExecutor  # noqa: PLC0415

    return RayExecutor(address)


def bisect_releases(
    bug: Annotated[str, typer.Argument(help="The bug's number or name.")],
    good: Annotated[str, typer.Option(help="A release that does not show the bug.")],
    bad: Annotated[str, typer.Option(help="A release that shows it.")],
    engine: Annotated[str, typer.Option(help="cpu, cuda or emulated.")] = "cpu",
    repeat: Annotated[int, typer.Option(min=1, help="How often each release is judged.")] = 1,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Where it is kept; one that was interrupted goes on.")
    ] = None,
) -> None:
    """Search the published releases for the first one with the other verdict."""
    from reproducers.engine.environments import published_releases  # noqa: PLC0415
    from reproducers.run_progress import RunProgress  # noqa: PLC0415
    from reproducers.sweep.bisect import between, bisect, judge_by_notebook  # noqa: PLC0415

    found = find_bug(bug)
    if engine not in {"cpu", "cuda", "emulated"}:
        raise UsageError(f"unknown engine {engine!r}: cpu, cuda or emulated")
    releases = between(published_releases("cuda" if engine == "cuda" else "cpu"), good, bad)
    where = (folder or Path("bisect") / found.id) / engine
    where.mkdir(parents=True, exist_ok=True)
    with RunProgress(err, found.notebook, 1200) as progress:
        judge = judge_by_notebook(found, where, {"engine": engine}, progress.follow)
        result = bisect(
            found.id, releases, judge, good=good, runs=repeat, say=lambda text: err.print(text, markup=False)
        )
    out.print(str(result), markup=False)
