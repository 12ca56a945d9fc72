"""A verdict with its evidence: what the verdict cell shows, and what a record is checked against."""

import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from reproducers.values import Verdict

__all__ = ["VERDICT_MIME", "Judgement", "verdict_not_required"]

VERDICT_MIME = "application/vnd.reproducers.verdict+json"
"""The verdict cell's machine-readable output: no times, ports or ids, so that nbval can compare it."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on one bug, and why."""

    bug: str
    verdict: Verdict
    evidence: tuple[str, ...]
    """Sentences with numbers; the first one carries the verdict."""
    control: str
    hits: int = 0
    """How many runs showed the symptom."""
    runs: int = 0
    signature: str = ""
    """Kind and normalised last error or state: equal for duplicates."""
    window: tuple[float, float] | None = None
    """From when to when the verdict was decided, in seconds on the journal's clock; not part of the output."""

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as stored in outputs and metadata."""
        data = {k: v for k, v in asdict(self).items() if k != "window"}
        return data | {"verdict": self.verdict.value, "evidence": list(self.evidence)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Judgement":
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: the data is not a stored verdict.
        """
        fields = dict(data)
        texts = [fields["bug"], fields["control"], fields["signature"], *fields["evidence"]]
        if not fields["evidence"] or not all(isinstance(text, str) for text in texts):
            raise TypeError("a stored verdict has texts for bug, control, signature and evidence")
        return cls(**fields | {"verdict": Verdict(fields["verdict"]), "evidence": tuple(fields["evidence"])})

    def __str__(self) -> str:
        lines = [f"{self.verdict} · {self.bug} · {self.hits} of {self.runs} runs"]
        lines += [f"  - {sentence}" for sentence in self.evidence]
        return "\n".join([*lines, f"  control: {self.control}", f"  signature: {self.signature}"])

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        quoted = [_harmless(sentence) for sentence in self.evidence]
        markdown = "\n".join(
            [f"**{self.verdict}** · {self.bug} · {self.hits} of {self.runs} runs", ""]
            + [f"- {sentence}" for sentence in quoted]
            + ["", f"Control {_harmless(self.control)}. Signature: `{self.signature}`"]
        )
        return {"text/plain": str(self), "text/markdown": markdown, VERDICT_MIME: self.to_json()}


def _harmless(text: str) -> str:
    """A sentence in Markdown, of which no tag, link, picture or heading comes whatever a server answered."""
    return html.escape(" ".join(text.split()), quote=False).replace("](", "]\\(")


def verdict_not_required(judgement: Judgement, required: Verdict | None) -> str:
    """Say in one line how a verdict misses what was required, or return an empty string.

    Args:
        judgement: the verdict.
        required: the verdict asked for; None where any will do that is evidence.
    """
    if required is None and judgement.verdict is not Verdict.INCONCLUSIVE:
        return ""
    if judgement.verdict is required:
        return ""
    wanted = "a verdict" if required is None else required.value
    return f"{judgement.bug}: {wanted} was required, but it is {judgement.verdict}: {judgement.evidence[0]}"
