"""What a sweep came to: outcomes against expectations, files, the catalog's update, and the search over releases."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_for
from junitparser import JUnitXml
from packaging.version import Version

from reproducers.catalog import find_bug
from reproducers.engine import Engine
from reproducers.errors import EngineFailed, HarnessError, UsageError
from reproducers.sweep import results as results_module
from reproducers.sweep.bisect import between, bisect
from reproducers.sweep.cell import Cell, Configuration
from reproducers.sweep.expectations import updated
from reproducers.sweep.group import run_group
from reproducers.sweep.matrix import Matrix
from reproducers.sweep.page import write_page
from reproducers.sweep.results import Outcome, Row, exit_code, rows_of, write_junit, write_results
from reproducers.sweep.run import LocalExecutor, sweep
from reproducers.sweep.state import CellResult, finished, keep, kept, prepare
from reproducers.values import Verdict

STOCK = Configuration("0.32.0", "cpu", 1, "eager", 1, 1, "none", "dense")
UNDO = replace(STOCK, fix="undo")


def result(bug: str, verdict: str, configuration: Configuration = STOCK, repeat: int = 1, **more: Any) -> CellResult:
    cell = Cell(bug, configuration, repeat)
    known = {"device": "cpu", "seconds": 12.0, "record": f"records/{cell.name}.ipynb"} | more
    return CellResult(cell, Verdict(verdict), (f"{bug} was seen.",), "seen", **known)


def rows(*found: CellResult, against: Any = "fix") -> list[Row]:
    return rows_of(found, against)


@pytest.mark.parametrize(
    ("found", "outcome", "code"),
    [
        ([result("44483", "FIXED")], Outcome.AS_EXPECTED, 0),
        ([result("44483", "REPRODUCED", UNDO)], Outcome.AS_EXPECTED, 0),
        ([result("45326", "FIXED")], Outcome.NEWLY_FIXED, 1),
        ([result("44483", "REPRODUCED")], Outcome.REGRESSED, 1),
        ([result("44483", "OTHER_FAILURE")], Outcome.REGRESSED, 1),
        ([result("44483", "NOT_OBSERVED")], Outcome.STALE, 1),
        ([result("44483", "FIXED"), result("44483", "REPRODUCED", repeat=2)], Outcome.FLAKY, 1),
        ([result("44483", "NOT_APPLICABLE", record="")], Outcome.NOT_APPLICABLE, 0),
        ([result("44483", "INCONCLUSIVE", failure="no port")], Outcome.HARNESS, 3),
        ([result("44483", "FIXED", faults=("changed",))], Outcome.HARNESS, 3),
        ([CellResult.not_run(Cell("44483", STOCK, 1))], Outcome.NOT_RUN, 3),
        ([result("44483", "FIXED"), CellResult.not_run(Cell("44483", STOCK, 2))], Outcome.NOT_RUN, 3),
        ([result("44483", "REPRODUCED"), CellResult.not_run(Cell("44483", STOCK, 2))], Outcome.REGRESSED, 1),
        ([result("45326", "FIXED", replace(STOCK, release="0.20.0"))], Outcome.STALE, 1),
    ],
)
def test_each_outcome_and_its_exit_code(found: list[CellResult], outcome: Outcome, code: int) -> None:
    (row,) = rows(*found)
    assert row.outcome is outcome, row.said
    assert exit_code([row]) == code


def test_a_fix_can_be_held_against_the_release_as_it_is() -> None:
    assert rows(result("44483", "REPRODUCED", UNDO), against="released")[0].outcome is Outcome.REGRESSED
    proposed = result("45326", "FIXED", replace(STOCK, fix="proposed"))
    assert rows(proposed)[0].outcome is Outcome.AS_EXPECTED
    assert rows(proposed, against="released")[0].outcome is Outcome.NEWLY_FIXED


def test_what_is_not_as_expected_weighs_more_than_a_harness_failure() -> None:
    failed, regressed = result("45326", "INCONCLUSIVE", failure="x"), result("44483", "REPRODUCED")
    assert exit_code(rows(failed, regressed)) == 1


def test_the_files_say_what_the_rows_say(tmp_path: Path) -> None:
    found = [
        result("44483", "REPRODUCED"),
        replace(result("45326", "REPRODUCED"), evidence=("y" * 20_000,)),
        replace(result("45518", "FIXED"), evidence=("<b>&</b> \x1b[31mred\x1b[0m\x00\ud800",)),
        result("52144", "NOT_APPLICABLE", record=""),
        result("partial-wake-metric", "INCONCLUSIVE", failure="no port"),
    ]
    table = rows(*found)
    write_results(table, tmp_path / "results.json", kit="0.1.0", seconds=60, starts=1)
    data = json.loads((tmp_path / "results.json").read_text())
    assert (data["schema"], data["engine_starts"], len(data["rows"])) == (results_module.SCHEMA, 1, 5)
    assert data["rows"][0]["cells"][0]["record"].startswith("records/45326-vllm-0.32.0-cpu")
    write_junit(table, tmp_path / "junit.xml")
    (suite,) = JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (5, 2, 1, 1)
    assert suite.name == "vllm-0.32.0-cpu-v1-eager"
    write_page(table, tmp_path / "index.html", seconds=60, starts=1)
    page = (tmp_path / "index.html").read_text()
    assert "3 of 5 not as expected" in page
    assert "<script" not in page
    assert "<b>&</b>" not in page
    assert 'class="bad"' in page


def test_a_result_is_kept_whole_and_counts_only_with_its_record(tmp_path: Path) -> None:
    prepare(tmp_path, {"bugs": ["44483"]})
    one = result("44483", "FIXED")
    keep(tmp_path, one)
    assert kept(tmp_path, one.cell) is None
    (tmp_path / one.record).write_text("{}")
    assert kept(tmp_path, one.cell) == one
    (tmp_path / "cells" / f"{one.cell.name}.json").write_text('{"cell"')
    assert kept(tmp_path, one.cell) is None
    (tmp_path / "records" / ".running-x").mkdir()
    (tmp_path / "cells" / "half.part").write_text("")
    prepare(tmp_path, {"bugs": ["44483"]})
    assert not (tmp_path / "records" / ".running-x").exists()
    assert not (tmp_path / "cells" / "half.part").exists()
    with pytest.raises(UsageError, match="another matrix"):
        prepare(tmp_path, {"bugs": ["45326"]})


def test_what_the_harness_could_not_judge_is_kept_and_tried_again(tmp_path: Path) -> None:
    prepare(tmp_path, {"bugs": ["44483"]})
    one = CellResult.failed(result("44483", "FIXED").cell, "EngineFailed: No module named 'ray'", 26.0, 0)
    keep(tmp_path, one)
    assert kept(tmp_path, one.cell) == one
    assert not finished(tmp_path, one.cell)
    (row,) = rows(one)
    assert row.said == "harness failure: EngineFailed: No module named 'ray'"
    keep(tmp_path, replace(result("44483", "INCONCLUSIVE"), record=""))  # its control failed
    assert not finished(tmp_path, one.cell)
    altered = replace(result("44483", "FIXED"), record="", faults=("it was changed after it was made",))
    keep(tmp_path, altered)
    assert not finished(tmp_path, one.cell)
    assert rows(altered)[0].said == "harness failure: it was changed after it was made"
    keep(tmp_path, replace(result("44483", "FIXED"), record=""))
    assert finished(tmp_path, one.cell)


def test_an_engine_that_does_not_start_is_not_started_for_every_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def fails(*_: object, **__: object) -> Engine:
        tried.append(1)
        raise EngineFailed("the engine ended with status 1: No module named 'ray'")

    monkeypatch.setattr("reproducers.sweep.group.open_engine", fails)
    prepare(tmp_path, {"bugs": ["44483", "45326", "45518"]})
    cells = [["44483", 1], ["45326", 1], ["45518", 1]]
    run_group(tmp_path, {"configuration": vars(STOCK), "cells": cells, "parameters": {}, "bugs": []})
    said = [kept(tmp_path, Cell(bug, STOCK, 1)) for bug, _ in cells]
    assert [s.failure for s in said if s] == ["EngineFailed: the engine ended with status 1: No module named 'ray'"] * 3
    assert len(tried) == 2


def test_an_interrupted_sweep_gives_what_is_done_and_goes_on_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = Matrix(bugs=("44483", "45326"), releases=("0.32.0",))
    cells = matrix.cells()
    asked = []

    class OneCell:
        """Finishes one cell of what it is given; is interrupted after the first."""

        stopped = 0

        def stop(self) -> None:
            self.stopped += 1

        def run(self, folder: Path, order: dict[str, Any], _: object) -> str:
            asked.append([bug for bug, _ in order["cells"]])
            keep(folder, replace(result(order["cells"][0][0], "FIXED"), record=""))
            if len(asked) == 1:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                time.sleep(1)
            return ""

    monkeypatch.setattr("reproducers.sweep.run.release_exists", lambda *_: True)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        executor = OneCell()
        stopped = sweep(matrix, cells, tmp_path, executor=executor)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.interrupted
    assert executor.stopped == 1
    outcomes = {row.bug: row.outcome for row in rows(*stopped.results)}
    assert outcomes == {"44483": Outcome.AS_EXPECTED, "45326": Outcome.NOT_RUN}
    write_page(rows(*stopped.results), tmp_path / "index.html", seconds=1, starts=1)
    assert "Everything as expected so far, 1 not run" in (tmp_path / "index.html").read_text()
    write_junit(rows(*stopped.results), tmp_path / "junit.xml")
    assert JUnitXml.fromfile(str(tmp_path / "junit.xml")).skipped == 1
    assert not finished(tmp_path, cells[1])
    whole = sweep(matrix, cells, tmp_path, executor=OneCell())
    assert not whole.interrupted
    assert [r.signature for r in whole.results] == ["seen", "seen"]
    assert asked == [["44483", "45326"], ["45326"]]


def test_a_group_that_does_not_end_is_killed_when_the_sweep_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    monkeypatch.setattr("reproducers.sweep.run.STOP_BOUND_S", 1.0)
    begin = subprocess.Popen
    monkeypatch.setattr("subprocess.Popen", lambda _, **how: begin([sys.executable, "-c", deaf], **how))
    (tmp_path / "orders").mkdir()
    executor, order = LocalExecutor(), {"configuration": vars(STOCK)}
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(executor.run, tmp_path, order, lambda *_: None)
        wait_for(lambda: executor._running, 10, "the group")
        time.sleep(1)
        executor.stop()
        assert running.result(10).startswith("its process ended with status -9")
    assert executor.run(tmp_path, order, lambda *_: None) == "it was stopped"


CATALOG = """# kept
[44483]
title = "A"
links = ["https://github.com/vllm-project/vllm/issues/44483"]
part = "state transitions"
notebook = "44483-forward-between-the-wakes.ipynb"

[[44483.expect]]
verdict = "FIXED"
since = "0.24.0"
source = "measured"
"""


def test_a_measured_verdict_splits_the_range_and_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []
    monkeypatch.setattr("reproducers.sweep.expectations.load", lambda path, _: loaded.append(path))
    path = tmp_path / "catalog.toml"
    path.write_text(CATALOG)
    later = replace(STOCK, release="0.33.0")
    not_there = result("44483", "NOT_APPLICABLE", replace(STOCK, mode="graphs"), record="")
    measured = [result("44483", "REPRODUCED"), result("44483", "REPRODUCED", later), not_there]
    text, difference = updated(path, rows(*measured))
    assert text.startswith("# kept")
    assert text.count("\n\n[[44483.expect]]\n") == text.count("[[44483.expect]]") > 1
    assert text.endswith('"\n')
    assert loaded
    assert '+before = "0.32.0"' in difference
    assert updated(path, rows(result("44483", "FIXED")))[1] == ""
    monkeypatch.undo()
    import tomllib  # noqa: PLC0415

    from reproducers.catalog import Bug  # noqa: PLC0415

    bug = Bug(id="44483", **tomllib.loads(text)["44483"])
    seen = {(r, d): bug.expected(r, d) for r in ("0.31.0", "0.32.0", "0.33.0") for d in ("cpu", "NVIDIA H200")}
    verdicts = {key: e.verdict.value for key, e in seen.items() if e}
    assert verdicts == {
        ("0.31.0", "cpu"): "FIXED",
        ("0.32.0", "cpu"): "REPRODUCED",
        ("0.33.0", "cpu"): "REPRODUCED",
        ("0.31.0", "NVIDIA H200"): "FIXED",
        ("0.32.0", "NVIDIA H200"): "FIXED",
        ("0.33.0", "NVIDIA H200"): "FIXED",
    }


def judge_of(verdicts: dict[str, str], asked: list[str]) -> Callable[[str, int], Verdict]:
    def judge(release: str, _: int) -> Verdict:
        asked.append(release)
        return Verdict(verdicts[release])

    return judge


def test_the_search_halves_and_walks_around_what_cannot_be_judged() -> None:
    names = [f"0.{n}.0" for n in range(20, 30)]
    verdicts = {name: "REPRODUCED" if i < 6 else "FIXED" for i, name in enumerate(names)} | {"0.25.0": "INCONCLUSIVE"}
    asked: list[str] = []
    found = bisect("x", names, judge_of(verdicts, asked), good="0.29.0", runs=1, say=lambda _: None)
    assert (found.first, found.last, found.skipped) == ("0.26.0", "0.24.0", ("0.25.0",))
    assert len(asked) <= 7
    assert "first release with FIXED is 0.26.0" in str(found)
    assert "could not be judged in between: 0.25.0" in str(found)


def test_a_search_without_two_different_ends_is_refused() -> None:
    asked: list[str] = []
    same = judge_of({"1": "FIXED", "2": "FIXED"}, asked)
    with pytest.raises(HarnessError, match="both ends are FIXED"):
        bisect("x", ["1", "2"], same, good="2", runs=1, say=lambda _: None)
    turned = judge_of({"1": "REPRODUCED", "2": "FIXED"}, asked)
    with pytest.raises(UsageError, match="exchange --good and --bad"):
        bisect("x", ["1", "2"], turned, good="1", runs=1, say=lambda _: None)
    dark = judge_of({"1": "INCONCLUSIVE", "2": "FIXED"}, asked)
    with pytest.raises(HarnessError, match="1 cannot be judged"):
        bisect("x", ["1", "2"], dark, good="2", runs=1, say=lambda _: None)


def test_the_releases_between_two_are_published_ones() -> None:
    published = [Version(text) for text in ("0.29.0", "0.30.0", "0.31.0", "0.32.0")]
    assert between(published, "0.32.0", "0.30.0") == ["0.30.0", "0.31.0", "0.32.0"]
    with pytest.raises(UsageError, match=r"0\.30\.1 is not a published release"):
        between(published, "0.30.1", "0.32.0")
    with pytest.raises(UsageError, match="the same release"):
        between(published, "0.32.0", "0.32.0")


def test_every_bug_says_which_fixes_it_has() -> None:
    assert find_bug("45326").fixes == ("proposed",)
