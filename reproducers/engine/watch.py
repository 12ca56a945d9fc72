"""The background look at an engine: health, flags, load and device memory, several times a second."""

import threading
from collections.abc import Callable, Collection

import httpx

from reproducers.journal import Journal
from reproducers.memory import device_names, used_bytes
from reproducers.values import Sample

__all__ = ["Watcher"]

PERIOD_S = 0.25
_FLAGS = {"/is_sleeping": "is_sleeping", "/is_paused": "is_paused", "/load": "server_load"}


class Watcher:
    """Samples one server until it is stopped; a question without an answer is a sample without a value."""

    def __init__(self, url: str, journal: Journal, pids: Callable[[], Collection[int]]) -> None:
        self._journal = journal
        self._pids = pids
        self._client = httpx.Client(base_url=url, timeout=2, trust_env=False)
        self._stop = threading.Event()
        looks = [self._ask, self._weigh] if device_names() else [self._ask]  # apart, since a busy engine answers late
        self._threads = [
            threading.Thread(target=self._run, args=(look,), name="watcher", daemon=True) for look in looks
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Take no more samples."""
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
        self._client.close()

    def _run(self, look: Callable[[], None]) -> None:
        while not self._stop.wait(PERIOD_S):
            look()

    def _sample(self, name: str, value: float | None) -> None:
        self._journal.add_sample(Sample(self._journal.now(), name, value))

    def _ask(self) -> None:
        try:
            self._sample("health", float(self._client.get("/health").status_code == 200))
        except httpx.HTTPError:
            self._sample("health", None)
        for path, field in _FLAGS.items():
            try:
                self._sample(field, float(self._client.get(path).json()[field]))
            except (httpx.HTTPError, ValueError, KeyError, TypeError):
                self._sample(field, None)

    def _weigh(self) -> None:
        if (used := used_bytes(self._pids())) is not None:
            self._sample("device bytes", float(used.device))
            if used.engine is not None:
                self._sample("engine bytes", float(used.engine))
