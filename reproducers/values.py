"""The values that cross the layers: frozen, without I/O. Times are seconds on the journal's clock."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

__all__ = [
    "Call",
    "Completion",
    "Outcome",
    "RequestLife",
    "Sample",
    "Verdict",
]

LOGPROB_TOLERANCE = 1e-2
"""How far two logprobs of the same token may be apart; upstream's RL CI matrix uses the same (#45585)."""
BATCHED_TOLERANCE = 1e-1
"""The same for a request that is computed together with others: its sums are rounded in another order. Measured in
bfloat16: 0.024 on an H200, 0.031 on a CPU; what wrong memory gives is of the order of 1."""


class Verdict(StrEnum):
    """What a run says about a bug."""

    REPRODUCED = "REPRODUCED"
    """The control passed, the trigger happened as reported, the symptom was seen."""
    FIXED = "FIXED"
    """The control passed, the trigger happened, and the fixed behaviour was positively seen."""
    NOT_OBSERVED = "NOT_OBSERVED"
    """The trigger could not be proven armed, or chance was involved."""
    NOT_APPLICABLE = "NOT_APPLICABLE"
    """This release or device lacks what the bug needs."""
    OTHER_FAILURE = "OTHER_FAILURE"
    """Something else went wrong after the control passed."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """The control failed, or the harness did: never evidence."""


class Outcome(StrEnum):
    """How one request ended, or what is proven of it while it has not."""

    COMPLETED = "COMPLETED"
    """Answered whole, with finish reason stop or length."""
    HELD = "HELD"
    """Unanswered, and the server is proven to hold it."""
    ABORTED = "ABORTED"
    """Ended by the engine with finish reason abort, or, before the first token of a stream, with `[DONE]` alone."""
    REJECTED = "REJECTED"
    """Refused with a 4xx or 503, as the status or, of a stream that was begun already, as an error inside it."""
    FAILED = "FAILED"
    """Answered with another 5xx, or with an error inside the stream."""
    LOST = "LOST"
    """Dropped: the connection ended without an answer, or the server holds it no longer and never answered."""
    ENGINE_DEAD = "ENGINE_DEAD"
    """The engine died before it answered."""


@dataclass(frozen=True)
class Call:
    """One call of a lifecycle endpoint, as it was made and answered."""

    method: str
    path: str
    params: Mapping[str, Any]
    start: float
    end: float
    status: int | None
    """HTTP status, or None where no answer came."""
    body: str = ""
    """The answer, cut to 2 kB."""
    error: str = ""
    """The exception in one line, where no answer came."""
    payload: Mapping[str, Any] | None = None
    """The JSON body that was sent."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The answer's headers, without those that every HTTP server sends."""

    @property
    def ok(self) -> bool:
        """Whether the answer was a 2xx, which proves only that the endpoint returned."""
        return self.status is not None and 200 <= self.status < 300

    def __str__(self) -> str:
        return f"{self.method} {self.target} → {self.error if self.status is None else self.status}"

    @property
    def target(self) -> str:
        """The path with its query, as it stood in the request line."""
        return self.path + ("?" + urlencode(self.params, doseq=True) if self.params else "")


@dataclass(frozen=True)
class Completion:
    """What a completion said: token ids and logprobs, since many tokens of a tiny model print as nothing."""

    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    finish_reason: str | None
    cached_tokens: int | None = None

    @property
    def degenerate(self) -> str:
        """Why this completion could prove nothing, or an empty string."""
        if len(set(self.tokens)) < 2:
            return f"only {len(set(self.tokens))} distinct token among {len(self.tokens)}"
        if not all(math.isfinite(p) for p in self.logprobs):
            return "a logprob is not finite"
        return ""

    def difference(self, other: "Completion", *, batched: bool = False) -> str:
        """How `other` differs from this one, or an empty string where both are the same generation.

        Args:
            other: the other generation.
            batched: whether it was computed together with other requests; then logprobs may be further apart, and it
                may take another turn where two tokens are as likely: what comes after is not compared.
        """
        for i, (a, b) in enumerate(zip(self.tokens, other.tokens, strict=False)):
            if a != b and batched and self._tie(other, i):
                return replace(self, tokens=self.tokens[:i], logprobs=self.logprobs[:i]).difference(
                    replace(other, tokens=other.tokens[:i], logprobs=other.logprobs[:i]), batched=True
                )
            if a != b:
                return f"token {i} is {b}, not {a}"
        if len(self.tokens) != len(other.tokens):
            return f"{len(other.tokens)} tokens, not {len(self.tokens)}"
        gaps = [abs(a - b) for a, b in zip(self.logprobs, other.logprobs, strict=False)]
        widest = next((gap for gap in gaps if math.isnan(gap)), max(gaps, default=0.0))
        if not widest <= (BATCHED_TOLERANCE if batched else LOGPROB_TOLERANCE):
            return f"logprobs differ by up to {widest:.3g}"
        return ""

    def _tie(self, other: "Completion", i: int) -> bool:
        """Whether the two different tokens at a place are as likely as one another."""
        if i >= min(len(self.logprobs), len(other.logprobs)):
            return False
        return abs(self.logprobs[i] - other.logprobs[i]) <= BATCHED_TOLERANCE


@dataclass(frozen=True)
class RequestLife:
    """A request from the moment it was posted; a time is None where that did not happen (yet)."""

    name: str
    posted: float
    sent: float | None = None
    """The last byte of the request left this process."""
    first_token: float | None = None
    last_token: float | None = None
    ended: float | None = None
    status: int | None = None
    done: bool = False
    """Whether the stream was closed with `[DONE]`: the server ended it, and did not just hang up."""
    tokens: int = 0
    """How many tokens have come so far."""
    completion: Completion | None = None
    error: str = ""
    outcome: Outcome | None = None
    """None while it is open and not proven to be held."""
    payload: Mapping[str, Any] | None = None
    """The JSON body that was sent."""

    def with_evidence(self, *, held: bool | None, engine_alive: bool) -> Outcome | None:
        """The outcome, given what is known of the server.

        Args:
            held: whether the server is proven to hold the request; None where it cannot be told.
            engine_alive: whether the engine still serves.
        """
        if self.completion is not None and self.completion.finish_reason is not None:
            return Outcome.ABORTED if self.completion.finish_reason == "abort" else Outcome.COMPLETED
        if self.done and not self.error:  # vLLM sends no finish reason where a stream is aborted before its first token
            return Outcome.ABORTED
        if not engine_alive:
            return Outcome.ENGINE_DEAD
        if self.ended is None:
            return None if held is None else Outcome.HELD if held else Outcome.LOST
        status = _status_in_stream(self.error) or self.status
        if status is not None and status >= 400:
            return Outcome.REJECTED if status < 500 or status == 503 else Outcome.FAILED
        return Outcome.FAILED if self.error.startswith("in the stream") else Outcome.LOST


def _status_in_stream(error: str) -> int | None:
    """The status that an error inside a stream names: 0.33.0 refuses a stream with 200 and `"code": 503` in it."""
    found = re.search(r'"code": (\d{3})\b', error) if error.startswith("in the stream") else None
    return int(found[1]) if found else None


@dataclass(frozen=True)
class Sample:
    """One reading of something that changes: health, is_sleeping, server_load, device bytes."""

    at: float
    name: str
    value: float | None
    """None where no answer came."""
