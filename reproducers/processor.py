"""Which processor this machine has, and what of it changes an engine on the CPU."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Processor", "named_in", "processor"]

FEATURES = {
    "avx512f": "vLLM's kernels are those for AVX-512",
    "avx512_bf16": "vLLM packs bfloat16 weights; without it, float32 ones",
    "amx_tile": "attention of bfloat16 uses tiles, which the kit asks Linux for",
}
"""Flags in /proc/cpuinfo, and what vLLM 0.32.0 does where they are."""


@dataclass(frozen=True)
class Processor:
    """A processor, as Linux names it."""

    model: str
    """Empty where Linux does not say."""
    cores: int
    """How many of its cores this process may use."""
    features: tuple[str, ...]
    """Those of FEATURES that it has."""

    def __str__(self) -> str:
        return ", ".join([self.model or "unknown", *self.features])

    def to_json(self) -> dict[str, Any]:
        """Return it as stored in a record's metadata."""
        return {"model": self.model, "cores": self.cores, "features": list(self.features)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Processor":
        """Read what `to_json` wrote."""
        return cls(str(data["model"]), int(data["cores"]), tuple(map(str, data["features"])))


def processor() -> Processor:
    """The processor of this machine."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return _read(text, r"^model name\s*: (.+)$", r"^flags\s*: (.+)$", len(os.sched_getaffinity(0)))


def named_in(collect_env: str) -> Processor | None:
    """The processor that vLLM's collect_env names; None where it names none."""
    found = _read(collect_env, r"^ *Model name: +(.+)$", r"^ *Flags: +(.+)$", 0)
    return found if found.model else None


def _read(text: str, model: str, flags: str, cores: int) -> Processor:
    name, has = (re.search(pattern, text, re.MULTILINE) for pattern in (model, flags))
    words = set(has[1].split()) if has else set()
    return Processor(" ".join(name[1].split()) if name else "", cores, tuple(f for f in FEATURES if f in words))
