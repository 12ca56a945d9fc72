"""#45326: a request that arrives while the engine sleeps is never answered.

Fixed means that the engine says so promptly: with finish reason abort, as the proposed fix does, or with a status.
Held, and completed after the wake-up, is the bug as reported; held and then lost is worse. In the race form the
request and `/sleep` are posted at the same moment: one that was answered may have come before the sleep, or met the
pause that goes before it, so that only a held one proves anything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reproducers.bugs.finding import Finding, judged, normalised
from reproducers.hold import Hold
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Outcome, Verdict

__all__ = ["BUG", "Attempt", "judge"]

BUG = "45326"

REFUSALS = {409, 423, 425, 503}
"""Statuses that say: not in this state. A 400, 401 or 429 has another reason, and proves nothing about sleep."""
PROMPT_S = 5.0
"""Later than this, in seconds, an answer is not prompt."""


@dataclass(frozen=True)
class Attempt:
    """One run of the trigger."""

    slept: Call
    """The answer of `/sleep`."""
    asleep: Hold
    """The request while the engine sleeps."""
    awake: Hold
    """The same request after the wake-up."""
    woken: Call
    """The answer of the last `/wake_up`."""
    race: bool = False
    """Whether the request was posted at the same moment as `/sleep`."""


def judge(control: Control, attempts: Sequence[Attempt], after: Probe | None) -> Judgement:
    """Judge #45326 by what was observed."""
    findings = [replace(_finding(control, attempt), window=_window(attempt.asleep)) for attempt in attempts]
    return judged(BUG, control, findings, after)


def _window(asleep: Hold) -> tuple[float, float]:
    """From when the request was posted until it ended or the patience was used up."""
    life = asleep.life
    return life.posted, life.posted + asleep.patience_s if life.ended is None else life.ended


def _finding(control: Control, attempt: Attempt) -> Finding:
    asleep, awake = attempt.asleep, attempt.awake
    if not attempt.slept.ok:
        said = attempt.slept.error or f"{attempt.slept.status}: {attempt.slept.body}"
        return Finding(Verdict.OTHER_FAILURE, (f"/sleep itself failed with {said}.",), f"sleep:{normalised(said)}")
    if asleep.life.outcome is Outcome.ENGINE_DEAD:
        return Finding(Verdict.OTHER_FAILURE, ("The engine died while it slept.",), "engine-dead-while-asleep")
    if asleep.sleeping is not True:
        return Finding(
            Verdict.NOT_OBSERVED,
            (f"The trigger is not armed: /is_sleeping says {asleep.sleeping} while the request waits.",),
            "not-asleep",
        )
    if not attempt.woken.ok or (awake.sleeping is not False and awake.life.outcome is not Outcome.ENGINE_DEAD):
        said = f"{attempt.woken}, /is_sleeping {awake.sleeping}"
        return Finding(Verdict.OTHER_FAILURE, (f"The wake-up failed: {said}.",), f"wake-up:{normalised(said)}")
    outcome = asleep.life.outcome
    if outcome is Outcome.HELD:
        return _held(control, attempt)
    if outcome is Outcome.ABORTED or asleep.life.status in REFUSALS:
        return _answered(asleep, attempt.race)
    if outcome is None:
        return _unproven(control, attempt)
    if outcome is Outcome.COMPLETED and attempt.race:
        return Finding(
            Verdict.NOT_OBSERVED, ("The request was completed: it came before the sleep.",), "race:completed-first"
        )
    if outcome is Outcome.LOST and asleep.life.ended is None:
        return Finding(
            Verdict.REPRODUCED,
            (
                f"The request was accepted and then dropped while the engine slept: no byte and no error within "
                f"{asleep.patience_s:g} s, and /load no longer counts it.",
                _later(control, awake),
            ),
            "lost-while-asleep",
        )
    error = asleep.life.error
    return Finding(
        Verdict.OTHER_FAILURE,
        (f"A request to the sleeping engine was {outcome}{f': {error}' if error else ''}; /health {_health(asleep)}.",),
        f"{outcome.value.lower()}-while-asleep:{normalised(error) if error else 'no error'}",
    )


def _held(control: Control, attempt: Attempt) -> Finding:
    asleep, awake = attempt.asleep, attempt.awake
    load = ", ".join(map(str, asleep.load))
    sentence = (
        f"A request posted {'at the same moment as' if attempt.race else 'after'} /sleep was held for the whole "
        f"{asleep.patience_s:g} s: no byte, no error, server_load {load} above idle, /health {_health(asleep)}."
    )
    later = awake.life.outcome
    if later is Outcome.ENGINE_DEAD:
        return Finding(
            Verdict.OTHER_FAILURE, (sentence, _later(control, awake)), "held-while-asleep:engine-dead-after-wake"
        )
    ending = "completed" if later is Outcome.COMPLETED else (later.value.lower() if later else "still open")
    if later is Outcome.COMPLETED and (difference := control.difference(awake.life)):
        ending = f"completed-differently:{normalised(difference)}"
    return Finding(Verdict.REPRODUCED, (sentence, _later(control, awake)), f"held-while-asleep:{ending}-after-wake")


def _answered(asleep: Hold, race: bool) -> Finding:
    outcome, error = asleep.life.outcome, asleep.life.error
    if race:
        sentence = f"The request was {outcome}; whether it came before, with or after the sleep cannot be told."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), f"race:{str(outcome).lower()}")
    took = (asleep.life.ended or 0) - asleep.life.posted
    if took > PROMPT_S:
        sentence = f"A request to the sleeping engine was {outcome}, but only after more than {PROMPT_S:g} s."
        return Finding(Verdict.OTHER_FAILURE, (sentence,), f"late:{str(outcome).lower()}-while-asleep")
    told = asleep.life.completion is not None and asleep.life.completion.finish_reason == "abort"
    abort = "ended with finish reason abort" if told else "ended with [DONE] alone, without a finish reason"
    how = abort if outcome is Outcome.ABORTED else f"rejected with {asleep.life.status}"
    sentence = f"A request to the sleeping engine was {how}, within {asleep.patience_s:g} s and before the wake-up."
    return Finding(
        Verdict.FIXED,
        (sentence, *([f"The answer says: {error}"] if error else [])),
        f"{str(outcome).lower()}-while-asleep",
    )


def _unproven(control: Control, attempt: Attempt) -> Finding:
    """Unanswered, on a server whose `/load` counts nothing: only the answer after the wake-up proves who held it."""
    asleep, awake = attempt.asleep, attempt.awake
    waited = f"No byte and no error came within {asleep.patience_s:g} s"
    if awake.life.outcome is Outcome.COMPLETED and not control.difference(awake.life):
        sentence = (
            f"{waited}, and /load does not count requests here; the answer on the same connection proves it was held."
        )
        return Finding(Verdict.REPRODUCED, (sentence, _later(control, awake)), "held-while-asleep:completed-after-wake")
    sentence = f"{waited}, but nothing proves that the server had accepted the request."
    return Finding(Verdict.NOT_OBSERVED, (sentence, _later(control, awake)), "unproven")


def _later(control: Control, awake: Hold) -> str:
    outcome = awake.life.outcome
    if outcome is Outcome.COMPLETED:
        difference = control.difference(awake.life)
        equal = f"differs from the control: {difference}" if difference else "equals the control"
        return f"After the wake-up the same request completed, and its answer {equal}."
    if outcome in {Outcome.HELD, None}:
        return f"After the wake-up the same request is still unanswered after {awake.patience_s:g} s."
    return f"After the wake-up the same request was {outcome}{f': {awake.life.error}' if awake.life.error else ''}."


def _health(hold: Hold) -> str:
    return "200 all along" if hold.healthy else "not always 200"
