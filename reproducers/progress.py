"""A line that says how far something long is: one changing line in a notebook, single lines elsewhere."""

import sys
from collections.abc import Callable

from IPython.core.getipython import get_ipython
from IPython.display import display

__all__ = ["PROGRESS", "progress_line"]

PROGRESS = {"reproducers": "progress"}
"""Metadata of an output that is only progress, for who follows a running notebook."""


def progress_line(what: str) -> Callable[[str], None]:
    """Return a function that shows how far `what` is.

    In a notebook one output is updated in place; elsewhere a line is written to standard error when the words, and
    not only the seconds in them, have changed.
    """
    if get_ipython() is None:
        return _Lines(what)
    handle = display({"text/plain": what}, raw=True, display_id=True, metadata=PROGRESS)
    assert handle is not None

    def say(text: str) -> None:
        handle.update({"text/plain": f"{what}: {text}"}, raw=True, metadata=PROGRESS)

    return say


class _Lines:
    def __init__(self, what: str) -> None:
        self._what = what
        self._last = ""

    def __call__(self, text: str) -> None:
        words = text.rpartition(",")[0] or text
        if words != self._last:
            self._last = words
            print(f"{self._what}: {text}", file=sys.stderr, flush=True)
