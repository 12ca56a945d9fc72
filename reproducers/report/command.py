"""The commands `repro report`, `repro diff` and `repro index`: parsing and printing only."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from reproducers.catalog import catalog, notebooks_folder
from reproducers.errors import RecordError, UsageError

__all__ = ["diff_records", "index_records", "report_records"]

out = Console(highlight=False, soft_wrap=True, emoji=False)
Records = Annotated[list[Path], typer.Argument(help="Records of one bug; the first one is told in full.")]


def report_records(
    records: Records,
    as_form: Annotated[
        bool, typer.Option("--form", help="Print the fields of vLLM's bug form instead, of the first record.")
    ] = False,
    as_script: Annotated[
        bool, typer.Option("--script", help="Print the calls of the first record as a script instead.")
    ] = False,
    page: Annotated[
        Path | None, typer.Option("--html", help="Write the first record as one HTML file instead.")
    ] = None,
) -> None:
    """Print a comment for an issue, in GitHub Markdown: verdict, evidence, calls, how to run it again."""
    if as_form + as_script + (page is not None) > 1:
        raise UsageError("--form, --script and --html each say what is made: give one of them")
    from reproducers.record.read import read  # noqa: PLC0415
    from reproducers.report.comment import comment, duplicates  # noqa: PLC0415

    found = [read(path) for path in records]
    if as_form:
        from reproducers.report.form import form  # noqa: PLC0415

        out.print(form(found[0]), markup=False, end="")
        return
    if as_script:
        from reproducers.report.script import script  # noqa: PLC0415

        out.print(script(found[0]), markup=False, end="")
        return
    if page is not None:
        from reproducers.report.page import html_page  # noqa: PLC0415

        _write(page, html_page(found[0]))
        return
    kept = []
    for path in sorted((notebooks_folder() / "records").glob("*/*.ipynb")):
        with contextlib.suppress(RecordError):  # a kept record that is broken is the matter of `repro check`
            kept.append(read(path))
    out.print(comment(found, duplicates(found[0], kept)), markup=False, end="")


def diff_records(
    one: Annotated[Path, typer.Argument(help="A record.")],
    other: Annotated[Path, typer.Argument(help="Another record.")],
    cells: Annotated[bool, typer.Option("--cells", help="Also show how their cells differ, by nbdime.")] = False,
) -> None:
    """Compare two records: verdict, evidence, control, engine, settings and calls; exits with 1 where they differ."""
    from reproducers.record.read import read  # noqa: PLC0415
    from reproducers.report.difference import cell_differences, difference  # noqa: PLC0415

    first, second = read(one), read(other)
    lines = difference(first, second)
    for line in lines:
        out.print(line, markup=False)
    if cells:
        out.print(cell_differences(first, second), markup=False, end="")
    raise typer.Exit(1 if lines else 0)


def index_records(
    write: Annotated[bool, typer.Option("--write", help="Write it to notebooks/records/README.md.")] = False,
) -> None:
    """Print the index of the records that are kept, or write it."""
    from reproducers.report.index import index  # noqa: PLC0415

    folder = notebooks_folder() / "records"
    page = index(list(catalog().values()), folder)
    if not write:
        out.print(page, markup=False, end="")
        return
    _write(folder / "README.md", page)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
