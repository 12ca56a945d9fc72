"""What is known of each bug, read from catalog.toml and checked on load."""

import tomllib
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from reproducers.errors import UsageError
from reproducers.states import kind_of
from reproducers.values import Outcome, Verdict

__all__ = [
    "Bug",
    "Contract",
    "Expectation",
    "catalog",
    "entries_of",
    "find_bug",
    "load",
    "notebooks_folder",
    "title_of",
]

T = TypeVar("T")
Part = Literal["state transitions", "information retrieval", "consistency"]
"""The part of the RL CI matrix (#45585) that a bug belongs to."""
Mode = Literal["abort", "wait", "keep"]
Source = Literal["measured", "read in the release", "said in the thread", "the trigger is not written"]


class _Range(BaseModel):
    """Some releases on some devices, and how what is said of them is known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Source
    since: str = "0"
    """First release, itself included."""
    before: str | None = None
    """First release after the range; None for no end."""
    device: Literal["any", "cpu", "cuda", "emulated"] = "any"
    fix: Literal["none", "proposed", "undo"] = "none"
    """With which fix in the engine."""

    @field_validator("since", "before")
    @classmethod
    def _is_release(cls, value: str | None) -> str | None:
        try:
            Version(value or "0")
        except InvalidVersion as error:
            raise ValueError(f"{value!r} is not a release") from error
        return value

    def covers(self, release: str, device: str, fix: str = "none") -> bool:
        """Whether this says something of a release on a device (`cpu`, `cuda`, `emulated`), with a fix or without."""
        try:
            version = Version(release)
        except InvalidVersion:  # a build from source may call itself `dev`
            return False
        inside = Version(self.since) <= version and (self.before is None or version < Version(self.before))
        return inside and self.device in {"any", device} and self.fix == fix

    def overlaps(self, other: "_Range") -> bool:
        """Whether some release on some device is covered by both."""
        apart = (self.before is not None and Version(self.before) <= Version(other.since)) or (
            other.before is not None and Version(other.before) <= Version(self.since)
        )
        same_device = "any" in {self.device, other.device} or self.device == other.device
        return not apart and same_device and self.fix == other.fix


class Expectation(_Range):
    """The verdict that is expected."""

    verdict: Verdict


class Contract(_Range):
    """What pause and resume promise on some releases, by mode."""

    in_flight: dict[Mode, Outcome]
    """How a stream in flight ends."""
    new_request: dict[Mode, Outcome]
    """What becomes of a request that comes while paused."""
    clears_cache: tuple[Mode, ...]
    """The modes that heed `clear_cache=true`."""


class Bug(BaseModel):
    """One bug: what it is, where it is discussed, what it needs, and what is expected."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    title: str
    links: tuple[str, ...]
    part: Part
    notebook: str
    needs: tuple[str, ...] = ()
    """What a machine must have, in words: `one NVIDIA GPU`."""
    report: str = ""
    """A short text ready for an issue, in Markdown; where nobody has reported the bug there must be one."""
    model: Literal["dense", "falcon-h1"] = "dense"
    """The tiny model that its notebook asks for by default."""
    memory: bool = False
    """Whether it is a bug of device memory, for which a CPU engine will not do."""
    fixes: tuple[Literal["proposed", "undo"], ...] = ()
    """Which fixes there are: the one proposed for it, or the shipped one taken out again."""
    own_engines: tuple[Literal["cpu", "cuda", "emulated"], ...] = ()
    """Devices on which its notebook must start engines of its own, and cannot share one."""
    expect: tuple[Expectation, ...] = ()
    contract: tuple[Contract, ...] = ()

    @model_validator(mode="after")
    def _is_reported_or_can_be(self) -> Self:
        if not self.links and not self.report:
            raise ValueError("without a link to a report it needs a text that can be reported")
        return self

    @model_validator(mode="after")
    def _ranges_do_not_overlap(self) -> Self:
        for ranges in (self.expect, self.contract):
            for one, other in combinations(ranges, 2):
                if one.overlaps(other):
                    raise ValueError(f"two entries cover the same release: since {one.since} and since {other.since}")
        return self

    def expected(self, release: str, device: str, fix: str = "none") -> Expectation | None:
        """What is expected of a release; None where nothing is known."""
        return next((e for e in self.expect if e.covers(release, kind_of(device), fix)), None)

    def promised(self, release: str, device: str) -> Contract | None:
        """What a release promises; None where nothing is known."""
        return next((c for c in self.contract if c.covers(release, kind_of(device))), None)


def notebooks_folder() -> Path:
    """Where the notebooks are: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).parent
    beside = package.parent / "notebooks"
    return beside if beside.is_dir() else package / "notebooks"


def entries_of(path: Path, make: Callable[[str, dict[str, Any]], T]) -> dict[str, T]:
    """Read a TOML file of named tables, each made into something that checks itself.

    Raises:
        UsageError: it cannot be read, is not TOML, or an entry is not as it must be; the text names where.
    """
    name, made = "", {}
    try:
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            made[name] = make(name, entry)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (name, *first["loc"])))
        raise UsageError(f"{path.name}: {where}: {first['msg'].removeprefix('Value error, ')}") from error
    except (OSError, tomllib.TOMLDecodeError, TypeError) as error:
        raise UsageError(f"{path.name}: {error}") from error
    return made


def load(path: Path, notebooks: Path) -> dict[str, Bug]:
    """Read a catalog and check it against the notebooks.

    Raises:
        UsageError: not TOML, an unknown or missing key, overlapping ranges, a bug without a notebook, a notebook
            without an entry.
    """
    bugs = entries_of(path, lambda name, entry: Bug(id=name, **entry))
    there, named = {p.name for p in notebooks.glob("*.ipynb")}, {b.notebook for b in bugs.values()}
    if missing := sorted(named - there):
        raise UsageError(f"{path.name}: the notebook {missing[0]} does not exist")
    if unlisted := sorted(there - named):
        raise UsageError(f"{path.name}: the notebook {unlisted[0]} has no entry")
    return bugs


@cache
def catalog() -> dict[str, Bug]:
    """The kit's own catalog, by number or name."""
    return load(Path(__file__).with_name("catalog.toml"), notebooks_folder())


def find_bug(name: str) -> Bug:
    """Return a bug by its number, with or without `#`, or its name.

    Raises:
        UsageError: there is no such bug.
    """
    bugs = catalog()
    if (bug := bugs.get(name.removeprefix("#"))) is None:
        raise UsageError(f"unknown bug {name!r}: there are {', '.join(bugs)}")
    return bug


def title_of(name: str) -> str:
    """The title of a bug; empty where the catalog has none, as of a record from elsewhere."""
    return catalog()[name].title if name in catalog() else ""
