"""What was called when, and what the engine did: a table and a figure on one time axis."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reproducers.journal import Journal
from reproducers.texts import in_cell
from reproducers.values import Call, Outcome, RequestLife, Sample

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Timeline", "timeline"]

BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#7F7F7F"
"""Okabe and Ito's colours, which colour-blind people can tell apart."""

_OUTCOME_COLOURS = {Outcome.COMPLETED: GREEN, Outcome.ABORTED: PURPLE, Outcome.REJECTED: PURPLE, None: ORANGE}
_STATES = {"health": GREEN, "is_sleeping": BLUE, "is_paused": PURPLE, "server_load": ORANGE}
_MEMORY = {"device bytes": GREY, "engine bytes": BLUE, "weights bytes": GREEN, "kv_cache bytes": PURPLE}
"""Of the device and the engine's processes by NVML, and what the allocator has mapped by tag."""


@dataclass(frozen=True)
class Timeline:
    """A run to look at: `_repr_mimebundle_` gives the figure, `table` the calls."""

    calls: Sequence[Call]
    lives: Sequence[RequestLife]
    samples: Sequence[Sample]
    marks: Sequence[tuple[float, str]]
    window: tuple[float, float] | None = None

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        requests = "; ".join(
            f"{r.name} posted at {r.posted:.1f} s, {f'ended at {r.ended:.1f} s' if r.ended else 'still open'}"
            f" ({r.outcome or 'no outcome'})"
            for r in self.lives
        )
        return f"Time line of {len(self.calls)} calls and {len(self.lives)} requests: {requests}."

    def table(self) -> str:
        """The calls and requests as a Markdown table, in the order in which they began."""
        rows = [(c.start, c.end - c.start, f"`{c.method} {c.target}`", _answer(c)) for c in self.calls]
        for r in self.lives:
            length = (r.ended if r.ended is not None else self.end) - r.posted
            rows.append((r.posted, length, f"{r.name}: `POST /v1/completions`", _request(r)))
        rows += [(at, 0.0, "**event**", in_cell(text)) for at, text in self.marks]
        body = [f"| {at:.2f} | {length:.2f} | {what} | {answer} |" for at, length, what, answer in sorted(rows)]
        return "\n".join(["| at, s | took, s | call | answer |", "|---:|---:|---|---|", *body])

    @property
    def end(self) -> float:
        """The last moment of the run."""
        times = [c.end for c in self.calls] + [s.at for s in self.samples] + [r.ended or r.posted for r in self.lives]
        return max(times, default=0.0)

    def png(self) -> bytes:
        """The figure; readable on a light and on a dark page, since its own background is white."""
        import matplotlib as mpl  # noqa: PLC0415  it takes a second to import, and most of the kit draws nothing
        from matplotlib.figure import Figure  # noqa: PLC0415
        from PIL import Image  # noqa: PLC0415

        memory = [name for name in _MEMORY if any(s.name == name for s in self.samples)]
        with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
            height = 1.4 + 0.26 * (1 + len(self.lives) + len(_STATES)) + (1.3 if memory else 0.0)
            figure = Figure(figsize=(9, height), dpi=100, facecolor="white", layout="constrained")
            rows = 2 if memory else 1
            axes = figure.subplots(rows, sharex=True, squeeze=False, height_ratios=[height - 1.3, 1.3][:rows])[:, 0]
            self._draw_lanes(axes[0])
            if memory:
                self._draw_memory(axes[1], memory)
            axes[-1].set_xlabel("seconds since the engine was opened")
            drawn, small = io.BytesIO(), io.BytesIO()
            figure.savefig(drawn, format="png")
        # a palette makes it several times smaller, so that a record stays one that GitHub shows
        Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
        return small.getvalue()

    def _draw_lanes(self, axes: "Axes") -> None:
        names = ["calls", *[r.name for r in self.lives], *_STATES]
        rows = {name: i for i, name in enumerate(names)}
        for call in self.calls:
            if call.method == "POST":
                good = call.ok
                axes.barh(0, max(call.end - call.start, 0.02), left=call.start, height=0.5, color=BLUE if good else RED)
        self._label_calls(axes)
        for life in self.lives:
            end = life.ended if life.ended is not None else self.end
            colour = _OUTCOME_COLOURS.get(life.outcome, RED)
            answered = end if life.first_token is None else life.first_token
            waiting = GREY if life.first_token is not None else colour
            axes.barh(rows[life.name], answered - life.posted, left=life.posted, height=0.5, color=waiting, alpha=0.35)
            axes.barh(rows[life.name], max(end - answered, 0.02), left=answered, height=0.5, color=colour)
            tokens = [t for t in (life.first_token, life.last_token) if t is not None]
            axes.plot(tokens, [rows[life.name]] * len(tokens), "|", color=colour, markersize=11, markeredgewidth=2)
            axes.annotate(f" {life.outcome or 'open'}", (end, rows[life.name]), va="center", fontsize=8)
        for name, colour in _STATES.items():
            for at, length, value in self._spans(name):
                shown = RED if value is None else colour if value else "#E5E5E5"
                axes.barh(rows[name], length, left=at, height=0.35, color=shown)
        for at, text in self.marks:
            axes.axvline(at, color=RED, linestyle="--", linewidth=1)
            axes.annotate(text, (at, -0.6), color=RED, fontsize=8, rotation=90, va="top")
        if self.window:
            axes.axvspan(*self.window, color=ORANGE, alpha=0.15, linewidth=0)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -1.6)
        axes.set_xlim(0, self.end * 1.08 or 1)

    def _label_calls(self, axes: "Axes") -> None:
        """Write the lifecycle calls above their lane, as far apart as they can be read."""
        last = -1.0
        for call in self.calls:
            if _is_lifecycle(call) and call.start - last > self.end * 0.03:
                text = f"{call.target} {call.status or 'no answer'}"
                axes.annotate(text, (call.start, -0.35), rotation=20, fontsize=7, color=BLUE if call.ok else RED)
                last = call.start

    def _draw_memory(self, axes: "Axes", names: Sequence[str]) -> None:
        for name in names:
            points = [(s.at, s.value / 2**30) for s in self.samples if s.name == name and s.value is not None]
            axes.step(*zip(*points, strict=True), where="post", color=_MEMORY[name], label=name.replace("bytes", "GiB"))
        axes.set_ylim(bottom=0)
        axes.set_ylabel("GiB")
        axes.legend(fontsize=8, frameon=False)

    def _spans(self, name: str) -> list[tuple[float, float, float | None]]:
        """Stretches of equal readings as start, length, value."""
        spans: list[tuple[float, float, float | None]] = []
        for s in (s for s in self.samples if s.name == name):
            if spans:
                at, _, value = spans[-1]
                spans[-1] = (at, s.at - at, value)
                if value == s.value:
                    continue
            spans.append((s.at, 0.0, s.value))
        return spans

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"text/plain": self.alt_text, "image/png": self.png()}, {"image/png": {"alt": self.alt_text}}


def timeline(journal: Journal, window: tuple[float, float] | None = None) -> Timeline:
    """Return the time line of a journal.

    Args:
        journal: of an engine that may still run.
        window: the stretch that decided the verdict, which is shaded.
    """
    return Timeline(journal.calls, journal.lives, journal.samples, journal.marks, window)


def _is_lifecycle(call: Call) -> bool:
    """Whether a call is a step of the lifecycle: no completion, and no question to the worker extension."""
    asked = str((call.payload or {}).get("method", "")).startswith("repro_")
    return call.method == "POST" and not call.path.startswith("/v1/") and not asked


def _answer(call: Call) -> str:
    """The answer in a cell; of the OpenAI endpoints the status only, since the requests are rows of their own."""
    body = "" if call.ok and call.path.startswith("/v1/") else call.body
    return in_cell(call.error) if call.status is None else f"{call.status} {in_cell(body)}".strip()


def _request(life: RequestLife) -> str:
    tokens = len(life.completion.tokens) if life.completion else 0
    said = f"{life.outcome or 'still open'}" + (f", {tokens} tokens" if tokens else "")
    return f"{said} {in_cell(life.error)}".strip()
