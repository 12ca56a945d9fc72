"""#52144: what pause and resume promise, by mode: abort, wait, keep.

What a release promises is a contract of the catalog: how a stream in flight ends, what becomes of a request that comes
while paused, and which modes clear the prefix cache. The flag must follow, an invalid mode must change nothing, and
with keep the stream must stand still. REPRODUCED is any promise that is broken, FIXED is all of them kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from reproducers.bugs.finding import Finding, failed_call, judged
from reproducers.catalog import Contract
from reproducers.client import PauseMode
from reproducers.hold import Hold
from reproducers.judgement import Judgement
from reproducers.states import Control, Probe
from reproducers.values import Call, Completion, Outcome, RequestLife, Verdict

__all__ = ["BUG", "TRIES", "Cycle", "judge", "telling"]

BUG = "52144"
TRIES = 4
"""How often a cycle is tried; the stream was over too soon in about one of ten on a machine with both cores busy."""


@dataclass(frozen=True)
class Cycle:
    """One pause and one resume."""

    mode: PauseMode
    clear_cache: bool
    total: int
    """How many tokens the stream asked for."""
    in_flight: bool
    """Whether the server worked on the stream right before the pause."""
    paused: Call
    invalid: Call
    """A pause with a mode that does not exist, while paused."""
    flags: tuple[bool, bool, bool]
    """`/is_paused` after the pause, after the invalid one, and after the resume."""
    still: tuple[int, int]
    """Tokens of the stream at half and at the end of the patience, while paused; all of them where it was over."""
    new: Hold
    """A request that came while paused, at the end of the patience."""
    resumed: Call
    stream: RequestLife
    """The stream at its end."""
    new_later: Hold
    """The new request after the resume."""
    cached: tuple[int | None, int | None]
    """Cached tokens of a long prompt before the pause and after the resume; None where the server does not tell."""
    cached_answer: Completion | None
    """The answer to the long prompt after the resume."""

    over_each_time: bool = False
    """Whether the stream was over before the pause was answered in every one of several tries."""

    @property
    def armed(self) -> bool:
        """Whether the stream was in flight when the pause took effect; with wait it is over when that is answered."""
        return self.in_flight and (self.mode == "wait" or self.still[0] < self.total)


def telling(tries: Sequence[Cycle]) -> Cycle:
    """The cycle that is judged of several tries.

    On a busy machine a stream can be over before the pause takes effect: then another try is made. Where that is so in
    every try, it is no chance: the pause waits for the stream instead of stopping it.
    """
    armed = next((cycle for cycle in tries if cycle.armed), None)
    over = len(tries) >= TRIES and all(cycle.in_flight for cycle in tries)
    return armed or replace(tries[-1], over_each_time=over)


def judge(
    control: Control,
    whole: Completion | None,
    long: Sequence[Completion],
    contract: Contract,
    cycles: Sequence[Cycle],
    after: Probe | None,
) -> Judgement:
    """Judge pause and resume by what was observed.

    Args:
        control: the healthy path, with the answer that the new requests must equal.
        whole: the longest stream's answer without a pause; a shorter one must be its beginning.
        long: the long prompt's answers without a pause, computed and from the cache: in bfloat16 their logprobs
            may differ by more than the tolerance.
        contract: what the release promises.
        cycles: what was seen.
        after: the probe at the end.
    """
    findings = [_finding(control, whole, long, contract, cycle) for cycle in cycles]
    return judged(BUG, control, findings, after)


def _finding(
    control: Control, whole: Completion | None, long: Sequence[Completion], contract: Contract, cycle: Cycle
) -> Finding:
    window = (cycle.paused.start, cycle.resumed.end)
    if failed := failed_call((cycle.paused, cycle.resumed), window):
        return failed
    if (cycle.paused.path, cycle.resumed.path) != ("/pause", "/resume"):
        return Finding(Verdict.NOT_OBSERVED, ("The engine was not paused and resumed.",), "not-paused", window)
    if cycle.over_each_time:
        sentence = f"Mode {cycle.mode}: in {TRIES} of {TRIES} tries the stream was over before the pause was answered."
        return Finding(Verdict.REPRODUCED, (sentence,), f"{cycle.mode}:not-frozen", window)
    if not cycle.armed:
        sentence = "The stream was not in flight when the pause took effect."
        return Finding(Verdict.NOT_OBSERVED, (sentence,), "not-in-flight", window)
    if broken := list(_broken(control, whole, long, contract, cycle)):
        sentences = tuple(f"Mode {cycle.mode}: {text}." for _, text in broken)
        return Finding(Verdict.REPRODUCED, sentences, f"{cycle.mode}:{broken[0][0]}", window)
    new = contract.new_request[cycle.mode]
    kept = (
        f"Mode {cycle.mode} keeps its promises: the stream was {contract.in_flight[cycle.mode]}, a new request while "
        f"paused was {new}{' and completed after the resume' if new is Outcome.HELD else ''}."
    )
    return Finding(Verdict.FIXED, (kept,), "contract-kept", window)


def _broken(
    control: Control, whole: Completion | None, long: Sequence[Completion], contract: Contract, cycle: Cycle
) -> Iterator[tuple[str, str]]:
    """The promises that a cycle broke: a short name, and a sentence without its end."""
    if cycle.flags != (True, True, False):
        yield "flag", f"/is_paused was {cycle.flags} after the pause, after an invalid one and after the resume"
    if cycle.invalid.status != 400:
        yield "invalid-mode", f"an invalid mode was answered {cycle.invalid.status}, not 400"
    ended, promised = cycle.stream.outcome, contract.in_flight[cycle.mode]
    if ended is not promised:
        yield "in-flight", f"the stream in flight was {ended}, not {promised}"
    elif ended is Outcome.COMPLETED and (difference := _stream_difference(whole, cycle)):
        yield "in-flight-differs", f"the stream in flight differs from the control: {difference}"
    if cycle.mode == "keep" and cycle.still[0] != cycle.still[1]:
        yield "not-frozen", "the stream went on while paused, and with keep it must stand still"
    if cycle.mode == "wait" and cycle.still[0] < cycle.total:
        yield "not-waited", "the pause was answered before the stream was complete"
    seen, wanted = cycle.new.life.outcome, contract.new_request[cycle.mode]
    if seen is not wanted and not (seen is None and wanted is Outcome.HELD):
        yield "new-request", f"a new request while paused was {seen}, not {wanted}"
    elif wanted is Outcome.HELD:
        later = cycle.new_later.life
        if later.outcome is not Outcome.COMPLETED or later.completion is None or control.completion is None:
            yield "new-request-later", f"the new request was {later.outcome} after the resume"
        elif difference := control.completion.difference(later.completion, batched=True):
            yield "new-request-differs", f"the new request differs from the control: {difference}"
    yield from _cache(long, contract, cycle)


def _stream_difference(whole: Completion | None, cycle: Cycle) -> str:
    """How a completed stream differs from as many tokens of the one without a pause."""
    if whole is None or cycle.stream.completion is None:
        return ""
    same_length = replace(whole, tokens=whole.tokens[: cycle.total], logprobs=whole.logprobs[: cycle.total])
    return same_length.difference(cycle.stream.completion, batched=True)  # with the new request, after the resume


def _cache(long: Sequence[Completion], contract: Contract, cycle: Cycle) -> Iterator[tuple[str, str]]:
    before, after = cycle.cached
    differences = [known.difference(cycle.cached_answer) for known in long] if cycle.cached_answer else []
    if differences and all(differences):
        yield "cache-differs", f"a long prompt is answered differently after the resume: {differences[0]}"
    if before is None or after is None or not before:
        return
    cleared = cycle.clear_cache and cycle.mode in contract.clears_cache
    if bool(after) is cleared:
        yield "cache", f"clear_cache={str(cycle.clear_cache).lower()}, and {after} tokens of a long prompt were cached"
