"""The notebook of #45326 on the real engine: run whole, as its users run it."""

import contextlib
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
from conftest import ROOT, nbval, repro, wait_for

from notebooks import papermill_command
from reproducers.engine import Engine
from reproducers.engine.process import residue_of
from reproducers.record.check import check
from reproducers.record.read import Record, read
from reproducers.states import Residue
from reproducers.values import Completion, Verdict

pytestmark = pytest.mark.engine

NOTEBOOK = ROOT / "notebooks" / "45326-request-during-sleep.ipynb"


def cell_of(record: Record, name: str) -> Any:
    return next(cell for cell in record.node.cells if cell.get("id") == name)


def test_papermill_that_requires_the_fix_fails_and_still_leaves_a_whole_record(engine: Engine, tmp_path: Path) -> None:
    target = tmp_path / "record.ipynb"
    command = papermill_command(NOTEBOOK, target, "-p", "engine", engine.url, "-p", "require", "fixed")
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode != 0
    assert "FIXED was required, but it is REPRODUCED" in done.stderr
    assert check(target) == []
    record = read(target)
    assert record.judgement.verdict is Verdict.REPRODUCED
    assert (record.judgement.hits, record.judgement.runs) == (1, 1)
    assert "held for the whole 5 s" in record.judgement.evidence[0]
    assert "server_load 1" in record.judgement.evidence[0]
    assert "equals the control" in record.judgement.evidence[1]
    assert any("image/png" in output.get("data", {}) for output in cell_of(record, "timeline").outputs)
    assert "no process, no port left" in str(cell_of(record, "report").outputs)
    assert record.said["engine"]["release"] == "0.32.0"
    assert record.said["parameters"]["require"] == "fixed"


@pytest.mark.parametrize("options", [("-p", "level=2"), ("-p", "stream=false"), ("-p", "race=true", "--repeat", "2")])
def test_each_form_on_a_server_by_url_leaves_it_as_it_was(
    engine: Engine, tmp_path: Path, options: tuple[str, ...]
) -> None:
    shared = ("--engine", engine.url, "--out", str(tmp_path), "-p", "patience_s=1", "-p", "require=reproduced")
    done = repro("run", "45326", *shared, *options)
    if "race=true" in options:  # by chance: held, or ended before the sleep
        assert done.stdout.startswith(("REPRODUCED", "NOT_OBSERVED")), done.stdout + done.stderr
    else:
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith("REPRODUCED · 45326 · 1 of 1 runs")
    (record,) = tmp_path.glob("*.ipynb")
    assert check(record) == []
    assert not engine.is_sleeping()
    assert isinstance(engine.complete("The engine", max_tokens=2), Completion)


def test_nbval_fails_when_the_committed_output_is_altered(engine: Engine, tmp_path: Path) -> None:
    altered = tmp_path / NOTEBOOK.name
    text = NOTEBOOK.read_text()
    assert "server_load 1 above idle" in text
    altered.write_text(text.replace("server_load 1 above idle", "server_load 0 above idle"))
    done = nbval(engine, altered)
    assert done.returncode == 1
    assert "verdict" in done.stdout


class OtherServer(http.server.BaseHTTPRequestHandler):
    """A server that is not vLLM, or one without dev mode."""

    answers: ClassVar[dict[str, str]] = {}

    def do_GET(self) -> None:
        body = self.answers.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write((body or '{"detail":"Not Found"}').encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other_server() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OtherServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def inconclusive(url: str, tmp_path: Path) -> str:
    done = repro("run", "45326", "--engine", url, "--out", str(tmp_path))
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout.startswith("INCONCLUSIVE")
    assert check(tmp_path / "inconclusive.ipynb") == []
    return done.stdout


def test_a_server_that_cannot_be_judged_on_is_inconclusive_with_the_reason(
    engine: Engine, other_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing listens at http://127.0.0.1:PORT" in inconclusive("http://127.0.0.1:9", tmp_path)
    assert "is not vLLM" in inconclusive(other_server, tmp_path)
    monkeypatch.setattr(OtherServer, "answers", {"/version": '{"version":"0.32.0"}', "/health": ""})
    assert "start it with VLLM_SERVER_DEV_MODE=1" in inconclusive(other_server, tmp_path)
    engine.sleep(level=1)
    assert "asleep or paused already" in inconclusive(engine.url, tmp_path)
    assert engine.is_sleeping()  # found asleep, left asleep
    engine.wake_up()


@pytest.mark.starts_engines
def test_a_killed_kernel_takes_the_real_engine_along(tmp_path: Path) -> None:
    command = [Path(sys.executable).with_name("repro"), "run", "45326", "--engine", "cpu", "--out", str(tmp_path)]
    running = psutil.Popen(command, stdout=-1, stderr=-3, text=True, cwd=ROOT)
    engine: list[psutil.Process] = []

    def find_engine() -> bool:
        try:
            engine[:] = [p for p in running.children(recursive=True) if p.name().startswith("VLLM::")]
        except psutil.NoSuchProcess:
            return False
        return bool(engine)

    wait_for(find_engine, 120, "the engine core")
    kernel = next(p for p in running.children() if "ipykernel_launcher" in " ".join(p.cmdline()))
    tree = kernel.children(recursive=True)
    server = next(p for p in tree if "vllm.entrypoints.openai.api_server" in p.cmdline() and p.cmdline()[1] == "-m")
    port = int(next(part for part in server.cmdline() if part.startswith("--port=")).partition("=")[2])
    kernel.kill()
    try:
        out, _ = running.communicate(timeout=60)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            running.kill()
    assert residue_of(tree, port, None, bound_s=5) == Residue()
    assert running.returncode == 3
    assert "the kernel died" in out
    record = read(tmp_path / "inconclusive.ipynb")
    assert record.said["residue"]["clean"] is True
    assert json.dumps(record.said)
