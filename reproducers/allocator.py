"""A release's `CuMemAllocator` on its own: sequences of steps, each in a process that it may take down with it."""

import json
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reproducers.engine import Installation, choose, device_of, lent
from reproducers.engine.launch import EngineSettings, environment_of
from reproducers.engine.system import collected
from reproducers.errors import HarnessError
from reproducers.journal import Journal
from reproducers.memory import used_bytes
from reproducers.progress import progress_line
from reproducers.states import EngineFacts, Residue
from reproducers.values import Sample
from reproducers.workers import TagBytes

__all__ = ["Allocator", "SequenceRun", "Step", "open_allocator", "sequence_of"]

SEQUENCE_BOUND_S = 300.0
"""A sequence takes 5 to 15 s, most of it the import of torch; this is what a loaded machine is given."""

IDLE_DEVICE = 2**30
"""Bytes: more than this in use before a sequence means that others use the device."""

_PROBE = Path(__file__).parent / "inside" / "allocator_probe.py"


@dataclass(frozen=True)
class Step:
    """One step that was begun."""

    text: str
    ended: bool
    """Whether it came back, with or without an error."""
    error: str = ""
    missing: str = ""
    """What the release lacks to do it; it was left out then."""
    seconds: float = 0.0
    freed: int = 0
    """Bytes that the device had more free after it than before; negative where it took some."""
    tags: dict[str, TagBytes] = field(default_factory=dict)


@dataclass(frozen=True)
class SequenceRun:
    """What came of a sequence."""

    name: str
    steps: tuple[Step, ...]
    died: str = ""
    """How the process died (`SIGSEGV`), and in which step; empty where it ended as it should."""
    weights_equal: bool | None = None
    """Whether the weights were the same at the end, byte for byte; None where it did not come to that."""
    held: dict[str, TagBytes] = field(default_factory=dict)
    """What the tags had at the beginning."""
    shared: bool = False
    """Whether other processes used the device meanwhile, so that its free bytes say nothing about this one."""

    @property
    def error(self) -> str:
        """The first error, or how the process died; empty where there was none."""
        return self.died or next((f"`{s.text}`: {s.error}" for s in self.steps if s.error), "")

    @property
    def missing(self) -> str:
        """What the release lacks; empty where all steps were done."""
        return next((s.missing for s in self.steps if s.missing), "")


class Allocator:
    """Runs sequences; like an engine it has facts, a journal and an end.

    Args:
        facts: which release and device.
        installation: the release.
        driver: how an emulated driver hands pages out; not used on a GPU.
    """

    def __init__(self, facts: EngineFacts, installation: Installation, driver: str) -> None:
        self.facts = facts
        self.journal = Journal()
        self._installation = installation
        self._driver = "cuda" if installation.device == "cuda" else driver
        self._unclaimed = _unclaimed()

    def run(self, *steps: str) -> SequenceRun:
        """Do steps such as `sleep weights`, `discard kv_cache`, `wake`, `free kv_cache` on a fresh allocator.

        Raises:
            HarnessError: the process never came so far as to begin, or did not end within five minutes.
        """
        environment = environment_of(self._installation, EngineSettings())
        began, shared = self.journal.now(), _shared()
        command = [self._installation.python, str(_PROBE), self._driver, *steps]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=SEQUENCE_BOUND_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise HarnessError(f"the allocator did not end {steps} within {SEQUENCE_BOUND_S:.0f} s") from error
        words = [line for line in done.stderr.splitlines() if line.strip()]
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            raise HarnessError(f"the allocator's process did not begin: {words[-1] if words else 'it said nothing'}")
        run = sequence_of(", ".join(steps), lines, done.returncode, words)
        run = replace(run, shared=shared or _shared())
        self.journal.mark(f"{run.name}: {run.error or 'done'}")
        self._note(began, run)
        return run

    def system(self) -> str:
        """What vLLM's collect_env says of this machine and the release's environment; empty where it says nothing."""
        return collected(self._installation)

    def close(self) -> Residue:
        """Every sequence's process has ended; say whether device memory is left."""
        before, now = self._unclaimed, _unclaimed()
        return Residue(device_bytes=None if before is None or now is None else max(0, now - before))

    def _note(self, began: float, run: SequenceRun) -> None:
        """Bytes by tag for the time line, spread over the time that the sequence took."""
        states = [run.held, *(step.tags for step in run.steps if step.tags)]
        width = (self.journal.now() - began) / len(states)
        for i, tags in enumerate(states):
            for tag, known in tags.items():
                self.journal.add_sample(Sample(began + i * width, f"{tag} bytes", float(known.mapped)))


def sequence_of(name: str, lines: Sequence[dict[str, Any]], status: int, words: Sequence[str]) -> SequenceRun:
    """Read what the probe printed.

    Args:
        name: the steps in words.
        lines: its lines of JSON.
        status: its exit status, negative for a signal.
        words: what it wrote beside them.
    """
    held = _tags(lines[0])
    free, steps, equal = lines[0]["free"], [], None
    for line in lines[1:]:
        if line.get("begins"):
            steps.append(Step(line["step"], ended=False))
        elif line["step"] == "compare":
            equal = line.get("weights_equal")
            if "error" in line:
                steps.append(Step("compare the weights", ended=True, error=line["error"]))
        elif "missing" in line:
            steps.append(Step(line["step"], ended=True, missing=line["missing"]))
        else:
            freed = line.get("free", free) - free
            free = line.get("free", free)
            error = line.get("error", "")
            steps[-1] = Step(line["step"], True, error, "", line["seconds"], freed, _tags(line))
    died = ""
    if status:
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        where = next((f" in `{s.text}`" for s in steps if not s.ended), "")
        last = f": {words[-1]}" if words else ""
        died = f"the process died of {how}{where}{last}"
    return SequenceRun(name, tuple(steps), died, equal, held)


def _tags(line: dict[str, Any]) -> dict[str, TagBytes]:
    return {tag: TagBytes(known["held"], known["mapped"]) for tag, known in line.get("tags", {}).items()}


def _shared() -> bool:
    """Whether the device is used by others; an idle one has a few hundred MiB in use, by the driver itself."""
    used = used_bytes()
    return used is not None and used.device > IDLE_DEVICE


def _unclaimed() -> int | None:
    used = used_bytes()
    return None if used is None else used.unclaimed


def open_allocator(choice: str = "auto", *, release: str = "", driver: str = "scrubs") -> Allocator | None:
    """Return the allocator of the release that `choice` names.

    None where it names a server whose installation is not known.

    Args:
        choice: as for an engine: `auto`, `cuda`, `emulated` or a URL.
        release: a release of vLLM; empty for the one at hand.
        driver: how an emulated driver hands pages out.

    Raises:
        UsageError, EngineUnavailable, NotApplicable: as `open_engine`.
    """
    chosen = choose(choice, release, progress_line("vLLM"), memory=True)
    if isinstance(chosen, str):
        known = lent(chosen)
        if known is None:
            return None
        chosen = known.installation
    settings = {"REPRO_DRIVER": driver} if chosen.device == "emulated" else {}
    facts = EngineFacts(chosen.release, device_of(chosen), "none: the allocator alone", True, settings)
    return Allocator(facts, chosen, driver)
