"""The matrix file: which bugs on which releases and settings, expanded into cells."""

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from reproducers.catalog import catalog, notebooks_folder
from reproducers.declaration import declared
from reproducers.errors import UsageError
from reproducers.parameters import checked
from reproducers.sweep.cell import Cell, Configuration, Device, FixName, Mode

__all__ = ["Matrix", "load_matrix"]

_T = TypeVar("_T")


def _release(value: str) -> str:
    if not re.fullmatch(r"\d+\.\d+\.\d+(rc\d+|\.post\d+)?", value):
        raise ValueError(f"{value!r} is not a release such as 0.32.0")
    return value


def _bug(value: str) -> str:
    if value not in {"all", *catalog()}:
        raise ValueError(f"unknown bug {value!r}: all, {', '.join(catalog())}")
    return value


def _distinct(values: tuple[_T, ...]) -> tuple[_T, ...]:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value!r} stands there twice")
    return values


Releases = Annotated[tuple[Annotated[str, AfterValidator(_release)], ...], AfterValidator(_distinct)]
Bugs = Annotated[tuple[Annotated[str, AfterValidator(_bug)], ...], AfterValidator(_distinct)]
Sizes = Annotated[tuple[Annotated[int, Field(ge=1, le=64)], ...], AfterValidator(_distinct)]
Runners = Annotated[tuple[Annotated[int, Field(ge=1, le=2)], ...], AfterValidator(_distinct)]


class _Axes(BaseModel):
    """The axes; what is not given is not restricted, or one default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bugs: Bugs = ()
    releases: Releases = ()
    device: Annotated[tuple[Device, ...], AfterValidator(_distinct)] = ()
    runner: Runners = ()
    mode: Annotated[tuple[Mode, ...], AfterValidator(_distinct)] = ()
    tensor_parallel: Sizes = ()
    data_parallel: Sizes = ()
    fix: Annotated[tuple[FixName, ...], AfterValidator(_distinct)] = ()


class Exclude(_Axes):
    """Cells that are left out: those that match every axis that is given."""

    reason: str

    def matches(self, cell: Cell) -> bool:
        """Whether a cell is left out."""
        c = cell.configuration
        bugs = () if "all" in self.bugs else self.bugs
        pairs: list[tuple[tuple[Any, ...], Any]] = [(bugs, cell.bug), (self.releases, c.release)]
        pairs += [(self.device, c.device), (self.runner, c.runner), (self.mode, c.mode), (self.fix, c.fix)]
        pairs += [(self.tensor_parallel, c.tensor_parallel), (self.data_parallel, c.data_parallel)]
        return all(not wanted or value in wanted for wanted, value in pairs)


class Include(_Axes):
    """Further cells: of the axes given here, the rest as in the file, or all those of another file."""

    reason: str
    file: str = ""


class Matrix(_Axes):
    """A matrix as it was read; `cells` expands it."""

    repeats: Annotated[int, Field(ge=1, le=100)] = 1
    """How often each cell is run; verdicts that differ make it flaky."""
    against: Literal["fix", "released"] = "fix"
    """Whether a cell with a fix is compared with what is expected of the fix, or of the release as it is."""
    parameters: dict[str, Any] = {}
    """Values for parameters of the notebooks, given to those that have them."""
    include: tuple[Include, ...] = ()
    exclude: tuple[Exclude, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _not_empty(cls, data: Any) -> Any:
        if not data:
            raise ValueError("it is empty: name at least bugs and releases")
        return data

    def cells(self) -> list[Cell]:
        """The cells in the order in which they are run, without those of included files."""
        found = list(self._expanded(self))
        for extra in self.include:
            if not extra.file:
                given = {k: v for k, v in extra.model_dump().items() if v and k not in {"reason", "file"}}
                found += self._expanded(self.model_copy(update=given))
        kept = [cell for cell in found if not any(ex.matches(cell) for ex in self.exclude)]
        seen: set[Cell] = set()
        for cell in kept:
            if cell in seen:
                raise UsageError(f"the cell {cell.name} is in the matrix twice: take it out of include")
            seen.add(cell)
        return kept

    def _expanded(self, axes: "Matrix") -> Iterator[Cell]:
        bugs = tuple(catalog()) if "all" in axes.bugs else axes.bugs
        sizes = itertools.product(
            axes.releases, axes.device or ("cpu",), axes.runner or (1,), axes.mode or ("eager",),
            axes.tensor_parallel or (1,), axes.data_parallel or (1,), axes.fix or ("none",),
        )  # fmt: skip
        for release, device, runner, mode, tensor, data, fix in sizes:
            for bug in bugs:
                model = catalog()[bug].model
                configuration = Configuration(release, device, runner, mode, tensor, data, fix, model)
                yield from (Cell(bug, configuration, n) for n in range(1, self.repeats + 1))


def load_matrix(path: Path) -> tuple[Matrix, list[Cell]]:
    """Read a matrix file and those that it includes.

    Raises:
        UsageError: not TOML, an unknown key, bug or value, a value twice, an empty matrix, a circular include.
    """
    matrix, cells = _load(path, ())
    _check_parameters(path, matrix, {cell.bug for cell in cells})
    if not cells:
        raise UsageError(f"{path.name}: no cell is left: name bugs and releases, or exclude less")
    return matrix, cells


def _check_parameters(path: Path, matrix: Matrix, bugs: set[str]) -> None:
    """See that each parameter is one of some notebook, and has a value that all notebooks with it accept."""
    known = {bug: declared(notebooks_folder() / catalog()[bug].notebook) for bug in bugs}
    for name, value in matrix.parameters.items():
        having = [parameters for parameters in known.values() if name in parameters]
        if not having or name in {"engine", "release", "fix", "require"}:
            raise UsageError(f"{path.name}: parameters: no notebook of this matrix takes {name!r} from it")
        for parameters in having:
            try:
                checked({name: value}, parameters)
            except UsageError as error:
                raise UsageError(f"{path.name}: {error}") from error


def _load(path: Path, through: tuple[Path, ...]) -> tuple[Matrix, list[Cell]]:
    here = path.resolve()
    if here in through:
        raise UsageError(f"{path.name}: a circular include: {' → '.join(p.name for p in (*through, here))}")
    try:
        matrix = Matrix(**_toml(path))
        cells = matrix.cells()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        said = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{path.name}: {f'{where}: ' if where else ''}{said}") from error
    except UsageError as error:
        raise UsageError(f"{path.name}: {error}") from error
    for extra in matrix.include:
        if extra.file:
            cells += [cell for cell in _load(path.parent / extra.file, (*through, here))[1] if cell not in cells]
    return matrix, cells


def _toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path.name}: is not TOML: {error}") from error
