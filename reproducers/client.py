"""vLLM's lifecycle endpoints, one method each; every call is recorded.

The endpoints are those of a server in dev mode, as the releases from 0.22 to 0.33 have them. A method returns the
`Call` whatever the status was, since what a bug does to the answer is the evidence; the methods that read a flag
raise `EndpointError` where it cannot be read.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from reproducers.calls import RecordedCalls
from reproducers.errors import EndpointError
from reproducers.journal import Journal
from reproducers.request import RequestInFlight, completion_of
from reproducers.values import Call, Completion

__all__ = ["LifecycleClient", "PauseMode", "WakeTag"]

WakeTag = Literal["weights", "kv_cache", "scheduling"]
PauseMode = Literal["abort", "wait", "keep"]


class LifecycleClient(RecordedCalls):
    """The lifecycle endpoints of one server.

    Args:
        url: where the server listens, without a path.
        journal: what every call is recorded in.
        timeout_s: how long one call may take; sleep and wake-up of a large model copy its weights.
    """

    def __init__(self, url: str, journal: Journal, timeout_s: float = 120) -> None:
        super().__init__(url, journal, timeout_s)
        self._model: str | None = None
        self._posted = 0

    def sleep(self, level: int = 1, mode: PauseMode | None = None) -> Call:
        """`POST /sleep`: 0 pauses only, 1 offloads the weights and drops the KV cache, 2 discards both."""
        return self._post("/sleep", {"level": level} | ({"mode": mode} if mode else {}))

    def wake_up(self, tags: Sequence[WakeTag] | None = None) -> Call:
        """`POST /wake_up`: map memory again, all of it or by tag."""
        return self._post("/wake_up", {"tags": list(tags)} if tags else {})

    def release_kv_cache_memory(self) -> Call:
        """`POST /release_kv_cache_memory` (0.31.0 and later; needs a finished pause)."""
        return self._post("/release_kv_cache_memory")

    def is_sleeping(self) -> bool:
        """`GET /is_sleeping`; a paused engine counts as sleeping."""
        return bool(self._get_field("/is_sleeping", "is_sleeping"))

    def pause(self, mode: PauseMode | None = None, clear_cache: bool | None = None) -> Call:
        """`POST /pause`: what becomes of the requests in flight is the mode's matter."""
        params: dict[str, Any] = {} if mode is None else {"mode": mode}
        return self._post("/pause", params | ({} if clear_cache is None else {"clear_cache": str(clear_cache).lower()}))

    def resume(self) -> Call:
        """`POST /resume`."""
        return self._post("/resume")

    def is_paused(self) -> bool:
        """`GET /is_paused`."""
        return bool(self._get_field("/is_paused", "is_paused"))

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> Call:
        """`POST /init_weight_transfer_engine`."""
        shown = dict(init_info) | ({"master_port": "PORT"} if "master_port" in init_info else {})
        body = {"init_info": dict(init_info)}
        return self._post("/init_weight_transfer_engine", body=body, shown={"init_info": shown})

    def start_weight_update(self, body: Mapping[str, Any] | None = None) -> Call:
        """`POST /start_weight_update` (0.22 and later; 0.22 to 0.24 want a JSON body, later releases none)."""
        return self._post("/start_weight_update", body=body)

    def update_weights(self, update_info: Mapping[str, Any]) -> Call:
        """`POST /update_weights`."""
        shown = {name: _told(value) for name, value in update_info.items()}
        return self._post("/update_weights", body={"update_info": dict(update_info)}, shown={"update_info": shown})

    def finish_weight_update(self, weight_version: str | None = None) -> Call:
        """`POST /finish_weight_update`; takes a version from 0.27 on."""
        return self._post("/finish_weight_update", body={"weight_version": weight_version} if weight_version else None)

    def weight_info(self) -> str:
        """`GET /weight_info` (0.27 and later): the version of the weights."""
        return str(self._get_field("/weight_info", "weight_version"))

    def update_weight_version(self, new_version: str) -> Call:
        """`POST /update_weight_version` (0.27 and later)."""
        return self._post("/update_weight_version", body={"new_version": new_version})

    def weight_checker(
        self, action: Literal["checksum", "reset", "compare"], baseline: Mapping[str, str] | None = None
    ) -> Call:
        """`POST /weight_checker` (0.32.0 and later)."""
        return self._post(
            "/weight_checker", body={"action": action} | ({"baseline": dict(baseline)} if baseline else {})
        )

    def weight_checksums(self) -> dict[str, str]:
        """`POST /weight_checker` with the action `checksum`: a checksum of each tensor (0.32.0 and later).

        Raises:
            EndpointError: it was not answered with checksums.
        """
        whole: list[str] = []
        call = self._answered(self._call("POST", "/weight_checker", body={"action": "checksum"}, whole=whole))
        try:
            return dict(json.loads(whole[0])["checksums"])
        except (ValueError, KeyError, TypeError) as error:
            raise EndpointError(f"{call}: no checksums") from error

    def collective_rpc(
        self,
        method: str,
        args: Sequence[str] = (),
        kwargs: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Call:
        """`POST /collective_rpc`: call the workers directly, past the scheduler and the sleep state."""
        body: dict[str, Any] = {"method": method, "args": list(args), "kwargs": dict(kwargs or {})}
        return self._post("/collective_rpc", body=body | ({} if timeout_s is None else {"timeout": timeout_s}))

    def rpc_results(self, method: str, args: Sequence[str] = ()) -> tuple[Call, list[Any]]:
        """Call the workers as `collective_rpc` does, and return what each of them answered, uncut.

        Raises:
            EndpointError: it was not answered 200, or with something else than results.
        """
        whole: list[str] = []
        call = self._call("POST", "/collective_rpc", body={"method": method, "args": list(args)}, whole=whole)
        self._answered(call)
        try:
            return call, list(json.loads(whole[0])["results"])
        except (ValueError, KeyError, TypeError) as error:
            raise EndpointError(f"{call}: no results") from error

    def world_size(self, *, include_dp: bool = True) -> int:
        """`GET /get_world_size`: how many workers, over all data-parallel ranks or of one."""
        call, answer = self.ask("GET", "/get_world_size", {"include_dp": str(include_dp).lower()})
        self._answered(call)
        return int(answer["world_size"])

    def reset_prefix_cache(self) -> Call:
        """`POST /reset_prefix_cache`."""
        return self._post("/reset_prefix_cache")

    def server_info(self) -> Mapping[str, Any]:
        """`GET /server_info`: configuration, vLLM's environment variables and the output of collect_env."""
        answer = self._get_json("/server_info", {"config_format": "json"})
        return answer if isinstance(answer, Mapping) else {}

    def server_load(self) -> int:
        """`GET /load`: how many requests the server holds; always 0 without `--enable-server-load-tracking`."""
        return int(self._get_field("/load", "server_load"))

    def health(self) -> int | None:
        """`GET /health`: its status, or None where no answer came."""
        return self._call("GET", "/health").status

    def version(self) -> str:
        """`GET /version`: the release of vLLM."""
        return str(self._get_field("/version", "version"))

    def metrics(self) -> str:
        """`GET /metrics` in the Prometheus text format.

        Raises:
            EndpointError: it did not answer 200.
        """
        response: list[str] = []
        self._answered(self._call("GET", "/metrics", whole=response, kept=_about_sleep))
        return response[0]

    @property
    def model(self) -> str:
        """The name of the model that is served."""
        if self._model is None:
            data = self._get_field("/v1/models", "data")
            self._model = str(data[0]["id"])
        return self._model

    def prompt_logprobs(self, tokens: Sequence[int], timeout_s: float = 120) -> tuple[float, ...] | Call:
        """Logprobs of fixed tokens, each given those before it, the first left out; the `Call` without an answer."""
        body = {"model": self.model, "prompt": list(tokens), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        whole: list[str] = []
        call = self._call("POST", "/v1/completions", body=body, timeout_s=timeout_s, whole=whole)
        if not call.ok:
            return call
        try:
            scored = json.loads(whole[0])["choices"][0]["prompt_logprobs"][1:]
            return tuple(float(at[str(token)]["logprob"]) for at, token in zip(scored, tokens[1:], strict=True))
        except (ValueError, KeyError, TypeError):
            return call

    def complete(self, prompt: str | Sequence[int], *, max_tokens: int, timeout_s: float = 120) -> Completion | Call:
        """Ask for one greedy completion and wait for it; the `Call` where it was not answered with one.

        Args:
            prompt: text, or token ids.
            max_tokens: how many tokens.
            timeout_s: how long it may take.
        """
        whole: list[str] = []
        call = self._call(
            "POST",
            "/v1/completions",
            body=self._completion(prompt, max_tokens, stream=False),
            timeout_s=timeout_s,
            whole=whole,
        )
        if not call.ok:
            return call
        try:
            return completion_of([json.loads(whole[0])])
        except (ValueError, KeyError, TypeError):
            return call

    def post_completion(self, prompt: str, *, max_tokens: int, stream: bool = True, n: int = 1) -> RequestInFlight:
        """Post one greedy completion, or `n` sampled ones in one request, and return at once."""
        self._posted += 1
        body = self._completion(prompt, max_tokens, stream=stream)
        body |= {"n": n, "temperature": 1} if n > 1 else {}
        return RequestInFlight(self.url, body, self.journal, f"request {self._posted}")

    def _completion(self, prompt: str | Sequence[int], max_tokens: int, *, stream: bool) -> dict[str, Any]:
        text = prompt if isinstance(prompt, str) else list(prompt)
        body = {"model": self.model, "prompt": text, "max_tokens": max_tokens, "temperature": 0, "seed": 0}
        body |= {"logprobs": 1, "return_tokens_as_token_ids": True, "ignore_eos": True, "stream": stream}
        return body | ({"stream_options": {"include_usage": True}} if stream else {})


def _told(value: Any) -> Any:
    """What is recorded of a part of a weight update: pickled handles and lists by tensor are told by their length."""
    if isinstance(value, str) and len(value) > 200:
        return f"{len(value)} characters"
    return f"{len(value)} entries" if isinstance(value, list) and len(value) > 3 else value


def _about_sleep(metrics: str) -> str:
    """The lines of the metrics page that are about sleep: it is long, and what else it says is not of this matter."""
    return "\n".join(line for line in metrics.splitlines() if "sleep" in line and not line.startswith("#"))
