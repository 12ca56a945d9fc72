"""The calls of a record as one script that needs nothing of the kit: Python and httpx."""

import json
import pprint
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from reproducers.catalog import title_of
from reproducers.errors import RecordError
from reproducers.journal import JOURNAL_MIME
from reproducers.record.metadata import output_of, outputs_of
from reproducers.record.read import Record
from reproducers.report.steps import Step, parsed, steps_of
from reproducers.texts import plain

__all__ = ["lines_of", "script"]

MODEL = "Qwen/Qwen3-0.6B"
"""What a server is started with where the caller names nothing else: small, and everybody can fetch it."""

LEFT_OUT = {"/load", "/v1/models", "/version", "/server_info"}
"""Questions that the script asks where it needs them."""
PAUSE_S = 0.4
"""A pause between two calls from which on the run waited for something."""
BOUND_S = 60
TRANSFER = "--weight-transfer-config"
"""Its backend `checkpoint` is one of the kit's; where nothing is transferred `ipc` does as well."""
_SEQUENCE = re.compile(r"^allocator: (.+?): (.+); weights equal: ", re.MULTILINE)


def script(record: Record) -> str:
    """Return the script: the calls of a server, or, where none was called, the sequences on the allocator.

    Raises:
        RecordError: the record has neither.
    """
    every = [step for step in steps_of(record) if step.target]
    steps = _before_weights_are_pushed(every)
    sequences = list(_sequences(record))
    if not every and not sequences:
        raise RecordError("called no server and no allocator: there is nothing to repeat")
    engine = record.said["engine"] or {"release": "unknown", "device": "unknown"}
    bug = str(record.said["bug"])
    words: dict[str, Any] = {
        "bug": _text(bug),
        "title": _text(title_of(bug) or bug),
        "release": _text(engine["release"]),
        "device": _text(engine["device"]),
        "verdict": record.judgement.verdict.value,
        "evidence": _text(record.judgement.evidence[0]),
        "name": f"{re.sub(r'[^0-9A-Za-z-]', '', bug)}.py",
    }
    if steps:
        settings = dict(engine.get("settings", {}))
        words |= {
            "notes": [_text(note) for note in _notes(record, steps, settings)],
            "whole": len(steps) == len(every),
            "model": MODEL,
            "flags": pprint.pformat(_flags(settings), width=100),
            "environment": pprint.pformat({k: v for k, v in settings.items() if k.startswith("VLLM_")}, width=100),
            "bound": BOUND_S,
            "steps": textwrap.indent("\n".join(lines_of(steps)) or "pass", "    "),
        }
    else:
        words["sequences"] = pprint.pformat(sequences, width=100)
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=False,  # noqa: S701  what is put in is a literal or a line of text, see `_text`
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    return environment.get_template("script.py.j2" if steps else "sequences.py.j2").render(words)


def _before_weights_are_pushed(steps: list[Step]) -> list[Step]:
    """The steps up to the first weight update that succeeded: pushing weights needs a trainer and its checkpoints."""
    opened = len(steps)
    for i, step in enumerate(steps):
        if step.path == "/start_weight_update":
            opened = i
        if step.path == "/update_weights" and step.status is not None and step.status < 300:
            return steps[:opened]
    return steps


def _sequences(record: Record) -> Iterator[tuple[list[str], str]]:
    """The sequences on the allocator, as the record shows them, and how each ended."""
    for output in outputs_of(record.node, "observe"):
        for steps, ended in _SEQUENCE.findall(str(output.get("text", ""))):
            died = re.search(r"died of (\w+)", ended)
            error = re.search(r"`: (\w+: .*)", ended)
            missing = "no discard" if "has no discard" in ended else ""
            yield steps.split(", "), died[0] if died else error[1] if error else missing or ended


def lines_of(steps: Sequence[Step]) -> Iterator[str]:
    """The steps as lines of Python: calls with their recorded answers, and conditions in place of waits."""
    told = [s for s in steps if s.path not in LEFT_OUT and not s.of_the_kit]
    waiting: dict[str, Step] = {}
    seen: set[str] = set()
    last_end, previous, skip = 0.0, "", 0
    for i, step in enumerate(told):
        if skip:
            skip -= 1
            continue
        for line in _waits(waiting, seen, step.start, last_end):
            yield line
            previous = ""
        if step.name:
            name = _variable(step)
            yield f"{name} = Request({step.name!r}, {_body(step)!r})"
            waiting[name] = step
            last_end, previous = max(last_end, step.start), ""
            continue
        at_once = [step, *_overlapping(told[i + 1 :], step)]
        if len(at_once) > 1:
            yield f"together({', '.join(f'({_arguments(s)},)' for s in at_once)})"
            skip, previous = len(at_once) - 1, ""
        else:
            line = f"{'until' if step.method == 'GET' else 'call'}({_arguments(step)})"
            if line != previous or step.method != "GET":
                yield line
            previous = line
        last_end = max(s.end or s.start for s in at_once)
    yield from _waits(waiting, seen, float("inf"), last_end)


def _waits(waiting: dict[str, Step], seen: set[str], until: float, since: float) -> Iterator[str]:
    """What the run was waiting for before a step that began at `until`."""
    for name, request in list(waiting.items()):
        began = max(since, request.start)
        if request.end is not None and request.end <= until:
            yield f"{name}.ended({request.outcome or 'LOST'!r})"
            del waiting[name]
            continue
        if request.first_token is not None and request.first_token <= until and name not in seen:
            seen.add(name)
            began = max(began, request.first_token)
            yield f"{name}.first_token()"
        if until == float("inf"):
            yield f"{name}.open_for(1.0)"
        elif until - began >= PAUSE_S:
            yield f"{name}.open_for({round(until - began, 1)})"


def _overlapping(following: Sequence[Step], step: Step) -> list[Step]:
    """Calls of the same endpoint that were made before this one was answered: they were made at the same moment."""
    found = []
    for other in following:
        if other.path != step.path or other.method != "POST" or other.start >= (step.end or step.start) - 0.001:
            break
        found.append(other)
    return found


def _variable(step: Step) -> str:
    return "request_" + re.sub(r"\D", "", step.name)


def _body(step: Step) -> dict[str, Any]:
    return {k: v for k, v in (step.payload or {}).items() if k != "model"}


def _arguments(step: Step) -> str:
    answer = _comparable(step)
    body = _body(step) if step.payload is not None else None
    arguments = [repr(step.method), repr(step.target), repr(step.status)]
    if answer is not None or body is not None:
        arguments.append(repr(answer))
    return ", ".join([*arguments, *([repr(body)] if body is not None else [])])


def _comparable(step: Step) -> Any:
    """What of an answer is the same in every run: small JSON, and the sleep states of the metrics page."""
    if step.path == "/collective_rpc" or step.status is None or step.status >= 400:
        return None
    if step.path == "/metrics":
        states = re.findall(r'engine_sleep_state\{.*?sleep_state="(\w+)".*?\} (\S+)', step.body)
        return {state: float(value) for state, value in states} or None
    answer = parsed(step.body)
    simple = isinstance(answer, dict) and not {"error", "choices"} & set(answer)
    return answer if simple and len(json.dumps(answer)) < 300 else None


def _flags(settings: dict[str, str]) -> list[str]:
    named = [(k, v) for k, v in settings.items() if k.startswith("--") and k != "--worker-extension-cls"]
    flags = [f"{k}={v}" if v else k for k, v in named]
    return [flag.replace('"checkpoint"', '"ipc"') if flag.startswith(TRANSFER) else flag for flag in flags]


def _notes(record: Record, steps: Sequence[Step], settings: dict[str, str]) -> Iterator[str]:
    if output_of(record.node, JOURNAL_MIME) is None:
        yield "that run kept no bodies of its requests: they are those of its control here, and may have been longer."
    if own := sum(step.of_the_kit for step in steps):
        yield (
            f"{own} calls of the kit's worker extension are left out (work put in flight, what pages hold): what rests "
            "on them may not be seen here."
        )
    if fix := settings.get("REPRO_FIX"):
        yield f"the recorded engine had the fix {fix} loaded, which a release as it is does not have."
    if settings.get("REPRO_DRIVER"):
        yield "the recorded engine ran over an emulated driver."


def _text(text: object) -> str:
    """One line that can stand in a docstring."""
    line = plain(" ".join(str(text).split())).replace("\\", "/").replace('"""', "'''")
    return line.replace("{", "(").replace("}", ")").replace('"', "'")
