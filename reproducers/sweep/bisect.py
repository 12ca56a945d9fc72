"""The first release with the other verdict, by binary search over the published releases."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from reproducers.catalog import Bug
from reproducers.errors import HarnessError, RecordError, ReproError, UsageError
from reproducers.record.read import read
from reproducers.record.run import run
from reproducers.values import Verdict

__all__ = ["Found", "between", "bisect"]

TELLING = {Verdict.REPRODUCED, Verdict.FIXED, Verdict.OTHER_FAILURE}

Judge = Callable[[str, int], Verdict]
"""Judges a release, given which of the repeats it is; INCONCLUSIVE where it cannot be judged."""


@dataclass(frozen=True)
class Found:
    """Where the verdict changes."""

    bug: str
    first: str
    """The first release with the other verdict."""
    verdict: Verdict
    last: str
    """The last release with the first end's verdict."""
    before: Verdict
    runs: int
    """How often each of the two was run."""
    skipped: tuple[str, ...]
    """Releases between the two that could not be judged."""

    def __str__(self) -> str:
        around = f"; could not be judged in between: {', '.join(self.skipped)}" if self.skipped else ""
        return (
            f"{self.bug}: first release with {self.verdict} is {self.first} ({self.runs} of {self.runs} runs); "
            f"{self.last} is still {self.before} ({self.runs} of {self.runs} runs){around}"
        )


def between(releases: Sequence[Version], one: str, other: str) -> list[str]:
    """The published releases from one to the other, both included, in ascending order.

    Raises:
        UsageError: one of them is not published, or both are the same.
    """
    published = {str(version) for version in releases}
    for name in (one, other):
        if name not in published:
            raise UsageError(
                f"{name} is not a published release: there are {', '.join(sorted(published, key=Version)[-8:])}"
            )
    if one == other:
        raise UsageError("--good and --bad are the same release: there is nothing to search")
    low, high = sorted((Version(one), Version(other)))
    return [str(version) for version in releases if low <= version <= high]


def bisect(
    bug: str, releases: Sequence[str], judge: Judge, *, good: str, runs: int, say: Callable[[str], None]
) -> Found:
    """Search for the first release with the other verdict.

    Args:
        bug: what is searched for.
        releases: from one end to the other, ascending.
        judge: judges a release.
        good: which of the two ends must not show the bug; the other one must.
        runs: how often a release is judged; verdicts that differ make it one that cannot be judged.
        say: is told each step.

    Raises:
        HarnessError: an end could not be judged, or both have the same verdict.
        UsageError: the end that is called good shows the bug, or the other one does not.
    """
    known: dict[str, Verdict] = {}

    def verdict(release: str) -> Verdict:
        if release not in known:
            seen = {judge(release, n) for n in range(1, runs + 1)}
            known[release] = seen.pop() if len(seen) == 1 else Verdict.INCONCLUSIVE
            say(f"{release}: {known[release]}")
        return known[release]

    first, last = releases[0], releases[-1]
    for end in (first, last):
        if verdict(end) not in TELLING:
            raise HarnessError(f"{end} cannot be judged ({known[end]}): choose another end")
    if verdict(first) is verdict(last):
        raise HarnessError(f"both ends are {verdict(first)}: there is nothing to search between {first} and {last}")
    bad = last if good == first else first
    if verdict(bad) is Verdict.FIXED or verdict(good) is Verdict.REPRODUCED:
        raise UsageError(f"{good} is {verdict(good)} and {bad} is {verdict(bad)}: exchange --good and --bad")
    low, high, skipped = 0, len(releases) - 1, set[int]()
    while candidates := [i for i in range(low + 1, high) if i not in skipped]:
        middle = min(candidates, key=lambda i: abs(2 * i - low - high))
        seen = verdict(releases[middle])
        if seen is verdict(first):
            low = middle
        elif seen is verdict(last):
            high = middle
        else:
            skipped.add(middle)
    left = tuple(releases[i] for i in sorted(skipped) if low < i < high)
    return Found(bug, releases[high], verdict(last), releases[low], verdict(first), runs, left)


def judge_by_notebook(bug: Bug, folder: Path, given: dict[str, Any], follow: Callable[[str, str], None]) -> Judge:
    """Judge releases by running the bug's notebook; what was judged already in the folder is taken from there."""

    def judge(release: str, n: int) -> Verdict:
        path = folder / f"{release}-{n}.ipynb"
        with contextlib.suppress(RecordError):
            if (known := read(path).judgement.verdict) in TELLING:  # what could not be told is tried again
                return known
        try:
            finished = run(bug, given | {"release": release, "require": "nothing"}, out=path, follow=follow)
        except UsageError:
            raise
        except ReproError as error:
            follow("run", str(error))
            return Verdict.INCONCLUSIVE
        return finished.record.judgement.verdict

    return judge
