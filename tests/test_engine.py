"""The real engine: its endpoints, its control, and requests in flight."""

from dataclasses import replace

import pytest

from reproducers import sleep_state, together, watch
from reproducers.calls import BODY_LIMIT
from reproducers.engine import Engine, choose, open_engine
from reproducers.engine.attach import restore
from reproducers.engine.process import OWNER_VARIABLE
from reproducers.errors import EndpointError, EngineFailed, EngineUnavailable, NotApplicable, UsageError
from reproducers.values import Call, Completion, Outcome

pytestmark = pytest.mark.engine

PROMPT = "The engine sleeps and"


def test_it_says_what_it_is(engine: Engine) -> None:
    assert engine.facts.release == engine.version() == "0.32.0"
    assert engine.facts.device == "cpu"
    assert engine.facts.settings["VLLM_USE_V2_MODEL_RUNNER"] == "0"
    assert "--model" not in engine.facts.settings  # no path
    assert engine.process is not None
    assert engine.process.dead_members() == []


def test_its_processes_carry_the_mark_of_the_run_also_after_they_rename_themselves(engine: Engine) -> None:
    assert engine.process is not None
    marks = {p.name(): p.environ().get(OWNER_VARIABLE) for p in engine.process.tree()}
    assert "VLLM::EngineCore" in marks
    assert len(set(marks.values())) == 1
    assert None not in marks.values()


def test_control_passes_and_counts_requests(engine: Engine) -> None:
    control = engine.control(PROMPT, max_tokens=16)
    assert control.passed, control.reason
    assert control.idle_load == 0
    assert control.completion is not None
    assert len(set(control.completion.tokens)) > 8
    assert engine.probe(control, PROMPT, max_tokens=16).well
    assert not engine.probe(control, "Another prompt", max_tokens=16).well


def test_control_of_a_wrong_model_fails_with_the_reason(engine: Engine) -> None:
    model, engine._model = engine._model, "no-such-model"
    control = engine.control(PROMPT, max_tokens=4)
    engine._model = model
    assert not control.passed
    assert "no-such-model" in control.reason


def test_every_call_is_recorded_with_parameters_status_and_a_cut_body(engine: Engine) -> None:
    before = len(engine.journal.calls)
    info = engine.server_info()
    call = engine.journal.calls[before]
    assert {"vllm_config", "vllm_env"} <= set(info)
    assert (call.method, call.path, call.params) == ("GET", "/server_info", {"config_format": "json"})
    assert len(call.body) == BODY_LIMIT
    assert call.start < call.end


def test_sleep_wake_pause_and_resume_change_the_flags(engine: Engine) -> None:
    assert engine.sleep(level=1).ok
    assert engine.is_sleeping()
    assert engine.wake_up(tags=["weights"]).ok
    assert engine.is_sleeping()
    assert engine.wake_up(tags=["kv_cache"]).ok
    assert not engine.is_sleeping()
    assert engine.pause(mode="keep", clear_cache=False).ok
    assert engine.is_paused()
    assert engine.resume().ok
    assert not engine.is_paused()
    assert engine.pause(mode="never").status == 400  # type: ignore[arg-type]
    assert engine.sleep(level=7).status == 400


def test_information_and_weights_answer_as_this_release_does(engine: Engine) -> None:
    assert engine.weight_info() == "default"
    assert engine.update_weight_version("step-1").ok
    assert engine.weight_info() == "step-1"
    assert engine.update_weight_version("default").ok
    assert "checksums" in engine.weight_checker("checksum").body
    assert engine.reset_prefix_cache().ok
    assert "vllm:engine_sleep_state" in engine.metrics()
    assert engine.collective_rpc("reload_weights").ok
    assert engine.release_kv_cache_memory().status in {400, 500}  # wants a finished pause
    assert engine.update_weights({}).status in {400, 500}  # not started
    assert engine.finish_weight_update().status in {400, 500}
    assert engine.health() == 200


def test_a_streamed_request_tells_its_life_and_a_plain_one_its_end(engine: Engine) -> None:
    for stream in (True, False):
        request = engine.post_completion(PROMPT, max_tokens=16, stream=stream)
        assert request.wait_ended(60)
        life = request.life
        assert life.outcome is Outcome.COMPLETED
        assert life.completion is not None
        assert len(life.completion.tokens) == 16
        assert life.posted <= life.sent <= life.first_token <= life.last_token <= life.ended  # type: ignore[operator]


def test_a_held_request_is_counted_until_its_client_hangs_up(engine: Engine) -> None:
    control = engine.control(PROMPT, max_tokens=16)
    engine.sleep(level=1)
    request = engine.post_completion(PROMPT, max_tokens=16)
    hold = watch(engine, control, request, 1.0)
    assert hold.life.outcome is Outcome.HELD
    assert hold.load == (1,)
    request.cancel()
    assert request.life.ended is not None
    assert request.life.outcome is Outcome.LOST
    for _ in range(50):
        if engine.server_load() == 0:
            break
    assert engine.server_load() == 0
    engine.wake_up()


def test_without_load_tracking_only_the_answer_after_the_wake_up_proves_anything(engine: Engine) -> None:
    control = replace(engine.control(PROMPT, max_tokens=16), idle_load=None)
    engine.sleep(level=1)
    request = engine.post_completion(PROMPT, max_tokens=16)
    asleep = watch(engine, control, request, 1.0)
    assert asleep.life.outcome is None
    assert asleep.load == ()
    engine.wake_up()
    assert watch(engine, control, request, 60).life.outcome is Outcome.COMPLETED


def test_one_engine_is_as_released_with_a_fix_and_with_one_undone(engine: Engine) -> None:
    assert "REPRO_FIX" not in engine.facts.settings
    off = set(engine.facts.settings["REPRO_FIX_OFF"].split(","))
    assert {"unknown-wake-tag:proposed", "partial-wake-metric:undo"} <= off

    def after_a_partial_wake() -> tuple[int | None, float | None]:
        engine.sleep(level=1)
        unknown = engine.wake_up(["typo"])  # type: ignore[list-item]
        engine.wake_up(["weights"])
        awake = sleep_state(engine.metrics()).get("awake")
        engine.wake_up()
        return unknown.status, awake

    assert after_a_partial_wake() == (200, 0.0)
    with engine.with_fixes("unknown-wake-tag:proposed"):
        assert engine.facts.settings["REPRO_FIX"] == "unknown-wake-tag:proposed"
        assert set(engine.facts.settings["REPRO_FIX_OFF"].split(",")) == off - {"unknown-wake-tag:proposed"}
        assert after_a_partial_wake() == (400, 0.0)
        with engine.lend():
            attached = open_engine(engine.url, fix="unknown-wake-tag:proposed")
            assert attached.facts.settings == engine.facts.settings
            attached.close()
    with engine.with_fixes("unknown-wake-tag:proposed", "partial-wake-metric:undo"):
        assert after_a_partial_wake() == (400, 1.0)
    assert after_a_partial_wake() == (200, 0.0)
    assert set(engine.facts.settings["REPRO_FIX_OFF"].split(",")) == off
    with pytest.raises(UsageError, match="the fix 1:undo is not loaded in this engine: it has 45326:proposed"):
        engine._turn(["1:undo"])


def test_a_sleep_after_a_pause_is_real_also_with_the_fix_of_45518(engine: Engine) -> None:
    with engine.with_fixes("45518:proposed"):
        engine.pause()
        first, second = engine.sleep(level=1), engine.sleep(level=1)
        assert sleep_state(engine.metrics())["weights_offloaded"] == 1.0
        assert ('"already_sleeping":false' in first.body, '"already_sleeping":true' in second.body) == (True, True)
        assert engine.sleep(level=7).status == 400  # the server checks what it checked before
        engine.wake_up()
        engine.resume()


def test_what_cannot_be_asked_of_a_running_server_is_refused(engine: Engine) -> None:
    with pytest.raises(UsageError, match="the fix 45326:proposed can be asked for only"):
        open_engine(engine.url, fix="45326:proposed")
    with pytest.raises(UsageError, match=r"is vLLM 0\.32\.0, not 0\.30\.0"):
        open_engine(engine.url, release="0.30.0")


def test_a_runner_that_the_device_lacks_is_not_applicable_by_name() -> None:
    with pytest.raises(NotApplicable, match="model runner V2 needs a GPU"):
        open_engine("cpu", runner=2)


@pytest.mark.starts_engines
def test_a_fix_that_a_release_has_no_place_for_fails_the_start_with_the_reason() -> None:
    with pytest.raises(EngineFailed, match=r"there is no fix 1:undo"):
        open_engine("cpu", fix="1:undo", progress=lambda _: None)


def test_a_rejected_request_is_not_a_completion(engine: Engine) -> None:
    answer = engine.complete("", max_tokens=-1)
    assert isinstance(answer, Call)
    assert answer.status == 400
    request = engine.post_completion(PROMPT, max_tokens=-1)
    assert request.wait_ended(10)
    assert request.life.outcome is Outcome.REJECTED


def test_together_lets_both_go_at_once_and_passes_errors_on(engine: Engine) -> None:
    paused, flag = together(lambda: engine.pause().ok, engine.is_sleeping)
    assert paused is True
    assert flag in {True, False}
    engine.resume()
    with pytest.raises(EndpointError, match=r"/nothing → 404"):
        together(lambda: engine._get_json("/nothing"), engine.is_sleeping)


def test_an_attached_server_is_left_awake_and_running(engine: Engine) -> None:
    attached = Engine(engine.facts, engine.url)
    attached.sleep(level=1)
    assert attached.close().clean
    assert not engine.is_sleeping()
    assert engine.health() == 200
    assert restore(engine.url)
    assert isinstance(engine.complete(PROMPT, max_tokens=4), Completion)


def test_choose_names_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unknown engine 'gpu'"):
        choose("gpu")
    monkeypatch.setattr("reproducers.engine.device_names", list)
    with pytest.raises(EngineUnavailable, match="needs an NVIDIA GPU"):
        choose("cuda")
    monkeypatch.setenv("REPRO_PYTHON", "/nowhere/python")
    with pytest.raises(EngineUnavailable, match="correct REPRO_PYTHON"):
        choose("cpu")
    monkeypatch.setenv("REPRO_ENGINE", "http://127.0.0.1:1/")
    assert choose("auto") == "http://127.0.0.1:1"
