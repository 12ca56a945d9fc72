"""#45552: sleep answers 200 while the device still works, and the engine dies behind it.

Up to 0.24.0 nothing waits for the device before the pages are unmapped. The race is made certain by arming it: work is
put in flight on a side stream that touches the KV cache after some seconds. Fixed means that the sleep reached the
worker while it was in flight, that it was over when the first pages were unmapped, and that the engine is well
afterwards. Unarmed, a good run proves nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reproducers.bugs.finding import Finding, failed_call, judged
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, RequestLife, Verdict
from reproducers.workers import Armed, InFlight, over_too_soon

__all__ = ["BUG", "Attempt", "judge"]

BUG = "45552"


@dataclass(frozen=True)
class Attempt:
    """One sleep and one wake-up."""

    level: int
    armed: Armed | None
    """The work that was in flight; None for an unarmed run."""
    slept: Call
    work: InFlight | None
    """Whether the work was in flight at the steps of the sleep and when `/sleep` had answered; None where the worker
    does not answer any more."""
    mapped: int | None
    """Bytes of the KV cache that were mapped then; None as above. A sleep leaves none."""
    health: int | None
    """Status of `/health` after the sleep."""
    woken: tuple[Call, ...]
    """The calls that wake the engine up."""
    streams: tuple[RequestLife, ...] = ()
    """Streams that had their first token when `/sleep` was called."""

    @property
    def too_soon(self) -> bool:
        """Whether the sleep came, and the work was over before it reached the worker."""
        return not self.mapped and over_too_soon(self.armed, self.work)

    @property
    def decoding(self) -> int:
        """How many of the streams were not over when `/sleep` was called."""
        return sum(life.ended is None or life.ended > self.slept.start for life in self.streams)


def judge(control: Control, attempts: Sequence[Attempt], after: Probe | None, device: str) -> Judgement:
    """Judge #45552 by what was observed.

    Args:
        control: the healthy path.
        attempts: what was seen; the last one is the one after which the engine was probed.
        after: the probe at the end, some seconds after the last wake-up.
        device: what the engine ran on.
    """
    findings = [_finding(attempt, after if attempt is attempts[-1] else None) for attempt in attempts]
    return judged(BUG, control, findings, after, device)


def _finding(attempt: Attempt, after: Probe | None) -> Finding:
    window = (attempt.armed.at if attempt.armed else attempt.slept.start, attempt.slept.end)
    if attempt.armed and not attempt.armed.working:
        sentence = "The work on the side stream was not in flight, so the race was not armed."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "not-armed", window)
    if attempt.slept.path != "/sleep" or attempt.mapped:
        sentence = "No sleep happened: the KV cache is mapped still."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "no-sleep", window)
    if after is not None and after.lost:
        return _dead(attempt, after, window)
    if attempt.armed and attempt.slept.ok and attempt.work and attempt.work.now:
        sentence = (
            f"/sleep?level={attempt.level} answered 200 while work of {attempt.armed.seconds:g} s that touches the KV "
            "cache was still in flight."
        )
        return Finding(Verdict.REPRODUCED, (sentence,), "answered-while-working", window)
    if failed := failed_call((attempt.slept, *attempt.woken), window):
        return failed
    if attempt.armed is None:
        streams = f" with {attempt.decoding} streams in flight" if attempt.streams else ""
        sentence = f"Nothing was armed: /sleep?level={attempt.level}{streams} was well, which may be chance."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "unarmed", window)
    if attempt.work is None or not attempt.work.reached:
        sentence = "The work was over before the sleep reached the worker, which proves nothing."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "ended-too-soon", window)
    if attempt.work.unmapped:
        sentence = "Pages were unmapped while work that touches the KV cache was in flight; it did no harm this time."
        return Finding(Verdict.REPRODUCED, (sentence,), "unmapped-while-working", window)
    sentence = (
        f"/sleep?level={attempt.level} waited: the work that was in flight when it reached the worker was over when "
        "the first pages were unmapped."
    )
    return Finding(Verdict.FIXED, (sentence,), "waited", window)


def _dead(attempt: Attempt, after: Probe, window: tuple[float, float]) -> Finding:
    """The engine is dead, or its device is lost: what was still answered 200 behind that?"""
    lies = [f"/sleep?level={attempt.level}"] if attempt.slept.ok else []
    lies += ["/health"] if attempt.health == 200 else []
    lies += [call.target for call in attempt.woken if call.ok]
    how = f"work of {attempt.armed.seconds:g} s" if attempt.armed else f"{attempt.decoding} streams"
    said = attempt.slept.error or f"{attempt.slept.status} {attempt.slept.body}"
    dead = f"/sleep with {how} in flight answered {said[:400]}."
    if not lies:
        clean = f"The engine is dead and said so: /health {attempt.health}, and no call was answered 200 after that."
        return Finding(Verdict.OTHER_FAILURE, (clean, dead), "died-and-said-so", window)
    sentence = (
        f"The engine is dead behind a 200 of {', '.join(dict.fromkeys(lies))}: a completion was {after.completion}."
    )
    return Finding(Verdict.REPRODUCED, (sentence, dead), "dead-behind-a-200", window)
