"""The table of measured verdicts."""

import pytest
from conftest import ROOT

from reproducers.catalog import catalog
from reproducers.errors import UsageError
from reproducers.record.table import BEGIN, END, replaced, verdict_table


def test_the_table_in_readme_is_what_the_records_say() -> None:
    page = (ROOT / "README.md").read_text()
    table = verdict_table(catalog().values(), ROOT / "notebooks" / "records", "cpu")
    assert replaced(page, table) == page, "run: repro table --write README.md"
    for row in table.splitlines()[2:]:
        assert "REPRODUCED" in row, row
        assert "FIXED" in row, row


def test_a_page_without_the_marks_is_refused() -> None:
    assert replaced(f"a {BEGIN} old {END} b", "new") == f"a {BEGIN}\nnew\n{END} b"
    with pytest.raises(UsageError, match="lacks"):
        replaced("no marks", "new")
