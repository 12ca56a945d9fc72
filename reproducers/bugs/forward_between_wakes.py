"""#44483: a forward pass between the two wake-ups of a staged wake.

After `/wake_up?tags=weights` the KV cache is still unmapped. Up to 0.23.0 a request that arrives now runs: on a GPU the
engine dies, on a CPU, where nothing is unmapped, the request is served. Fixed means that it is held until all memory
is mapped, and then completes as it would have without the sleep.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reproducers.bugs.finding import Finding, judged, normalised
from reproducers.errors import NotApplicable
from reproducers.hold import Hold
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Outcome, Verdict

__all__ = ["BUG", "Attempt", "check_order", "judge"]

BUG = "44483"


@dataclass(frozen=True)
class Attempt:
    """One run of the trigger, with one or more requests."""

    order: str
    """Which memory was mapped first."""
    slept: Call
    woken: Call
    """The first, partial wake-up."""
    partial: bool
    """`/is_sleeping` after it, before the requests: true while some memory is unmapped."""
    between: tuple[Hold, ...]
    """Each request between the two wake-ups."""
    last: Call
    """The last wake-up."""
    awake: tuple[Hold, ...]
    """Each request after it."""


def check_order(level: int, order: str) -> None:
    """See that a level and an order can be judged together.

    Raises:
        NotApplicable: level 2 discards the weights, and with the KV cache first nothing can load them in time.
    """
    if level == 2 and order == "kv_cache_first":
        raise NotApplicable("at level 2 the weights must be loaded again before the last wake-up, so they come first")


def judge(control: Control, attempts: Sequence[Attempt], after: Probe | None) -> Judgement:
    """Judge #44483 by what was observed."""
    return judged(BUG, control, [_finding(control, attempt, after) for attempt in attempts], after)


def _finding(control: Control, attempt: Attempt, after: Probe | None) -> Finding:
    for call in (attempt.slept, attempt.woken):
        if not call.ok:
            said = call.error or f"{call.status} {call.body}"
            return Finding(Verdict.OTHER_FAILURE, (f"{call.target} failed: {said}.",), f"call:{normalised(said)}")
    outcomes = [hold.life.outcome for hold in attempt.between]
    window = (attempt.between[0].life.posted, attempt.last.start)
    if not attempt.partial:
        sentence = "The trigger is not armed: /is_sleeping is false after the first wake-up."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "not-partial", window)
    if served := sum(outcome is Outcome.COMPLETED for outcome in outcomes):
        sentence = (
            f"{served} of {len(outcomes)} requests ran between the two wake-ups ({attempt.order}): completed before "
            "all memory was mapped again."
        )
        return Finding(Verdict.REPRODUCED, (sentence,), "served-between-the-wakes", window)
    dead = after is not None and after.dead
    if any(outcome in {Outcome.ENGINE_DEAD, Outcome.FAILED, Outcome.LOST} for outcome in outcomes) and dead:
        first = next(hold.life for hold in attempt.between if hold.life.outcome is not Outcome.HELD)
        sentence = (
            f"A request between the two wake-ups ({attempt.order}) was {first.outcome} and the engine is dead"
            f"{f': {first.error}' if first.error else ''}."
        )
        return Finding(
            Verdict.REPRODUCED, (sentence, f"The last wake-up: {attempt.last}."), "engine-dead-between", window
        )
    if any(outcome not in {Outcome.HELD, None} for outcome in outcomes):
        names = ", ".join(str(outcome) for outcome in outcomes)
        return Finding(Verdict.OTHER_FAILURE, (f"Between the two wake-ups the requests were {names}.",), names, window)
    return _held(control, attempt, window)


def _held(control: Control, attempt: Attempt, window: tuple[float, float]) -> Finding:
    count = len(attempt.between)
    unproven = [hold for hold in attempt.between if hold.life.outcome is None]
    later = [(hold.life, control.difference(hold.life)) for hold in attempt.awake]
    proof = "the answers on the same connections prove it" if unproven else f"server_load {_loads(attempt)} above idle"
    held = (
        f"{count} of {count} requests between the two wake-ups ({attempt.order}) were held for the whole "
        f"{attempt.between[0].patience_s:g} s: no byte, no error; {proof}."
    )
    wrong = [(life, difference) for life, difference in later if life.outcome is not Outcome.COMPLETED or difference]
    if not wrong:
        done = "After the last wake-up the same requests completed, and each answer equals the control."
        return Finding(Verdict.FIXED, (held, done), "held-then-completed", window)
    life, difference = wrong[0]
    if unproven and life.outcome is not Outcome.COMPLETED:
        sentence = "Nothing proves that the server had accepted the request: it was never answered."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "unproven", window)
    how = difference if life.outcome is Outcome.COMPLETED else f"{life.outcome or 'still open'} {life.error}".strip()
    sentence = f"After the last wake-up {len(wrong)} of {count} requests did not equal the control: {how}."
    return Finding(Verdict.OTHER_FAILURE, (held, sentence), f"held-then:{normalised(how)}", window)


def _loads(attempt: Attempt) -> str:
    return str(max(load for hold in attempt.between for load in hold.load))
