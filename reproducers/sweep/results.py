"""What a sweep came to, against what was expected: results.json, JUnit XML, and the exit code."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from reproducers.catalog import catalog
from reproducers.sweep.cell import Configuration
from reproducers.sweep.state import NOT_RUN, CellResult, put_in_place
from reproducers.values import Verdict

__all__ = ["SCHEMA", "Outcome", "Row", "exit_code", "rows_of", "write_junit", "write_results"]

SCHEMA = 1
"""Version of results.json; a field that changes its meaning, or goes, raises it."""

TEXT_LIMIT = 10_000
"""Characters of a failure in JUnit XML, which CI systems show whole."""


class Outcome(StrEnum):
    """How a row stands against what was expected."""

    AS_EXPECTED = "as expected"
    NEWLY_FIXED = "newly fixed"
    REGRESSED = "regressed"
    FLAKY = "flaky"
    STALE = "stale expectation"
    NOT_APPLICABLE = "not applicable"
    HARNESS = "harness failure"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    """A bug on one configuration, over all its repeats."""

    bug: str
    configuration: Configuration
    results: tuple[CellResult, ...]
    expected: Verdict | None
    outcome: Outcome

    @property
    def verdicts(self) -> Counter[str]:
        """How often each verdict was given; what was not run has none."""
        return Counter(result.verdict.value for result in self.results if result.signature != NOT_RUN)

    @property
    def verdict(self) -> Verdict:
        """The verdict that was given most often; INCONCLUSIVE where nothing was run."""
        return Verdict(self.verdicts.most_common(1)[0][0]) if self.verdicts else Verdict.INCONCLUSIVE

    @property
    def said(self) -> str:
        """The outcome in one sentence."""
        if self.outcome is Outcome.NOT_RUN:
            return "not run: the sweep was interrupted"
        if self.outcome is Outcome.NOT_APPLICABLE:
            reason = self.results[0].evidence[0].removesuffix(".")
            return reason[:1].lower() + reason[1:]
        if failed := next((why for r in self.results for why in (r.failure, *r.faults) if why), ""):
            return f"{self.outcome}: {failed}"
        seen = ", ".join(f"{n} × {name}" for name, n in self.verdicts.items())
        return f"{self.outcome}: {seen}; expected {self.expected or 'nothing, since the catalog does not say'}"


def rows_of(results: Iterable[CellResult], against: Literal["fix", "released"]) -> list[Row]:
    """Put the results of all repeats together and hold them against the catalog.

    Args:
        results: of all cells.
        against: what a configuration with a fix is compared with.
    """
    together: dict[tuple[str, Configuration], list[CellResult]] = {}
    for result in results:
        together.setdefault((result.cell.bug, result.cell.configuration), []).append(result)
    rows = []
    for (bug, c), found in together.items():
        expectation = catalog()[bug].expected(c.release, c.device, c.fix if against == "fix" else "none")
        expected = expectation.verdict if expectation else None
        rows.append(Row(bug, c, tuple(found), expected, _outcome(found, expected)))
    return sorted(rows, key=lambda row: (row.configuration, list(catalog()).index(row.bug)))


def _outcome(results: Sequence[CellResult], expected: Verdict | None) -> Outcome:
    """How a bug stands; one that was not run as often as it should is so only if what was run is as expected."""
    run = [result for result in results if result.signature != NOT_RUN]
    outcome = _outcome_of(run, expected) if run else Outcome.NOT_RUN
    return Outcome.NOT_RUN if outcome is Outcome.AS_EXPECTED and len(run) < len(results) else outcome


def _outcome_of(results: Sequence[CellResult], expected: Verdict | None) -> Outcome:
    verdicts = {result.verdict for result in results}
    if Verdict.INCONCLUSIVE in verdicts or any(result.failure or result.faults for result in results):
        return Outcome.HARNESS
    if verdicts == {Verdict.NOT_APPLICABLE}:
        return Outcome.NOT_APPLICABLE
    if len(verdicts) > 1:
        return Outcome.FLAKY
    (seen,) = verdicts
    if seen is expected:
        return Outcome.AS_EXPECTED
    if expected is Verdict.REPRODUCED and seen is Verdict.FIXED:
        return Outcome.NEWLY_FIXED
    if expected is Verdict.FIXED and seen in {Verdict.REPRODUCED, Verdict.OTHER_FAILURE}:
        return Outcome.REGRESSED
    return Outcome.STALE


def exit_code(rows: Sequence[Row]) -> int:
    """0 all as expected or not applicable, 1 something is not, 3 the harness could not tell, or not all was run."""
    outcomes = {row.outcome for row in rows} - {Outcome.AS_EXPECTED, Outcome.NOT_APPLICABLE}
    return 1 if outcomes - {Outcome.HARNESS, Outcome.NOT_RUN} else 3 if outcomes else 0


def write_results(rows: Sequence[Row], path: Path, *, kit: str, seconds: float, starts: int) -> None:
    """Write results.json.

    Args:
        rows: what came of it.
        path: the file.
        kit: the kit's version.
        seconds: how long the cells took, added up.
        starts: how many engines were started.
    """
    data: dict[str, Any] = {"schema": SCHEMA, "kit": kit, "seconds": round(seconds, 1), "engine_starts": starts}
    data["rows"] = [
        {
            "bug": row.bug,
            "configuration": {**vars(row.configuration), "name": str(row.configuration)},
            "outcome": row.outcome.value,
            "verdicts": dict(row.verdicts),
            "expected": row.expected.value if row.expected else None,
            "cells": [{k: v for k, v in r.to_json().items() if k != "cell"} for r in row.results],
        }
        for row in rows
    ]
    put_in_place(path, (json.dumps(data, indent=1) + "\n").encode())


def write_junit(rows: Sequence[Row], path: Path) -> None:
    """Write JUnit XML: one suite a configuration, one case a bug."""
    xml = JUnitXml("repro sweep")
    suites: dict[Configuration, TestSuite] = {}
    for row in rows:
        suite = suites.setdefault(row.configuration, TestSuite(str(row.configuration)))
        case = TestCase(row.bug, str(row.configuration), round(sum(r.seconds for r in row.results), 1))
        text = _clean("\n".join([row.said, *(f"- {s}" for r in row.results for s in (*r.evidence, *r.faults))]))
        text = text[:TEXT_LIMIT]
        if row.outcome is Outcome.NOT_APPLICABLE:
            case.result = [Skipped(_clean(row.results[0].evidence[0]))]
        elif row.outcome is Outcome.NOT_RUN:
            case.result = [Skipped(row.said)]
        elif row.outcome is Outcome.HARNESS:
            case.result = [_filled(Error(_clean(row.said), "harness"), text)]
        elif row.outcome is not Outcome.AS_EXPECTED:
            case.result = [_filled(Failure(_clean(row.said), row.outcome.value), text)]
        suite.add_testcase(case)
    for suite in suites.values():
        xml.add_testsuite(suite)
    xml.write(str(path), pretty=True)


def _clean(text: str) -> str:
    """A text without colour codes and whatever else XML cannot hold."""
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", text)


def _filled(result: Any, text: str) -> Any:
    result.text = text
    return result
