"""What one run of a trigger showed, and how the findings of several runs make one verdict."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reproducers.judgement import Judgement
from reproducers.states import EMULATED, Control, Probe
from reproducers.values import Call, Verdict

__all__ = ["Finding", "failed_call", "judged", "normalised"]

SENTENCES = 12
"""How many different sentences of all runs are kept as evidence."""

_ORDER = (Verdict.REPRODUCED, Verdict.OTHER_FAILURE, Verdict.NOT_APPLICABLE, Verdict.NOT_OBSERVED, Verdict.FIXED)
"""Of several runs the first of these speaks: one symptom outweighs any number of good runs, and a run that proves
nothing outweighs a run that shows the fix."""


@dataclass(frozen=True)
class Finding:
    """What one run of a trigger showed."""

    verdict: Verdict
    sentences: tuple[str, ...]
    signature: str
    window: tuple[float, float] | None = None
    """The stretch that decided it, in seconds on the journal's clock."""


def normalised(error: str) -> str:
    """Return an error without what differs from run to run: numbers, addresses, ids, paths."""
    line = (error.strip().splitlines() or ["no text"])[-1]
    line = re.sub(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b", "#", line)
    line = re.sub(r"(/[\w.\-]+){2,}", "PATH", line)
    return re.sub(r"\d+", "N", line)[:160]


def failed_call(calls: Iterable[Call], window: tuple[float, float]) -> Finding | None:
    """What is found where a call of the trigger was not answered with a 2xx; None where all were."""
    for call in calls:
        if not call.ok:
            said = call.error or f"{call.status} {call.body}"
            return Finding(Verdict.OTHER_FAILURE, (f"{call.target} failed: {said}.",), normalised(said), window)
    return None


def judged(
    bug: str,
    control: Control,
    findings: Sequence[Finding],
    after: Probe | None,
    device: str = "",
    *,
    probed: bool = True,
) -> Judgement:
    """Make one verdict of the findings of all runs and of the healthy path after them.

    Args:
        bug: the bug's number or name.
        control: the healthy path before the trigger; a failed one makes every verdict INCONCLUSIVE.
        findings: one for each run.
        after: the probe after the last run.
        device: what the engine ran on, where the bug is one of device memory; an emulated driver is named.
        probed: whether there is an engine to probe; an allocator in a process of its own is none.
    """
    if not control.passed:
        sentence = f"The control failed, so nothing was judged: {control.reason}."
        return Judgement(bug, Verdict.INCONCLUSIVE, (sentence,), str(control), signature="control-failed")
    if not findings:
        sentence = "The trigger was not run, so nothing was judged."
        return Judgement(bug, Verdict.INCONCLUSIVE, (sentence,), str(control), signature="not-triggered")
    verdict = min((f.verdict for f in findings), key=_ORDER.index)
    speaking = next(f for f in findings if f.verdict is verdict)
    agreeing = [f for f in findings if f.verdict is verdict]
    sentences = list(dict.fromkeys(sentence for f in agreeing for sentence in f.sentences))[:SENTENCES]
    hits, signature = len(agreeing), speaking.signature
    if verdict is Verdict.NOT_OBSERVED and after is not None and after.dead:
        verdict, signature = Verdict.OTHER_FAILURE, f"{signature}:engine-dead-after"
    if verdict is Verdict.FIXED and probed and (after is None or not after.well):
        verdict, signature = Verdict.OTHER_FAILURE, f"{signature}:not-well-after"
    if after is not None:
        well = "the engine is well: /health 200, and a completion equal to the control"
        sentences.append(f"Afterwards {well if after.well else f'the engine is not well: {after}'}.")
    if len({f.verdict for f in findings}) > 1:
        counts = {v: sum(f.verdict is v for f in findings) for v in _ORDER}
        sentences.append("Over all runs: " + ", ".join(f"{n} × {v}" for v, n in counts.items() if n) + ".")
    if device == EMULATED:
        sentences[0] = f"On the emulated driver: {sentences[0]}"
    symptom_runs = hits if verdict is Verdict.REPRODUCED else 0
    return Judgement(
        bug, verdict, tuple(sentences), str(control), symptom_runs, len(findings), signature, speaking.window
    )
