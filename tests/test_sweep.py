"""The sweep on the real engine: red where a fix is undone, taken up again when it was killed, nothing left behind."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, wait_for

pytestmark = [pytest.mark.nightly, pytest.mark.engine, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("REPRO_KILLS", "3"))
"""How often the sweep is killed."""

MATRIX = """
bugs = ["45518", "44483", "partial-wake-metric"]
releases = ["0.32.0"]
fix = ["none", "undo"]
against = "released"
[parameters]
patience_s = 1.0
repeats = 1
"""


def engines() -> list[int]:
    """Processes of vLLM engines on this machine."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "vllm.entrypoints" in line or "VLLM::" in line or "reproducers.sweep.group" in line:
            found.append(process.info["pid"])
    return found


def started(tmp_path: Path, folder: Path) -> "subprocess.Popen[bytes]":
    """Start the sweep; what it says is in `said`."""
    (tmp_path / "matrix.toml").write_text(MATRIX)
    command = [str(Path(sys.executable).with_name("repro")), "sweep", "--matrix", str(tmp_path / "matrix.toml")]
    command += ["--out", str(folder)]
    with (tmp_path / "said").open("w") as said:
        return subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said)


def told(folder: Path) -> dict[tuple[str, str], tuple[str, dict[str, int]]]:
    rows = json.loads((folder / "results.json").read_text())["rows"]
    return {(r["bug"], r["configuration"]["name"]): (r["outcome"], r["verdicts"]) for r in rows}


def test_a_killed_sweep_is_taken_up_again_and_an_undone_fix_turns_it_red(tmp_path: Path) -> None:
    folder, chance, before = tmp_path / "sweep", random.Random(45585), set(engines())
    for _ in range(KILLS):
        process = started(tmp_path, folder)
        time.sleep(chance.uniform(5, 100))
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_for(lambda: not set(engines()) - before, 15, "the killed sweep left something running")
    process = started(tmp_path, folder)
    process.wait(timeout=900)
    said = (tmp_path / "said").read_text()
    assert process.returncode == 1, said
    stock, undone = "vllm-0.32.0-cpu-v1-eager", "vllm-0.32.0-cpu-v1-eager-undo"
    assert told(folder) == {
        ("45518", stock): ("as expected", {"REPRODUCED": 1}),
        ("44483", stock): ("as expected", {"FIXED": 1}),
        ("partial-wake-metric", stock): ("as expected", {"FIXED": 1}),
        ("45518", undone): ("not applicable", {"NOT_APPLICABLE": 1}),
        ("44483", undone): ("regressed", {"REPRODUCED": 1}),
        ("partial-wake-metric", undone): ("regressed", {"REPRODUCED": 1}),
    }
    assert "44483 on vllm-0.32.0-cpu-v1-eager-undo: regressed" in said
    assert not set(engines()) - before
    assert not list(folder.glob("records/.running-*"))


def test_a_notebook_that_kills_its_engine_leaves_the_next_one_unharmed(tmp_path: Path) -> None:
    (tmp_path / "kills.toml").write_text(
        'bugs = ["verl-6456", "45552"]\nreleases = ["0.32.0"]\ndevice = ["emulated"]\n'
    )
    command = [str(Path(sys.executable).with_name("repro")), "sweep", "--matrix", str(tmp_path / "kills.toml")]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "sweep")], capture_output=True, text=True, check=False, cwd=ROOT, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "sweep" / "results.json").read_text())
    assert {row["bug"]: row["outcome"] for row in results["rows"]} == {
        "verl-6456": "as expected",
        "45552": "as expected",
    }
    evidence = {row["bug"]: row["cells"][0]["evidence"] for row in results["rows"]}
    assert any("The engine is dead after that" in sentence for sentence in evidence["verl-6456"])
    assert evidence["45552"][-1].startswith("Afterwards the engine is well")
    assert results["engine_starts"] == 2
