"""The sweep on a Ray cluster: on this machine, with the real engine, and with a node that is lost in the middle."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from reproducers.sweep.fleet import RayExecutor
from reproducers.sweep.matrix import load_matrix
from reproducers.sweep.results import Outcome, rows_of
from reproducers.sweep.run import sweep
from reproducers.values import Verdict

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = [pytest.mark.nightly, pytest.mark.engine, pytest.mark.timeout(1200)]

MATRIX = """
bugs = ["partial-wake-metric"]
releases = ["0.30.0"]
"""


def engines() -> set[int]:
    """The engine cores that run on this machine; other tests may share one of them."""
    found = psutil.process_iter(["pid", "cmdline"])
    return {p.info["pid"] for p in found if "EngineCore" in " ".join(p.info["cmdline"] or [])}


def test_a_group_whose_node_is_lost_runs_elsewhere_in_the_environment_of_its_release(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(MATRIX)
    matrix, cells = load_matrix(tmp_path / "matrix.toml")
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    session = cluster.head_node.get_session_dir_path()
    first = cluster.add_node(num_cpus=2)
    lost, others = False, engines()
    with ThreadPoolExecutor(1) as pool:
        try:
            running = pool.submit(sweep, matrix, cells, tmp_path / "out", executor=RayExecutor(cluster.address))
            while not lost and not running.done():
                time.sleep(0.5)
                if engines() - others:
                    cluster.add_node(num_cpus=2)
                    cluster.remove_node(first, allow_graceful=False)
                    lost = True
            swept = running.result()
        finally:
            ray.shutdown()
            cluster.shutdown()
            shutil.rmtree(session, ignore_errors=True)  # the environment of the release, 3 GB, stays in it
    (row,) = rows_of(swept.results, matrix.against)
    assert lost, f"the node was not lost while the engine ran: {row.said}"
    assert row.outcome is Outcome.AS_EXPECTED, row.said
    assert row.verdict is Verdict.REPRODUCED
    assert (tmp_path / "out" / row.results[0].record).is_file()
    deadline = time.monotonic() + 20
    while engines() - others and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not engines() - others, "an engine of the lost node is left"
