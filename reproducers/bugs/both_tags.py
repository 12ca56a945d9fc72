"""#45616's family: both tags in one wake-up after a partial one are answered 200, and the KV cache stays unmapped.

The executor looks at the tags one by one, finds one that is awake already, and returns without a word (read in 0.32.0).
Fixed means that the wake-up maps what is missing and that the engine is awake, or that it is refused with a 4xx.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reproducers.bugs.finding import Finding, failed_call, judged
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Verdict

__all__ = ["BUG", "Attempt", "judge"]

BUG = "45616"


@dataclass(frozen=True)
class Attempt:
    """One sleep, a wake-up of one tag, and one of both."""

    slept: Call
    first: Call
    """The wake-up of one tag."""
    partly: bool
    """`/is_sleeping` after it: whether the trigger is armed."""
    both: Call
    """The wake-up with both tags."""
    sleeping: bool
    """`/is_sleeping` after it."""
    mapped: int | None
    """Bytes of the KV cache that are mapped then; None where there is no device memory to look at."""


def judge(control: Control, attempts: Sequence[Attempt], after: Probe | None, device: str) -> Judgement:
    """Judge by what was observed; the probe comes after a wake-up of everything that is still asleep."""
    return judged(BUG, control, [_finding(attempt) for attempt in attempts], after, device)


def _finding(attempt: Attempt) -> Finding:
    window = (attempt.first.start, attempt.both.end)
    if failed := failed_call([attempt.slept, attempt.first], window):
        return failed
    if not attempt.partly or attempt.both.path != "/wake_up" or "tags" not in attempt.both.params:
        sentence = "There was no wake-up with both tags after a partial one."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "not-armed", window)
    if attempt.both.status is not None and 400 <= attempt.both.status < 500:
        sentence = f"The wake-up with both tags was refused: {attempt.both.status} {attempt.both.body[:200]}."
        return Finding(Verdict.FIXED, (sentence,), "refused", window)
    if failed := failed_call([attempt.both], window):
        return failed
    mapped = "" if attempt.mapped is None else f", {attempt.mapped / 2**20:.0f} MiB of the KV cache are mapped"
    if attempt.sleeping:
        sentence = (
            f"{attempt.both.target} after a partial wake-up answered {attempt.both.status}, and woke nothing: "
            f"/is_sleeping is still true{mapped}."
        )
        return Finding(Verdict.REPRODUCED, (sentence,), "still-asleep", window)
    if attempt.mapped == 0:
        sentence = "/is_sleeping is false, but nothing of the KV cache is mapped."
        return Finding(Verdict.REPRODUCED, (sentence,), "awake-unmapped", window)
    sentence = f"{attempt.both.target} after a partial wake-up woke the rest: /is_sleeping is false{mapped}."
    return Finding(Verdict.FIXED, (sentence,), "awake", window)
