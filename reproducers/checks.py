"""Run the checks of the RL CI matrix, one after another, on one engine that is brought back after each."""

from collections.abc import Callable

from reproducers.bugs.matrix_rows import Checked
from reproducers.coverage import rows
from reproducers.engine import Engine
from reproducers.engine.attach import restore
from reproducers.errors import HarnessError, NotArmed, UsageError
from reproducers.states import Control

__all__ = ["CheckRunner"]


class CheckRunner:
    """Runs each function that it decorates, once and at once, and keeps what came of it.

    A function returns what it saw; it asserts what must be. An endpoint that does not answer fails it as well. Where
    what it is about cannot be proven to have happened, it raises `NotArmed`, and the row proves nothing.

    Args:
        vllm: the engine.
        control: the healthy path; nothing is run where it failed.
    """

    def __init__(self, vllm: Engine, control: Control) -> None:
        self._vllm = vllm
        self._control = control
        self._lost = False
        self.checked: list[Checked] = []

    @property
    def wanted(self) -> list[str]:
        """The names of all rows that have a check."""
        return [row.name for row in rows().values() if row.check]

    def __call__(self, row: str) -> Callable[[Callable[[], str]], None]:
        """Run a function as the check of a row.

        Raises:
            UsageError: there is no such row, or it has no check.
        """
        if row not in self.wanted:
            raise UsageError(f"the matrix has no check {row!r}: there are {', '.join(self.wanted)}")

        def run(check: Callable[[], str]) -> None:
            if self._control.passed:
                self._note(row, check)

        return run

    def _note(self, row: str, check: Callable[[], str]) -> None:
        start = self._vllm.journal.now()
        missing = "the engine answers no more" if self._lost else rows()[row].missing(self._vllm.facts)
        if missing:
            self.checked.append(Checked(row, None, missing, start, start))
            return
        passed: bool | None
        armed = True
        try:
            passed, said = True, check()
        except NotArmed as error:
            passed, said, armed = None, str(error), False
        except AssertionError as error:
            passed, said = False, " ".join(str(error).split())
        except HarnessError as error:
            passed, said = False, f"not answered: {error}"
        self.checked.append(Checked(row, passed, said, start, self._vllm.journal.now(), armed))
        self._lost = not restore(self._vllm.url, level=2)
