"""The rows of the RL CI matrix (#45585): what each is about, what it needs, and what covers it."""

from functools import cache
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from reproducers.catalog import Part, catalog, entries_of
from reproducers.states import UNKNOWN, EngineFacts

__all__ = ["ROWS_MIME", "Row", "load_rows", "rows"]

ROWS_MIME = "application/vnd.reproducers.rows+json"
"""What each check of the matrix came to, as data in its record."""


class Row(BaseModel):
    """One row."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    part: Part
    kind: Literal["behavioural", "physical", "protocol"]
    gpus: int = 0
    """How many GPUs it needs."""
    memory: bool = False
    """Whether it looks at device memory: of a GPU, or of the emulated driver."""
    since: str = "0"
    """The first release that has what it looks at."""
    check: bool = False
    """Whether it is a check of the notebook 45585-matrix."""
    notebooks: tuple[str, ...] = ()
    """The bugs whose notebooks cover it."""
    not_run: str = ""
    """Why nothing covers it."""

    @model_validator(mode="after")
    def _is_covered_or_says_why_not(self) -> Self:
        if unknown := [name for name in self.notebooks if name not in catalog()]:
            raise ValueError(f"there is no notebook {unknown[0]}")
        if bool(self.not_run) is (self.check or bool(self.notebooks)):
            raise ValueError("it is a check, or names notebooks, or says in not_run why it is neither")
        return self

    def missing(self, facts: EngineFacts) -> str:
        """What an engine lacks for this row; empty where nothing."""
        if self.memory and facts.kind == "cpu":
            return "a CPU engine has no device memory"
        if self.memory and facts.device == UNKNOWN:
            return "the server does not say whether it has device memory"
        if not facts.at_least(self.since):
            return f"first in {self.since}"
        return ""

    @property
    def needs(self) -> str:
        """In words, for the table."""
        words = f"{self.gpus} GPUs" if self.gpus > 1 else "1 GPU" if self.gpus else ""
        words = words or ("1 GPU, or the emulated driver" if self.memory else "none")
        return words + (f"; {self.since}" if self.since != "0" else "")


def load_rows(path: Path) -> dict[str, Row]:
    """Read and check a file of rows.

    Raises:
        UsageError: not TOML, an unknown or missing key, an unknown notebook, a row that nothing covers.
    """
    return entries_of(path, lambda name, entry: Row(name=name, **entry))


@cache
def rows() -> dict[str, Row]:
    """The kit's own rows, by name."""
    return load_rows(Path(__file__).with_name("rl_ci_matrix.toml"))
