"""The catalog is checked on load."""

from pathlib import Path

import pytest

from reproducers.catalog import catalog, find_bug, load
from reproducers.errors import UsageError
from reproducers.values import Verdict

ENTRY = """
[1]
title = "t"
links = ["https://github.com/vllm-project/vllm/issues/1"]
part = "state transitions"
notebook = "1-a.ipynb"
"""
EXPECT = """
[[1.expect]]
verdict = "REPRODUCED"
source = "measured"
before = "0.31.0"

[[1.expect]]
verdict = "FIXED"
source = "measured"
since = "0.31.0"
device = "cpu"
"""


def loaded(tmp_path: Path, text: str, *notebooks: str) -> object:
    (tmp_path / "catalog.toml").write_text(text)
    for name in notebooks or ("1-a.ipynb",):
        (tmp_path / name).touch()
    return load(tmp_path / "catalog.toml", tmp_path)


def test_an_expectation_covers_a_range_of_releases_and_a_device(tmp_path: Path) -> None:
    bug = loaded(tmp_path, ENTRY + EXPECT)["1"]  # type: ignore[index]
    assert bug.expected("0.30.0", "cpu").verdict is Verdict.REPRODUCED
    assert bug.expected("0.30.0", "NVIDIA H200").verdict is Verdict.REPRODUCED
    assert bug.expected("0.31.0", "cpu").verdict is Verdict.FIXED
    assert bug.expected("0.31.0", "NVIDIA H200") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ENTRY + 'colour = "red"\n', "Extra inputs are not permitted"),
        (ENTRY.replace('title = "t"\n', ""), "1.title: Field required"),
        (ENTRY + EXPECT.replace('since = "0.31.0"', 'since = "0.30.0"'), ": 1: two entries cover"),
        (ENTRY + EXPECT.replace('since = "0.31.0"', 'since = "next"'), "'next' is not a release"),
        (ENTRY + EXPECT.replace("FIXED", "GREEN"), "verdict"),
        (
            ENTRY.replace("https://github.com/vllm-project/vllm/issues/1", "").replace('""', ""),
            "without a link to a report it needs a text that can be reported",
        ),
        (ENTRY.replace("1-a", "2-b"), "the notebook 2-b.ipynb does not exist"),
        ("[1", "catalog.toml"),
    ],
)
def test_a_bad_catalog_is_refused_with_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_notebook_without_an_entry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the notebook 9-z\.ipynb has no entry"):
        loaded(tmp_path, ENTRY, "1-a.ipynb", "9-z.ipynb")


def test_the_kits_own_catalog_is_good_and_finds_bugs_by_number() -> None:
    assert catalog()
    assert find_bug("#45326") is find_bug("45326")
    with pytest.raises(UsageError, match="unknown bug '1': there are 45326"):
        find_bug("1")
