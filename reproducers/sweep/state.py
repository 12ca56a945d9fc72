"""What a sweep has done so far: one result a cell, put in place whole, so that a half-written one is never counted."""

import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from reproducers.errors import UsageError
from reproducers.record.run import Finished
from reproducers.sweep.cell import Cell, Configuration
from reproducers.values import Verdict

__all__ = ["NOT_RUN", "CellResult", "finished", "forget", "keep", "kept", "prepare", "put_in_place"]

NOT_RUN = "not-run"
"""Signature of a cell that was not run."""


@dataclass(frozen=True)
class CellResult:
    """What came of one cell."""

    cell: Cell
    verdict: Verdict
    evidence: tuple[str, ...]
    signature: str
    device: str = ""
    """The device as the record names it."""
    failure: str = ""
    """How the harness failed; empty where it did not."""
    faults: tuple[str, ...] = ()
    """What `repro check` says against the record."""
    seconds: float = 0.0
    starts: int = 0
    """How many engines were started for it."""
    record: str = ""
    """The record's path, from the folder of the sweep; empty where there is none."""

    @classmethod
    def of(cls, cell: Cell, finished: Finished, faults: list[str], seconds: float, starts: int) -> "CellResult":
        """The result of a notebook that has ended."""
        judgement, engine = finished.record.judgement, finished.record.said.get("engine") or {}
        return cls(
            *(cell, judgement.verdict, judgement.evidence, judgement.signature, str(engine.get("device", ""))),
            *(finished.failure if finished.exit_code == 3 else "", tuple(faults), round(seconds, 1), starts),
            record=f"records/{cell.name}.ipynb",
        )

    @classmethod
    def not_applicable(cls, cell: Cell, reason: str) -> "CellResult":
        """The result of a cell that cannot be run."""
        return cls(cell, Verdict.NOT_APPLICABLE, (f"Not applicable: {reason}.",), "not-applicable")

    @classmethod
    def failed(cls, cell: Cell, failure: str, seconds: float, starts: int) -> "CellResult":
        """The result of a cell whose notebook could not be run at all."""
        return cls(cell, Verdict.INCONCLUSIVE, (failure,), "harness", "", failure, (), round(seconds, 1), starts)

    @classmethod
    def not_run(cls, cell: Cell) -> "CellResult":
        """What stands for a cell that an interrupted sweep did not come to; it is never kept."""
        return cls(cell, Verdict.INCONCLUSIVE, ("The sweep was interrupted before this cell.",), NOT_RUN)

    def to_json(self) -> dict[str, Any]:
        """Return the result as it is stored."""
        return asdict(self) | {"verdict": self.verdict.value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "CellResult":
        """Read what `to_json` wrote."""
        cell = Cell(**data["cell"] | {"configuration": Configuration(**data["cell"]["configuration"])})
        texts = {name: tuple(data[name]) for name in ("evidence", "faults")}
        return cls(**data | texts | {"cell": cell, "verdict": Verdict(data["verdict"])})


def put_in_place(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole, or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(path)


def keep(folder: Path, result: CellResult) -> None:
    """Put a result in place."""
    text = json.dumps(result.to_json(), indent=1)
    put_in_place(folder / "cells" / f"{result.cell.name}.json", text.encode())


def kept(folder: Path, cell: Cell) -> CellResult | None:
    """The result of a cell; None where it has none, or its record is gone."""
    try:
        text = (folder / "cells" / f"{cell.name}.json").read_text(encoding="utf-8")
        result = CellResult.from_json(json.loads(text))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if result.record and not (folder / result.record).is_file() else replace(result, cell=cell)


def finished(folder: Path, cell: Cell) -> bool:
    """Whether a cell need not be run again; what the harness could not judge is tried again with the next call."""
    result = kept(folder, cell)
    return result is not None and not (result.failure or result.faults or result.verdict is Verdict.INCONCLUSIVE)


def forget(folder: Path, cell: Cell) -> None:
    """Take a cell's result away, before it is tried again."""
    (folder / "cells" / f"{cell.name}.json").unlink(missing_ok=True)


def prepare(folder: Path, matrix: dict[str, Any]) -> None:
    """Make the folder of a sweep, or take up the one that is there.

    Raises:
        UsageError: the folder holds a sweep of another matrix, or cannot be written.
    """
    told = json.dumps(matrix, indent=1, sort_keys=True)
    said = folder / "matrix.json"
    try:
        if said.exists() and said.read_text(encoding="utf-8") != told:
            raise UsageError(f"{folder} holds the sweep of another matrix: name another folder, or remove it")
        for name in ("cells", "records", "orders"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for left in (*folder.glob("records/.running-*"), *folder.glob("cells/*.part")):  # of a sweep that was killed
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
        if not said.exists():
            put_in_place(said, told.encode())
    except OSError as error:
        raise UsageError(f"the sweep cannot be written to {folder}: {error.strerror}") from error
