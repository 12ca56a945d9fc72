"""A line that is kept up to date while something long runs: live on a terminal, and nothing in a log."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status

__all__ = ["LiveLine"]


class LiveLine:
    """Shows one line while it is entered, where the console is a terminal.

    Args:
        console: where to show it.
        text: what it says at first.
    """

    def __init__(self, console: Console, text: str) -> None:
        self._console = console
        self._status = Status(text, console=console) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self._status:
            self._status.stop()
