"""What the later cells of every notebook do: check, show the time line, assert, end."""

from collections.abc import Mapping
from typing import Any

from IPython.display import Markdown, display

from reproducers.allocator import Allocator
from reproducers.catalog import Contract, find_bug
from reproducers.engine import Engine
from reproducers.engine.switch import FIX_VARIABLE
from reproducers.errors import NotApplicable, UsageError
from reproducers.journal import JOURNAL_MIME
from reproducers.judgement import Judgement, verdict_not_required
from reproducers.parameters import check_parameters
from reproducers.states import ENVIRONMENT_MIME, EngineFacts
from reproducers.texts import code_block, folded, plain
from reproducers.timeline import timeline
from reproducers.values import Verdict

__all__ = ["check_parameters", "promised", "require", "required_verdict", "show_end", "show_timeline"]


def show_timeline(vllm: Engine | Allocator, judgement: Judgement) -> None:
    """Show the figure, and the calls as a folded table."""
    line = timeline(vllm.journal, judgement.window)
    display(line)
    table = folded(f"{len(line.calls)} calls", line.table())
    display({"text/markdown": table, JOURNAL_MIME: vllm.journal.to_json()}, raw=True)


def promised(bug: str, facts: EngineFacts) -> Contract:
    """Return what the engine's release promises, from the catalog.

    Raises:
        NotApplicable: the catalog has no contract for the release.
    """
    if (contract := find_bug(bug).promised(facts.release, facts.device)) is None:
        raise NotApplicable(f"the catalog has no contract of {bug} for vLLM {facts.release}: add one")
    return contract


def required_verdict(bug: str, requirement: str, facts: EngineFacts) -> Verdict | None:
    """Return the verdict that `requirement` asks for; None for any that is evidence.

    Raises:
        UsageError: `expected`, but the catalog says nothing about this release and device.
    """
    if requirement == "nothing":
        return None
    if requirement != "expected":
        return Verdict(requirement.upper())
    fixes = dict(name.split(":") for name in facts.settings.get(FIX_VARIABLE, "").split(",") if name)
    fix = fixes.get(bug, "none")
    expectation = find_bug(bug).expected(facts.release, facts.device, fix)
    if expectation is None:
        raise UsageError(f"the catalog expects nothing of {bug} on vLLM {facts.release}, {facts.device}: add an entry")
    return expectation.verdict


def require(judgement: Judgement, requirement: str, facts: EngineFacts) -> None:
    """Assert that the verdict is the one that the parameter `require` asks for.

    Raises:
        AssertionError: it is not; the text says what it is instead.
    """
    if missed := verdict_not_required(judgement, required_verdict(judgement.bug, requirement, facts)):
        raise AssertionError(missed)


def show_end(vllm: Engine | Allocator, judgement: Judgement, namespace: Mapping[str, Any]) -> None:
    """End or leave the engine, say what is left of it, and how to run the notebook again.

    Args:
        vllm: the engine, or the allocator alone.
        judgement: the verdict.
        namespace: the notebook's `globals()`, which hold its parameters.
    """
    system = plain(vllm.system())
    residue = vllm.close()
    names = [name for name in namespace.get("__annotations__", {}) if name != "engine"]
    options = "".join(f" -p {name}={namespace[name]}" for name in names)
    display(residue)
    display(Markdown(f"Run it again: `repro run {judgement.bug} --engine {vllm.facts.kind}{options}`"))
    if system:
        shown = folded("vLLM's collect_env", code_block(system))
        display({"text/markdown": shown, ENVIRONMENT_MIME: {"collect_env": system}}, raw=True)
