"""Small notebooks, built in code, for the cases under test."""

import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).parent

TREE = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(HERE)!r})
import test_process
process = test_process.started(Path.cwd())
Path("pids").write_text(" ".join(map(str, [os.getpid(), process.port, *[p.pid for p in process.tree()]])))
"""

ENDINGS = {
    "normal": "pass",
    "cell-error": "raise RuntimeError('no')",
    "cell-timeout": "import time; time.sleep(600)",
    "kernel-killed": "import time; time.sleep(600)",
    "papermill-terminated": "import time; time.sleep(600)",
    "papermill-killed": "import time; time.sleep(600)",
    "papermill-interrupted": "import time; time.sleep(600)",
}


def notebook(path: Path, *sources: str, parameters: str = "level: int = 1  # sleep level") -> Path:
    """Write a notebook with a title, a parameters cell and one cell for each source."""
    cells = [new_markdown_cell("# A case"), new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    cells += [new_code_cell(source) for source in sources]
    for i, cell in enumerate(cells):
        cell["id"] = f"cell-{i}"
    node = new_notebook(cells=cells)
    node.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python 3"}
    nbformat.write(node, path)
    return path


def papermill_command(source: Path, target: Path, *options: str) -> list[str]:
    """The command line of papermill with the kit's engine."""
    tool = str(Path(sys.executable).with_name("papermill"))
    return [tool, "--engine", "reproducers", "--no-progress-bar", *options, str(source), str(target)]
