"""The matrix file: expanded, and refused with one line where it is wrong."""

from pathlib import Path

import pytest
from conftest import ROOT, repro

from reproducers.catalog import catalog
from reproducers.errors import UsageError
from reproducers.sweep.limits import reason_not_applicable
from reproducers.sweep.matrix import load_matrix

GOOD = 'bugs = ["45326", "44483"]\nreleases = ["0.31.0", "0.32.0"]\n'


def written(tmp_path: Path, text: str, name: str = "matrix.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_matrix_is_expanded_in_the_order_of_its_groups(tmp_path: Path) -> None:
    matrix, cells = load_matrix(written(tmp_path, GOOD + 'fix = ["none", "undo"]\nrepeats = 2\n'))
    assert len(cells) == 2 * 2 * 2 * 2
    assert [cell.name for cell in cells[:3]] == [
        "45326-vllm-0.31.0-cpu-v1-eager-1",
        "45326-vllm-0.31.0-cpu-v1-eager-2",
        "44483-vllm-0.31.0-cpu-v1-eager-1",
    ]
    assert matrix.against == "fix"


def test_cells_are_taken_out_and_put_in_with_a_reason(tmp_path: Path) -> None:
    written(tmp_path, 'bugs = ["45518"]\nreleases = ["0.32.0"]\n', "more.toml")
    text = GOOD + '[[exclude]]\nreleases = ["0.31.0"]\nbugs = ["44483"]\nreason = "too old"\n'
    text += '[[include]]\nrunner = [2]\nreleases = ["0.32.0"]\nreason = "once"\n'
    text += '[[include]]\nfile = "more.toml"\nreason = "the other one"\n'
    cells = load_matrix(written(tmp_path, text))[1]
    names = {(cell.bug, cell.configuration.release, cell.configuration.runner) for cell in cells}
    assert ("44483", "0.31.0", 1) not in names
    assert ("44483", "0.32.0", 2) in names
    assert ("45518", "0.32.0", 1) in names
    assert len(cells) == 3 + 2 + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty: name at least bugs and releases"),
        ("colour = 1\n" + GOOD, "colour: Extra inputs are not permitted"),
        (GOOD.replace("45326", "12345"), "unknown bug '12345': all, 45326"),
        (GOOD.replace("0.31.0", "latest"), "'latest' is not a release such as 0.32.0"),
        (GOOD.replace("0.31.0", "0.31"), "'0.31' is not a release such as 0.32.0"),
        (GOOD + "[parameters]\npatience = 1.0\n", "no notebook of this matrix takes 'patience'"),
        (GOOD + "[parameters]\npatience_s = 0.0\n", "parameter patience_s=0.0: Input should be greater"),
        (GOOD.replace("0.31.0", "0.32.0"), "'0.32.0' stands there twice"),
        (GOOD + "repeats = 0\n", "greater than or equal to 1"),
        (GOOD + "runner = [3]\n", "less than or equal to 2"),
        (GOOD + 'device = ["tpu"]\n', "device"),
        ('releases = ["0.32.0"]\n', "no cell is left"),
        (GOOD + "bugs =\n", "is not TOML"),
        (GOOD + '[[exclude]]\nreleases = ["0.32.0"]\n', "reason: Field required"),
        (GOOD + '[[include]]\nreason = "again"\n', "is in the matrix twice"),
        (
            GOOD + '[[include]]\nfile = "matrix.toml"\nreason = "round"\n',
            "a circular include: matrix.toml → matrix.toml",
        ),
        (GOOD + '[[include]]\nfile = "gone.toml"\nreason = "no"\n', "cannot be read"),
    ],
)
def test_a_bad_matrix_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_matrix(written(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_bugs_can_be_excluded_of_a_release(tmp_path: Path) -> None:
    text = GOOD + '[[exclude]]\nbugs = ["all"]\nreleases = ["0.31.0"]\nreason = "no"\n'
    assert {c.configuration.release for c in load_matrix(written(tmp_path, text))[1]} == {"0.32.0"}


def test_what_cannot_be_run_is_so_elsewhere_too_but_for_its_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reproducers.sweep.limits.device_names", list)
    text = 'bugs = ["44483", "45363"]\nreleases = ["0.32.0"]\ndevice = ["cuda"]\nfix = ["none", "proposed"]\n'
    cells = load_matrix(written(tmp_path, text + 'mode = ["eager", "graphs"]\n'))[1]
    here = [reason_not_applicable(cell) for cell in cells]
    assert all(here)
    elsewhere = {
        (cell.bug, cell.configuration.mode, cell.configuration.fix): reason_not_applicable(cell, elsewhere=True)
        for cell in cells
    }
    assert elsewhere["44483", "graphs", "none"] == ""
    assert elsewhere["44483", "eager", "proposed"] == "there is no fix 'proposed' for 44483"
    assert "engines of its own" in elsewhere["45363", "graphs", "none"]


def test_a_bad_matrix_ends_the_command_with_2_and_starts_nothing(tmp_path: Path) -> None:
    for text in (GOOD.replace("0.31.0", "9.9.9"), GOOD + "colour = 1\n"):
        done = repro("sweep", "--matrix", str(written(tmp_path, text)), "--out", str(tmp_path / "out"))
        assert done.returncode == 2
        assert done.stderr.startswith("error: ")
        assert not (tmp_path / "out" / "cells").exists()
    assert (
        "there is no release 9.9.9"
        in repro(
            "sweep", "--matrix", str(written(tmp_path, GOOD.replace("0.31.0", "9.9.9"))), "--out", str(tmp_path / "o")
        ).stderr
    )


def test_the_kits_own_matrix_is_whole_and_what_cannot_be_run_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reproducers.sweep.limits.device_names", list)
    cells = load_matrix(ROOT / "ci" / "matrix.toml")[1]
    reasons = {cell: reason_not_applicable(cell) for cell in cells}
    assert {cell.bug for cell in cells} == {name for name, bug in catalog().items() if not bug.memory}
    assert all("runner V2" in reasons[cell] for cell in cells if cell.configuration.runner == 2)
    assert any("no fix 'proposed' for 44483" in reason for reason in reasons.values())
    assert sum(not reason for reason in reasons.values()) == 3 * 12 + 10
