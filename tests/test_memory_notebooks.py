"""The notebooks of device memory on the emulated driver: red and green, and nothing without trigger or control."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from conftest import nbval
from test_notebooks import changed, executed

from reproducers import MODELS
from reproducers.catalog import catalog, notebooks_folder
from reproducers.engine import Engine, EngineSettings, open_engine
from reproducers.judgement import VERDICT_MIME
from reproducers.record.metadata import output_of
from reproducers.record.read import Record
from reproducers.values import Verdict

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

BUGS = ["44972", "45363", "45552", "46438"]
QUICK = {"settle_s": 0.5, "busy_s": 4.0, "streams": 2, "repeats": 1}
SLEEP = {
    "44972": "slept = vllm.sleep(level=level)",
    "45363": "slept = vllm.sleep(level=1)",
    "45552": "slept = vllm.sleep(level=level)",
    "46438": "calls.append(vllm.sleep(level=level))",
}


@pytest.fixture(scope="module")
def hybrid() -> Iterator[Engine]:
    """An engine with a hybrid model on the emulated driver; on a CPU that model answers short prompts only."""
    engine = open_engine("emulated", settings=EngineSettings(model=MODELS["falcon-h1"]), memory=True)
    yield engine
    assert engine.close().clean


@pytest.fixture(scope="module")
def dense() -> Iterator[Engine]:
    """An engine with a dense model on the emulated driver."""
    engine = open_engine("emulated", memory=True)
    yield engine
    assert engine.close().clean


@pytest.fixture
def emulated(name: str, request: pytest.FixtureRequest) -> Engine:
    """The engine for a notebook."""
    engine: Engine = request.getfixturevalue("hybrid" if name == "44972" else "dense")
    assert not engine.is_sleeping()
    return engine


def ran(name: str, tmp_path: Path, engine: str, notebook: Path | None = None, **parameters: object) -> Record:
    source = notebook or notebooks_folder() / catalog()[name].notebook
    return executed(source, tmp_path / "record.ipynb", engine, **QUICK | parameters)


def test_pages_that_come_back_with_old_bytes_are_seen_and_zeroing_them_is_the_fix(
    hybrid: Engine, tmp_path: Path
) -> None:
    kept = ran("44972", tmp_path, hybrid.url, driver="keeps", poison=False)
    assert kept.judgement.verdict is Verdict.REPRODUCED, str(kept.judgement)
    assert kept.judgement.signature == "stale:model-does-not-read"
    assert kept.said["engine"]["device"] == "emulated driver"
    zeroed = ran("44972", tmp_path, hybrid.url, driver="rocm", poison=False)
    assert zeroed.judgement.verdict is Verdict.FIXED
    assert zeroed.judgement.signature == "zeroed-by-the-allocator"


@pytest.mark.parametrize(("name", "level"), [("45552", 1), ("45363", 1)])
def test_without_the_workers_wait_the_engine_dies_behind_a_200(name: str, level: int, tmp_path: Path) -> None:
    record = ran(name, tmp_path, "emulated", fix="undo", level=level)
    assert record.judgement.verdict is Verdict.REPRODUCED, str(record.judgement)
    assert "illegal memory access" in " ".join(record.judgement.evidence)
    assert record.said["residue"]["clean"]


@pytest.mark.parametrize(("fix", "verdict"), [("none", Verdict.REPRODUCED), ("proposed", Verdict.FIXED)])
def test_a_sleep_past_the_engine_kills_it_and_one_that_goes_through_it_does_not(
    fix: str, verdict: Verdict, tmp_path: Path
) -> None:
    record = ran("verl-6456", tmp_path, "emulated", fix=fix)
    assert record.judgement.verdict is verdict, str(record.judgement)
    assert record.said["residue"]["clean"]
    if fix == "none":
        committed = nbformat.read(notebooks_folder() / catalog()["verl-6456"].notebook, as_version=4)
        assert output_of(committed, VERDICT_MIME) == record.judgement.to_json()


def test_the_allocator_of_a_release_before_the_guard_releases_twice(tmp_path: Path) -> None:
    record = ran("46438", tmp_path, "emulated", release="0.27.1", over_http=False)
    assert record.judgement.verdict is Verdict.REPRODUCED, str(record.judgement)
    assert "CUDA Error: invalid argument" in record.judgement.evidence[0]
    assert record.said["engine"]["device"] == "emulated driver"


@pytest.mark.parametrize("name", BUGS)
def test_without_the_trigger_nothing_is_reproduced_and_nothing_is_fixed(
    name: str, emulated: Engine, tmp_path: Path
) -> None:
    line = SLEEP[name]
    for old, new in ((line, None), (line, line.replace("vllm.sleep(level=level)", "vllm.resume()"))):
        idle = new and new.replace("vllm.sleep(level=1)", "vllm.resume()")
        verdict = ran(name, tmp_path, emulated.url, changed(name, tmp_path, old, idle)).judgement.verdict
        assert verdict in {Verdict.INCONCLUSIVE, Verdict.NOT_OBSERVED}, f"{idle}: {verdict}"
        assert not emulated.is_sleeping()


@pytest.mark.parametrize("name", ["45552", "45363"])
def test_an_unarmed_run_is_never_called_fixed(name: str, emulated: Engine, tmp_path: Path) -> None:
    assert ran(name, tmp_path, emulated.url, armed=False).judgement.verdict is Verdict.NOT_OBSERVED


def test_a_cpu_engine_has_no_device_memory(tmp_path: Path) -> None:
    record = ran("45552", tmp_path, "cpu")
    assert record.judgement.verdict is Verdict.NOT_APPLICABLE
    assert "use engine 'emulated'" in record.judgement.evidence[0]


@pytest.mark.parametrize("name", BUGS)
def test_nbval_passes_on_the_committed_output(name: str, emulated: Engine) -> None:
    with emulated.lend():  # the allocator of its release is looked at alone
        done = nbval(emulated, notebooks_folder() / catalog()[name].notebook)
    assert done.returncode == 0, done.stdout[-3000:]
