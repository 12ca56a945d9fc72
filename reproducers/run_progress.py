"""How far a run is: the cell, the engine's start, the time left; live on a terminal, lines in a log."""

import time

from rich.console import Console

from reproducers.live import LiveLine

__all__ = ["RunProgress"]

LINE_EVERY_S = 15.0
"""How often a log gets a line while nothing but seconds changes."""


class RunProgress(LiveLine):
    """Shows what a run is doing, while it is entered.

    Args:
        console: where to show it.
        what: the notebook's name.
        budget_s: how long the notebook may take.
    """

    def __init__(self, console: Console, what: str, budget_s: float) -> None:
        super().__init__(console, what)
        self._what, self._budget_s = what, budget_s
        self._began = time.monotonic()
        self._done, self._last, self._printed = 0, "", 0.0

    def follow(self, cell: str, text: str) -> None:
        """Take one message of the running notebook."""
        self._done += text == "done"
        left = max(0, self._budget_s - (time.monotonic() - self._began))
        line = f"{self._what}: {self._done} cells done; {cell}: {text}, {left:.0f} s left"
        if self._status:
            self._status.update(line)
            return
        words = "" if text == "done" else f"{cell}{text.rpartition(',')[0] or text}"
        now = time.monotonic()
        if words and (words != self._last or now - self._printed > LINE_EVERY_S):
            self._last, self._printed = words, now
            self._console.print(line, markup=False)
