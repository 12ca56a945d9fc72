"""Groups on a Ray cluster: tasks with their needs, in an environment of their release; a lost node's run elsewhere."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reproducers.engine.environments import PACKAGES
from reproducers.errors import HarnessError, UsageError
from reproducers.sweep.cell import Configuration
from reproducers.sweep.run import STOPPED
from reproducers.sweep.state import put_in_place

__all__ = ["RayExecutor"]

RETRIES = 3
"""How often a group is run again on another node when its node is lost."""


class RayExecutor:
    """Hands each group to a cluster.

    Args:
        address: of the cluster; empty for one on this machine, which is started and ended with this process.

    Raises:
        UsageError: Ray is not installed.
        HarnessError: the cluster does not answer.
    """

    def __init__(self, address: str = "") -> None:
        try:
            import ray  # noqa: PLC0415
        except ImportError as error:
            raise UsageError("the executor ray needs Ray: pip install 'vllm-rl-repro[fleet]'") from error
        self._ray = ray
        self._tasks: set[Any] = set()
        self._stopped = False
        # Modules are handed to the nodes with the connection, not with a task.
        with tempfile.TemporaryDirectory(prefix="vllm-rl-repro-kit-") as folder:
            with_kit = {"py_modules": _kit(Path(folder))}
            try:
                ray.init(address=address or None, runtime_env=with_kit, log_to_driver=False, include_dashboard=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise HarnessError(f"no Ray cluster answers at {address or 'this machine'}: {error}") from error

    def run(self, folder: Path, order: dict[str, Any], follow: Callable[[str, str], None]) -> str:
        """Run one group as a task; what it made comes back as files."""
        if self._stopped:
            return STOPPED
        configuration = Configuration(**order["configuration"])
        for bug, n in order["cells"]:
            follow("began", f"{bug}-{configuration}-{n}")
        task = self._ray.remote(_group).options(
            num_cpus=2,
            num_gpus=configuration.devices,
            max_retries=RETRIES,
            runtime_env=self._environment(configuration),
            name=str(configuration),
        )
        running = task.remote(order)
        self._tasks.add(running)
        try:
            made = self._ray.get(running)
        except self._ray.exceptions.RayError as error:
            return STOPPED if self._stopped else f"the cluster lost it: {' '.join(str(error).split())[:300]}"
        finally:
            self._tasks.discard(running)
        for name, content in made.items():
            put_in_place(folder / name, content)
        for bug, n in order["cells"]:
            follow("ended", f"{bug}-{configuration}-{n}")
        return ""

    def stop(self) -> None:
        """End the tasks wherever they run; their engines end with them."""
        self._stopped = True
        for running in list(self._tasks):
            self._ray.cancel(running, force=True)

    def _environment(self, configuration: Configuration) -> dict[str, Any]:
        """What Ray makes on the node beside the kit: the release over the node's own Python."""
        device = "cuda" if configuration.device == "cuda" else "cpu"
        packages = [f"{PACKAGES[device]}=={configuration.release}"]
        if device == "cpu":  # a node's own environment has what kit and release need: another torch would not load
            return {"uv": {"packages": packages, "uv_pip_install_options": ["--no-deps"]}}
        needed = importlib.metadata.requires("vllm-rl-repro") or []
        return {"uv": {"packages": [*packages, *(name for name in needed if "extra ==" not in name)]}}


def _kit(folder: Path) -> list[str]:
    """The kit's package with its notebooks, and its metadata, as folders for the nodes; they are made in `folder`."""
    checkout = Path(__file__).parents[2]
    if not (checkout / "pyproject.toml").is_file():
        raise UsageError("the executor ray needs a checkout of the kit, from which it is handed to the nodes")
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    done = subprocess.run(
        [uv, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(checkout)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise HarnessError(f"the kit cannot be built: {done.stderr.strip()[-300:]}")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    return [str(part) for part in folder.iterdir() if part.is_dir()]


def _group(order: dict[str, Any]) -> dict[str, bytes]:
    """Run a group on a node, in a process of its own as on one machine; return its files."""
    with tempfile.TemporaryDirectory(prefix="vllm-rl-repro-group-") as name:
        folder = Path(name)
        for inside in ("cells", "records", "orders"):
            (folder / inside).mkdir()
        told = folder / "order.json"
        told.write_text(json.dumps(order), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "reproducers.sweep.group", name, str(told)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"the group ended with status {done.returncode}: {done.stderr.strip()[-500:]}")
        paths = [p for part in ("cells", "records") for p in (folder / part).iterdir() if p.is_file()]
        return {str(p.relative_to(folder)): p.read_bytes() for p in paths}
