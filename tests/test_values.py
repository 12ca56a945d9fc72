"""Calls, completions, requests and their outcomes."""

import math
from dataclasses import replace

import pytest

from reproducers.states import Probe, Residue
from reproducers.values import Call, Completion, Outcome, RequestLife

WHOLE = Completion(("token_id:10", "token_id:82"), (-0.5, -1.5), "length")
POSTED = RequestLife("request 1", posted=1.0, sent=1.01)


@pytest.mark.parametrize(
    ("life", "held", "alive", "outcome"),
    [
        (replace(POSTED, ended=2.0, status=200, completion=WHOLE), None, True, Outcome.COMPLETED),
        (replace(POSTED, ended=2.0, status=200, completion=WHOLE), None, False, Outcome.COMPLETED),
        (
            replace(POSTED, ended=2.0, status=200, completion=replace(WHOLE, finish_reason="abort")),
            None,
            True,
            Outcome.ABORTED,
        ),
        (replace(POSTED, ended=2.0, status=503, error="paused"), None, True, Outcome.REJECTED),
        (replace(POSTED, ended=2.0, status=400, error="bad"), None, True, Outcome.REJECTED),
        (replace(POSTED, ended=2.0, status=500, error="boom"), None, True, Outcome.FAILED),
        (replace(POSTED, ended=2.0, status=500, error="boom"), None, False, Outcome.ENGINE_DEAD),
        (replace(POSTED, ended=2.0, status=200, error='in the stream: {"code": 500}'), None, True, Outcome.FAILED),
        (replace(POSTED, ended=2.0, error="RemoteProtocolError: closed"), None, True, Outcome.LOST),
        (
            replace(POSTED, ended=2.0, status=200, completion=replace(WHOLE, finish_reason=None)),
            None,
            True,
            Outcome.LOST,
        ),
        (replace(POSTED, ended=2.0, error="ConnectError"), None, False, Outcome.ENGINE_DEAD),
        (replace(POSTED, ended=2.0, status=200, done=True), None, True, Outcome.ABORTED),
        (replace(POSTED, ended=2.0, status=200, done=True, error="in the stream: x"), None, True, Outcome.FAILED),
        (POSTED, True, True, Outcome.HELD),
        (POSTED, False, True, Outcome.LOST),
        (POSTED, None, True, None),
        (POSTED, True, False, Outcome.ENGINE_DEAD),
    ],
)
def test_outcome_follows_from_the_answer_and_from_what_the_server_is_proven_to_hold(
    life: RequestLife, held: bool | None, alive: bool, outcome: Outcome | None
) -> None:
    assert life.with_evidence(held=held, engine_alive=alive) is outcome


def test_completions_are_compared_by_tokens_count_and_logprobs() -> None:
    assert WHOLE.difference(replace(WHOLE, logprobs=(-0.501, -1.5))) == ""
    assert (
        WHOLE.difference(replace(WHOLE, tokens=("token_id:10", "token_id:83")))
        == "token 1 is token_id:83, not token_id:82"
    )
    assert WHOLE.difference(replace(WHOLE, tokens=("token_id:10",), logprobs=(-0.5,))) == "1 tokens, not 2"
    assert WHOLE.difference(replace(WHOLE, logprobs=(-0.5, -1.6))) == "logprobs differ by up to 0.1"
    assert "nan" in WHOLE.difference(replace(WHOLE, logprobs=(-0.5, math.nan)))


def test_a_degenerate_completion_says_why_it_proves_nothing() -> None:
    assert WHOLE.degenerate == ""
    assert "1 distinct token" in replace(WHOLE, tokens=("token_id:0", "token_id:0")).degenerate
    assert "not finite" in replace(WHOLE, logprobs=(math.nan, -1.0)).degenerate


def test_a_call_names_its_query_and_its_answer() -> None:
    call = Call("POST", "/wake_up", {"tags": ["weights", "kv_cache"]}, 0, 1, 200)
    assert str(call) == "POST /wake_up?tags=weights&tags=kv_cache → 200"
    assert call.ok
    assert not replace(call, status=None, error="ReadTimeout").ok
    assert str(replace(call, status=None, error="ReadTimeout")).endswith("→ ReadTimeout")


def test_residue_allows_64_mib_of_device_memory_and_nothing_else() -> None:
    assert Residue(device_bytes=64 * 2**20).clean
    assert not Residue(device_bytes=64 * 2**20 + 1).clean
    assert not Residue(processes=("VLLM::EngineCore",)).clean
    assert not Residue(listening=1).clean
    assert "VLLM::EngineCore" in str(Residue(processes=("VLLM::EngineCore",)))


def test_a_probe_is_well_only_if_everything_is() -> None:
    assert Probe(True, 200, "equal to the control").well
    assert Probe(None, 200, "equal to the control").well
    assert not Probe(False, 200, "equal to the control").well
    assert not Probe(True, None, "equal to the control").well
    assert not Probe(True, 200, "not answered: POST /v1/completions → 500").well


def test_a_stream_that_is_refused_inside_is_rejected() -> None:
    # As vllm 0.33.0 answered on an H200 while paused by abort.
    said = 'in the stream: {"message": "Generation is paused.", "type": "ServiceUnavailableError", "code": 503}'
    refused = RequestLife("request 3", 6.44, status=200, ended=6.48, error=said)
    assert refused.with_evidence(held=None, engine_alive=True) is Outcome.REJECTED
    failed = replace(refused, error=said.replace("503", "500"))
    assert failed.with_evidence(held=None, engine_alive=True) is Outcome.FAILED
