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
    page: Annotated[
        Path | None, typer.Option("--html", help="Write the first record as one HTML file instead.")
    ] = None,
) -> None:
    """Print a comment for an issue, in GitHub Markdown: verdict, evidence, calls, how to run it again."""
    from reproducers.record.read import read  # noqa: PLC0415
    from reproducers.report.comment import comment, duplicates  # noqa: PLC0415

    found = [read(path) for path in records]
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
) -> None:
    """Compare two records: verdict, evidence, control, engine, settings and calls; exits with 1 where they differ."""
    from reproducers.record.read import read  # noqa: PLC0415
    from reproducers.report.difference import difference  # noqa: PLC0415

    lines = difference(read(one), read(other))
    for line in lines:
        out.print(line, markup=False)
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
