"""Read a record: an executed notebook with what it says about itself."""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from reproducers.errors import RecordError
from reproducers.judgement import Judgement
from reproducers.record.metadata import KEY
from reproducers.record.small import largest_cell

__all__ = ["READ_LIMIT", "Record", "read"]

READ_LIMIT = 20_000_000
"""Bytes from which on a file is not read as a record: it cannot be one, and to look through it takes minutes."""


@dataclass(frozen=True)
class Record:
    """An executed notebook and what its metadata say."""

    path: Path
    node: nbformat.NotebookNode
    said: Mapping[str, Any]
    judgement: Judgement


def _largest(path: Path) -> str:
    """Name the largest cell of a file that is too large, where it is a notebook."""
    try:
        return f": {largest_cell(json.loads(path.read_bytes())['cells'])}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError):
        return ""


def read(path: Path) -> Record:
    """Read a record without running it.

    Raises:
        RecordError: it cannot be read, is truncated, is not a notebook, or has no verdict.
    """
    try:
        if (size := path.stat().st_size) > READ_LIMIT:
            raise RecordError(f"is {size:,} bytes, too large for a record{_largest(path)}")
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
    except UnicodeDecodeError as error:
        raise RecordError("is not a notebook: not UTF-8 text") from error
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "somewhere"
        raise RecordError(f"is truncated or not a notebook: its JSON breaks off at {where}") from error
    if not isinstance(data, dict) or "cells" not in data or "nbformat" not in data:
        raise RecordError("is not a notebook: it has no cells")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a missing cell id is a fault of the record, reported below
            node = nbformat.reads(text, as_version=4)
            nbformat.validate(node)
    except (nbformat.ValidationError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"is not a valid notebook: {(str(error).splitlines() or ['no reason'])[0]}") from error
    said = node.metadata.get(KEY)
    if not isinstance(said, dict) or "verdict" not in said:
        raise RecordError("has no verdict: it was not made by `repro run` or `papermill --engine reproducers`")
    try:
        return Record(path, node, said, Judgement.from_json(said["verdict"]))
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError("has no verdict that can be read") from error
