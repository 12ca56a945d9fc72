"""Which fixes an engine has loaded and which are on, so that one engine is as released, with a fix, with one undone."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reproducers.errors import UsageError

__all__ = ["FIX_OFF_VARIABLE", "FIX_VARIABLE", "FixSwitch"]

FIX_VARIABLE = "REPRO_FIX"
"""In the engine's environment the fixes to load; in its facts those of them that are on."""
FIX_OFF_VARIABLE = "REPRO_FIX_OFF"
"""In the engine's facts: the fixes that are loaded and off."""


@dataclass(frozen=True)
class FixSwitch:
    """The file that an engine's processes read at each call of what its fixes patch."""

    path: Path
    loaded: tuple[str, ...]
    """The fixes that the processes have loaded: `45326:proposed`."""

    def on(self) -> tuple[str, ...]:
        """The fixes that are on now."""
        return tuple(filter(None, self.path.read_text(encoding="utf-8").split(",")))

    def turn(self, on: Sequence[str]) -> Mapping[str, str]:
        """Let these fixes be on, and all others off, from the next call on; return what the facts say then.

        Raises:
            UsageError: one of them is not loaded.
        """
        if missing := [name for name in on if name not in self.loaded]:
            raise UsageError(f"the fix {missing[0]} is not loaded in this engine: it has {', '.join(self.loaded)}")
        written = self.path.with_suffix(".new")
        written.write_text(",".join(on), encoding="utf-8")
        os.replace(written, self.path)  # noqa: PTH105  whole or not at all, since it is read at any moment
        off = [name for name in self.loaded if name not in on]
        facts = {FIX_VARIABLE: ",".join(on), FIX_OFF_VARIABLE: ",".join(off)}
        return {name: value for name, value in facts.items() if value}
