"""Attach to a server that is already up: check that a bug could be judged on it, and leave it as it was."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from reproducers.engine.installation import Installation
from reproducers.errors import EngineUnavailable
from reproducers.states import UNKNOWN, EngineFacts

__all__ = ["Lent", "attached_facts", "lending", "lent", "restore"]

FACTS_VARIABLE = "REPRO_ENGINE_FACTS"
"""JSON: the URL and the facts of an engine that whoever runs the notebook has started for several of them, the
installation that it is of, and the process above its processes."""

CHECK_BOUND_S = 10.0
DEVICE_BOUND_S = 60.0
"""The server looks at its whole environment before it says what it runs on; seconds, and on a busy machine many."""
RESTORE_BOUND_S = 120.0
"""A wake-up of a large model copies its weights back."""


@dataclass(frozen=True)
class Lent:
    """What the starter of an engine tells the notebooks that it lends it to."""

    facts: EngineFacts
    installation: Installation
    guard: int
    """The process under which those of the engine are."""


def attached_facts(url: str) -> EngineFacts:
    """Check a server and say which engine it is.

    Raises:
        EngineUnavailable: nothing listens there, it is not vLLM, it has no dev mode, it is dead, asleep or paused.
    """
    with httpx.Client(base_url=url, timeout=CHECK_BOUND_S, trust_env=False) as client:
        release = _ask(
            client, url, "/version", "version", f"the server at {url} is not vLLM (GET /version says nothing)"
        )
        if (status := _status(client, "/health")) != 200:
            raise EngineUnavailable(f"the engine at {url} is not healthy (/health {status}): start it again")
        no_dev_mode = f"the server at {url} has no lifecycle endpoints: start it with VLLM_SERVER_DEV_MODE=1"
        if _ask(client, url, "/is_sleeping", "is_sleeping", no_dev_mode):
            raise EngineUnavailable(f"the engine at {url} is asleep or paused already: wake it up, or resume it, first")
        models = _ask(client, url, "/v1/models", "data", f"the server at {url} serves no model")
        if not isinstance(models, list) or not models:
            raise EngineUnavailable(f"the server at {url} serves no model")
        return EngineFacts(str(release), _device(client), str(models[0]["id"]), owned=False)


def lent(url: str) -> Lent | None:
    """What is known of a server whose starter lends it to this notebook; None of any other."""
    try:
        known = json.loads(os.environ.get(FACTS_VARIABLE, "null"))
        if not known or known["url"] != url:
            return None
        return Lent(EngineFacts(**known["facts"]), Installation(**known["installation"]), int(known["guard"]))
    except (ValueError, KeyError, TypeError) as error:
        raise EngineUnavailable(f"{FACTS_VARIABLE} cannot be read: {error}") from error


@contextmanager
def lending(url: str, engine: Lent, log: Path) -> Iterator[None]:
    """Let the notebooks that are run meanwhile know which engine it is, its processes, and where its log is."""
    facts = engine.facts.to_json() | {"owned": False}
    known = {"url": url, "facts": facts, "installation": asdict(engine.installation), "guard": engine.guard}
    changes = {FACTS_VARIABLE: json.dumps(known), "REPRO_ENGINE_LOG": str(log)}
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _status(client: httpx.Client, path: str) -> int | None:
    try:
        return client.get(path).status_code
    except httpx.HTTPError:
        return None


def _ask(client: httpx.Client, url: str, path: str, field: str, otherwise: str) -> Any:
    try:
        answer = client.get(path)
        return answer.json()[field]
    except httpx.ConnectError as error:
        raise EngineUnavailable(f"nothing listens at {url}: start the server, or correct the address") from error
    except httpx.HTTPError as error:
        raise EngineUnavailable(
            f"GET {url}{path} was not answered ({type(error).__name__}): look at the server"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise EngineUnavailable(otherwise) from error


def _device(client: httpx.Client) -> str:
    """What the server says that it runs on; older releases tell only in text."""
    try:
        answer = client.get("/server_info", params={"config_format": "json"}, timeout=DEVICE_BOUND_S)
        config = answer.json()["vllm_config"]
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return UNKNOWN
    if isinstance(config, Mapping):
        return str(config.get("device_config", {}).get("device", UNKNOWN))
    found = re.search(r"device_config=(\w+)", str(config))
    return found.group(1) if found else UNKNOWN


def restore(url: str, level: int = 1) -> bool:
    """Bring a server back to awake and unpaused; say whether it is.

    Args:
        url: where it listens.
        level: the level that it was last put to sleep at; what level 2 discarded is loaded again.
    """
    with httpx.Client(base_url=url, timeout=RESTORE_BOUND_S, trust_env=False) as client:
        try:
            if client.get("/is_sleeping").json()["is_sleeping"]:
                if level == 2:
                    client.post("/wake_up", params={"tags": "weights"})
                    client.post("/collective_rpc", json={"method": "reload_weights"})
                    client.post("/wake_up", params={"tags": "kv_cache"})
                client.post("/wake_up")
                client.post("/resume")
            return not client.get("/is_sleeping").json()["is_sleeping"]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return False
