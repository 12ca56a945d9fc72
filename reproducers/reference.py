"""What checkpoints say of fixed tokens without vLLM: a forward pass of transformers on the CPU, in float32."""

import json
import math
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from reproducers.calls import answered
from reproducers.engine import Engine
from reproducers.engine.launch import EngineSettings, environment_of
from reproducers.errors import HarnessError, NotApplicable
from reproducers.models import ModelRecipe, made
from reproducers.values import Call, Completion

__all__ = ["Question", "Reference", "Seen", "distance", "references", "seen"]

BOUND_S = 180.0
"""It takes 15 s, most of it importing torch and transformers."""
SCRIPT = "reference_logprobs.py"


@dataclass(frozen=True)
class Question:
    """What engines and checkpoints are asked alike."""

    tokens: tuple[int, ...]
    """Ids whose logprobs are asked for, each given those before it; the first is left out."""
    prompt: tuple[int, ...]
    """Ids to go on from, greedily."""
    count: int
    """How many tokens to go on."""


@dataclass(frozen=True)
class Reference:
    """One checkpoint's answer."""

    checkpoint: str
    """The name of the checkpoint's folder."""
    logprobs: tuple[float, ...]
    greedy: tuple[int, ...]


@dataclass(frozen=True)
class Seen:
    """What an engine showed of its weights."""

    distances: Mapping[str, float]
    """Root mean square of its logprobs against each reference, by name; empty where it did not answer."""
    answer: Completion | Call
    """What followed the prompt."""
    greedy: Mapping[str, bool]
    """Whether its tokens are those of each reference."""
    version: str | None = None
    """`/weight_info`; None where the release has none."""
    checksums: Mapping[str, str] | None = None
    """`/weight_checker`; None where the release has none."""

    @property
    def cached(self) -> int | None:
        """How many tokens of the prompt came from the prefix cache."""
        return self.answer.cached_tokens if isinstance(self.answer, Completion) else None


def references(vllm: Engine, recipes: Mapping[str, ModelRecipe], question: Question) -> dict[str, Reference]:
    """Ask checkpoints, by the interpreter that the engine runs from; a checkpoint that is not there is made.

    Args:
        vllm: the engine whose interpreter is used.
        recipes: the checkpoints, by name.
        question: what they are asked.

    Raises:
        NotApplicable: the server is not the kit's, so that its checkpoint is not known.
        HarnessError: transformers cannot be run there; the text gives the last line that it said.
    """
    installation = vllm.made_from()
    if installation is None:
        raise NotApplicable("weights can be compared only on an engine that the kit starts: it knows the checkpoint")
    environment = environment_of(installation, EngineSettings())
    folders = [made(recipe, [installation.python], environment) for recipe in recipes.values()]
    script = next(iter(recipes.values())).path.with_name(SCRIPT)
    try:
        done = subprocess.run(
            [installation.python, str(script), *map(str, folders)],
            input=json.dumps(asdict(question)),
            env=environment,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=True,
        )
        answers = json.loads(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired as error:
        raise HarnessError(f"the reference forward pass took more than {BOUND_S:.0f} s") from error
    except (subprocess.CalledProcessError, ValueError, IndexError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise HarnessError(f"the reference forward pass failed: {said.strip().splitlines()[-1]}") from error
    return {
        name: Reference(folder.name, tuple(answer["logprobs"]), tuple(answer["greedy"]))
        for name, folder, answer in zip(recipes, folders, answers, strict=True)
    }


def seen(vllm: Engine, question: Question, known: Mapping[str, Reference]) -> Seen:
    """Ask an engine the same and compare; what a dead engine does not answer is empty."""
    answer = vllm.complete(question.prompt, max_tokens=question.count)  # first: the tokens may begin as the prompt does
    scored = vllm.prompt_logprobs(question.tokens)
    tokens = answer.tokens if isinstance(answer, Completion) else ()
    return Seen(
        {name: distance(scored, ref.logprobs) for name, ref in known.items()} if isinstance(scored, tuple) else {},
        answer,
        {name: tokens == tuple(f"token_id:{token}" for token in ref.greedy) for name, ref in known.items()},
        answered(vllm.weight_info),
        answered(vllm.weight_checksums),
    )


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Root of the mean square of the differences of two series of logprobs; NaN where one has a NaN."""
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) / len(one))
