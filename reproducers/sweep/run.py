"""Run a sweep: what is not done yet, one process a group, side by side as far as the machine allows."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import filelock
import psutil

from reproducers.engine.environments import release_exists
from reproducers.errors import HarnessError, UsageError
from reproducers.sweep.cell import Cell, Configuration
from reproducers.sweep.group import order_of
from reproducers.sweep.limits import reason_not_applicable
from reproducers.sweep.matrix import Matrix
from reproducers.sweep.state import CellResult, finished, forget, keep, kept, prepare

__all__ = ["Event", "Executor", "LocalExecutor", "Swept", "sweep"]

CORES_FOR_ONE, MEMORY_FOR_ONE = 2, 6 * 2**30
"""What one engine on a CPU wants: two of them at once on two cores, and one answers too late to be judged."""

STOP_BOUND_S = 30.0
"""A group that is told to end inside a notebook writes its record first, and ends its kernel and its engine."""
STOPPED = "it was stopped"
"""How a group was lost that was ended with the sweep."""


@dataclass(frozen=True)
class Event:
    """Something that happened in a group."""

    configuration: Configuration
    what: str
    """`began`, `ended`, `started`, `engine`."""
    text: str


@dataclass(frozen=True)
class Swept:
    """A sweep that has ended, or was interrupted."""

    results: tuple[CellResult, ...]
    lost: dict[Configuration, str]
    """How the process of a group ended that did not end well."""
    interrupted: bool
    """Whether it was stopped from outside; what was not run then is no result, and is run when it is called again."""


class Executor(Protocol):
    """Where groups are run."""

    def run(self, folder: Path, order: dict[str, Any], follow: Callable[[str, str], None]) -> str:
        """Run one group to its end; return how it was lost, or an empty string."""

    def stop(self) -> None:
        """End what is running, and start nothing more."""


class LocalExecutor:
    """Runs each group in a process of its own on this machine."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(self, folder: Path, order: dict[str, Any], follow: Callable[[str, str], None]) -> str:
        """Run one group; its process ends with this one, and its engine with it."""
        if self._stopped:
            return STOPPED
        name = str(Configuration(**order["configuration"]))
        told = folder / "orders" / f"{name}.json"
        told.write_text(json.dumps(order), encoding="utf-8")
        log = folder / "orders" / f"{name}.log"
        with log.open("w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "reproducers.sweep.group", str(folder), str(told)],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
            )
        self._running.add(process)
        if self._stopped:  # between its start and this line
            process.kill()
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if line.startswith("{"):
                    for what, text in json.loads(line).items():
                        follow(what, text)
        process.wait()
        self._running.discard(process)
        last = (log.read_text(encoding="utf-8").strip().splitlines() or ["it said nothing"])[-1]
        return f"its process ended with status {process.returncode}: {last}" if process.returncode else ""

    def stop(self) -> None:
        """End what is running, and wait until it is gone; what does not end by itself is killed."""
        self._stopped = True
        ending = list(self._running)
        for process in ending:
            process.terminate()
        deadline = time.monotonic() + STOP_BOUND_S
        for process in ending:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def sweep(
    matrix: Matrix,
    cells: Sequence[Cell],
    folder: Path,
    *,
    jobs: int = 0,
    executor: Executor | None = None,
    follow: Callable[[Event], None] = lambda _: None,
) -> Swept:
    """Run the cells that have no result yet, or one of a harness that failed.

    Args:
        matrix: as it was read.
        cells: all its cells.
        folder: where the sweep is kept; one that was interrupted is taken up again.
        jobs: how many groups run at once; 0 for as many as cores, memory and devices allow.
        executor: where groups are run; this machine where it is not given.
        follow: is told what happens.

    Raises:
        UsageError: a release does not exist, or the folder holds another sweep; nothing was started.
        HarnessError: another sweep is running in the folder.
    """
    local, interrupted = executor is None, False
    lost: dict[Configuration, str] = {}
    limits = {cell: reason_not_applicable(cell, elsewhere=not local) for cell in cells}
    for release, device in sorted({(c.configuration.release, c.configuration.device) for c in cells if not limits[c]}):
        if not release_exists(release, "cuda" if device == "cuda" else "cpu"):
            raise UsageError(f"there is no release {release} of vLLM for {device}: correct `releases`")
    told = matrix.model_dump(mode="json") | {"cells": [cell.name for cell in cells]}
    lock = _locked(folder)
    try:
        prepare(folder, told)
        for cell, reason in limits.items():
            if reason and not finished(folder, cell):
                keep(folder, CellResult.not_applicable(cell, reason))
                follow(Event(cell.configuration, "ended", cell.name))
        left: dict[Configuration, list[Cell]] = {}
        for cell in cells:
            if not finished(folder, cell):
                forget(folder, cell)
                left.setdefault(cell.configuration, []).append(cell)
        bugs = {c: sorted({x.bug for x in cells if x.configuration == c and not limits[x]}) for c in left}
        orders = {c: order_of(c, inside, bugs[c], matrix.parameters) for c, inside in left.items()}
        at_once = jobs or (0 if local else max(1, len(orders)))
        _all_groups(orders, folder, at_once, executor or LocalExecutor(), follow, lost)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        lock.release()
    results = []
    for cell in cells:
        how = lost.get(cell.configuration)
        gone = f"{cell.configuration}: {how}" if how else "it was not run"
        missing = CellResult.not_run(cell) if interrupted and not how else CellResult.failed(cell, gone, 0.0, 0)
        results.append(kept(folder, cell) or missing)
    return Swept(tuple(results), lost, interrupted)


def _locked(folder: Path) -> filelock.BaseFileLock:
    """Take the folder for this sweep, before anything in it is touched."""
    lock = filelock.FileLock(folder / "lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise HarnessError(f"another sweep is running in {folder}: wait for it, or name another folder") from error
    except OSError as error:
        raise UsageError(f"the sweep cannot be written to {folder}: {error.strerror}") from error
    return lock


def room_for(configuration: Configuration) -> int:
    """How many groups like this one the machine can run at once."""
    if configuration.device == "cuda":
        return max(1, 4 // max(1, configuration.devices))  # a fifth of the first device each; others are not used
    cores, memory = len(os.sched_getaffinity(0)), psutil.virtual_memory().available
    return max(1, min(cores // CORES_FOR_ONE, int(memory // MEMORY_FOR_ONE)))


def _all_groups(
    orders: dict[Configuration, dict[str, Any]],
    folder: Path,
    jobs: int,
    executor: Executor,
    follow: Callable[[Event], None],
    lost: dict[Configuration, str],
) -> None:
    """Run all groups; note in `lost` how the process of one ended that did not end well."""
    running: dict[Future[str], Configuration] = {}
    waiting = list(orders)
    lock = threading.Lock()

    def one(configuration: Configuration) -> str:
        def tell(what: str, text: str) -> None:
            with lock:
                follow(Event(configuration, what, text))

        return executor.run(folder, orders[configuration], tell)

    pool = ThreadPoolExecutor(max_workers=max(1, len(orders)))
    try:
        while waiting or running:
            while waiting and len(running) < (jobs or room_for(waiting[0])):
                configuration = waiting.pop(0)
                running[pool.submit(one, configuration)] = configuration
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                configuration = running.pop(future)
                if gone := future.result():
                    lost[configuration] = gone
    except BaseException:
        executor.stop()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
