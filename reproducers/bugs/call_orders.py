"""The orders in which RL frameworks call the engine (#45585): at every step flags, metric and memory must agree.

Each order is replayed for several cycles with a request in flight; after each cycle the answer to the same prompt must
equal the control. What a step must leave behind is part of the order: whether the engine sleeps or is paused, and which
kinds of memory are mapped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reproducers.bugs.finding import Finding, judged
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Completion, Verdict

__all__ = ["BUG", "Cycle", "Step", "judge"]

BUG = "framework-call-orders"


@dataclass(frozen=True)
class Step:
    """One call of an order, what it must leave behind, and what it left."""

    call: Call
    closed: bool
    """Whether the gate must be shut after it: `/is_sleeping` is true, as it is of a paused engine."""
    mapped: tuple[str, ...]
    """The kinds of memory that must be mapped after it."""
    seen_closed: bool | None
    """`/is_sleeping`; None where it was not answered."""
    seen_mapped: tuple[str, ...] | None
    """The kinds of memory that are mapped; None where there is no device memory to look at, or no answer."""

    @property
    def wrong(self) -> str:
        """What is not as it must be, or an empty string."""
        if not self.call.ok:
            return f"{self.call.target} failed: {self.call.status} {self.call.error or self.call.body[:200]}"
        if self.seen_mapped is not None and self.seen_mapped != self.mapped:
            return f"after {self.call.target} {_kinds(self.seen_mapped)} mapped, where {_kinds(self.mapped)} due"
        if self.seen_closed is not self.closed:
            said = str(self.seen_closed).lower()
            return f"after {self.call.target} /is_sleeping is {said}, and it should be {str(self.closed).lower()}"
        return ""


@dataclass(frozen=True)
class Cycle:
    """One cycle of one framework's order."""

    framework: str
    steps: tuple[Step, ...]
    answer: Completion | Call
    """The answer to the control's prompt after it."""


def judge(control: Control, cycles: Sequence[Cycle], after: Probe | None, device: str) -> Judgement:
    """Judge by what was observed; each cycle is a run, and every framework whose order goes wrong is named."""
    judgement = judged(BUG, control, [_finding(control, cycle) for cycle in cycles], after, device)
    if judgement.verdict is not Verdict.REPRODUCED:
        return judgement
    wrong = list(dict.fromkeys(c.framework for c in cycles if _wrong(control, c)))
    well = [name for name in dict.fromkeys(c.framework for c in cycles) if name not in wrong]
    sentence = f"Wrong: {', '.join(wrong)}. Well over all cycles: {', '.join(well) or 'none'}."
    return replace(judgement, evidence=(*judgement.evidence, sentence), signature=f"inconsistent:{','.join(wrong)}")


def _finding(control: Control, cycle: Cycle) -> Finding:
    if not cycle.steps or not any(step.call.path in {"/sleep", "/pause", "/collective_rpc"} for step in cycle.steps):
        return Finding(Verdict.NOT_OBSERVED, (f"{cycle.framework}: nothing was called.",), "not-called")
    window = (cycle.steps[0].call.start, cycle.steps[-1].call.end)
    if wrong := _wrong(control, cycle):
        return Finding(Verdict.REPRODUCED, (f"{cycle.framework}: {wrong}.",), "inconsistent", window)
    sentence = (
        f"{cycle.framework}: flags and memory agree at all {len(cycle.steps)} steps, and the answer is the control's."
    )
    return Finding(Verdict.FIXED, (sentence,), "consistent", window)


def _wrong(control: Control, cycle: Cycle) -> str:
    if wrong := next((step.wrong for step in cycle.steps if step.wrong), ""):
        return wrong
    if isinstance(cycle.answer, Call):
        return f"the completion after it was not answered: {cycle.answer}"
    if control.completion is not None and (difference := control.completion.difference(cycle.answer)):
        return f"the completion after it differs from the control: {difference}"
    return ""


def _kinds(mapped: tuple[str, ...]) -> str:
    return " and ".join(mapped) + (" are" if len(mapped) > 1 else " is") if mapped else "nothing is"
