"""Each notebook many times on a shared engine while another core is busy: equal verdicts."""

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from notebook_runs import executed
from test_notebooks import BUGS, KILLS

from reproducers.engine import Engine

TIMES = int(os.environ.get("REPRO_SOAK", "5"))
"""How often each is run."""
CALM = [name for name in BUGS if name not in KILLS]
"""Those that leave the engine as they found it."""

pytestmark = [pytest.mark.nightly, pytest.mark.engine]


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
@pytest.mark.parametrize("name", CALM)
def test_every_run_gives_the_same_verdict(name: str, engine: Engine, tmp_path: Path) -> None:
    verdicts = [executed(name, tmp_path / f"{i}.ipynb", engine.url).judgement.verdict.value for i in range(TIMES)]
    print(f"{name}: {TIMES} runs, {sorted(set(verdicts))}")
    assert len(set(verdicts)) == 1, verdicts
