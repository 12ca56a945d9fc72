"""#44972: after a wake-up discarded pages come back with old bytes, and a hybrid model reads them.

Two things are kept apart. The driver and the allocator: pages are marked before the sleep, and looked at after the
wake-up. The model: the remapped pages are poisoned with bytes that are NaN, and tokens and logprobs are compared with
the control; a model that reads its state before it has written it gives NaN.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reproducers.bugs.finding import Finding, failed_call, judged, normalised
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Completion, Verdict
from reproducers.workers import Pages

__all__ = ["BUG", "MARK", "POISON", "Cycle", "judge"]

BUG = "44972"
MARK, POISON = 0x5A, 0xFF
"""Bytes: two of the first are a finite bfloat16, two of the second a NaN."""


@dataclass(frozen=True)
class Cycle:
    """One sleep and one wake-up, whole or staged."""

    slept: Call
    woken: tuple[Call, ...]
    marked: int
    """Bytes of the KV and state cache that were marked before the sleep."""
    mapped: int | None
    """Bytes of it that were mapped while asleep; a sleep leaves none."""
    remapped: Pages
    """The pages after the wake-up, with the share of the mark."""
    poisoned: Pages | None
    """The pages after they were poisoned; None where they were not."""
    answer: Completion | Call
    """The completion after that; the call where there was none."""


def judge(
    control: Control, cycles: Sequence[Cycle], after: Probe | None, device: str, *, driver_keeps: bool | None = None
) -> Judgement:
    """Judge #44972 by what was observed.

    Args:
        control: the healthy path.
        cycles: what was seen.
        after: the probe at the end.
        device: what the engine ran on.
        driver_keeps: whether the driver is known to hand out old bytes; None where only the pages tell.
    """
    return judged(BUG, control, [_finding(control, cycle, driver_keeps) for cycle in cycles], after, device)


def _finding(control: Control, cycle: Cycle, driver_keeps: bool | None) -> Finding:
    window = (cycle.slept.start, cycle.woken[-1].end)
    if failed := failed_call((cycle.slept, *cycle.woken), window):
        return failed
    if cycle.slept.path != "/sleep" or cycle.mapped:
        sentence = "No sleep happened: the KV cache was never unmapped."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "no-sleep", window)
    pages = cycle.remapped
    if not cycle.marked or not pages.bytes:
        sentence = "No page was marked before the sleep, or none was mapped after it."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "nothing-marked", window)
    stale = pages.bytes - pages.zero
    driver = (
        f"Old bytes come back: {pages.share(stale):.1%} of {pages.bytes / 2**20:.0f} MiB are not zero after the "
        f"wake-up, {pages.share(pages.byte):.1%} are the mark of before the sleep."
        if stale
        else f"All {pages.bytes / 2**20:.0f} MiB of remapped pages are zero; all were marked before the sleep."
    )
    if isinstance(cycle.answer, Call) and not _is_nan(cycle.answer):
        sentence = f"A completion was not answered: {cycle.answer}."
        return Finding(Verdict.OTHER_FAILURE, (driver, sentence), normalised(str(cycle.answer)), window)
    wrong = _wrong(control, cycle.answer)
    if cycle.poisoned is None and wrong:
        sentence = f"With the pages as they came back the completion is wrong: {wrong}."
        return Finding(Verdict.REPRODUCED, (driver, sentence), f"{_name(stale)}:model-reads", window)
    if cycle.poisoned is not None and cycle.poisoned.nan < cycle.poisoned.bytes:
        sentence = f"The poison did not arrive: {cycle.poisoned}."
        return Finding(Verdict.NOT_OBSERVED, (driver, sentence), "not-poisoned", window)
    if cycle.poisoned is not None and wrong:
        sentence = f"The model reads state before it has written it: over pages full of NaN the completion is {wrong}."
        return Finding(Verdict.REPRODUCED, (driver, sentence), f"{_name(stale)}:model-reads", window)
    if stale:
        model = "the model wrote all that it read" if cycle.poisoned else "this completion is right all the same"
        sentence = f"With this model {model}: tokens and logprobs equal the control."
        return Finding(Verdict.REPRODUCED, (driver, sentence), "stale:model-does-not-read", window)
    if cycle.poisoned is not None:
        sentence = (
            "The model reads no state before it has written it: over pages full of NaN, put there on purpose, tokens "
            "and logprobs equal the control."
        )
        return Finding(Verdict.FIXED, (driver, sentence), "zero:model-does-not-read", window)
    if driver_keeps:
        sentence = "The driver keeps old bytes, so it was the allocator that zeroed them."
        return Finding(Verdict.FIXED, (driver, sentence), "zeroed-by-the-allocator", window)
    sentence = "Nothing stale came back, and nothing was poisoned, so what the model reads was not asked."
    return Finding(Verdict.NOT_OBSERVED, (driver, sentence), "zero", window)


def _name(stale: int) -> str:
    return "stale" if stale else "zero"


def _is_nan(answer: Call) -> bool:
    """Whether a completion was refused since a logprob is not a number."""
    return "not JSON compliant" in answer.body or re.search(r"\bnan\b", answer.body, re.IGNORECASE) is not None


def _wrong(control: Control, answer: Completion | Call) -> str:
    """How a completion differs from the control; a NaN logprob cannot be written as JSON and is answered 400."""
    if isinstance(answer, Call):
        return f"not answered: {answer} (a logprob that is not a number)"
    return control.completion.difference(answer) if control.completion else "nothing to compare"
