"""Write measured verdicts into the catalog: a range of releases is split where a measurement says otherwise."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomlkit
from packaging.version import Version

from reproducers.catalog import load, notebooks_folder
from reproducers.sweep.results import Outcome, Row
from reproducers.values import Verdict

__all__ = ["updated"]

_TELLING = {Outcome.AS_EXPECTED, Outcome.NEWLY_FIXED, Outcome.REGRESSED, Outcome.STALE}
_DEVICES = ("cpu", "cuda", "emulated")
_A_BLANK_LINE_BEFORE = re.compile(r"\n+(?=\[\[[\w-]+\.expect\]\]\n)")


def updated(path: Path, rows: Sequence[Row]) -> tuple[str, str]:
    """Return the catalog with the measured verdicts, and what that changes.

    Args:
        path: catalog.toml.
        rows: what was measured; what is flaky, untold, or differs between runners and sizes changes nothing.

    Returns:
        The new text, and the difference as a unified diff; empty where nothing changes.
    """
    before = path.read_text(encoding="utf-8")
    document = tomlkit.parse(before)
    seen: dict[tuple[str, ...], set[Verdict]] = {}
    for row in rows:
        if row.outcome is not Outcome.NOT_APPLICABLE:
            seen.setdefault(_place(row), set()).add(row.verdict)
    telling = [row for row in rows if row.outcome in _TELLING and len(seen[_place(row)]) == 1]
    for row in sorted(telling, key=lambda row: Version(row.configuration.release)):
        _split(
            document[row.bug], row.configuration.release, row.configuration.device, row.configuration.fix, row.verdict
        )
    after = _A_BLANK_LINE_BEFORE.sub("\n\n", tomlkit.dumps(document)).rstrip("\n") + "\n"
    scratch = path.with_suffix(".checked")
    scratch.write_text(after, encoding="utf-8")
    try:
        load(scratch, notebooks_folder())  # the new text must be a catalog
    finally:
        scratch.unlink()
    names = (f"a/{path.name}", f"b/{path.name}")
    return after, "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), *names))


def _place(row: Row) -> tuple[str, ...]:
    """What the catalog tells apart."""
    return row.bug, row.configuration.release, row.configuration.device, row.configuration.fix


def _split(bug: Any, release: str, device: str, fix: str, verdict: Verdict) -> None:
    """From a release on, expect another verdict of a device."""
    entries = bug.setdefault("expect", tomlkit.aot())
    covering = next((e for e in entries if _covers(e, release, device, fix)), None)
    if covering is not None and covering["verdict"] == verdict.value:
        return  # an earlier row has said so already
    new = {"verdict": verdict.value}
    if covering is not None:
        if covering.get("device", "any") == "any":
            _by_device(entries, covering, device)
            covering = next(e for e in entries if _covers(e, release, device, fix))
        end = covering.get("before")
        if Version(covering.get("since", "0")) == Version(release):
            covering["verdict"], covering["source"] = verdict.value, "measured"
            return
        covering["before"] = release
        new |= {"before": end} if end else {}
    else:
        later = [e for e in entries if _same(e, device, fix) and Version(e.get("since", "0")) > Version(release)]
        if later:
            new["before"] = min((e["since"] for e in later), key=Version)
    entries.append(_table(new | {"since": release, "device": device, "source": "measured"}, fix))


def _by_device(entries: Any, entry: Any, device: str) -> None:
    """Say for each device what was said for any."""
    for other in _DEVICES:
        if other != device:
            copy = {k: v for k, v in entry.items() if k not in {"device", "fix"}} | {"device": other}
            entries.append(_table(copy, entry.get("fix", "none")))
    entry["device"] = device


def _table(values: dict[str, Any], fix: str) -> Any:
    table = tomlkit.table()
    for name in ("verdict", "since", "before", "device"):
        if values.get(name) is not None:
            table[name] = values[name]
    if fix != "none":
        table["fix"] = fix
    table["source"] = values["source"]
    table.add(tomlkit.nl())
    return table


def _same(entry: Any, device: str, fix: str) -> bool:
    return entry.get("device", "any") in {"any", device} and entry.get("fix", "none") == fix


def _covers(entry: Any, release: str, device: str, fix: str) -> bool:
    version, end = Version(release), entry.get("before")
    inside = Version(entry.get("since", "0")) <= version and (end is None or version < Version(end))
    return inside and _same(entry, device, fix)
