"""Tiny checkpoints: made once, whole, by the engine's interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reproducers.errors import EngineFailed, HarnessError
from reproducers.models import DENSE, ModelRecipe, made

ASK = """
import os, sys
from reproducers.models import DENSE, made
print(made(DENSE, [sys.executable], dict(os.environ)))
"""


@pytest.mark.cpu_process  # it takes a while, and that process has less to do
def test_two_that_ask_at_the_same_time_get_one_model_and_a_broken_one_is_made_again(tmp_path: Path) -> None:
    environment = os.environ | {"REPRO_CACHE": str(tmp_path)}
    asking = [subprocess.Popen([sys.executable, "-c", ASK], env=environment, stdout=-1, text=True) for _ in range(2)]
    folders = {process.communicate(timeout=120)[0].strip() for process in asking}
    assert len(folders) == 1
    folder = Path(folders.pop())
    assert json.loads((folder / "config.json").read_text())["model_type"] == "qwen3"
    assert sum(f.stat().st_size for f in folder.iterdir()) < 4 * 2**20
    assert [p.name for p in folder.parent.iterdir() if p.is_dir()] == [folder.name]  # no half-made one is left

    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    subprocess.run([sys.executable, "-c", ASK], env=environment, check=True, capture_output=True, timeout=120)
    assert weights.read_bytes() == whole


def test_a_failing_interpreter_is_named_with_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path))
    bare = [sys.executable, "-c", "raise SystemExit('no torch here')"]
    with pytest.raises(EngineFailed, match=r"could not make the model tiny-qwen3: no torch here"):
        made(DENSE, bare, dict(os.environ))


def test_a_cache_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "file"))
    with pytest.raises(HarnessError, match="set REPRO_CACHE"):
        made(DENSE, [sys.executable], dict(os.environ))


def test_the_key_changes_with_the_seed() -> None:
    assert DENSE.key() != ModelRecipe(DENSE.name, DENSE.script, DENSE.seed + 1).key()
