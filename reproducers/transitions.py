"""Calls of `/sleep` and `/wake_up`, each with what it really changed."""

from dataclasses import dataclass

from reproducers.calls import answered
from reproducers.engine import Engine
from reproducers.metrics import sleep_state
from reproducers.values import Call

__all__ = ["Transition", "Transitions"]

_DONE = ("seconds to fall asleep", "seconds to wake up tags")
"""What vLLM's executor logs when it has really put its workers to sleep, or woken them."""


@dataclass(frozen=True)
class Transition:
    """One call, and what came of it."""

    call: Call
    sleeping: bool | None
    """`/is_sleeping` afterwards; None where it was not answered."""
    really: bool | None
    """Whether the executor did something, or the flag changed; None where neither can be seen."""
    metric: str = ""
    """The state that `/metrics` gives afterwards."""


class Transitions:
    """Notes what each call really changed: by the flag, and by the engine's own log where the kit started it."""

    def __init__(self, vllm: Engine) -> None:
        self._vllm = vllm
        self._sleeping = self._flag()
        self._done = self._count()

    def note(self, *calls: Call) -> tuple[Transition, ...]:
        """Note one call, or several that were made at the same moment.

        Of several, `really` is whether exactly one did something.
        """
        sleeping, done = self._flag(), self._count()
        changes = None if done is None or self._done is None else done - self._done
        did = bool(changes) if len(calls) == 1 else changes == 1  # an escalation wakes up and sleeps again
        really = did if changes else sleeping is not self._sleeping
        known = None if changes is None and not really else really
        self._sleeping, self._done = sleeping, done
        metric = self._metric()
        return tuple(Transition(call, sleeping, known, metric) for call in calls)

    def _flag(self) -> bool | None:
        return answered(self._vllm.is_sleeping)

    def _count(self) -> int | None:
        counts = [self._vllm.logged(words) for words in _DONE]
        return None if counts[0] is None else sum(count or 0 for count in counts)

    def _metric(self) -> str:
        metrics = answered(self._vllm.metrics)
        states = {} if metrics is None else sleep_state(metrics)
        return " and ".join(name for name, value in states.items() if value)
