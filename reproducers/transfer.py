"""Weight transfer: the backends that a device can use, and the trainer that holds the weights."""

import json
import selectors
import subprocess
import tempfile
from collections.abc import Mapping
from typing import Any, Literal

from reproducers.engine import Engine, EngineSettings, choose, lent
from reproducers.engine.launch import environment_of
from reproducers.engine.process import free_port
from reproducers.errors import HarnessError, NotApplicable, UsageError
from reproducers.memory import device_names
from reproducers.models import DENSE, checkpoints

__all__ = ["Backend", "Trainer", "open_trainer", "transfer_backend", "transfer_settings"]

Backend = Literal["checkpoint", "ipc", "nccl"]
CONFIG = "--weight-transfer-config"
BOUND_S = 120.0
"""Starting the trainer takes 10 s: torch and a CUDA context."""


def transfer_backend(choice: str, engine: str, release: str = "") -> Backend:
    """Return the backend that a choice means on an engine.

    Args:
        choice: `auto` (checkpoint without a GPU, ipc on one, nccl with two), `checkpoint`, `ipc` or `nccl`.
        engine: the choice of engine, as `open_engine` takes it.
        release: a release of vLLM; empty for the one at hand.

    Raises:
        NotApplicable: the device lacks what the backend needs.
        UsageError: a server that runs already was started with another backend, or with none.
    """
    chosen = choose(engine, release)
    if isinstance(chosen, str):
        return _backend_of_server(choice, chosen)
    gpus = len(device_names()) if chosen.device == "cuda" else 0
    if choice == "auto":
        return "checkpoint" if gpus == 0 else "ipc" if gpus == 1 else "nccl"
    if gpus < {"checkpoint": 0, "ipc": 1, "nccl": 2}[choice]:
        needs = {"ipc": "a GPU that engine and trainer share", "nccl": "two GPUs, one of them for the trainer"}[choice]
        raise NotApplicable(f"the backend {choice} needs {needs}, and this engine has {gpus or 'none'}")
    return choice  # type: ignore[return-value]


def _backend_of_server(choice: str, url: str) -> Backend:
    known = lent(url)
    config = known.facts.settings.get(CONFIG) if known else None
    if config is None:
        raise UsageError(
            f"the server at {url} is not known to have a weight-transfer backend: let the kit start the engine"
        )
    backend = json.loads(config)["backend"]
    if choice not in {"auto", backend}:
        raise UsageError(f"the server at {url} has the weight-transfer backend {backend}, not {choice}")
    return backend  # type: ignore[no-any-return]


def transfer_settings(backend: Backend, dtype: str = "auto") -> EngineSettings:
    """Return the settings of an engine that takes weights by a backend.

    Args:
        backend: which.
        dtype: what the engine computes in; `auto` is float32, since in bfloat16 a weight that is wrong by 1 % is
            within the rounding.
    """
    dtype = "float32" if dtype == "auto" else dtype
    environment = {
        "checkpoint": {"REPRO_TRANSFER": "checkpoint"},  # lets the kit's plugin register it
        "ipc": {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"},  # it unpickles: loopback only
        "nccl": {},
    }[backend]
    flags = (f"{CONFIG}={json.dumps({'backend': backend})}", f"--dtype={dtype}")
    return EngineSettings(flags=flags, environment=environment)


class Trainer:
    """Holds weights and offers them to an engine; with `checkpoint` there is no process, the engine reads the disk.

    Args:
        backend: how the weights get there.
        vllm: the engine.
    """

    def __init__(self, backend: Backend, vllm: Engine) -> None:
        self.backend = backend
        self._process: subprocess.Popen[str] | None = None
        if backend != "checkpoint":
            self._start(vllm)

    def init_info(self) -> dict[str, Any]:
        """What `/init_weight_transfer_engine` is told; the trainer is about to join the group then."""
        if self.backend != "nccl":
            return {}
        with free_port() as keeper:
            port = int(keeper.getsockname()[1])
        self._order({"do": "connect", "port": port})
        return {"master_address": "127.0.0.1", "master_port": port, "rank_offset": 1, "world_size": 2}

    def connected(self) -> None:
        """Wait until the trainer has joined the group that `/init_weight_transfer_engine` has joined.

        Raises:
            HarnessError: it has not.
        """
        if self.backend == "nccl":
            self._answer("join the engine's group")

    def offer(
        self, checkpoint: str, scaled: Mapping[str, float] | None = None, renamed: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Return what `/update_weights` is told to take a checkpoint's weights; they are held until the next offer.

        Args:
            checkpoint: the name of its folder.
            scaled: tensors that are multiplied, for weights that are wrong on purpose.
            renamed: tensors that are sent under another name, for a payload that is wrong on purpose.
        """
        changes = {"scaled": dict(scaled or {}), "renamed": dict(renamed or {})}
        if self.backend == "checkpoint":
            return {"checkpoint": checkpoint} | {name: change for name, change in changes.items() if change}
        self._order({"do": "offer", "folder": str(checkpoints() / checkpoint), **changes})
        return dict(self._answer("offer the weights"))

    def close(self) -> None:
        """End the trainer and give its memory back."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._said.close()

    def _start(self, vllm: Engine) -> None:
        installation = vllm.made_from()
        if installation is None:
            raise NotApplicable("a trainer needs the engine's interpreter, and only an engine of the kit's has one")
        script = str(DENSE.path.with_name("trainer.py"))
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  it is read when the trainer fails
        self._process = subprocess.Popen(
            [installation.python, script, self.backend],
            env=environment_of(installation, EngineSettings()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        self._answer("start")

    def _order(self, order: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _answer(self, what: str) -> Any:
        """The next answer, a line of JSON; an order is answered by one line, so that none waits in a buffer."""
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if selector.select(BOUND_S) else ""
        if not line:
            self._said.seek(0)
            last = (self._said.read().strip().splitlines() or ["it said nothing"])[-1]
            self.close()
            raise HarnessError(f"the trainer did not {what} within {BOUND_S:.0f} s: {last}")
        return json.loads(line)


def open_trainer(vllm: Engine, backend: Backend) -> Trainer:
    """Start a trainer for an engine.

    Raises:
        NotApplicable: the server is not the kit's.
        HarnessError: the trainer did not start.
    """
    return Trainer(backend, vllm)
