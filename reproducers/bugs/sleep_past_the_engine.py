"""verl #6456: a sleep that goes past the engine frees memory that every flag says is there.

`collective_rpc("sleep")` reaches the workers and nobody else: the scheduler's gate stays open, `/is_sleeping` is false,
the metric says awake, and the engine's own wake-up maps nothing, since it takes itself for awake. In verl only one of
eight data-parallel shards slept. Right is what `/sleep` does, which is the control here: the bytes of every worker and
GPU fall, every flag says asleep, and the wake-up restores both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reproducers.bugs.finding import Finding, judged
from reproducers.judgement import Judgement
from reproducers.residency import Residency
from reproducers.states import Control, Probe
from reproducers.values import Call, Verdict

__all__ = ["BUG", "Attempt", "judge", "with_sleep_through_the_engine"]

BUG = "verl-6456"


@dataclass(frozen=True)
class Attempt:
    """One sleep and one wake-up."""

    before: Residency
    slept: Call
    asleep: Residency
    woken: Call
    awake: Residency


def with_sleep_through_the_engine(control: Control, attempt: Attempt | None, after: Probe | None) -> Control:
    """Take a sleep through `/sleep` into the control: it must free, say so, and come back."""
    if not control.passed or attempt is None:
        return control
    wrong = _wrong(attempt)
    if wrong or after is None or not after.well:
        reason = wrong or f"the engine is not well afterwards: {after}"
        return replace(control, passed=False, reason=f"a sleep through /sleep is not well either: {reason}")
    return replace(control, reason=f"{control.reason}; through /sleep memory and flags agree")


def judge(control: Control, attempts: Sequence[Attempt], after: Probe | None, device: str) -> Judgement:
    """Judge by what was observed: the control, each sleep past the engine, the healthy path after the last."""
    findings = [_finding(a, after if a is attempts[-1] else None) for a in attempts]
    return judged(BUG, control, findings, after, device)


def _finding(attempt: Attempt, after: Probe | None) -> Finding:
    window = (attempt.slept.start, attempt.woken.end)
    freed = attempt.asleep.freed_since(attempt.before)
    if attempt.slept.path != "/collective_rpc" or not any(freed):
        sentence = f"No sleep went past the engine: {attempt.slept}, then {attempt.asleep}."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "not-armed", window)
    if wrong := _wrong(attempt):
        lost = " The engine is dead after that." if after is not None and after.lost else ""
        return Finding(Verdict.REPRODUCED, (f"{wrong}.{lost}", *_steps(attempt)), "past-the-engine", window)
    sentence = f"Memory and flags agree, and the wake-up restores both: {attempt.asleep}; then {attempt.awake}."
    return Finding(Verdict.FIXED, (sentence,), "agrees", window)


def _wrong(attempt: Attempt) -> str:
    freed = attempt.asleep.freed_since(attempt.before)
    if not attempt.slept.ok:
        return (
            f"{attempt.slept.target} failed: {attempt.slept.status} {attempt.slept.error or attempt.slept.body[:200]}"
        )
    if not all(freed):
        return f"only {sum(freed)} of {len(freed)} workers and GPUs have freed their memory"
    if attempt.asleep.sleeping is not True:
        return "the memory is unmapped, and /is_sleeping is false"
    if attempt.asleep.awake:
        return "the memory is unmapped, and the metric says awake"
    if not attempt.woken.ok:
        return f"{attempt.woken.target} failed: {attempt.woken.status} {attempt.woken.body[:200]}"
    if any(attempt.awake.freed_since(attempt.before)) or not attempt.awake.workers:
        return "the wake-up answered 200 and did not map what was freed"
    if attempt.awake.sleeping is not False:
        return "the engine says that it sleeps after the wake-up"
    return ""


def _steps(attempt: Attempt) -> tuple[str, ...]:
    return (
        f"Before: {attempt.before}.",
        f"After {attempt.slept.target}: {attempt.asleep}.",
        f"After {attempt.woken.target}, answered {attempt.woken.status}: {attempt.awake}.",
    )
