"""Everything that was done to and seen of one engine, on one clock."""

import threading
import time
from collections.abc import Callable

from reproducers.values import Call, RequestLife, Sample

__all__ = ["Journal"]


class Journal:
    """Calls, requests and samples of a run; appended to from several threads.

    Its clock is monotonic and starts at zero, so that nothing written from it tells when a run was made.
    """

    def __init__(self) -> None:
        self._zero = time.monotonic()
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self._samples: list[Sample] = []
        self._lives: list[Callable[[], RequestLife]] = []
        self._marks: list[tuple[float, str]] = []

    def now(self) -> float:
        """Seconds since the journal was opened."""
        return time.monotonic() - self._zero

    def add_call(self, call: Call) -> None:
        """Record a finished call."""
        with self._lock:
            self._calls.append(call)

    def add_sample(self, sample: Sample) -> None:
        """Record one reading."""
        with self._lock:
            self._samples.append(sample)

    def follow(self, life: Callable[[], RequestLife]) -> None:
        """Record a request through a function that tells how far it is."""
        with self._lock:
            self._lives.append(life)

    def mark(self, text: str) -> None:
        """Record that something happened at this moment, such as the death of the engine."""
        with self._lock:
            self._marks.append((self.now(), text))

    @property
    def calls(self) -> list[Call]:
        """The calls in the order in which they were answered."""
        with self._lock:
            return list(self._calls)

    @property
    def samples(self) -> list[Sample]:
        """The readings in the order in which they were taken."""
        with self._lock:
            return list(self._samples)

    @property
    def lives(self) -> list[RequestLife]:
        """The requests in the order in which they were posted, as far as each has come."""
        with self._lock:
            lives = list(self._lives)
        return [life() for life in lives]

    @property
    def marks(self) -> list[tuple[float, str]]:
        """Moments and what happened at them."""
        with self._lock:
            return list(self._marks)
