"""What was called in a record, step by step: from its data, or, of an older record, from the table that it shows."""

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from reproducers.journal import JOURNAL_MIME
from reproducers.record.metadata import output_of, outputs_of
from reproducers.record.read import Record

__all__ = ["Step", "parsed", "steps_of"]

_ROW = re.compile(r"^\| ([\d.]+) \| ([\d.]+) \| (.+?) \| (.*?) \|$", re.MULTILINE)
_CALL = re.compile(r"(?:(request \d+): )?`(GET|POST) ([^`]+)`")
_PROMPT = re.compile(r'PROMPT, MAX_TOKENS = "([^"]*)", (\d+)')
_RPC = re.compile(r'collective_rpc\("(\w+)"')


@dataclass(frozen=True)
class Step:
    """One call, or one request from its posting to its end."""

    start: float
    end: float | None
    """None for a request that had not ended."""
    method: str
    target: str
    """The path with its query; empty for an event."""
    said: str
    """Status and answer, outcome, or the event."""
    name: str = ""
    """Of a request: `request 1`."""
    payload: Mapping[str, Any] | None = None
    status: int | None = None
    body: str = ""
    outcome: str | None = None
    first_token: float | None = None

    @property
    def path(self) -> str:
        """The path without its query."""
        return self.target.partition("?")[0]

    @property
    def of_the_kit(self) -> bool:
        """Whether it is a question to the kit's own worker extension."""
        return str((self.payload or {}).get("method", "")).startswith("repro_")


def steps_of(record: Record) -> list[Step]:
    """Return the steps of a record in the order in which they began; empty where it called no server."""
    data = output_of(record.node, JOURNAL_MIME)
    try:
        found = list(_from_table(record) if data is None else _from_data(data))
    except (KeyError, TypeError, ValueError, AttributeError):  # a record that somebody has changed
        found = []
    return sorted(found, key=lambda step: step.start)


def _from_data(data: Mapping[str, Any]) -> Iterator[Step]:
    for c in data["calls"]:
        query = "?" + urlencode(c["params"], doseq=True) if c["params"] else ""
        said = f"{c['status']} {c['body'] if _tells(c['path'], c['status']) else ''}" if c["status"] else c["error"]
        yield Step(
            float(c["start"]), float(c["end"]), c["method"], str(c["path"]) + query, said.strip(),
            payload=c["payload"], status=c["status"], body=c["body"],
        )  # fmt: skip
    for r in data["requests"]:
        tokens = f", {r['tokens']} tokens" if r["tokens"] else ""
        said = f"{r['outcome'] or 'still open'}{tokens} {r['error']}".strip()
        yield Step(
            float(r["posted"]), r["ended"], "POST", "/v1/completions", said, str(r["name"]),
            r["payload"], r["status"], outcome=r["outcome"], first_token=r["first_token"],
        )  # fmt: skip
    for at, text in data["events"]:
        yield Step(float(at), float(at), "", "", str(text))


def _tells(path: str, status: int) -> bool:
    """Whether an answer's body tells something; that of a completion is told by its request."""
    return not (path.startswith("/v1/") and status < 300)


def _from_table(record: Record) -> Iterator[Step]:
    sources = "\n".join(cell.source for cell in record.node.cells)
    prompt = _PROMPT.search(sources)
    rpc = _RPC.search(sources)
    for at, took, what, shown in _ROW.findall(_table_of(record)):
        start, end = float(at), float(at) + float(took)
        answer = html.unescape(shown).replace("\\|", "|")
        called = _CALL.match(what)
        if called is None:
            yield Step(start, end, "", "", answer)
            continue
        name, method, target = called.groups()
        body = {"prompt": prompt[1], "max_tokens": int(prompt[2])} if prompt else {}
        if name:
            outcome = answer.split(" ")[0].rstrip(",")
            open_still = answer.startswith("still open")
            yield Step(
                start, None if open_still else end, method, target, answer, name, body | {"stream": True},
                outcome=None if open_still else outcome,
            )  # fmt: skip
            continue
        status, _, rest = answer.partition(" ")
        payload: dict[str, Any] | None = body if target == "/v1/completions" else None
        if target == "/collective_rpc":  # its answer is null for vLLM's own methods, and JSON for the kit's
            payload = {"method": rpc[1] if rpc and "null" in rest else "repro_unknown"}
        yield Step(
            start, end, method, target, answer, payload=payload,
            status=int(status) if status.isdigit() else None, body=rest if status.isdigit() else "",
        )  # fmt: skip


def _table_of(record: Record) -> str:
    texts = [str(o.get("data", {}).get("text/markdown", "")) for o in outputs_of(record.node, "timeline")]
    return next((text for text in texts if "| at, s |" in text), "")


def parsed(body: str) -> Any:
    """An answer as JSON; None where it is none, or was cut."""
    try:
        return json.loads(body)
    except ValueError:
        return None
