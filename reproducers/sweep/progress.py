"""How far a sweep is: cells done, running and left, engine starts, time; live on a terminal, lines in a log."""

import time

from rich.console import Console

from reproducers.live import LiveLine
from reproducers.sweep.run import Event

__all__ = ["SweepProgress"]

LINE_EVERY_S = 30.0
"""How often a log gets a line while nothing but an engine's start goes on."""


class SweepProgress(LiveLine):
    """Shows what a sweep is doing, while it is entered.

    Args:
        console: where to show it.
        total: how many cells there are.
        done: how many of them had a result before.
    """

    def __init__(self, console: Console, total: int, done: int) -> None:
        self._total, self._done = total, done
        self._began, self._printed, self._starts = time.monotonic(), 0.0, 0
        self._running: dict[str, str] = {}
        super().__init__(console, self._line())

    def follow(self, event: Event) -> None:
        """Take one event of a group."""
        group = str(event.configuration)
        self._done += event.what == "ended"
        self._starts += event.what == "started"
        if event.what == "began":
            self._running[group] = event.text
        elif event.what == "ended":
            self._running.pop(group, None)
        now = time.monotonic()
        if self._status:
            self._status.update(self._line())
        elif event.what != "engine" or now - self._printed > LINE_EVERY_S:
            self._printed = now
            self._console.print(f"{self._line()} · {event.what}: {event.text}", markup=False)

    def _line(self) -> str:
        running = ", ".join(self._running.values()) or "none"
        left = self._total - self._done - len(self._running)
        seconds = time.monotonic() - self._began
        return (
            f"{self._done} of {self._total} cells done, running: {running}, {left} left, "
            f"{self._starts} engine starts, {seconds:.0f} s"
        )
