"""A papermill engine that writes the truth: what timed out or died is recorded as failed, what did not run as unrun.

    papermill --engine reproducers NOTEBOOK RECORD -p level 2

papermill's own client records a cell that timed out, or whose kernel was killed, as completed, and flips the cells
that it never ran to completed. This one also checks the parameters before anything is started, bounds the whole
notebook, and, when the kernel has ended, looks for what is left and writes down what the record is about.
"""

import contextlib
import importlib.metadata
import os
import re
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import click
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbclient.util import ensure_async, run_sync
from nbformat import NotebookNode
from nbformat.v4 import new_output
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, NotebookExecutionManager

from reproducers.catalog import catalog
from reproducers.declaration import declared_in
from reproducers.engine.process import OWNER_VARIABLE, owned_processes, residue_of
from reproducers.errors import UsageError
from reproducers.judgement import VERDICT_MIME
from reproducers.memory import used_bytes
from reproducers.parameters import checked
from reproducers.privacy import mask
from reproducers.record.metadata import KEY, digest, gathered, output_of
from reproducers.record.small import StreamCutter, cut_outputs
from reproducers.stacks import stacks_of

__all__ = ["BUDGET_S", "CELL_TIMEOUT_S", "Follower", "RecordingEngine"]

BUDGET_S = 1200.0
"""How long a whole notebook may take, unless REPRO_BUDGET_S or the caller says otherwise."""
CELL_TIMEOUT_S = 900.0
"""How long one cell may take; an engine's start is one cell."""
INTERRUPT_BOUND_S = 5.0

Follower = Callable[[str, str], None]
"""Is told a cell's name and what it is doing: `started`, `done`, `failed`, or a line of progress."""


def _ignore(_cell: str, _text: str) -> None:
    """Follow nothing."""


class Stopped(BaseException):
    """SIGTERM came; a BaseException, so that it passes like an interrupt."""


class TruthfulManager(NotebookExecutionManager):  # type: ignore[misc]
    """papermill's bookkeeping, except that cells that did not run stay pending."""

    def notebook_complete(self, **_: object) -> None:
        """Finish the notebook without touching the status of any cell."""
        self.end_time = self.now()
        self.nb.metadata.papermill["duration"] = (self.end_time - self.start_time).total_seconds()
        self.complete_pbar()
        self.cleanup_pbar()
        self.save()


class RecordingClient(PapermillNotebookClient):  # type: ignore[misc]
    """Executes the cells; every way in which a cell can fail ends up in its outputs."""

    def __init__(
        self, manager: TruthfulManager, *, budget_s: float, cell_s: float, follow: Follower, **kw: Any
    ) -> None:
        self._budget_s, self._cell_s, self._follow = budget_s, cell_s, follow
        self._deadline = time.monotonic() + budget_s
        super().__init__(manager, timeout_func=lambda _: max(1.0, min(cell_s, self._left())), **kw)

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def execute(self, **kwargs: Any) -> NotebookNode:
        """Run all cells in a kernel that is gone afterwards."""
        self.reset_execution_trackers()
        with self.setup_kernel(**kwargs):
            info = self.wait_for_reply(self.kc.kernel_info())
            self.nb.metadata["language_info"] = info["content"]["language_info"]
            self._pid = self.km.provisioner.pid
            self.papermill_execute_cells()
        node: NotebookNode = self.nb
        return node

    def papermill_execute_cells(self) -> None:
        """Run the cells in order, up to the first that fails."""
        for index, cell in enumerate(self.nb.cells):
            self.nb_man.cell_start(cell, index)
            follow = self._follow if cell.cell_type == "code" else _ignore
            follow(str(cell.get("id")), "started")
            failed = True
            self._streams = StreamCutter()
            try:
                if self._left() <= 0:
                    raise CellTimeoutError("before the cell was started")  # noqa: TRY301  the same end as inside it
                self.execute_cell(cell, index)
                failed = False
            except CellExecutionError as error:
                self.nb_man.cell_exception(cell, cell_index=index, exception=error)
                break
            except CellTimeoutError:
                self._timed_out(cell, index)
                break
            except DeadKernelError:
                status = getattr(self.km.provisioner.process, "returncode", None)
                self._fail(cell, index, "DeadKernel", f"the kernel died (status {status}) while this cell ran", [])
                break
            except (KeyboardInterrupt, Stopped) as stop:
                name = "Interrupted" if isinstance(stop, KeyboardInterrupt) else "Terminated"
                self._fail(cell, index, name, "the run was stopped from outside while this cell ran", [])
                raise
            finally:
                if cell.cell_type == "code":
                    self._streams.finish(cell.outputs)
                follow(str(cell.get("id")), "failed" if failed else "done")
                self.nb_man.cell_complete(cell, cell_index=index)

    def _timed_out(self, cell: NotebookNode, index: int) -> None:
        budget = self._left() <= 0
        stacks = stacks_of(self._pid)
        deaf = not self._interrupt()
        if deaf:
            self.shutdown_kernel = "immediate"
        what = f"the notebook's budget of {self._budget_s:g} s" if budget else f"the cell's limit of {self._cell_s:g} s"
        text = f"{what} is used up" + ("; the cell did not react to an interrupt and was killed" if deaf else "")
        self._fail(cell, index, "BudgetExceeded" if budget else "CellTimeout", text, stacks)

    async def _async_interrupt(self) -> bool:
        """Interrupt the kernel; say whether it answers again within five seconds."""
        await ensure_async(self.km.interrupt_kernel())
        asked = await ensure_async(self.kc.kernel_info())
        deadline = time.monotonic() + INTERRUPT_BOUND_S
        while time.monotonic() < deadline:
            with contextlib.suppress(Empty):
                message = await ensure_async(self.kc.shell_channel.get_msg(timeout=0.5))
                if message["parent_header"].get("msg_id") == asked:
                    return True
        return False

    _interrupt = run_sync(_async_interrupt)

    def _fail(self, cell: NotebookNode, index: int, name: str, text: str, stacks: list[str]) -> None:
        traceback = [f"{name}: {text}", *stacks]
        first = next((i for i, output in enumerate(cell.outputs) if output.output_type == "error"), len(cell.outputs))
        cell.outputs.insert(first, new_output("error", ename=name, evalue=text, traceback=traceback))
        self.nb_man.cell_exception(cell, cell_index=index)

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> NotebookNode | None:
        """Take one message of the kernel; lines of progress are passed on."""
        content = msg.get("content", {})
        if KEY in content.get("metadata", {}):
            self._follow(str(cell.get("id")), str(content.get("data", {}).get("text/plain", "")))
        output: NotebookNode | None = super().process_message(msg, cell, cell_index)
        if msg["msg_type"] == "stream" and cell.outputs:
            self._streams.take(cell.outputs, content["name"], content["text"])
        return output


class RecordingEngine(Engine):  # type: ignore[misc]
    """The engine `reproducers` of papermill."""

    @classmethod
    def execute_notebook(
        cls,
        nb: NotebookNode,
        kernel_name: str,
        output_path: str | None = None,
        progress_bar: bool = True,
        log_output: bool = False,
        autosave_cell_every: int = 30,
        *,
        input_path: str = "notebook.ipynb",
        execution_timeout: float | None = None,
        start_timeout: int = 60,
        budget_s: float | None = None,
        follow: Follower = _ignore,
        **_: Any,
    ) -> NotebookNode:
        """Execute a notebook and make a record of it.

        Raises:
            click.UsageError: a parameter is unknown, of a wrong type, out of range or looks like a secret; nothing
                was started or written.
        """
        try:
            checked(nb.metadata.papermill.get("parameters", {}), declared_in(nb, input_path))
            bound = budget_s or float(os.environ.get("REPRO_BUDGET_S") or BUDGET_S)
        except UsageError as error:
            raise click.UsageError(str(error)) from error
        except ValueError as error:
            raise click.UsageError("REPRO_BUDGET_S must be a number of seconds") from error
        for cell in nb.cells:
            if "injected-parameters" in cell.metadata.get("tags", []):
                cell["id"] = "injected-parameters"
        manager = TruthfulManager(nb, output_path, log_output, progress_bar, autosave_cell_every)
        manager.notebook_start()
        owner, used, began = uuid.uuid4().hex, used_bytes(), time.monotonic()
        try:
            with _sigterm_raises():
                RecordingClient(
                    manager,
                    budget_s=bound,
                    cell_s=execution_timeout or CELL_TIMEOUT_S,
                    follow=follow,
                    startup_timeout=start_timeout,
                    kernel_name=kernel_name,
                    log_output=log_output,
                    extra_arguments=["--IPKernelApp.log_level=ERROR"],
                ).execute(env=os.environ | {OWNER_VARIABLE: owner})
        finally:
            residue = residue_of(owned_processes(owner), None, used.unclaimed if used else None)
            cls._seal(nb, input_path, residue, time.monotonic() - began)
            manager.notebook_complete()
        return nb

    @staticmethod
    def _seal(nb: NotebookNode, input_path: str, residue: Any, duration_s: float) -> None:
        """Write what the record is about, and mask what must not leave the machine."""
        notebook = Path(input_path).name
        shown = output_of(nb, VERDICT_MIME)
        named = next((b.id for b in catalog().values() if b.notebook == notebook), Path(notebook).stem)
        bug = str(shown["bug"]) if shown else named
        nb.metadata.papermill.update(input_path=notebook, output_path=notebook)
        for part in [nb.metadata.papermill, *(cell.metadata.get("papermill", {}) for cell in nb.cells)]:
            part.pop("start_time", None)
            part.pop("end_time", None)
        for cell in nb.cells:
            cell.metadata.pop("execution", None)
        kit = importlib.metadata.version("vllm-rl-repro")
        nb.metadata[KEY] = gathered(nb, bug=bug, duration_s=duration_s, residue=residue, kit=kit)
        host = re.search(r"//([^/]+)", str(nb.metadata[KEY]["parameters"].get("engine", "")))
        cut_outputs(nb)
        masked: Counter[str] = Counter()
        for part in (*nb.cells, nb.metadata):
            part.update(mask(part, host[1] if host else "", masked))
        nb.metadata[KEY]["masked"] = dict(masked)
        nb.metadata[KEY]["digest"] = digest(nb)


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Let SIGTERM stop the run as Ctrl-C does, so that the record is written and the kernel is ended."""

    def stop(*_: object) -> None:
        raise Stopped

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except Stopped:
        raise SystemExit(128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, before)
