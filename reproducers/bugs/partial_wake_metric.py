"""The metric of a partial wake-up: `/metrics` says awake while `/is_sleeping` says asleep.

Up to 0.30.0 any wake-up set the metric to awake, also one of the weights alone; from 0.31.0 on only a full one does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reproducers.bugs.finding import Finding, judged
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Verdict

__all__ = ["BUG", "Step", "judge"]

BUG = "partial-wake-metric"


@dataclass(frozen=True)
class Step:
    """What the engine says of itself after one step."""

    name: str
    """The step in words: `after wake_up(tags=weights)`."""
    call: Call | None
    """The call that made it; None for the beginning."""
    sleeping: bool
    """`/is_sleeping`."""
    awake: float | None
    """The metric's value for the state awake; None where there is no such metric."""
    partial: bool = False
    """Whether some memory is mapped at this step and some is not."""

    @property
    def agrees(self) -> bool:
        """Whether metric and flag say the same."""
        return self.awake is not None and bool(self.awake) is not self.sleeping


def judge(control: Control, runs: Sequence[Sequence[Step]], after: Probe | None) -> Judgement:
    """Judge by the steps of each run: sleep, a wake-up in two steps, in one order."""
    return judged(BUG, control, [_finding(run) for run in runs], after)


def _finding(steps: Sequence[Step]) -> Finding:
    if any(step.awake is None for step in steps):
        return Finding(Verdict.NOT_APPLICABLE, ("/metrics has no vllm:engine_sleep_state.",), "no-metric")
    if failed := next((step for step in steps if step.call is not None and not step.call.ok), None):
        return Finding(Verdict.OTHER_FAILURE, (f"{failed.call}.",), "call-failed")
    partial = [step for step in steps if step.partial]
    if not partial or not all(step.sleeping for step in partial) or steps[-1].sleeping:
        said = ", ".join(f"{step.name}: {step.sleeping}" for step in steps)
        return Finding(Verdict.NOT_OBSERVED, (f"There was no partial wake-up: /is_sleeping says {said}.",), "not-armed")
    if wrong := [step for step in steps if not step.agrees]:
        sentences = [_sentence(step) for step in wrong]
        return Finding(Verdict.REPRODUCED, tuple(sentences), f"disagree:{wrong[0].name}")
    return Finding(
        Verdict.FIXED,
        (f"Metric and flag agree at all {len(steps)} steps; {_sentence(partial[0]).lower()}",),
        "agree",
    )


def _sentence(step: Step) -> str:
    return f"After {step.name} the metric says awake={step.awake:g} and /is_sleeping says {str(step.sleeping).lower()}."
