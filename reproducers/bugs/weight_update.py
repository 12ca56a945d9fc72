"""Weight updates (#45585, the protocol part): start, update, finish, and the weights that the engine then has.

The oracle is a forward pass of the same checkpoint without vLLM: after each update the engine's logprobs of fixed
tokens must be as far from that as they were before any update, which is the rounding of two implementations. A call
out of order, or a payload that is wrong, must be refused with its reason and leave an engine that takes the next good
update.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from reproducers.bugs.finding import Finding, judged
from reproducers.judgement import Judgement
from reproducers.reference import Seen
from reproducers.states import Control, Probe
from reproducers.values import Call, Verdict

__all__ = ["BUG", "Refusal", "Update", "bound_of", "judge", "with_reference"]

BUG = "weight-update"

FLOOR = 2e-4
"""Distances below this are rounding: float32 on a CPU gives 2e-6, one tensor that is wrong by 1 % 4e-4 to 3e-2."""
CONTROL_BOUND = 1e-1
"""How far engine and reference may be apart at all: in bfloat16 it is 2e-2, wrong weights are 2.5 away."""
FACTOR = 2
"""How many times the rounding of the control a distance may be; on an H200 that is 1.8e-3 or 1.9e-3 each time."""


@dataclass(frozen=True)
class Update:
    """One update, from its first call to its last."""

    name: str
    weights: str
    """Which checkpoint was pushed."""
    calls: tuple[Call, ...]
    seen: Seen
    version: str | None = None
    """The version that `/finish_weight_update` was told; None where it was told none."""
    cache_was_reset: bool = True
    """Whether the prefix cache was dropped afterwards, so that nothing of the prompt may come from it."""
    kept: str = ""
    """Which weights must still be in force where it was refused; empty where it must not be."""


@dataclass(frozen=True)
class Refusal:
    """One call that must be refused, and the good update after it."""

    name: str
    call: Call
    health: int | None
    """Status of /health right after it."""
    then: Update


def with_reference(control: Control, weights: str, seen: Seen, again: Seen) -> Control:
    """Take into the control that the engine agrees with the reference before any update, and caches the long prompt.

    Args:
        control: the healthy path.
        weights: the checkpoint that the engine was started with.
        seen: what it showed at first.
        again: what it showed when it was asked for the same again.
    """
    if not control.passed:
        return control
    if wrong := _not_of(seen, weights, bound=CONTROL_BOUND):
        return replace(control, passed=False, reason=f"before any update the engine and the reference differ: {wrong}")
    others = [far for name, far in seen.distances.items() if name != weights]
    if min(others, default=math.inf) < 10 * bound_of(seen, weights):
        return replace(control, passed=False, reason=f"the checkpoints cannot be told apart: {_distances(seen)}")
    if not again.cached:
        return replace(control, passed=False, reason="the prefix cache holds nothing of a prompt that was asked twice")
    told = f"{_near(seen, weights, bound_of(seen, weights))}; {again.cached} tokens of a long prompt are cached"
    return replace(control, reason=f"{control.reason}; logprobs are those of the reference: {told}")


def bound_of(first: Seen, weights: str) -> float:
    """How far from the reference the logprobs of the right weights may be, given what the control showed."""
    return max(FLOOR, FACTOR * first.distances[weights])


def judge(
    control: Control,
    first: Seen,
    updates: Sequence[Update],
    refusals: Sequence[Refusal],
    asleep: Update | None,
    after: Probe | None,
    device: str,
) -> Judgement:
    """Judge by what was observed; each update and each refusal is a run.

    Args:
        control: the healthy path, with the reference (`with_reference`).
        first: what the engine showed before any update.
        updates: good updates, awake and between the wake-ups.
        refusals: calls out of order and wrong payloads.
        asleep: an update while the weights are not there; it may be refused, or be in force after the wake-up.
        after: the probe at the end.
        device: what the engine ran on.
    """
    if not control.passed:
        return judged(BUG, control, [], after, device)
    oracle = _Oracle(next(iter(first.distances)), first)
    findings = [_update(update, oracle) for update in updates]
    findings += [_refusal(refusal, oracle) for refusal in refusals]
    findings += [] if asleep is None else [_asleep(asleep, oracle)]
    if findings and not updates:
        findings.append(Finding(Verdict.NOT_OBSERVED, ("No weights were pushed.",), "not-pushed"))
    return judged(BUG, control, findings, after, device)


@dataclass(frozen=True)
class _Oracle:
    """What the engine showed before any update, and of which checkpoint that is."""

    weights: str
    first: Seen

    @property
    def bound(self) -> float:
        return bound_of(self.first, self.weights)


def _update(update: Update, oracle: _Oracle) -> Finding:
    bound = oracle.bound
    window = (update.calls[0].start, update.calls[-1].end) if update.calls else None
    if not any(call.path == "/update_weights" for call in update.calls):
        return Finding(Verdict.NOT_OBSERVED, (f"{update.name}: no weights were pushed.",), "not-pushed", window)
    if failed := next((call for call in update.calls if not call.ok), None):
        sentence = f"{update.name}: {failed.path} was answered {failed.status or failed.error}: {reason(failed)}."
        return Finding(Verdict.REPRODUCED, (sentence,), f"good-update-failed:{failed.path}", window)
    if wrong := _not_of(update.seen, update.weights, bound):
        return Finding(Verdict.REPRODUCED, (f"{update.name}: {wrong}.",), "wrong-weights", window)
    if update.cache_was_reset and update.seen.cached:
        sentence = f"{update.name}: {update.seen.cached} tokens of the prompt came from a cache that was reset."
        return Finding(Verdict.REPRODUCED, (sentence,), "stale-cache", window)
    if update.version is not None and update.seen.version != update.version:
        sentence = f"{update.name}: /weight_info says {update.seen.version}, and it was told {update.version}."
        return Finding(Verdict.REPRODUCED, (sentence,), "wrong-version", window)
    if oracle.first.checksums and update.seen.checksums:
        same = update.seen.checksums == oracle.first.checksums
        if same is not (update.weights == oracle.weights):
            sentence = (
                f"{update.name}: /weight_checker gives {'the' if same else 'other'} checksums of {oracle.weights}."
            )
            return Finding(Verdict.REPRODUCED, (sentence,), "wrong-checksums", window)
    sentence = f"{update.name}: in force, {_near(update.seen, update.weights, bound)}."
    return Finding(Verdict.FIXED, (sentence,), "in-force", window)


def _refusal(refusal: Refusal, oracle: _Oracle) -> Finding:
    call, then = refusal.call, refusal.then
    window = (call.start, then.calls[-1].end if then.calls else call.end)
    if call.ok:
        sentence = f"{refusal.name}: answered {call.status}, where it must be refused."
        return Finding(Verdict.REPRODUCED, (sentence,), "accepted", window)
    if call.status is None or refusal.health != 200:
        sentence = f"{refusal.name}: {call.error or call.status}, and then /health {refusal.health}."
        return Finding(Verdict.REPRODUCED, (sentence,), "engine-dead", window)
    if not reason(call):
        sentence = f"{refusal.name}: refused with {call.status} and no reason: {call.body[:100]}."
        return Finding(Verdict.REPRODUCED, (sentence,), "no-reason", window)
    next_one = _update(then, oracle)
    if next_one.verdict is not Verdict.FIXED:
        sentence = f"{refusal.name}: refused ({call.status}), but the next good update is not in force."
        return replace(next_one, sentences=(sentence, *next_one.sentences), window=window)
    sentence = f"{refusal.name}: refused with {call.status} ({reason(call)}), and the next good update is in force."
    return Finding(Verdict.FIXED, (sentence,), "refused", window)


def _asleep(update: Update, oracle: _Oracle) -> Finding:
    refused = [call for call in update.calls if call.status is not None and not call.ok]
    window = (update.calls[0].start, update.calls[-1].end) if update.calls else None
    if isinstance(update.seen.answer, Call):
        told = ", ".join(f"{call.path} {call.status or call.error}" for call in update.calls)
        sentence = f"{update.name}: {told}; after the wake-up no completion is answered ({update.seen.answer})."
        return Finding(Verdict.REPRODUCED, (sentence,), "engine-dead", window)
    if not refused:
        return _update(replace(update, cache_was_reset=False), oracle)
    if not (said := reason(refused[0])):
        sentence = f"{update.name}: refused with {refused[0].status} and no reason."
        return Finding(Verdict.REPRODUCED, (sentence,), "no-reason", window)
    if wrong := _not_of(update.seen, update.kept, oracle.bound):
        sentence = f"{update.name}: refused with {refused[0].status}, and after the wake-up {wrong}."
        return Finding(Verdict.REPRODUCED, (sentence,), "wrong-weights", window)
    sentence = f"{update.name}: refused with {refused[0].status} ({said}), and the engine is well after the wake-up."
    return Finding(Verdict.FIXED, (sentence,), "refused", window)


def _not_of(seen: Seen, weights: str, bound: float) -> str:
    """How what was seen differs from a checkpoint's reference; empty where it does not."""
    if isinstance(seen.answer, Call):
        return f"a completion was not answered: {seen.answer}"
    if weights not in seen.distances:
        return "the logprobs were not answered"
    if not seen.distances[weights] <= bound:
        return f"the logprobs are not those of {weights} ({_distances(seen)}, allowed {bound:.1e})"
    if not seen.greedy[weights]:
        return f"the completion is not that of {weights}"
    return ""


def _near(seen: Seen, weights: str, bound: float) -> str:
    """How near the logprobs are to the reference of the right weights, in round numbers that do not vary."""
    other = min((far for name, far in seen.distances.items() if name != weights), default=math.nan)
    return f"logprobs within {bound:.0e} of {weights}'s reference and {other:.1f} from the other's"


def _distances(seen: Seen) -> str:
    return ", ".join(f"{far:.1e} from {name}" for name, far in seen.distances.items()) or "no logprobs"


def reason(call: Call) -> str:
    """What an answer says of what was wrong; empty where it says no more than its status."""
    try:
        body = json.loads(call.body)
    except ValueError:
        body = call.body
    if isinstance(body, Mapping):
        error = body.get("error", body.get("detail", body))
        body = error.get("message", error) if isinstance(error, Mapping) else error
    said = " ".join(str(body or "").split())
    said = re.sub(r"^Call to \w+ method failed: ", "", said)
    inner = re.search(r"^Worker failed with error '(.+?)'?(?:, please check the stack|$)", said)
    said = inner[1] if inner else said
    return "" if said.lower().rstrip(".") in {"", "internal server error", "{}", "none"} else said.rstrip(".")[:160]
