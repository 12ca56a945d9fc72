"""A new bug runs as it stands: its test, lint and types pass, and its notebook says INCONCLUSIVE on the real engine."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from reproducers.engine import Engine
from reproducers.errors import UsageError
from reproducers.scaffold import add_bug

TITLE = "Wake-up of a paused engine loses its prefix cache"
TOOLS = Path(sys.executable).parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of this checkout, without the records."""
    copy = tmp_path / "kit"
    for part in ("notebooks", "reproducers", "tests"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "records"))
    for part in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / part, copy)
    return copy


def done(checkout: Path, *command: str, **environment: str) -> None:
    """Run a tool in the copy, with the copy's own package."""
    ran = subprocess.run(
        [TOOLS / command[0], *command[1:]],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{command}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"


@pytest.mark.cpu_process  # it takes a while, and that process has less to do
def test_a_new_bug_passes_lint_types_and_its_own_tests(checkout: Path) -> None:
    if (cache := ROOT / ".mypy_cache").is_dir():  # what has not changed need not be looked at again
        shutil.copytree(cache, checkout / cache.name)
    done(checkout, "python", "-m", "reproducers.cli", "new", "#47777", "--title", TITLE)
    done(checkout, "ruff", "check", ".")
    done(checkout, "ruff", "format", "--check", ".")
    done(checkout, "mypy")
    pure = ["tests/test_catalog.py", "tests/test_wake_up_of_a_paused_engine_loses_its.py"]
    done(
        checkout,
        "pytest",
        "-q",
        *pure,
        "tests/test_notebooks.py::test_every_notebook_has_the_cells_and_the_tags_of_the_design",
    )
    written = "test_every_bug_whose_trigger_is_written_is_run_without_it"
    done(checkout, "pytest", "-q", f"tests/test_notebooks.py::{written}")


@pytest.mark.engine
def test_its_notebook_runs_as_it_stands_and_its_output_is_the_committed_one(checkout: Path, engine: Engine) -> None:
    notebook = add_bug("lost-cache", TITLE, "", checkout)[0]
    assert notebook.name == "lost-cache.ipynb"
    given = ["-p", "engine", engine.url, "-p", "require", "nothing"]
    record = checkout / "record.ipynb"
    ran = subprocess.run(
        [TOOLS / "papermill", "--engine", "reproducers", "--no-progress-bar", *given, str(notebook), str(record)],
        cwd=checkout,
        env=os.environ | {"PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "a verdict was required, but it is INCONCLUSIVE: The trigger was not run" in ran.stderr
    done(checkout, "repro", "check", str(record))
    options = ["--nbval", "--nbval-lax", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    done(checkout, "pytest", *options, str(notebook), REPRO_ENGINE=engine.url)


@pytest.mark.parametrize(
    ("name", "title", "said"),
    [
        ("45326", TITLE, "is there already: 45326-request-during-sleep.ipynb"),
        ("45 326", TITLE, "is no name for a bug"),
        ("../x", TITLE, "is no name for a bug"),
        ("47777", " … ", "a title says in words what goes wrong"),
        ("47777", "long " * 30, "say it in 100"),
        ("47777", "Partial wake metric", "tests/test_partial_wake_metric.py exists already"),
    ],
)
def test_what_will_not_do_is_refused_and_nothing_is_written(checkout: Path, name: str, title: str, said: str) -> None:
    before = sorted(checkout.rglob("*")), (checkout / "reproducers" / "catalog.toml").read_text()
    with pytest.raises(UsageError, match=said if "/" not in said else "exists already"):
        add_bug(name, title, "", checkout)
    assert before == (sorted(checkout.rglob("*")), (checkout / "reproducers" / "catalog.toml").read_text())


def test_without_a_checkout_there_is_nowhere_to_add_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no checkout of the kit"):
        add_bug("47777", TITLE, "", tmp_path)
