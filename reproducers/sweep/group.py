"""A group: the cells of one configuration, run one after another on one engine that is replaced when it dies.

    python -m reproducers.sweep.group FOLDER GROUP.json

A process of its own, which ends with the one that started it. It prints a line of JSON for each thing that happens, and
leaves for each cell a record and a result, each put in place whole.
"""

import ctypes
import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reproducers.catalog import catalog, notebooks_folder
from reproducers.declaration import declared
from reproducers.engine import Engine, EngineSettings, attached_facts, open_engine, parallel_flags
from reproducers.errors import EngineFailed, NotApplicable, ReproError
from reproducers.models import MODELS
from reproducers.record.check import check
from reproducers.record.run import Finished, run
from reproducers.sweep.cell import Cell, Configuration
from reproducers.sweep.state import CellResult, finished, keep

__all__ = ["main", "run_group"]

ATTEMPTS = 2
"""How often a cell is tried when the harness could not tell, the second time on a fresh engine.

An engine that failed to start so often is not started for the cells after it either.
"""


class Group:
    """Runs cells of one configuration.

    Args:
        folder: where records and results go.
        configuration: how the engine is started.
        parameters: values for parameters of the notebooks.
        bugs: whose fixes are in the engine.
    """

    def __init__(self, folder: Path, configuration: Configuration, parameters: dict[str, Any], bugs: list[str]) -> None:
        self._folder, self._configuration, self._parameters = folder, configuration, parameters
        self._fix = ",".join(f"{bug}:{configuration.fix}" for bug in bugs) if configuration.fix != "none" else ""
        self._engine: Engine | None = None
        self._starts = 0
        self._failed_starts: list[EngineFailed] = []

    def run(self, cell: Cell) -> CellResult:
        """Run one cell; a harness that could not tell is tried once more, on a fresh engine."""
        began, before = time.monotonic(), self._starts
        for attempt in range(1, ATTEMPTS + 1):
            try:
                finished = self._notebook(cell)
            except NotApplicable as error:
                return CellResult.not_applicable(cell, str(error))
            except ReproError as error:
                self.close()
                failure = f"{type(error).__name__}: {error}"
                if attempt == ATTEMPTS:
                    return CellResult.failed(cell, failure, time.monotonic() - began, self._starts - before)
                continue
            if finished.exit_code != 3 or attempt == ATTEMPTS:
                break
            self.close()
        faults = check(finished.record.path)
        return CellResult.of(cell, finished, faults, time.monotonic() - began, self._starts - before)

    def _notebook(self, cell: Cell) -> Finished:
        bug = catalog()[cell.bug]
        known = declared(notebooks_folder() / bug.notebook)
        given = {k: v for k, v in self._parameters.items() if k in known} | {"require": "nothing"}
        c = self._configuration
        given |= {"fix": c.fix} if c.fix != "none" else {}
        path = self._folder / "records" / f"{cell.name}.ipynb"
        if c.device in bug.own_engines:
            self.close()
            given |= {"engine": c.device, "release": c.release} | ({"runner": c.runner} if "runner" in known else {})
            return run(bug, given, out=path, budget_s=600)
        engine = self._healthy()
        with engine.lend():
            return run(bug, given | {"engine": engine.url}, out=path, budget_s=600)

    def _healthy(self) -> Engine:
        """The engine, awake, unpaused and healthy; a new one where it cannot be brought to that."""
        if self._engine is not None:
            try:
                attached_facts(self._engine.url)
            except ReproError:
                self.close()
            else:
                return self._engine
        if len(self._failed_starts) >= ATTEMPTS:
            raise self._failed_starts[-1]
        self._engine = self._started()
        self._failed_starts.clear()
        self._starts += 1
        _say(started=str(self._configuration))
        return self._engine

    def _started(self) -> Engine:
        c = self._configuration
        flags = parallel_flags(c.tensor_parallel, c.data_parallel)
        settings = EngineSettings(model=MODELS[c.model], flags=flags, graphs=c.mode == "graphs")
        memory = c.device == "emulated"
        try:
            return open_engine(
                c.device, release=c.release, runner=c.runner, fix=self._fix, settings=settings, memory=memory,
                progress=lambda text: _say(engine=text),
            )  # fmt: skip
        except EngineFailed as error:
            self._failed_starts.append(error)
            raise

    def close(self) -> None:
        """End the engine, if there is one."""
        if self._engine is not None:
            self._engine.close()
        self._engine = None


def run_group(folder: Path, order: dict[str, Any]) -> None:
    """Run the cells of an order that are not finished.

    Args:
        folder: where records and results go.
        order: the configuration, the cells as bug and repeat, the parameters, and the bugs of the whole group, done
            or not, whose fixes are in the engine.
    """
    configuration = Configuration(**order["configuration"])
    cells = [Cell(bug, configuration, n) for bug, n in order["cells"]]
    group = Group(folder, configuration, order["parameters"], order["bugs"])
    try:
        for cell in cells:
            if not finished(folder, cell):
                _say(began=cell.name)
                keep(folder, group.run(cell))
                _say(ended=cell.name)
    finally:
        group.close()


def _say(**line: str) -> None:
    print(json.dumps(line), flush=True)


def main() -> None:
    """Run one group; ends when the process that started it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    folder, order = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    run_group(folder, order)


def order_of(
    configuration: Configuration, cells: list[Cell], bugs: list[str], parameters: dict[str, Any]
) -> dict[str, Any]:
    """What a group's process is given."""
    pairs = [[cell.bug, cell.repeat] for cell in cells]
    return {"configuration": asdict(configuration), "cells": pairs, "bugs": bugs, "parameters": parameters}


if __name__ == "__main__":
    main()
