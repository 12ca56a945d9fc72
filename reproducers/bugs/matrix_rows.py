"""The RL CI matrix (#45585): each row a check with a name, and what came of it on one engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reproducers.bugs.finding import Finding, judged
from reproducers.coverage import ROWS_MIME
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Verdict

__all__ = ["BUG", "Checked", "Checks", "judge"]

BUG = "45585"


@dataclass(frozen=True)
class Checked:
    """What came of one row."""

    row: str
    passed: bool | None
    """None where it was not run."""
    said: str
    """What was seen, what was wrong, or why it was not run."""
    start: float
    end: float
    armed: bool = True
    """Whether what the row is about happened, as far as can be proven."""

    @property
    def outcome(self) -> str:
        """In a word or two, as the tables have it."""
        if not self.armed:
            return "not armed"
        return {True: "passed", False: "FAILED", None: "not run"}[self.passed]


@dataclass(frozen=True)
class Checks:
    """All rows that were checked; shown as a table."""

    checked: tuple[Checked, ...]

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        lines = [f"{c.row:18} {c.outcome:9} {c.said}" for c in self.checked]
        table = [f"| `{c.row}` | {c.outcome} | {c.said.replace('|', '¦')} |" for c in self.checked]
        data: Mapping[str, Any] = {c.row: {"outcome": c.outcome, "said": c.said} for c in self.checked}
        markdown = "\n".join(["| row | outcome | |", "|---|---|---|", *table])
        return {"text/plain": "\n".join(lines), "text/markdown": markdown, ROWS_MIME: data}


def judge(
    control: Control, checked: Sequence[Checked], wanted: Sequence[str], after: Probe | None, device: str
) -> Judgement:
    """Judge by what was observed; each row that was run is a run.

    Args:
        control: the healthy path.
        checked: the rows.
        wanted: the names of all rows that have a check.
        after: the probe at the end.
        device: what the engine ran on.
    """
    if not control.passed:
        return judged(BUG, control, [], after, device)
    findings = [_failed(c) for c in checked if c.passed is False]
    passed = [c for c in checked if c.passed]
    if passed:
        window = (passed[0].start, passed[-1].end)
        sentence = f"{len(passed)} rows passed: {', '.join(c.row for c in passed)}."
        findings += [Finding(Verdict.FIXED, (sentence,), "rows-passed", window)] * len(passed)
    for c in checked:
        if not c.armed:
            said = f"The row {c.row} proves nothing: {c.said}."
            findings.append(Finding(Verdict.NOT_OBSERVED, (said,), f"not-armed:{c.row}", (c.start, c.end)))
    for row in sorted(set(wanted) - {c.row for c in checked}):
        findings.append(Finding(Verdict.NOT_OBSERVED, (f"The row {row} was not run.",), "row-missing"))
    return judged(BUG, control, findings, after, device)


def _failed(checked: Checked) -> Finding:
    window = (checked.start, checked.end)
    return Finding(Verdict.REPRODUCED, (f"{checked.row}: {checked.said}.",), f"row-failed:{checked.row}", window)
