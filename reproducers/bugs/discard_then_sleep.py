"""#46438: discard, then sleep, then wake up: the same pages are released twice.

On the allocator alone, where it can take its process down, and over HTTP through `/release_kv_cache_memory`. Before
`discard` existed a second sleep reaches the same double release, and so does a sleep after a partial wake-up. Fixed
means that every sequence ends, that the weights are the same byte for byte, and that what was freed is what the tags
hold.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from reproducers.allocator import SequenceRun
from reproducers.bugs.finding import Finding, judged, normalised
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Completion, Verdict
from reproducers.workers import TagBytes

__all__ = ["BUG", "Release", "judge", "with_healthy_sequence"]

BUG = "46438"
SLACK = 8 * 2**20
"""Bytes by which the device's own count of free memory may be off: other tenants, and the driver's granularity."""

_DOUBLE_RELEASE = re.compile(
    r"invalid (?:argument|value)|INVALID_VALUE|illegal memory access|SIGSEGV|SIGABRT|double free|AssertionError"
)
"""What a driver, an allocator or a process says when pages are released twice; anything else is another failure."""


@dataclass(frozen=True)
class Release:
    """The KV cache released over HTTP, then sleep and wake-up."""

    level: int
    calls: tuple[Call, ...]
    """From `/pause` to `/resume`."""
    tags: tuple[dict[str, TagBytes], ...]
    """Bytes by tag before, after the release, after the sleep, and at the end."""
    answer: Completion | Call | None
    """The completion afterwards; None where the endpoint is missing."""

    @property
    def missing(self) -> bool:
        """Whether the release has no such endpoint."""
        return any(call.path == "/release_kv_cache_memory" and call.status == 404 for call in self.calls)


def with_healthy_sequence(control: Control | None, healthy: SequenceRun | None) -> Control:
    """Take one plain sleep and wake-up of the allocator into the control.

    Args:
        control: of the engine; None where there is none.
        healthy: the sequence; None where there is only a server.
    """
    if healthy is None:
        return control or Control(False, "there is neither an allocator nor an engine")
    if wrong := next(_wrong(healthy), ""):
        return Control(False, f"a plain sleep and wake-up of the allocator is not well: {wrong}")
    said = "a plain sleep and wake-up of the allocator gives the same weights, byte for byte"
    if control is None:
        return Control(True, said)
    return replace(control, reason=f"{control.reason}; {said}") if control.passed else control


def judge(
    control: Control,
    runs: Sequence[SequenceRun],
    releases: Sequence[Release],
    after: Probe | None,
    device: str,
) -> Judgement:
    """Judge #46438 by what was observed.

    Args:
        control: the healthy path.
        runs: sequences on the allocator alone.
        releases: the same over HTTP.
        after: the probe of the engine; None without one.
        device: what it ran on.
    """
    done = [run for run in runs if not run.missing]
    findings = [_sequence(run) for run in done] + [_release(control, r) for r in releases if not r.missing]
    return judged(BUG, control, findings, after, device, probed=bool(releases))


def _sequence(run: SequenceRun) -> Finding:
    if run.error:
        sentence = f"Allocator, {run.name}: {run.error}."
        verdict = Verdict.REPRODUCED if _DOUBLE_RELEASE.search(run.error) else Verdict.OTHER_FAILURE
        return Finding(verdict, (sentence,), f"allocator:{normalised(run.error)}".replace("`", ""))
    if wrong := next(_wrong(run), ""):
        return Finding(Verdict.OTHER_FAILURE, (f"Allocator, {run.name}: {wrong}.",), f"allocator:{normalised(wrong)}")
    held = sum(known.held for known in run.held.values())
    sentence = (
        f"Allocator, {run.name}: done without an error; {held / 2**20:.0f} MiB of the tags were freed and the weights "
        "are the same, byte for byte."
    )
    return Finding(Verdict.FIXED, (sentence,), "released-once")


def _wrong(run: SequenceRun) -> Iterator[str]:
    """What is wrong with a sequence that was to end well."""
    if run.error:
        yield run.error
    if run.weights_equal is not True:
        yield "the weights are not what they were"
    before = run.held
    for step in run.steps:
        went = sum(known.mapped - step.tags[tag].mapped for tag, known in before.items() if tag in step.tags)
        went += sum(known.mapped for tag, known in before.items() if tag not in step.tags)
        if not run.shared and not step.missing and abs(step.freed - went) > SLACK:
            yield f"`{step.text}` freed {step.freed / 2**20:.0f} MiB of the device, and unmapped {went / 2**20:.0f} MiB"
        before = step.tags or before


def _release(control: Control, release: Release) -> Finding:
    window = (release.calls[0].start, release.calls[-1].end)
    name = f"HTTP at level {release.level}"
    for call in release.calls:
        if not call.ok:
            said = call.error or f"{call.status} {call.body[:400]}"
            verdict = Verdict.REPRODUCED if _DOUBLE_RELEASE.search(said) else Verdict.OTHER_FAILURE
            return Finding(verdict, (f"{name}: {call.target} answered {said}.",), normalised(said), window)
    if isinstance(release.answer, Call) or release.answer is None:
        sentence = f"{name}: all calls were answered 200, and a completion was not: {release.answer}."
        return Finding(Verdict.REPRODUCED, (sentence,), "dead-after-release", window)
    if control.completion and (difference := control.completion.difference(release.answer)):
        sentence = f"{name}: afterwards the completion differs from the control: {difference}."
        return Finding(Verdict.REPRODUCED, (sentence,), "differs-after-release", window)
    before, released, asleep, awake = release.tags
    if asleep["weights"].mapped:
        sentence = f"{name}: no sleep happened: the weights are mapped still."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "no-sleep", window)
    wrong = _bytes_wrong(before, released, asleep, awake)
    if wrong:
        return Finding(Verdict.OTHER_FAILURE, (f"{name}: {wrong}.",), normalised(wrong), window)
    sentence = (
        f"{name}: the release unmapped all of the KV cache and nothing else, the sleep all of the weights, the wake-up "
        "mapped both, and a completion equals the control."
    )
    return Finding(Verdict.FIXED, (sentence,), "released-once", window)


def _bytes_wrong(
    before: dict[str, TagBytes], released: dict[str, TagBytes], asleep: dict[str, TagBytes], awake: dict[str, TagBytes]
) -> str:
    if released["kv_cache"].mapped or released["weights"].mapped != before["weights"].mapped:
        return "the release did not unmap the KV cache alone"
    if asleep["kv_cache"].mapped:
        return "the sleep mapped the KV cache again"
    if any(awake[tag].mapped != before[tag].held for tag in ("kv_cache", "weights")):
        return "not everything is mapped after the wake-up"
    return ""
