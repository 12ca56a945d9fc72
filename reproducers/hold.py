"""How a server holds a request: what its client, `GET /load` and the flags say while it is unanswered."""

from dataclasses import dataclass

from reproducers.engine import Engine
from reproducers.errors import EndpointError
from reproducers.request import RequestInFlight
from reproducers.states import Control
from reproducers.values import RequestLife

__all__ = ["Hold", "watch"]


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

    @property
    def accepted(self) -> bool:
        """Whether `/load` was seen to count the request."""
        return bool(self.load)


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
    if control.idle_load is not None and not ended:
        above = [value - control.idle_load for value in [*_sampled(vllm, "server_load", began), _load(vllm)]]
        loads = above[next((i for i, value in enumerate(above) if value > 0), len(above)) :]
    life = request.settle(
        held=loads[-1] > 0 if loads else None, engine_alive=status is not None and not vllm.dead_members()
    )
    return Hold(life, patience_s, _sleeping(vllm), all(health), tuple(int(v) for v in dict.fromkeys(loads)))


def _sampled(vllm: Engine, name: str, since: float) -> list[float]:
    return [s.value or 0.0 for s in vllm.journal.samples if s.name == name and s.at >= since]


def _load(vllm: Engine) -> int:
    try:
        return vllm.server_load()
    except EndpointError:
        return 0


def _sleeping(vllm: Engine) -> bool | None:
    try:
        return vllm.is_sleeping()
    except EndpointError:
        return None
