"""Parameters against a notebook's own declaration."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from reproducers.declaration import declared
from reproducers.errors import UsageError
from reproducers.parameters import check_parameters, checked, parsed

SOURCE = """
from reproducers.parameters import Count, EngineChoice, Level, Require, Runner, Seconds

engine: EngineChoice = "auto"  # which engine
level: Level = 1  # sleep level
race: bool = False
patience_s: Seconds = 5.0  # seconds
repeats: Count = 1
require: Require = "fixed"
note: str = ""
runner: Runner = 0
"""


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    path = tmp_path / "n.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(SOURCE, metadata={"tags": ["parameters"]})]), path)
    return path


def test_a_declaration_gives_name_type_default_and_comment(notebook: Path) -> None:
    found = declared(notebook)
    assert list(found) == ["engine", "level", "race", "patience_s", "repeats", "require", "note", "runner"]
    assert (found["level"].default, found["level"].comment) == (1, "sleep level")


def test_text_from_a_command_line_becomes_the_declared_type(notebook: Path) -> None:
    pairs = [
        "level=2",
        "race=true",
        "patience_s=2",
        "engine=http://127.0.0.1:8000",
        "require=nothing",
        "note=a=b",
        "runner=2",
    ]
    values = parsed(pairs, declared(notebook))
    assert values == {
        "level": 2,
        "race": True,
        "patience_s": 2.0,
        "engine": "http://127.0.0.1:8000",
        "require": "nothing",
        "note": "a=b",
        "runner": 2,
    }


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("levle=1", "unknown parameter 'levle': this notebook has engine, level"),
        ("level", "not of the form name=value"),
        ("level=3", "level='3': Input should be less than or equal to 2"),
        ("level=one", "level='one': Input should be a valid integer"),
        ("race=perhaps", "valid boolean"),
        ("patience_s=0", "greater than or equal to 0.5"),
        ("patience_s=nan", "parameter patience_s"),
        ("require=green", "'fixed', 'reproduced', 'expected' or 'nothing'"),
        ("engine=gpu", "auto, cpu, cuda, emulated or the URL of a server"),
        ("engine=http://127.0.0.1:8000/v1", "without a path"),
        ("engine=http://me:word@127.0.0.1:8000", "looks like a secret"),
        ("note=hf_abcdefghijklmnopqrstuv", "looks like a secret"),
        ("note=Bearer abcdefghijklmnop", "looks like a secret"),
    ],
)
def test_bad_values_are_refused_with_one_line_that_names_them(notebook: Path, pair: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parsed([pair], declared(notebook))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_from_papermill_must_have_the_declared_type(notebook: Path) -> None:
    assert checked({"level": 2, "patience_s": 3}, declared(notebook)) == {"level": 2, "patience_s": 3.0}
    with pytest.raises(UsageError, match="valid integer"):
        checked({"level": "2"}, declared(notebook))


def test_the_running_notebook_checks_itself() -> None:
    namespace: dict[str, object] = {}
    exec(compile(SOURCE, "cell", "exec"), namespace)
    check_parameters(namespace)
    namespace["level"] = 7
    with pytest.raises(UsageError, match="level=7"):
        check_parameters(namespace)


def test_what_is_no_notebook_with_parameters_is_refused(tmp_path: Path) -> None:
    for text in ("", "{}", "not json", '{"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}'):
        path = tmp_path / "bad.ipynb"
        path.write_text(text)
        with pytest.raises(UsageError, match=r"bad\.ipynb"):
            declared(path)
    with pytest.raises(UsageError, match="cannot be read"):
        declared(tmp_path / "missing.ipynb")
