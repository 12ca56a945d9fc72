"""Everything that was done to and seen of one engine, on one clock."""

import threading
import time
from collections.abc import Callable
from typing import Any

from reproducers.values import Call, RequestLife, Sample

__all__ = ["JOURNAL_MIME", "Journal"]

JOURNAL_MIME = "application/vnd.reproducers.journal+json"
"""What was called and posted, as data, beside the table of it that the time line shows."""

BODY_LIMIT = 600
"""How many characters of an answer are kept in it."""


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

    def to_json(self) -> dict[str, Any]:
        """Return the calls and requests as stored in a record: what was sent, when, and what came back."""
        calls = [
            {
                "method": c.method,
                "path": c.path,
                "params": dict(c.params),
                "payload": None if c.payload is None else dict(c.payload),
                "start": round(c.start, 3),
                "end": round(c.end, 3),
                "status": c.status,
                "body": c.body[:BODY_LIMIT],
                "error": c.error,
            }
            for c in self.calls
        ]
        requests = [
            {
                "name": r.name,
                "payload": None if r.payload is None else dict(r.payload),
                **{name: _rounded(getattr(r, name)) for name in ("posted", "first_token", "last_token", "ended")},
                "status": r.status,
                "tokens": r.tokens,
                "outcome": r.outcome.value if r.outcome else None,
                "error": r.error[:BODY_LIMIT],
            }
            for r in self.lives
        ]
        events = [[round(at, 3), text] for at, text in self.marks]
        return {"calls": calls, "requests": requests, "events": events, "memory": self._memory()}

    def _memory(self) -> dict[str, dict[str, float]]:
        """First, least, greatest and last reading of each series of bytes."""
        series: dict[str, list[float]] = {}
        for s in self.samples:
            if s.name.endswith(" bytes") and s.value is not None:
                series.setdefault(s.name, []).append(s.value)
        return {n: {"first": v[0], "least": min(v), "greatest": max(v), "last": v[-1]} for n, v in series.items()}


def _rounded(at: float | None) -> float | None:
    return None if at is None else round(at, 3)
