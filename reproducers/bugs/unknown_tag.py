"""A wake-up with a tag that does not exist is answered 200, with the tag echoed, and wakes nothing.

A client with a typing error takes its engine for awake. Fixed means a 4xx, and an engine that sleeps as before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reproducers.bugs.finding import Finding, failed_call, judged
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Verdict

__all__ = ["BUG", "Attempt", "judge"]

BUG = "unknown-wake-tag"


@dataclass(frozen=True)
class Attempt:
    """One sleep, a wake-up with a tag that does not exist, and one of everything."""

    slept: Call
    asleep: bool
    """`/is_sleeping` before the wake-up: whether the trigger is armed."""
    unknown: Call
    """The wake-up with the tag that does not exist."""
    sleeping: bool
    """`/is_sleeping` after it."""
    woken: Call
    """The wake-up of everything."""


def judge(control: Control, attempts: Sequence[Attempt], after: Probe | None) -> Judgement:
    """Judge by what was observed: the healthy path, each wake-up, the healthy path after the last."""
    return judged(BUG, control, [_finding(attempt) for attempt in attempts], after)


def _finding(attempt: Attempt) -> Finding:
    window = (attempt.unknown.start, attempt.unknown.end)
    tags = attempt.unknown.params.get("tags", [])
    if not attempt.slept.ok or not attempt.asleep or attempt.unknown.path != "/wake_up" or not tags:
        sentence = "No wake-up with an unknown tag came to a sleeping engine."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "not-armed", window)
    if failed := failed_call([attempt.woken], window):
        return failed
    status = attempt.unknown.status
    if status is not None and 400 <= status < 500:
        if not attempt.sleeping:
            sentence = f"{attempt.unknown.target} was refused with {status}, and yet the engine is awake."
            return Finding(Verdict.OTHER_FAILURE, (sentence,), "refused-and-awake", window)
        sentence = f"{attempt.unknown.target} was refused with {status}, and the engine sleeps as before."
        return Finding(Verdict.FIXED, (sentence,), "refused", window)
    if attempt.unknown.ok:
        now = "still asleep" if attempt.sleeping else "awake"
        said = f", body {attempt.unknown.body}" if attempt.unknown.body else " with an empty body"
        sentence = f"{attempt.unknown.target} was answered {status}{said}; the engine is {now}."
        return Finding(Verdict.REPRODUCED, (sentence,), "accepted", window)
    sentence = f"{attempt.unknown.target} was answered {status} {attempt.unknown.error or attempt.unknown.body[:200]}."
    return Finding(Verdict.OTHER_FAILURE, (sentence,), "failed", window)
