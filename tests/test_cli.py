"""The command: bad input is one line and an exit code, nothing is started."""

from pathlib import Path

import pytest
from conftest import repro
from test_check import RECORD

RUN = ("run", "45326")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "99999"), "unknown bug '99999'"),
        ((*RUN, "-p", "levle=1"), "unknown parameter 'levle'"),
        ((*RUN, "-p", "level=high"), "valid integer"),
        ((*RUN, "-p", "level=3"), "less than or equal to 2"),
        ((*RUN, "--engine", "tpu"), "auto, cpu, cuda, emulated or the URL"),
        ((*RUN, "-p", "engine=http://me:word@127.0.0.1:1"), "looks like a secret"),
        ((*RUN, "--out", "README.md/records"), "records cannot be written to README.md/records"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: tuple[str, ...], said: str) -> None:
    done = repro(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_an_unreadable_notebook_is_one_line_and_exit_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import reproducers.cli as cli  # noqa: PLC0415  papermill is slow to import

    (tmp_path / "45326-request-during-sleep.ipynb").write_text('{"cells": [')
    monkeypatch.setattr(cli, "notebooks_folder", lambda: tmp_path)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["run", "45326"])
    assert stopped.value.code == 2


def test_check_says_ok_or_what_is_wrong(tmp_path: Path) -> None:
    truncated = tmp_path / "truncated.ipynb"
    truncated.write_text(RECORD.read_text()[:999])
    done = repro("check", str(RECORD), str(truncated))
    assert done.returncode == 1
    good, bad = done.stdout.splitlines()
    assert good.endswith("vllm-0.32.0-cpu.ipynb: ok")
    assert "truncated.ipynb: is truncated" in bad


def test_list_and_doctor_describe_this_machine() -> None:
    listed = repro("list", COLUMNS="200")
    assert listed.returncode == 0
    assert "REPRODUCED (measured)" in listed.stdout
    looked = repro("doctor", COLUMNS="200")
    assert looked.returncode == 0
    assert "0.32.0 for cpu" in looked.stdout
    assert repro("doctor", REPRO_PYTHON="/nowhere/python", COLUMNS="200").returncode == 1
