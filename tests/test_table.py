"""The tables of measured verdicts, and of what covers the RL CI matrix."""

import pytest
from conftest import ROOT

from reproducers.catalog import catalog
from reproducers.coverage import rows
from reproducers.errors import UsageError
from reproducers.record.table import COVERAGE, coverage_table, replaced, verdict_table


def test_the_table_in_readme_is_what_the_records_say() -> None:
    page = (ROOT / "README.md").read_text()
    table = verdict_table(catalog().values(), ROOT / "notebooks" / "records", "cpu")
    assert replaced(page, table) == page, "run: repro table --write README.md"
    for row in table.splitlines()[2:]:
        assert "REPRODUCED" in row, row
        assert "FIXED" in row, row


def test_the_coverage_in_readme_is_what_the_rows_and_the_records_say() -> None:
    page = (ROOT / "README.md").read_text()
    table = coverage_table(rows().values(), ROOT / "notebooks" / "records")
    assert replaced(page, table, COVERAGE) == page, "run: repro table --write README.md"
    for line, row in zip(table.splitlines()[2:], rows().values(), strict=True):
        assert ("passed" in line) is row.check, line
        assert "FAILED" not in line


def test_a_page_without_the_marks_is_refused() -> None:
    begin, end = "<!-- repro table: begin -->", "<!-- repro table: end -->"
    assert replaced(f"a {begin} old {end} b", "new") == f"a {begin}\nnew\n{end} b"
    with pytest.raises(UsageError, match="lacks"):
        replaced("no marks", "new")
