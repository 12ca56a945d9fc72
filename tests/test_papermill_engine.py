"""The papermill engine: what timed out or died is failed, what did not run is unrun, nothing outlives a run."""

import os
import signal
import subprocess
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from conftest import heed_sigint, wait_for

from notebooks import ENDINGS, TREE, notebook, papermill_command
from reproducers.engine.process import residue_of
from reproducers.record.metadata import KEY
from reproducers.states import Residue

DEAF = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"


def executed(tmp_path: Path, *sources: str, options: tuple[str, ...] = (), **environment: str) -> nbformat.NotebookNode:
    record = tmp_path / "record.ipynb"
    command = papermill_command(notebook(tmp_path / "case.ipynb", *sources), record, *options)
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, timeout=100, check=False)
    node = nbformat.read(record, as_version=4)
    node.metadata["exit"] = done.returncode
    return node


def cells(node: nbformat.NotebookNode) -> dict[str, nbformat.NotebookNode]:
    return {cell["id"]: cell for cell in node.cells}


def failure(node: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    cell = cells(node)[name]
    assert cell.metadata.papermill.status == "failed"
    assert cell.metadata.papermill.exception is True
    return next(output for output in cell.outputs if output.output_type == "error")


def test_a_cell_that_times_out_is_failed_with_stacks_and_the_rest_is_unrun(tmp_path: Path) -> None:
    node = executed(
        tmp_path, "def deep():\n    import time; time.sleep(600)\ndeep()", "2", options=("--execution-timeout", "3")
    )
    error = failure(node, "cell-2")
    assert error.ename == "CellTimeout"
    assert error.evalue == "the cell's limit of 3 s is used up"
    assert "deep" in "\n".join(error.traceback)
    assert cells(node)["cell-3"].metadata.papermill.status == "pending"
    assert cells(node)["cell-3"].execution_count is None
    assert node.metadata.papermill.exception is True
    assert node.metadata.exit != 0
    said = node.metadata[KEY]
    assert said["verdict"]["verdict"] == "INCONCLUSIVE"
    assert "the cell 'cell-2'" in said["verdict"]["evidence"][0]
    assert said["residue"]["clean"] is True


def test_a_cell_deaf_to_interrupt_is_killed_and_says_so(tmp_path: Path) -> None:
    node = executed(tmp_path, DEAF, "2", options=("--execution-timeout", "3"))
    error = failure(node, "cell-2")
    assert "did not react to an interrupt and was killed" in error.evalue
    assert cells(node)["cell-3"].metadata.papermill.status == "pending"
    assert node.metadata[KEY]["residue"]["clean"] is True


def test_a_dead_kernel_is_failed_with_its_status(tmp_path: Path) -> None:
    node = executed(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "2")
    error = failure(node, "cell-2")
    assert error.ename == "DeadKernel"
    assert "status -9" in error.evalue
    assert cells(node)["cell-3"].metadata.papermill.status == "pending"
    assert node.metadata[KEY]["verdict"]["signature"].startswith("harness:DeadKernel")


def test_the_whole_notebook_has_a_budget(tmp_path: Path) -> None:
    node = executed(tmp_path, "import time; time.sleep(1)", "time.sleep(600)", REPRO_BUDGET_S="10")
    assert failure(node, "cell-3").ename == "BudgetExceeded"
    assert "budget of 10 s" in failure(node, "cell-3").evalue
    assert cells(node)["cell-2"].metadata.papermill.status == "completed"


def test_a_good_notebook_is_recorded_without_times_and_with_its_parameters(tmp_path: Path) -> None:
    node = executed(tmp_path, "level", options=("-p", "level", "2"))
    assert node.metadata.exit == 0
    assert node.metadata[KEY]["parameters"] == {"level": 2}
    assert node.metadata[KEY]["kit"]
    assert cells(node)["cell-2"].outputs[0].data["text/plain"] == "2"
    text = (tmp_path / "record.ipynb").read_text()
    assert "start_time" not in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    ("name", "value", "said"), [("levle", "1", "unknown parameter 'levle'"), ("level", "x", "valid integer")]
)
def test_a_bad_parameter_is_one_line_and_nothing_is_started_or_written(
    tmp_path: Path, name: str, value: str, said: str
) -> None:
    command = papermill_command(notebook(tmp_path / "case.ipynb", "1"), tmp_path / "record.ipynb", "-p", name, value)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "record.ipynb").exists()


def test_five_seconds_after_any_ending_no_process_and_no_port_is_left(tmp_path: Path) -> None:
    running = {}
    for ending, source in ENDINGS.items():
        folder = tmp_path / ending
        folder.mkdir()
        limit = "45" if ending == "cell-timeout" else "120"
        options = ("--execution-timeout", limit, "--cwd", str(folder))
        command = papermill_command(notebook(folder / "case.ipynb", TREE, source), folder / "record.ipynb", *options)
        running[ending] = subprocess.Popen(command, stdout=-3, stderr=-3, preexec_fn=heed_sigint)
    trees = {}
    for ending in ENDINGS:
        wait_for((tmp_path / ending / "pids").exists, 100, f"the tree of {ending}")
        time.sleep(0.2)
        kernel, port, *members = map(int, (tmp_path / ending / "pids").read_text().split())
        trees[ending] = (kernel, port, [psutil.Process(pid) for pid in members if psutil.pid_exists(pid)])
    os.kill(trees["kernel-killed"][0], signal.SIGKILL)
    running["papermill-terminated"].terminate()
    running["papermill-killed"].kill()
    running["papermill-interrupted"].send_signal(signal.SIGINT)
    codes = {ending: process.wait(100) for ending, process in running.items()}
    time.sleep(5)
    left = {ending: residue_of(members, port, None, bound_s=0) for ending, (_, port, members) in trees.items()}
    assert left == dict.fromkeys(ENDINGS, Residue())
    assert codes["normal"] == 0
    assert all(codes[ending] for ending in ENDINGS if ending != "normal"), codes
    for ending in ("papermill-terminated", "papermill-interrupted", "kernel-killed", "cell-timeout"):
        node = nbformat.read(tmp_path / ending / "record.ipynb", as_version=4)
        assert failure(node, "cell-3"), ending
        assert node.metadata[KEY]["residue"]["clean"] is True
