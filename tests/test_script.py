"""The script of a record: its lines from steps, and run on its own against a real server, without the kit."""

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

from reproducers.engine import Engine
from reproducers.errors import RecordError
from reproducers.record.read import read
from reproducers.report.script import lines_of, script
from reproducers.report.steps import Step, steps_of

FOLDER = ROOT / "notebooks" / "records"
RECORDS = sorted(FOLDER.glob("*/*.ipynb"))
SLEEP = Step(1.0, 1.1, "POST", "/sleep?level=1", "200", status=200, body='{"status":"sleeping","level":1}')
REQUEST = Step(
    1.2, 9.0, "POST", "/v1/completions", "COMPLETED", "request 1", {"model": "m", "prompt": "p", "stream": True},
    outcome="COMPLETED", first_token=8.5,
)  # fmt: skip
WAKE = Step(6.2, 6.3, "POST", "/wake_up", "200", status=200, body="")
FLAG = Step(6.4, 6.5, "GET", "/is_sleeping", "200", status=200, body='{"is_sleeping":false}')


def test_waits_become_conditions_and_answers_become_what_is_compared() -> None:
    assert list(lines_of([SLEEP, REQUEST, WAKE, FLAG, FLAG])) == [
        "call('POST', '/sleep?level=1', 200, {'status': 'sleeping', 'level': 1})",
        "request_1 = Request('request 1', {'prompt': 'p', 'stream': True})",
        "request_1.open_for(5.0)",
        "call('POST', '/wake_up', 200)",
        "until('GET', '/is_sleeping', 200, {'is_sleeping': False})",
        "request_1.ended('COMPLETED')",
    ]


def test_a_first_token_a_pause_after_it_and_calls_at_the_same_moment_are_told() -> None:
    early = Step(0.1, None, "POST", "/v1/completions", "", "request 2", {}, first_token=0.3)
    again = Step(1.05, 1.2, "POST", "/sleep?level=1", "200", status=200, body="")
    kit = Step(1.3, 1.4, "POST", "/collective_rpc", "200", payload={"method": "repro_pages"}, status=200)
    lines = list(lines_of([early, SLEEP, again, kit]))
    assert lines[1:3] == ["request_2.first_token()", "request_2.open_for(0.7)"]
    assert lines[3].startswith("together(('POST', '/sleep?level=1', 200,")
    assert lines[4:] == ["request_2.open_for(1.0)"]


def test_a_script_ends_before_weights_are_pushed_and_asks_for_no_backend_of_the_kits() -> None:
    pushed = script(read(FOLDER / "weight-update" / "vllm-0.32.0-cpu.ipynb"))
    assert "call('POST', '/init_weight_transfer_engine'" in pushed
    assert "call('POST', '/start_weight_update'" not in pushed
    assert pushed.rstrip().endswith("sys.exit(1 if differences else 3)")
    refused = script(read(FOLDER / "refused-weight-update" / "vllm-0.32.0-cpu.ipynb"))
    assert "call('POST', '/update_weights', 500, None, {'update_info': {'nonsense': True}})" in refused
    assert '"backend": "ipc"' in refused
    assert refused.rstrip().endswith("sys.exit(1 if differences else 0)")


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_script_is_made_from_every_record(path: Path) -> None:
    record = read(path)
    text = script(record)
    ast.parse(text)
    assert "reproducers" not in text
    called = [step for step in steps_of(record) if step.target]
    assert ("def steps():" in text) is bool(called)
    assert ("CuMemAllocator" in text) is not bool(called)
    if any(step.of_the_kit for step in called):
        assert "calls of the kit's worker extension are left out" in text


def test_the_sequences_of_a_record_without_a_server_are_repeated_on_the_allocator() -> None:
    text = script(read(FOLDER / "46438" / "vllm-0.33.0-h200-free_while_asleep-true-over_http-false.ipynb"))
    assert "(['sleep weights', 'sleep weights', 'wake'], 'done')" in text
    assert "'RuntimeError: CUDA Error: invalid argument at cumem_allocator.cpp:249')" in text


def test_a_record_that_called_nothing_has_no_script() -> None:
    record = read(RECORDS[0])
    empty = replace(record, node=type(record.node)(cells=[], metadata={}))
    with pytest.raises(RecordError, match="nothing to repeat"):
        script(empty)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with httpx and nothing of the kit."""
    folder = tmp_path_factory.mktemp("bare")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True)
    python: Path = folder / "venv" / "bin" / "python"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, "httpx"], check=True)
    return python


def ran(bare: Path, tmp_path: Path, record: Path, *options: str) -> subprocess.CompletedProcess[str]:
    target = tmp_path / "calls.py"
    target.write_text(script(read(record)))
    command = [bare, "-I", target, *options]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.engine
@pytest.mark.parametrize("bug", ["45326", "45518", "44483"])
def test_run_on_its_own_it_comes_to_the_same_outcome(bug: str, bare: Path, engine: Engine, tmp_path: Path) -> None:
    done = ran(bare, tmp_path, FOLDER / bug / "vllm-0.32.0-cpu.ipynb", "--url", engine.url)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-500:]
    assert "as in the record: " in done.stdout


@pytest.mark.engine
def test_it_tells_an_engine_that_behaves_otherwise(bare: Path, engine: Engine, tmp_path: Path) -> None:
    proposed = FOLDER / "45326" / "vllm-0.32.0-cpu-fix-proposed.ipynb"
    done = ran(bare, tmp_path, proposed, "--url", engine.url)
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-500:]
    assert "in the record: ABORTED" in done.stdout
    engine.wake_up()


def test_without_a_server_it_says_so(bare: Path, tmp_path: Path) -> None:
    done = ran(bare, tmp_path, FOLDER / "45326" / "vllm-0.32.0-cpu.ipynb", "--url", "http://127.0.0.1:9")
    assert done.returncode == 3
    assert "did not answer 200 in time" in done.stderr
