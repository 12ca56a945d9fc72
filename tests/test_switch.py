"""The switch of the fixes: what is on, what is off, and what an engine's process reads of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from reproducers.engine.switch import FixSwitch
from reproducers.errors import UsageError

READ = f"""
import sys
sys.path.insert(0, {str(ROOT / "reproducers" / "inside" / "plugin")!r})
import vllm_rl_repro_fixes as fixes
print(",".join(sorted(fixes._switched_on())))
"""


def test_what_is_on_and_off_is_in_the_facts_and_read_by_the_process(tmp_path: Path) -> None:
    switch = FixSwitch(tmp_path / "fixes", ("45326:proposed", "44483:undo"))
    for on in ([], ["44483:undo"], ["45326:proposed", "44483:undo"]):
        said = switch.turn(on)
        assert switch.on() == tuple(on)
        environment = {"REPRO_FIX_SWITCH": str(switch.path), "REPRO_FIX": "45326:proposed,44483:undo"}
        read = subprocess.run([sys.executable, "-c", READ], env=environment, capture_output=True, text=True, check=True)
        assert read.stdout.strip() == ",".join(sorted(on))
        assert [name for name in said.get("REPRO_FIX", "").split(",") if name] == on
        assert set(said.get("REPRO_FIX_OFF", "").split(",")) - {""} == set(switch.loaded) - set(on)
    assert [p.name for p in tmp_path.iterdir()] == ["fixes"]


def test_without_a_switch_all_that_is_loaded_is_on() -> None:
    environment = {"REPRO_FIX": "45326:proposed,44483:undo"}
    read = subprocess.run([sys.executable, "-c", READ], env=environment, capture_output=True, text=True, check=True)
    assert read.stdout.strip() == "44483:undo,45326:proposed"


def test_a_fix_that_is_not_loaded_cannot_be_turned_on(tmp_path: Path) -> None:
    switch = FixSwitch(tmp_path / "fixes", ("45326:proposed",))
    switch.turn([])
    with pytest.raises(UsageError, match="the fix 45518:proposed is not loaded in this engine: it has 45326:proposed"):
        switch.turn(["45518:proposed"])
    assert switch.on() == ()
