"""Each notebook many times on a shared engine while another core is busy: equal verdicts.

REPRO_SOAK=10 ci/test tests/test_soak.py
"""

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_notebooks import BUGS, executed

from reproducers.catalog import catalog, notebooks_folder
from reproducers.engine import Engine

TIMES = int(os.environ.get("REPRO_SOAK", "0"))

pytestmark = [pytest.mark.engine, pytest.mark.skipif(not TIMES, reason="REPRO_SOAK says how often; not set")]


def spin() -> None:
    while True:
        pass


@pytest.fixture
def busy_core() -> Iterator[None]:
    other = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
    other.start()
    yield
    other.kill()
    other.join()
    other.close()


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("busy_core")
@pytest.mark.parametrize("name", BUGS)
def test_every_run_gives_the_same_verdict(name: str, engine: Engine, tmp_path: Path) -> None:
    notebook = notebooks_folder() / catalog()[name].notebook
    verdicts = [executed(notebook, tmp_path / f"{i}.ipynb", engine.url).judgement.verdict.value for i in range(TIMES)]
    print(f"{name}: {TIMES} runs, {sorted(set(verdicts))}")
    assert len(set(verdicts)) == 1, verdicts
