"""A refused weight update leaves an engine that the next request kills.

`/start_weight_update` moves the model's tensors aside for the new ones. Where `/update_weights` is then refused, as
with a payload that is wrong, the session is closed and the tensors stay aside: `/finish_weight_update` is refused as
well, and the next request runs on a model without weights. Fixed means that it is answered with the old weights, or
refused by an engine that lives.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reproducers.bugs.finding import Finding, failed_call, judged, normalised
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Completion, Verdict

__all__ = ["BUG", "Attempt", "judge"]

BUG = "refused-weight-update"


@dataclass(frozen=True)
class Attempt:
    """One update that was refused, and the request after it."""

    started: Call
    refused: Call
    """`/update_weights` with a payload that is wrong."""
    answer: Completion | Call
    """The control's request, posted after it."""
    right_after: Probe
    """Whether the engine is well then."""


def judge(control: Control, attempts: Sequence[Attempt], after: Probe | None, device: str) -> Judgement:
    """Judge by what was observed: the healthy path, each refused update, the healthy path after the last."""
    return judged(BUG, control, [_finding(control, attempt) for attempt in attempts], after, device)


def _finding(control: Control, attempt: Attempt) -> Finding:
    window = (attempt.started.start, attempt.refused.end)
    if attempt.started.path != "/start_weight_update" or attempt.refused.path != "/update_weights":
        return Finding(Verdict.NOT_OBSERVED, ("No weight update was started and refused.",), "not-armed", window)
    if failed := failed_call([attempt.started], window):
        return failed
    if attempt.refused.ok or attempt.refused.status is None:
        sentence = f"The wrong payload was not refused: {attempt.refused}."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "not-refused", window)
    if isinstance(attempt.answer, Completion):
        difference = control.completion.difference(attempt.answer) if control.completion else "no control"
        if difference:
            sentence = f"After a refused update the next request is answered with other weights: {difference}."
            return Finding(Verdict.REPRODUCED, (sentence,), "other-weights", window)
        sentence = f"After a refused update ({attempt.refused.status}) the next request is answered as before it."
        return Finding(Verdict.FIXED, (sentence,), "old-weights", window)
    if attempt.right_after.dead:
        sentence = f"/update_weights was refused with {attempt.refused.status}, and the next request killed the engine."
        detail = f"Right after that request: {attempt.right_after}."
        return Finding(Verdict.REPRODUCED, (sentence, detail), "engine-dead", window)
    if attempt.answer.status in {400, 409, 503}:
        sentence = (
            f"After a refused update the next request is refused too ({attempt.answer.status}); the engine lives."
        )
        return Finding(Verdict.FIXED, (sentence,), "request-refused", window)
    said = attempt.answer.error or f"{attempt.answer.status} {attempt.answer.body[:200]}"
    sentence = f"After a refused update the next request failed, and the engine lives: {said}."
    return Finding(Verdict.OTHER_FAILURE, (sentence,), normalised(said), window)
