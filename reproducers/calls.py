"""Calls of one server over httpx, each recorded in a journal."""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import httpx

from reproducers.errors import EndpointError
from reproducers.journal import Journal
from reproducers.values import Call

__all__ = ["BODY_LIMIT", "RecordedCalls", "answered"]

T = TypeVar("T")

_ORDINARY_HEADERS = {"date", "server", "content-length", "content-type", "vary", "connection", "transfer-encoding"}

BODY_LIMIT = 2048
"""How many characters of an answer are kept."""


class RecordedCalls:
    """Makes calls of one server and records each, whatever came of it.

    Args:
        url: where the server listens, without a path.
        journal: what every call is recorded in.
        timeout_s: how long one call may take; sleep and wake-up of a large model copy its weights.
    """

    def __init__(self, url: str, journal: Journal, timeout_s: float = 120) -> None:
        self.url = url.rstrip("/")
        self.journal = journal
        # a connection of its own for each call: uvicorn closes one after a 500, and the next call on it is reset
        fresh = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(base_url=self.url, timeout=timeout_s, trust_env=False, limits=fresh)

    def ask(self, method: str, path: str, params: Mapping[str, Any] | None = None) -> tuple[Call, Any]:
        """Call any endpoint; return the call and its answer as JSON, None where it is none."""
        whole: list[str] = []
        call = self._call(method, path, params, whole=whole)
        try:
            return call, json.loads(whole[0])
        except ValueError:
            return call, None

    def _post(
        self,
        path: str,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        shown: Mapping[str, Any] | None = None,
    ) -> Call:
        return self._call("POST", path, params, body, shown=shown)

    def _get_json(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        whole: list[str] = []
        call = self._answered(self._call("GET", path, params, whole=whole))
        try:
            return json.loads(whole[0])
        except ValueError as error:
            raise EndpointError(f"{call}: not JSON") from error

    def _get_field(self, path: str, field: str) -> Any:
        answer = self._get_json(path)
        if not isinstance(answer, Mapping) or field not in answer:
            raise EndpointError(f"GET {path}: the answer has no field {field!r}")
        return answer[field]

    @staticmethod
    def _answered(call: Call) -> Call:
        if not call.ok:
            raise EndpointError(str(call))
        return call

    def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        whole: list[str] | None = None,
        kept: Callable[[str], str] = str,
        shown: Mapping[str, Any] | None = None,
    ) -> Call:
        """Make one call and record it.

        `whole` receives the uncut answer, `kept` says what is recorded of it; `shown` is recorded of the body.
        """
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s
        start = self.journal.now()
        status, text, error, headers = None, "", "", {}
        try:
            response = self._client.request(method, path, params=params, json=body, timeout=timeout)
            status, text = response.status_code, response.text
            headers = {k: v for k, v in response.headers.items() if k not in _ORDINARY_HEADERS}
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            error = f"{type(failure).__name__}: {failure}"
        if whole is not None:
            whole.append(text)
        call = Call(
            method,
            path,
            dict(params or {}),
            start,
            self.journal.now(),
            status,
            kept(text)[:BODY_LIMIT],
            error,
            payload=body if shown is None else shown,
            headers=headers,
        )
        self.journal.add_call(call)
        return call


def answered(ask: Callable[[], T]) -> T | None:
    """What a question to a server gives; None where it was not answered, as by a dead engine."""
    try:
        return ask()
    except EndpointError:
        return None
