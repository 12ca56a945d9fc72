"""Resume while asleep: nothing guards the scheduler against memory that is not mapped.

`/resume` opens the scheduler's gate whatever the memory is: the next request runs on unmapped weights and kills the
engine (measured on 0.26.0 and 0.33.0), or, where there is no device memory, is served by an engine that sleeps. Fixed
means that the request waits until the wake-up and then equals the control, or is refused, or that `/resume` is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reproducers.bugs.finding import Finding, failed_call, judged
from reproducers.hold import Hold
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Outcome, Verdict

__all__ = ["BUG", "Attempt", "judge"]

BUG = "resume-while-asleep"


@dataclass(frozen=True)
class Attempt:
    """One sleep, one resume, one request before the wake-up."""

    slept: Call
    asleep: bool
    """`/is_sleeping` before the resume: whether the trigger is armed."""
    resumed: Call
    before_wake: Hold
    """What became of the request before the wake-up."""
    woken: Call
    after_wake: Hold
    """What became of it after the wake-up."""


def judge(control: Control, attempts: Sequence[Attempt], after: Probe | None, device: str) -> Judgement:
    """Judge by what was observed: the healthy path, each sleep and resume, the healthy path after the last."""
    findings = [_finding(control, a, after if a is attempts[-1] else None) for a in attempts]
    return judged(BUG, control, findings, after, device)


def _finding(control: Control, attempt: Attempt, after: Probe | None) -> Finding:
    request = attempt.before_wake.life
    window = (attempt.resumed.start, attempt.woken.start)
    if not attempt.slept.ok or not attempt.asleep:
        return Finding(Verdict.NOT_OBSERVED, ("The engine did not sleep before the resume.",), "not-armed", window)
    if attempt.resumed.path != "/resume":
        return Finding(Verdict.NOT_OBSERVED, ("Nothing was resumed.",), "not-armed", window)
    if attempt.resumed.status is not None and 400 <= attempt.resumed.status < 500:
        sentence = f"/resume was refused while asleep: {attempt.resumed.status} {attempt.resumed.body[:200]}."
        return Finding(Verdict.FIXED, (sentence,), "resume-refused", window)
    if (after is not None and after.dead) or request.outcome is Outcome.ENGINE_DEAD:
        sentence = f"/resume while asleep answered {attempt.resumed.status}, and the next request killed the engine."
        return Finding(Verdict.REPRODUCED, (sentence, _said(attempt)), "engine-dead", window)
    if not attempt.resumed.ok:
        return Finding(Verdict.OTHER_FAILURE, (f"{attempt.resumed}.",), "resume-failed", window)
    if request.first_token is not None or request.outcome is Outcome.COMPLETED:
        sentence = "After /resume the sleeping engine served a request, before any wake-up."
        return Finding(Verdict.REPRODUCED, (sentence, _said(attempt)), "served-while-asleep", window)
    if request.outcome in {Outcome.FAILED, Outcome.LOST}:
        sentence = f"After /resume while asleep a request was {request.outcome}."
        return Finding(Verdict.REPRODUCED, (sentence, _said(attempt)), f"request-{request.outcome.lower()}", window)
    if request.outcome in {Outcome.REJECTED, Outcome.ABORTED}:
        sentence = f"After /resume while asleep a request was {request.outcome} at once."
        return Finding(Verdict.FIXED, (sentence,), f"request-{request.outcome.lower()}", window)
    if failed := failed_call([attempt.woken], window):
        return failed
    if request.outcome is Outcome.HELD and attempt.before_wake.sleeping:
        return _held(control, attempt, window)
    sentence = f"It could not be told what the engine did with the request: {request.outcome or 'no outcome'}."
    return Finding(Verdict.NOT_OBSERVED, (sentence,), "untold", window)


def _held(control: Control, attempt: Attempt, window: tuple[float, float]) -> Finding:
    life = attempt.after_wake.life
    if life.completion is None or life.outcome is not Outcome.COMPLETED or control.completion is None:
        sentence = f"The request was held, but after the wake-up it was {life.outcome or 'not answered'}."
        return Finding(Verdict.OTHER_FAILURE, (sentence,), "held-then-lost", window)
    if difference := control.completion.difference(life.completion):
        sentence = f"The request was held, but its answer after the wake-up differs from the control: {difference}."
        return Finding(Verdict.OTHER_FAILURE, (sentence,), "held-then-wrong", window)
    sentence = "The request was held until the wake-up, and its answer then equals the control."
    return Finding(Verdict.FIXED, (sentence,), "held-until-wake", window)


def _said(attempt: Attempt) -> str:
    life = attempt.before_wake.life
    return f"The request was {life.outcome or 'open'}: {life.tokens} tokens; {life.error[:200] or 'no error'}."
