"""The notebooks of device memory on the emulated driver: red and green, and nothing without trigger or control."""

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from conftest import awake, nbval
from notebook_runs import changed, executed, judged, path_of

from reproducers.engine import Engine
from reproducers.judgement import VERDICT_MIME, Judgement
from reproducers.record.metadata import output_of
from reproducers.record.read import Record
from reproducers.values import Call, Verdict

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]

DENSE = ["45363", "45552", "46438"]
"""Those whose notebook asks for a dense model; 44972 asks for a hybrid one."""
QUICK = {"settle_s": 0.5, "busy_s": 4.0, "streams": 2, "repeats": 1}
SLEEP = {
    "44972": "slept = vllm.sleep(level=level)",
    "45363": "slept = vllm.sleep(level=1)",
    "45552": "slept = vllm.sleep(level=level)",
    "46438": "calls.append(vllm.sleep(level=level))",
}


@pytest.fixture
def on_hybrid(hybrid: Engine) -> Iterator[Engine]:
    yield from awake(hybrid)


@pytest.fixture
def on_dense(dense: Engine) -> Iterator[Engine]:
    yield from awake(dense)


def ran(name: str, tmp_path: Path, engine: Engine, **parameters: object) -> Record:
    return executed(name, tmp_path / "record.ipynb", engine.url, **QUICK | parameters)


def without_trigger(name: str, engine: Engine) -> list[Judgement]:
    """The verdicts with the sleep of the trigger deleted, and with a call in its place that does nothing."""
    line = SLEEP[name]
    idle = line.replace("vllm.sleep(level=level)", "vllm.resume()").replace("vllm.sleep(level=1)", "vllm.resume()")
    return [judged(name, changed(name, line, new), engine, **QUICK) for new in (None, idle)]


def parameters_elsewhere(engine: Engine) -> list[str]:
    """The parameters of which not every byte is in the emulated memory."""
    return [name for worker in engine.workers.ask("repro_elsewhere") for name in worker]


def test_every_weight_of_a_hybrid_model_is_in_the_emulated_memory(on_hybrid: Engine) -> None:
    assert parameters_elsewhere(on_hybrid) == []
    assert on_hybrid.workers.bytes_by_tag()["weights"].mapped > 4 * 2**20


def test_pages_that_come_back_with_old_bytes_are_seen_and_zeroing_them_is_the_fix(
    on_hybrid: Engine, tmp_path: Path
) -> None:
    kept = ran("44972", tmp_path, on_hybrid, driver="keeps", poison=False)
    assert kept.judgement.verdict is Verdict.REPRODUCED, str(kept.judgement)
    assert kept.judgement.signature == "stale:model-does-not-read"
    assert kept.said["engine"]["device"] == "emulated driver"
    zeroed = ran("44972", tmp_path, on_hybrid, driver="rocm", poison=False)
    assert zeroed.judgement.verdict is Verdict.FIXED
    assert zeroed.judgement.signature == "zeroed-by-the-allocator"


def test_without_the_trigger_nothing_is_said_of_a_hybrid_model(on_hybrid: Engine) -> None:
    for verdict in without_trigger("44972", on_hybrid):
        assert verdict.verdict in {Verdict.INCONCLUSIVE, Verdict.NOT_OBSERVED}, str(verdict)
        assert not on_hybrid.is_sleeping()


def test_nbval_passes_on_the_committed_output_of_the_hybrid_model(on_hybrid: Engine) -> None:
    done = nbval(on_hybrid, path_of("44972"))
    assert done.returncode == 0, done.stdout[-3000:]


def test_in_bfloat16_every_weight_is_in_the_emulated_memory_also_after_a_reload(on_dense: Engine) -> None:
    assert "--dtype" in on_dense.facts.settings
    assert on_dense.facts.settings["--dtype"] == "bfloat16"
    assert parameters_elsewhere(on_dense) == []
    reloaded(on_dense)
    assert parameters_elsewhere(on_dense) == []


def test_in_float32_every_weight_is_in_the_emulated_memory_also_after_a_reload_and_an_update(
    dense_float32: Engine, tmp_path: Path
) -> None:
    assert dense_float32.facts.settings["--dtype"] == "float32"
    assert parameters_elsewhere(dense_float32) == []
    reloaded(dense_float32)
    assert parameters_elsewhere(dense_float32) == []
    record = ran("weight-update", tmp_path, dense_float32, while_asleep=False)
    assert record.judgement.verdict is Verdict.FIXED, str(record.judgement)
    assert parameters_elsewhere(dense_float32) == []


def reloaded(engine: Engine) -> None:
    """Discard the weights and load them again."""
    control = engine.control("The engine sleeps and", max_tokens=16)
    assert control.passed, control.reason
    calls = [engine.sleep(level=2), engine.wake_up(["weights"]), engine.collective_rpc("reload_weights")]
    calls.append(engine.wake_up(["kv_cache"]))
    assert all(call.ok for call in calls), calls
    assert engine.probe(control, "The engine sleeps and", max_tokens=16).well


def test_without_a_weight_transfer_backend_an_update_is_refused(on_dense: Engine) -> None:
    calls = [on_dense.init_weight_transfer_engine({}), on_dense.start_weight_update(), on_dense.update_weights({})]
    calls.append(on_dense.finish_weight_update())
    for call in calls:
        assert isinstance(call, Call)
        assert call.status in {400, 500}, str(call)
    assert on_dense.health() == 200


@pytest.mark.parametrize("name", DENSE)
def test_without_the_trigger_nothing_is_reproduced_and_nothing_is_fixed(name: str, on_dense: Engine) -> None:
    for verdict in without_trigger(name, on_dense):
        assert verdict.verdict in {Verdict.INCONCLUSIVE, Verdict.NOT_OBSERVED}, str(verdict)
        assert not on_dense.is_sleeping()


@pytest.mark.parametrize("name", ["45552", "45363"])
def test_an_unarmed_run_is_never_called_fixed(name: str, on_dense: Engine) -> None:
    notebook = nbformat.read(path_of(name), as_version=4)
    assert judged(name, notebook, on_dense, **QUICK | {"armed": False}).verdict is Verdict.NOT_OBSERVED


@pytest.mark.parametrize("name", DENSE)
def test_nbval_passes_on_the_committed_output(name: str, on_dense: Engine) -> None:
    done = nbval(on_dense, path_of(name))
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_sleep_past_the_engine_that_is_led_through_it_is_fixed(dense: Engine, tmp_path: Path) -> None:
    with dense.with_fixes("verl-6456:proposed"), dense.lend():
        record = ran("verl-6456", tmp_path, dense, fix="proposed")
    assert record.judgement.verdict is Verdict.FIXED, str(record.judgement)
    assert record.said["residue"]["clean"]


def test_a_cpu_engine_has_no_device_memory(tmp_path: Path) -> None:
    record = executed("45552", tmp_path / "record.ipynb", "cpu")
    assert record.judgement.verdict is Verdict.NOT_APPLICABLE
    assert "use engine 'emulated'" in record.judgement.evidence[0]


def dies(name: str, engine: Engine, tmp_path: Path) -> None:
    """Run it with the worker's wait taken out: the engine dies, and its record says of what."""
    with engine.with_fixes(f"{name}:undo"), engine.lend():
        record = ran(name, tmp_path, engine, fix="undo", level=1)
    assert record.judgement.verdict is Verdict.REPRODUCED, str(record.judgement)
    assert "illegal memory access" in " ".join(record.judgement.evidence)
    assert record.said["residue"]["clean"]


@pytest.mark.kills
def test_without_the_workers_wait_the_engine_dies_behind_a_200(hybrid: Engine, tmp_path: Path) -> None:
    dies("45552", hybrid, tmp_path)


@pytest.mark.kills
def test_without_the_workers_wait_an_offload_in_flight_kills_the_engine(dense_float32: Engine, tmp_path: Path) -> None:
    dies("45363", dense_float32, tmp_path)


@pytest.mark.kills
def test_a_sleep_past_the_engine_kills_it(dense: Engine, tmp_path: Path) -> None:
    record = ran("verl-6456", tmp_path, dense)
    assert record.judgement.verdict is Verdict.REPRODUCED, str(record.judgement)
    assert record.said["residue"]["clean"]
    committed = nbformat.read(path_of("verl-6456"), as_version=4)
    assert output_of(committed, VERDICT_MIME) == record.judgement.to_json()
