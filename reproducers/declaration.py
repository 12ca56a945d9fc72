"""Read which parameters a notebook declares, without running it."""

import ast
from pathlib import Path
from typing import Annotated, Any, Literal

import nbformat
from pydantic import Field

from reproducers import parameters as kinds
from reproducers.errors import UsageError
from reproducers.parameters import Parameter

__all__ = ["declared", "declared_in"]

_TYPES: dict[str, Any] = {"bool": bool, "int": int, "float": float, "str": str}
_TYPES |= {"Literal": Literal, "Annotated": Annotated, "Field": Field}
_TYPES |= {name: getattr(kinds, name) for name in kinds.__all__}
"""What an annotation in a `parameters` cell may be made of."""


def declared(notebook: Path) -> dict[str, Parameter]:
    """Return the parameters that a notebook declares, by name.

    Raises:
        UsageError: it cannot be read, or has no proper `parameters` cell.
    """
    try:
        node = nbformat.reads(notebook.read_text(encoding="utf-8"), as_version=4)
    except (
        OSError,
        UnicodeDecodeError,
        ValueError,
        TypeError,
        nbformat.ValidationError,
        AttributeError,
        KeyError,
    ) as error:
        raise UsageError(f"{notebook} cannot be read as a notebook: {_one_line(error)}") from error
    return declared_in(node, str(notebook))


def declared_in(node: nbformat.NotebookNode, name: str) -> dict[str, Parameter]:
    """Return the parameters that an opened notebook declares, by name."""
    sources = [c.source for c in node.cells if "parameters" in c.metadata.get("tags", [])]
    if len(sources) != 1:
        raise UsageError(f"{name} has {len(sources)} cells with the tag 'parameters', and needs one")
    try:
        return _parameters(sources[0], name)
    except (SyntaxError, NameError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"the parameters cell of {name} cannot be read: {_one_line(error)}") from error


def _parameters(source: str, name: str) -> dict[str, Parameter]:
    lines = source.splitlines()
    found = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            annotation = compile(ast.Expression(statement.annotation), name, "eval")
            kind = eval(annotation, {"__builtins__": {}}, _TYPES)  # noqa: S307  the notebook is about to be run anyway
            comment = lines[statement.end_lineno - 1].partition("#")[2].strip() if statement.end_lineno else ""
            found[statement.target.id] = Parameter(
                statement.target.id, kind, ast.literal_eval(statement.value), comment
            )
    return found


def _one_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
