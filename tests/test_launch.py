"""The engine's command line and environment."""

from pathlib import Path

import pytest

from reproducers.engine.installation import Installation
from reproducers.engine.launch import EngineSettings, command_of, environment_of

CPU = Installation("/python", "0.32.0", "cpu")
GPU = Installation("/python", "0.26.0", "cuda", site="/sites/vllm-0.26.0")


def test_the_server_listens_on_loopback_only_and_counts_its_requests() -> None:
    command = command_of(CPU, EngineSettings(flags=("--seed=1",)), Path("/models/m"), 4321)
    assert command[:3] == ["/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert {"--host=127.0.0.1", "--port=4321", "--enable-server-load-tracking", "--seed=1"} <= set(command)
    assert "--enable-sleep-mode" not in command  # refused on a CPU
    assert "--enable-sleep-mode" in command_of(GPU, EngineSettings(), Path("/models/m"), 1)


def test_the_environment_is_built_and_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "surprise")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    environment = environment_of(CPU, EngineSettings())
    assert "VLLM_ATTENTION_BACKEND" not in environment
    assert "HF_TOKEN" not in environment
    assert environment["VLLM_SERVER_DEV_MODE"] == "1"
    assert environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    plugin, site = environment_of(GPU, EngineSettings())["PYTHONPATH"].split(":")
    assert Path(plugin, "vllm_rl_repro_extension.py").is_file()
    assert site == "/sites/vllm-0.26.0"


def test_a_fix_is_named_and_its_plugin_stands_first() -> None:
    environment = environment_of(GPU, EngineSettings(fix="44483:undo"))
    plugin, site = environment["PYTHONPATH"].split(":")
    assert Path(plugin, "vllm_rl_repro_fixes.py").is_file()
    assert site == "/sites/vllm-0.26.0"
    assert environment["REPRO_FIX"] == "44483:undo"
