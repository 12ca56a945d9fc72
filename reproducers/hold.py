"""How a server holds a request: what its client, `GET /load` and the flags say while it is unanswered."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reproducers.calls import answered
from reproducers.engine import Engine
from reproducers.request import RequestInFlight
from reproducers.states import Control
from reproducers.values import Outcome, RequestLife

__all__ = ["Hold", "post_in_flight", "watch", "watch_all"]


DEAD_ENGINE = 503
"""What /health answers when the engine core is dead."""


@dataclass(frozen=True)
class Hold:
    """What was seen of one request over a stretch of time, which ends early when the request ends."""

    life: RequestLife
    """The request at the end, with its outcome."""
    patience_s: float
    """How long it was to be watched."""
    sleeping: bool | None
    """`/is_sleeping` at the end; None where it was not answered."""
    healthy: bool
    """Whether `/health` answered 200 each time that it was asked."""
    load: tuple[int, ...] = ()
    """The different values of `/load` above the idle one, from the moment on when it counted the request."""


def watch(vllm: Engine, control: Control, request: RequestInFlight, patience_s: float) -> Hold:
    """Watch a request until it ends, at most `patience_s` seconds.

    The request is proven to be held where `/load` counts it at the end, on a server that counted the control's; it is
    lost where `/load` counted it and then no longer does, though its client still waits. What was seen meanwhile is
    read from the samples that the engine's watcher takes.
    """
    began = vllm.journal.now()
    ended = request.wait_ended(patience_s)
    status = vllm.health()
    health = [*_sampled(vllm, "health", began), status == 200]
    loads: list[float] = []
    held = None
    if control.idle_load is not None and not ended:
        last = answered(vllm.server_load)
        above = [value - control.idle_load for value in _sampled(vllm, "server_load", began)]
        above += [] if last is None else [last - control.idle_load]
        loads = above[next((i for i, value in enumerate(above) if value > 0), len(above)) :]
        held = loads[-1] > 0 if loads and last is not None else None
    if held is False:
        request.wait_ended(1)  # its end may be on the way to this client
    alive = status not in {None, DEAD_ENGINE} and not vllm.dead_members()
    life = request.settle(held=held, engine_alive=alive)
    return Hold(life, patience_s, answered(vllm.is_sleeping), all(health), tuple(int(v) for v in dict.fromkeys(loads)))


def post_in_flight(
    vllm: Engine, control: Control, prompt: str, *, max_tokens: int, tries: int = 5
) -> tuple[RequestInFlight, bool]:
    """Post a stream and wait for its first token; say whether the server still works on it then.

    On a busy machine a stream can be over before its first token has reached the client: then another is posted. The
    server works on it where `/load` counts it, or, without load tracking, where it has not ended.
    """
    for _ in range(tries):
        request = vllm.post_completion(prompt, max_tokens=max_tokens)
        request.wait_first_token()
        tracked = control.idle_load is not None
        if (answered(vllm.server_load) or 0) > (control.idle_load or 0) if tracked else request.life.ended is None:
            return request, True
        request.wait_ended(60)
    return request, False


def watch_all(
    vllm: Engine, control: Control, requests: Sequence[RequestInFlight], patience_s: float
) -> tuple[Hold, ...]:
    """Watch several requests over the same stretch of time, at most `patience_s` seconds.

    They are proven to be held together: `/load` must count all that have not ended.
    """
    deadline = vllm.journal.now() + patience_s
    holds = [watch(vllm, control, r, max(0.0, deadline - vllm.journal.now())) for r in requests]
    counted = max((load for hold in holds for load in hold.load), default=0)
    waiting = sum(hold.life.outcome is Outcome.HELD for hold in holds)
    if counted < waiting:  # some of them are not counted, and which cannot be told
        holds = [_unproven(hold) if hold.life.outcome is Outcome.HELD else hold for hold in holds]
    return tuple(replace(hold, patience_s=patience_s) for hold in holds)


def _unproven(hold: Hold) -> Hold:
    return replace(hold, life=replace(hold.life, outcome=None))


def _sampled(vllm: Engine, name: str, since: float) -> list[float]:
    """The readings that were answered; a question that was not proves nothing."""
    return [s.value for s in vllm.journal.samples if s.name == name and s.at >= since and s.value is not None]
