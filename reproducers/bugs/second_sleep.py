"""#45518: a second sleep, or a wake-up while awake, looks like a real one.

Any documented signal counts as the fix: a field of the body, a status code, a header. What a signal is, is learnt from
the answers: the first sleep is real and the second is not, so whatever differs between the two tells them apart. The
same signal must then tell the truth about escalations, and about two sleeps that arrive at once.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reproducers.bugs.finding import Finding, judged, normalised
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.transitions import Transition
from reproducers.values import Call, Verdict

__all__ = ["BUG", "Run", "judge", "signal"]

BUG = "45518"

_ECHOED = {"level", "tags"}
"""Fields that repeat the request and so tell nothing."""


@dataclass(frozen=True)
class Run:
    """One run of the trigger: what each call was answered, and whether it really did something."""

    sleeps: tuple[Transition, Transition]
    """`/sleep?level=1` twice."""
    wakes: tuple[Transition, Transition]
    """`/wake_up` twice."""
    escalations: Mapping[str, Transition]
    """The second of two sleeps at different levels, by name: `1 to 2`."""
    at_once: tuple[Transition, Transition]
    """Two sleeps at the same moment; `really` is whether exactly one of them did something."""


def judge(control: Control, runs: Sequence[Run], after: Probe | None) -> Judgement:
    """Judge #45518 by what was observed."""
    return judged(BUG, control, [_finding(run) for run in runs], after)


def signal(real: Call, idle: Call) -> str:
    """Say by what two answers differ, in words; empty where nothing tells them apart."""
    if real.status != idle.status:
        return f"status {real.status} on the first and {idle.status} on the second"
    one, other = _fields(real), _fields(idle)
    for name in sorted({*one, *other}):
        if one.get(name) != other.get(name):
            first, second = json.dumps(one.get(name)), json.dumps(other.get(name))
            return f"field {name} is {first} on the first and {second} on the second"
    headers = sorted(set(real.headers) ^ set(idle.headers))
    return f"header {headers[0]} is on one of them only" if headers else ""


def _fields(call: Call) -> dict[str, Any]:
    try:
        body = json.loads(call.body)
    except ValueError:
        return {}
    return {k: v for k, v in body.items() if k not in _ECHOED} if isinstance(body, dict) else {}


def _told(call: Call, real: Call, idle: Call) -> bool | None:
    """What an answer tells: a real transition, none, or nothing that is known."""
    if not signal(real, call):
        return True
    return None if signal(idle, call) else False


def _finding(run: Run) -> Finding:
    steps = [*run.sleeps, *run.wakes, *run.escalations.values(), *run.at_once]
    window = (run.sleeps[0].call.start, run.wakes[1].call.end)
    if broken := next((s.call for s in steps if s.call.status is None or s.call.status >= 500), None):
        said = broken.error or f"{broken.status} {broken.body}"
        return Finding(Verdict.OTHER_FAILURE, (f"{broken.target} failed: {said}.",), f"call:{normalised(said)}", window)
    flags = [s.sleeping for s in (*run.sleeps, *run.wakes)]
    if flags != [True, True, False, False]:
        sentence = f"The trigger is not armed: /is_sleeping was {flags} after the two sleeps and the two wake-ups."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "not-armed", window)
    sleep, wake = signal(*_calls(run.sleeps)), signal(*_calls(run.wakes))
    lies = _lies(run)
    if sleep and wake and not lies:
        return Finding(
            Verdict.FIXED,
            (
                f"Two sleeps in a row are told apart: {sleep}.",
                f"Two wake-ups in a row are told apart: {wake}.",
                f"Escalations ({', '.join(run.escalations)}) and two sleeps at once are answered as what they were.",
            ),
            f"signal:{sleep.split()[0]}",
            window,
        )
    same = [
        f"Two {name} in a row are answered the same: {_shown(pair[1].call)} both times."
        for name, pair, found in (("sleeps", run.sleeps, sleep), ("wake-ups", run.wakes, wake))
        if not found
    ]
    kind = "no-signal" if same else "signal-not-true"
    return Finding(Verdict.REPRODUCED, (*same, *lies), f"{kind}:{len(same)}:{len(lies)}", window)


def _lies(run: Run) -> list[str]:
    """Where an answer says something else than what happened."""
    real, idle = _calls(run.sleeps)
    known = bool(signal(real, idle))
    found = []
    for name, step in run.escalations.items():
        told = _told(step.call, real, idle) if known else step.call.ok
        if step.really is not None and told is not step.really:
            did = "the executor did something" if step.really else "the executor did nothing"
            metric = f", the metric says {step.metric}" if step.metric else ""
            found.append(f"Sleep {name} is answered {_shown(step.call)}{metric}, and {did}.")
    told_real = [_told(step.call, real, idle) for step in run.at_once].count(True) if known else 2
    if told_real != 1:
        found.append(f"Of two sleeps at once {told_real} are answered as real.")
    return found


def _calls(pair: tuple[Transition, Transition]) -> tuple[Call, Call]:
    return pair[0].call, pair[1].call


def _shown(call: Call) -> str:
    return f"{call.status} {call.body or 'with an empty body'}"
