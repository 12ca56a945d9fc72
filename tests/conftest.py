"""What the tests share: real engines, one alive at a time, each started once; and small helpers.

A test asks for an engine by the name of its configuration. The tests of each configuration run one after another, of
these last the one that kills it; then those that start engines of their own, then those without one. `ci/test` runs
those of the CPU engine and of engines of their own in one process, and all others beside it in another.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reproducers import MODELS
from reproducers.catalog import catalog
from reproducers.engine import Engine, EngineSettings, open_engine
from reproducers.engine.attach import restore
from reproducers.engine.launch import STARTS_VARIABLE
from reproducers.transfer import transfer_settings

ROOT = Path(__file__).parent.parent
FIXES = tuple(f"{bug.id}:{fix}" for bug in catalog().values() for fix in bug.fixes)
"""All of them are loaded into every engine of the tests, and off; a test turns on what it needs."""


@dataclass(frozen=True)
class Configuration:
    """An engine that tests share."""

    choice: str
    settings: EngineSettings


CONFIGURATIONS = {
    "cpu_engine": Configuration("cpu", transfer_settings("checkpoint")),
    "hybrid": Configuration("emulated", EngineSettings(model=MODELS["falcon-h1"])),
    "dense": Configuration("emulated", EngineSettings()),
    "dense_float32": Configuration("emulated", transfer_settings("checkpoint")),
}
_running: dict[str, Engine] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Let every process of this session note the engines that it starts."""
    if STARTS_VARIABLE not in os.environ:
        number, os.environ[STARTS_VARIABLE] = tempfile.mkstemp(prefix="vllm-rl-repro-starts-")
        os.close(number)
        config.add_cleanup(lambda: Path(os.environ.pop(STARTS_VARIABLE)).unlink())


def configuration_of(item: pytest.Item | None) -> str | None:
    """The name of the configuration that a test asks for; None where it needs none."""
    return next((name for name in CONFIGURATIONS if name in getattr(item, "fixturenames", ())), None)


def kind_of(item: pytest.Item) -> str | None:
    """The configuration of a test, `own` where it starts engines of its own, None where it needs none."""
    return "own" if item.get_closest_marker("starts_engines") else configuration_of(item)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that run in the process of the CPU engine."""
    if kind_of(item) in {"cpu_engine", "own"}:
        item.add_marker(pytest.mark.cpu_process)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in the order that the module says."""
    order = [*CONFIGURATIONS, "own", None]
    items.sort(key=lambda item: (order.index(kind_of(item)), item.get_closest_marker("kills") is not None))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End a shared engine once no further test needs it."""
    name = configuration_of(item)
    if name is None or configuration_of(nextitem) == name or name not in _running:
        return
    residue = _running.pop(name).close()
    assert residue.clean, str(residue)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which engines were started, so that growth is seen."""
    starts = Path(os.environ[STARTS_VARIABLE]).read_text().splitlines()
    terminalreporter.write_line(f"{len(starts)} engine starts" + "".join(f"\n    {line}" for line in starts))


def _lent(name: str) -> Iterator[Engine]:
    """The engine of a configuration, as released, lent to the notebooks of one test; awake before and after it."""
    if name not in _running:
        configuration = CONFIGURATIONS[name]
        settings = replace(configuration.settings, spare_fixes=FIXES)
        memory = configuration.choice == "emulated"
        _running[name] = open_engine(configuration.choice, settings=settings, memory=memory)
    engine = _running[name]
    with engine.lend():
        yield engine


@pytest.fixture
def cpu_engine() -> Iterator[Engine]:
    """The real vLLM for the CPU with a weight-transfer backend, in float32."""
    yield from _lent("cpu_engine")


@pytest.fixture
def hybrid() -> Iterator[Engine]:
    """A hybrid model on the emulated driver; on a CPU that model answers short prompts only."""
    yield from _lent("hybrid")


@pytest.fixture
def dense() -> Iterator[Engine]:
    """A dense model on the emulated driver, in bfloat16."""
    yield from _lent("dense")


@pytest.fixture
def dense_float32() -> Iterator[Engine]:
    """A dense model on the emulated driver, in float32."""
    yield from _lent("dense_float32")


@pytest.fixture
def engine(cpu_engine: Engine) -> Iterator[Engine]:
    """The CPU engine, awake and unpaused before and after the test."""
    yield from awake(cpu_engine)


def awake(engine: Engine) -> Iterator[Engine]:
    """An engine that must be found and left awake; a test that leaves it asleep fails alone."""
    assert not engine.is_sleeping()
    yield engine
    left_awake = not engine.is_sleeping()
    assert left_awake or restore(engine.url, level=2), "the test left an engine that cannot be brought back"
    assert left_awake, "the test left the engine asleep or paused"


def wait_for(condition: Callable[[], object], bound_s: float, what: str) -> None:
    """Wait until a condition holds; fail with what was waited for."""
    deadline = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {bound_s} s"
        time.sleep(0.1)


def nbval(engine: Engine, *notebooks: Path) -> subprocess.CompletedProcess[str]:
    """Run nbval over notebooks on an engine that is lent."""
    options = ["--nbval", "--nbval-lax", "--nbval-cell-timeout=280", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    command = [sys.executable, "-m", "pytest", *options, *map(str, notebooks)]
    environment = os.environ | {"REPRO_ENGINE": engine.url}
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
