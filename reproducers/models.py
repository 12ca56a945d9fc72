"""Tiny checkpoints, made in place from a seed and cached by what makes them."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import filelock
import platformdirs

from reproducers.errors import EngineFailed, HarnessError

__all__ = ["DENSE", "MODELS", "OTHER_WEIGHTS", "ModelRecipe", "cache_folder", "checkpoints", "made"]

MAKE_BOUND_S = 180
"""Making one takes 8 seconds on two cores; this is what a loaded machine is given."""


@dataclass(frozen=True)
class ModelRecipe:
    """How a checkpoint is made: a script of `inside`, a seed, and what else the script takes."""

    name: str
    script: str
    seed: int
    arguments: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """What an engine needs to serve it."""

    @property
    def path(self) -> Path:
        """The script, which the engine's interpreter runs."""
        return Path(__file__).parent / "inside" / self.script

    def key(self) -> str:
        """Name and hash of all that decides the content."""
        sources = [self.path.read_bytes(), self.path.with_name("tiny_tokenizer.py").read_bytes()]
        decided = b"\0".join([*sources, str(self.seed).encode(), *(text.encode() for text in self.arguments)])
        return f"{self.name}-{hashlib.sha256(decided).hexdigest()[:12]}"


DENSE = ModelRecipe("tiny-qwen3", "make_dense_model.py", seed=2)
OTHER_WEIGHTS = replace(DENSE, seed=3)
"""The same model with other weights, as a trainer has them after a step."""
MODELS = {
    "dense": DENSE,
    "falcon-h1": ModelRecipe("tiny-falcon-h1", "make_hybrid_model.py", 2, ("falcon-h1",)),
    "qwen3-next": ModelRecipe(
        *("tiny-qwen3-next", "make_hybrid_model.py", 2, ("qwen3-next",)),
        flags=("--gdn-prefill-backend=triton",),  # the other one needs flashinfer
    ),
}
"""By family: dense, and with a recurrent state beside the KV cache."""


def cache_folder() -> Path:
    """Where models and engine environments are kept: `REPRO_CACHE`, or the user's cache folder."""
    return Path(os.environ.get("REPRO_CACHE") or platformdirs.user_cache_path("vllm-rl-repro"))


def checkpoints() -> Path:
    """The folder of all checkpoints."""
    return cache_folder() / "models"


def made(recipe: ModelRecipe, command: list[str], environment: dict[str, str]) -> Path:
    """Return the folder of a checkpoint; make it first where it is not there or not whole.

    Args:
        recipe: what to make.
        command: the engine's interpreter.
        environment: what it needs to import transformers.

    Raises:
        EngineFailed: the script failed; its last line says why.
        HarnessError: the cache cannot be written.
    """
    folder = checkpoints() / recipe.key()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{folder}.lock", timeout=MAKE_BOUND_S):
            if not _whole(folder):
                _make(recipe, command, environment, folder)
    except (OSError, filelock.Timeout) as error:
        raise HarnessError(f"the model cache {folder.parent} cannot be used ({error}): set REPRO_CACHE") from error
    return folder


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        if path.name != "SHA256":
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _whole(folder: Path) -> bool:
    seal = folder / "SHA256"
    return seal.is_file() and seal.read_text() == _digest(folder)


def _make(recipe: ModelRecipe, command: list[str], environment: dict[str, str], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        part = Path(scratch) / recipe.name
        run = [*command, str(recipe.path), str(part), str(recipe.seed), *recipe.arguments]
        try:
            done = subprocess.run(
                run, env=environment, capture_output=True, text=True, timeout=MAKE_BOUND_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise EngineFailed(f"making the model {recipe.name} took more than {MAKE_BOUND_S} s") from error
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
            raise EngineFailed(f"the engine's interpreter could not make the model {recipe.name}: {last}")
        (part / "SHA256").write_text(_digest(part))
        part.rename(folder)
