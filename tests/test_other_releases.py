"""Engines of other releases, in environments of their own: told apart by their behaviour alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from notebook_runs import executed

from reproducers.engine import Engine, open_engine
from reproducers.values import Verdict

pytestmark = [pytest.mark.nightly, pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def older() -> Iterator[Engine]:
    """An engine of a release with the metric wrong and without bodies."""
    engine = open_engine("cpu", release="0.30.0")
    yield engine
    assert engine.close().clean


def test_an_older_release_is_told_apart_by_its_behaviour_alone(older: Engine, tmp_path: Path) -> None:
    metric = executed("partial-wake-metric", tmp_path / "m.ipynb", older.url)
    assert metric.judgement.verdict is Verdict.REPRODUCED, str(metric.judgement)
    assert metric.said["engine"]["release"] == "0.30.0"
    sleep = executed("45518", tmp_path / "s.ipynb", older.url)
    assert sleep.judgement.verdict is Verdict.REPRODUCED
    assert "200 with an empty body both times" in sleep.judgement.evidence[0]


def test_the_allocator_of_a_release_before_the_guard_releases_twice(tmp_path: Path) -> None:
    record = executed("46438", tmp_path / "record.ipynb", "emulated", release="0.27.1", over_http=False)
    assert record.judgement.verdict is Verdict.REPRODUCED, str(record.judgement)
    assert "CUDA Error: invalid argument" in record.judgement.evidence[0]
    assert record.said["engine"]["device"] == "emulated driver"
