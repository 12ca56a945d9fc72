"""What the tests share: one real engine, started when the first test asks for it, and small helpers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reproducers.engine import Engine, open_engine

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def cpu_engine() -> Iterator[Engine]:
    """The real vLLM for the CPU, started once for all tests."""
    engine = open_engine("cpu")
    yield engine
    residue = engine.close()
    assert residue.clean, str(residue)


@pytest.fixture
def engine(cpu_engine: Engine) -> Iterator[Engine]:
    """The shared engine, awake and unpaused before and after the test."""
    assert not cpu_engine.is_sleeping()
    yield cpu_engine
    assert not cpu_engine.is_sleeping()


def wait_for(condition: Callable[[], object], bound_s: float, what: str) -> None:
    """Wait until a condition holds; fail with what was waited for."""
    deadline = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {bound_s} s"
        time.sleep(0.1)


def nbval(engine: Engine | None, *notebooks: Path) -> subprocess.CompletedProcess[str]:
    """Run nbval over notebooks on an engine, whose log it may read; without one they start their own."""
    options = ["--nbval", "--nbval-lax", "--nbval-cell-timeout=280", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    command = [sys.executable, "-m", "pytest", *options, *map(str, notebooks)]
    environment = dict(os.environ)
    if engine is not None:
        assert engine.process is not None
        environment |= {"REPRO_ENGINE": engine.url, "REPRO_ENGINE_LOG": str(engine.process.log)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=800, check=False)


def heed_sigint() -> None:
    """Heed SIGINT in a child even where this process ignores it, as one started in the background does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def repro(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command `repro` as a user does."""
    return subprocess.run(
        [Path(sys.executable).with_name("repro"), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=ROOT,
        env=os.environ | environment,
    )
