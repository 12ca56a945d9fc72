"""The pipelines for GPU runners: they are YAML, call the command as it is, and name files that there are."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from typer.main import get_command

from reproducers.cli import app
from reproducers.sweep.matrix import load_matrix

PIPELINES = {"github-gpu.yml": ("jobs", "sweep", "steps"), "buildkite-gpu.yml": ("steps",)}


def commands(node: Any) -> Iterator[str]:
    """Every command of a pipeline."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from ([value] if name == "run" else value if name == "commands" else commands(value))
    elif isinstance(node, list):
        for item in node:
            yield from commands(item)


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_calls_the_commands_that_there_are(name: str) -> None:
    data = yaml.safe_load(Path(ROOT, "ci", name).read_text())
    inside = data
    for key in PIPELINES[name]:
        inside = inside[key]
    assert isinstance(inside, list)
    known = get_command(app)
    found = [shlex.split(line) for line in commands(data) if "bin/repro" in line]
    assert {words[1] for words in found} == {"doctor", "sweep", "check"}
    for words in found:
        assert words[1] in known.commands, words  # type: ignore[attr-defined]
        if "--matrix" in words:
            matrix = ROOT / words[words.index("--matrix") + 1]
            assert load_matrix(matrix)[1]
