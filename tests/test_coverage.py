"""The RL CI matrix: its rows, and the judge of what came of them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from conftest import ROOT
from test_request_during_sleep import CONTROL, DEAD, WELL

from reproducers.bugs.matrix_rows import Checked, Checks, judge
from reproducers.checks import CheckRunner
from reproducers.coverage import ROWS_MIME, load_rows, rows
from reproducers.errors import EndpointError, NotArmed, UsageError
from reproducers.journal import Journal
from reproducers.states import EngineFacts
from reproducers.values import Verdict

WELL_DONE = Checked("full-wake", True, "equal", 1.0, 2.0)
WRONG = Checked("leak", False, "8192 bytes more after 10 cycles", 2.0, 3.0)
ROW = 'title = "t"\npart = "consistency"\nkind = "physical"\n'


def test_the_notebook_has_a_check_for_every_row_that_says_so_and_for_no_other() -> None:
    node = nbformat.read(ROOT / "notebooks" / "45585-matrix.ipynb", as_version=4)
    source = "\n".join(cell.source for cell in node.cells)
    for row in rows().values():
        assert (f'@check("{row.name}")' in source) is row.check, row.name


def test_all_three_parts_and_all_three_kinds_have_rows_and_so_have_one_two_and_four_gpus() -> None:
    assert {row.part for row in rows().values()} == {"state transitions", "information retrieval", "consistency"}
    assert {row.kind for row in rows().values()} == {"behavioural", "physical", "protocol"}
    assert {0, 1, 2, 4} <= {row.gpus for row in rows().values()}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"[a]\n{ROW}", "it is a check, or names notebooks, or says in not_run"),
        (f'[a]\n{ROW}check = true\nnot_run = "x"\n', "it is a check, or names notebooks, or says in not_run"),
        (f'[a]\n{ROW}notebooks = ["0"]\n', "there is no notebook 0"),
        (f"[a]\n{ROW}check = true\ngpu = 1\n", "gpu"),
        ("[a\n", "rows.toml"),
    ],
)
def test_a_bad_file_of_rows_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "rows.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        load_rows(tmp_path / "rows.toml")


def test_what_an_engine_lacks_for_a_row() -> None:
    cpu = EngineFacts("0.31.0", "cpu", "m", True)
    assert rows()["leak"].missing(cpu) == "a CPU engine has no device memory"
    assert rows()["latency"].missing(cpu) == "first in 0.32.0"
    assert rows()["latency"].missing(replace(cpu, release="0.33.0")) == ""
    assert rows()["leak"].missing(replace(cpu, device="NVIDIA H200")) == ""
    assert rows()["latency"].missing(replace(cpu, release="dev")) == ""
    assert "does not say" in rows()["leak"].missing(replace(cpu, device="unknown"))


def test_every_row_that_was_run_and_passed_is_fixed_and_one_that_failed_is_named() -> None:
    not_run = Checked("latency", None, "first in 0.32.0", 2.0, 2.0)
    verdict = judge(CONTROL, [WELL_DONE, not_run], ["full-wake", "latency"], WELL, "cpu")
    assert (verdict.verdict, verdict.runs) == (Verdict.FIXED, 1)
    failed = judge(CONTROL, [WELL_DONE, WRONG], ["full-wake", "leak"], WELL, "cpu")
    assert (failed.verdict, failed.hits, failed.signature) == (Verdict.REPRODUCED, 1, "row-failed:leak")
    assert failed.evidence[0] == "leak: 8192 bytes more after 10 cycles."


def test_a_row_that_is_missing_proves_nothing_and_neither_does_a_broken_control() -> None:
    assert judge(CONTROL, [WELL_DONE], ["full-wake", "leak"], WELL, "").verdict is Verdict.NOT_OBSERVED
    assert judge(CONTROL, [], [], WELL, "").verdict is Verdict.INCONCLUSIVE
    assert judge(replace(CONTROL, passed=False), [WELL_DONE], ["full-wake"], WELL, "").verdict is Verdict.INCONCLUSIVE
    assert judge(CONTROL, [WELL_DONE], ["full-wake"], DEAD, "").verdict is Verdict.OTHER_FAILURE


def test_a_row_that_is_not_proven_to_be_armed_is_neither_passed_nor_failed() -> None:
    unarmed = Checked("parallel-sampling", None, "whole before the sleep was answered", 3.0, 4.0, armed=False)
    verdict = judge(CONTROL, [WELL_DONE, unarmed], ["full-wake", "parallel-sampling"], WELL, "cpu")
    assert (verdict.verdict, verdict.signature) == (Verdict.NOT_OBSERVED, "not-armed:parallel-sampling")
    assert verdict.evidence[0] == "The row parallel-sampling proves nothing: whole before the sleep was answered."
    assert judge(CONTROL, [unarmed, WRONG], ["leak"], WELL, "cpu").verdict is Verdict.REPRODUCED
    assert Checks((unarmed,))._repr_mimebundle_()[ROWS_MIME]["parallel-sampling"]["outcome"] == "not armed"


def test_a_check_that_cannot_prove_what_it_is_about_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reproducers.checks.restore", lambda *_, **__: True)
    vllm = SimpleNamespace(url="", facts=EngineFacts("0.32.0", "cpu", "m", True), journal=Journal())
    check = CheckRunner(vllm, CONTROL)  # type: ignore[arg-type]

    @check("parallel-sampling")
    def _() -> str:
        raise NotArmed("it was over before")

    @check("full-wake")
    def _() -> str:
        raise EndpointError("GET /x → 500")

    outcomes = [(c.row, c.passed, c.armed, c.said) for c in check.checked]
    assert outcomes == [
        ("parallel-sampling", None, False, "it was over before"),
        ("full-wake", False, True, "not answered: GET /x → 500"),
    ]


def test_the_rows_are_shown_and_kept_as_data() -> None:
    shown = Checks((WELL_DONE, WRONG))._repr_mimebundle_()
    assert shown[ROWS_MIME]["leak"] == {"outcome": "FAILED", "said": "8192 bytes more after 10 cycles"}
    assert "| `full-wake` | passed | equal |" in shown["text/markdown"]
