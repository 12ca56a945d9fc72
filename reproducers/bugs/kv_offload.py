"""#45363: transfers of KV offload against a sleep that unmaps the pages under them.

An engine without offload walks the same path first: it is the control. Then the engine with native offload, with
traffic in flight at each sleep, and with a transfer armed: a read of KV pages on a side stream that is certain to be in
flight, as a copy to the host may be. On the emulated driver the armed read is the transfer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reproducers.bugs.finding import Finding, judged, normalised
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Completion, Verdict
from reproducers.workers import Armed, InFlight, over_too_soon

__all__ = ["BUG", "Cycle", "judge", "with_engine_without_offload"]

BUG = "45363"


@dataclass(frozen=True)
class Cycle:
    """One sleep and one wake-up with traffic in flight."""

    armed: Armed | None
    """The read of KV pages that was in flight; None where none was armed."""
    in_flight: int
    """How many requests had a token, and were not over, when `/sleep` was called."""
    slept: Call
    work: InFlight | None
    """Whether the armed read was in flight at the steps of the sleep and when `/sleep` had answered; None where the
    worker does not answer."""
    mapped: int | None
    """Bytes of the KV cache that were mapped then; None as above. A sleep leaves none."""
    woken: Call
    answer: Completion | Call
    """The long prompt after the wake-up."""

    @property
    def too_soon(self) -> bool:
        """Whether the sleep came, and the read was over before it reached the worker."""
        return not self.mapped and over_too_soon(self.armed, self.work)


def with_engine_without_offload(
    control: Control, expected: Completion | Call, cycles: Sequence[Cycle], after: Probe | None
) -> Control:
    """Take the same cycles on an engine without offload into the control: they must be well there."""
    if not control.passed:
        return control
    for cycle in cycles:
        if wrong := _wrong(expected, cycle):
            return replace(control, passed=False, reason=f"an engine without offload is not well either: {wrong}")
    if after is None or not after.well:
        return replace(control, passed=False, reason=f"an engine without offload is not well afterwards: {after}")
    return replace(control, reason=f"{control.reason}; {len(cycles)} cycles without offload are well")


def judge(
    control: Control,
    expected: Completion | Call,
    cycles: Sequence[Cycle],
    after: Probe | None,
    device: str,
    offloaded: float | None,
) -> Judgement:
    """Judge #45363 by what was observed.

    Args:
        control: the healthy path, and the cycles on an engine without offload.
        expected: the answer to the long prompt before any sleep.
        cycles: what was seen on the engine with offload.
        after: the probe at the end.
        device: what the engine ran on.
        offloaded: bytes that the engine says it has moved to the host; None where it does not say.
    """
    findings = [_finding(expected, c, after if c is cycles[-1] else None, offloaded) for c in cycles]
    return judged(BUG, control, findings, after, device)


def _finding(expected: Completion | Call, cycle: Cycle, after: Probe | None, offloaded: float | None) -> Finding:
    window = (cycle.slept.start, cycle.woken.end)
    moved = "" if offloaded is None else f" The engine says that it has moved {offloaded / 2**20:.1f} MiB to the host."
    if cycle.armed and not cycle.armed.working:
        sentence = "The read of KV pages was not in flight, so the race was not armed."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "not-armed", window)
    if cycle.slept.path != "/sleep" or cycle.mapped:
        sentence = "No sleep happened: the KV cache is mapped still."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "no-sleep", window)
    if cycle.armed and cycle.slept.ok and cycle.work and (cycle.work.now or cycle.work.unmapped):
        how = "answered 200" if cycle.work.now else "unmapped pages"
        sentence = f"/sleep {how} while a read of KV pages of {cycle.armed.seconds:g} s was still in flight."
        return Finding(Verdict.REPRODUCED, (sentence,), "answered-while-transferring", window)
    wrong = _wrong(expected, cycle)
    dead = after is not None and after.lost
    if wrong or dead:
        what = "The engine is dead" if dead else "The engine lives, but is not well"
        sentence = f"{what} after a sleep with KV offload: {wrong or after}. Without offload the same cycles are well."
        return Finding(Verdict.REPRODUCED, (sentence,), f"offload:{normalised(wrong or 'dead')}", window)
    if cycle.armed is None:
        sentence = f"Well with {cycle.in_flight} requests in flight, but no transfer was proven to be.{moved}"
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "unarmed", window)
    if cycle.work is None or not cycle.work.reached:
        sentence = "The read was over before the sleep reached the worker, which proves nothing."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "ended-too-soon", window)
    sentence = (
        "/sleep waited for a read of KV pages that was in flight; after the wake-up a long prompt is answered as in "
        f"the control.{moved}"
    )
    return Finding(Verdict.FIXED, (sentence,), "waited", window)


def _wrong(expected: Completion | Call, cycle: Cycle) -> str:
    for call in (cycle.slept, cycle.woken):
        if not call.ok:
            return f"{call.target} answered {call.error or f'{call.status} {call.body[:300]}'}"
    if isinstance(cycle.answer, Call):
        return f"a long prompt was not answered: {cycle.answer}"
    if isinstance(expected, Call):
        return f"there is nothing to compare with: {expected}"
    return expected.difference(cycle.answer, batched=True)  # computed, or from the prefix cache
