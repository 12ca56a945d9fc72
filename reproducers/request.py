"""A request in flight: a streaming or plain completion in a thread of its own."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import httpx

from reproducers.journal import Journal
from reproducers.values import Completion, RequestLife

__all__ = ["RequestInFlight", "completion_of", "together"]

T = TypeVar("T")


def completion_of(payloads: list[Mapping[str, Any]]) -> Completion:
    """Read one completion out of the chunks of a stream, or out of the single body of a plain answer.

    Raises:
        KeyError, TypeError, ValueError: the payloads are not those of an OpenAI completion.
    """
    tokens: list[str] = []
    logprobs: list[float] = []
    finish: str | None = None
    cached: int | None = None
    for payload in payloads:
        for choice in payload["choices"]:
            scored = choice.get("logprobs") or {}
            tokens += scored.get("tokens") or []
            logprobs += [float("nan") if p is None else float(p) for p in scored.get("token_logprobs") or []]
            finish = choice.get("finish_reason") or finish
        details = (payload.get("usage") or {}).get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens", cached)
    return Completion(tuple(tokens), tuple(logprobs), finish, cached)


class RequestInFlight:
    """One completion request, posted at once; the thread lives until the answer has come or `cancel` is called.

    It has no time-out of its own: a client that gave up would hide whether the server still held the request.
    """

    def __init__(self, url: str, body: Mapping[str, Any], journal: Journal, name: str) -> None:
        self._journal = journal
        self._body = dict(body)
        self._life = RequestLife(name, posted=journal.now(), payload=self._body)
        self._payloads: list[Mapping[str, Any]] = []
        self._progress = threading.Condition()
        self._socket: socket.socket | None = None
        self._client = httpx.Client(base_url=url, timeout=httpx.Timeout(None, connect=10), trust_env=False)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        journal.follow(lambda: self.life)
        self._thread.start()

    @property
    def life(self) -> RequestLife:
        """How far the request has come; with its outcome once it has ended."""
        with self._progress:
            return self._life

    @property
    def finish_reasons(self) -> dict[int, str]:
        """Why each choice of the answer ended, by its index; those that have."""
        return {int(c.get("index", 0)): str(c["finish_reason"]) for c in self._choices() if c.get("finish_reason")}

    @property
    def begun(self) -> set[int]:
        """The choices of a streamed answer that have a token."""
        return {int(c.get("index", 0)) for c in self._choices() if (c.get("logprobs") or {}).get("tokens")}

    def _choices(self) -> list[Mapping[str, Any]]:
        """The parts of the answer that have come, over all choices."""
        with self._progress:
            return [choice for payload in self._payloads for choice in payload["choices"]]

    def wait_until(self, reached: Callable[[RequestLife], bool], bound_s: float) -> bool:
        """Wait until the request has come so far, at most `bound_s` seconds; say whether it has."""
        with self._progress:
            return self._progress.wait_for(lambda: reached(self._life), bound_s)

    def wait_first_token(self, bound_s: float = 60) -> bool:
        """Wait for the first streamed token: the engine is then working on this request. False where none came."""
        self.wait_until(lambda life: life.first_token is not None or life.ended is not None, bound_s)
        return self.life.first_token is not None

    def wait_ended(self, bound_s: float) -> bool:
        """Wait for the end of the request, whatever it is."""
        return self.wait_until(lambda life: life.ended is not None, bound_s)

    def settle(self, *, held: bool | None, engine_alive: bool) -> RequestLife:
        """Return the request as it stands, with the outcome that the evidence allows."""
        with self._progress:
            return replace(self._life, outcome=self._life.with_evidence(held=held, engine_alive=engine_alive))

    def cancel(self, bound_s: float = 5) -> None:
        """Hang up, as a client does that gives up; the thread ends at once."""
        if self._socket is not None and self.life.ended is None:
            with contextlib.suppress(OSError):  # the other side was faster
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(bound_s)

    def _set(self, **changes: Any) -> None:
        with self._progress:
            self._life = replace(self._life, **changes)
            self._progress.notify_all()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            self._socket = info["return_value"].get_extra_info("socket")
        elif event.endswith("send_request_body.complete"):
            self._set(sent=self._journal.now())

    def _take(self, payload: Mapping[str, Any]) -> None:
        if "error" in payload:
            self._set(error=f"in the stream: {json.dumps(payload['error'])[:500]}")
            return
        with self._progress:
            self._payloads.append(payload)
        if any(choice.get("text") or (choice.get("logprobs") or {}).get("tokens") for choice in payload["choices"]):
            now = self._journal.now()
            first = self._life.first_token
            come = sum(len((c.get("logprobs") or {}).get("tokens") or [""]) for c in payload["choices"])
            tokens = self._life.tokens + come
            self._set(last_token=now, first_token=now if first is None else first, tokens=tokens)

    def _run(self) -> None:
        try:
            with self._client.stream(
                "POST", "/v1/completions", json=self._body, extensions={"trace": self._trace}
            ) as answer:
                self._set(status=answer.status_code)
                if answer.status_code >= 400:
                    self._set(error=answer.read().decode(errors="replace")[:2000])
                elif self._body.get("stream"):
                    for line in answer.iter_lines():
                        if line == "data: [DONE]":
                            self._set(done=True)
                        elif line.startswith("data: "):
                            self._take(json.loads(line.removeprefix("data: ")))
                else:
                    self._take(json.loads(answer.read()))
            if self._payloads:
                self._set(completion=completion_of(self._payloads))
        except (httpx.HTTPError, httpx.StreamError, RuntimeError, OSError, ValueError, KeyError, TypeError) as error:
            self._set(error=f"{type(error).__name__}: {error}")
        finally:
            self._set(ended=self._journal.now())
            self._set(outcome=self._life.with_evidence(held=None, engine_alive=True))
            self._client.close()


def together(*actions: Callable[[], T]) -> list[T]:
    """Do all actions at the same moment: each in a thread of its own, let go by one barrier.

    Raises:
        Exception: what the first failed action raised.
    """
    barrier = threading.Barrier(len(actions))

    def released(action: Callable[[], T]) -> T:
        barrier.wait(timeout=10)
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return [future.result() for future in [pool.submit(released, action) for action in actions]]
