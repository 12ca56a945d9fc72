"""A running vLLM, started by the kit or attached to: the endpoints, the healthy path, and the end."""

import atexit
import os
import shutil
import time
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path

from reproducers.calls import answered
from reproducers.client import LifecycleClient, PauseMode
from reproducers.engine.attach import Lent, lending, lent, restore
from reproducers.engine.installation import Installation
from reproducers.engine.process import EngineProcess, tree_under
from reproducers.engine.system import collected, from_server_info
from reproducers.engine.watch import Watcher
from reproducers.errors import EndpointError
from reproducers.journal import Journal
from reproducers.request import RequestInFlight
from reproducers.states import Control, EngineFacts, Probe, Residue
from reproducers.values import Call, Completion
from reproducers.workers import Workers

__all__ = ["Engine"]

FIRST_ANSWER_BOUND_S = 120.0
"""The first completion with logprobs waits for torch to compile a kernel: 17 s on two cores."""
GOING_DOWN_BOUND_S = 10.0
"""A server whose engine core has died ends within a second or two, from 0.24.0 on; before that it stays."""


class Engine(LifecycleClient):
    """A vLLM engine with its endpoints; closed at the latest when the kernel ends.

    Args:
        facts: which engine it is.
        url: where it listens.
        process: its processes, where the kit started it.
        installation: what it was started from then.
    """

    def __init__(
        self,
        facts: EngineFacts,
        url: str,
        process: EngineProcess | None = None,
        installation: Installation | None = None,
    ) -> None:
        super().__init__(url, Journal())
        self.facts = facts
        self.process = process
        self.installation = installation
        self.workers = Workers(self)
        self._requests: list[RequestInFlight] = []
        self._level = 1
        self._residue: Residue | None = None
        self._watcher = Watcher(self.url, self.journal, self.pids)
        atexit.register(self.close)

    def control(self, prompt: str, *, max_tokens: int) -> Control:
        """Walk the healthy path: awake, healthy, the same completion twice, and whether load tracking works."""
        try:
            if self.is_sleeping():
                return Control(False, "the engine is asleep or paused before the trigger")
            if (status := self.health()) != 200:
                return Control(False, f"/health answers {status} before the trigger")
            idle_load = self.server_load()
        except EndpointError as error:
            return Control(False, str(error))
        streamed = self.post_completion(prompt, max_tokens=max_tokens)
        tracking = streamed.wait_first_token(FIRST_ANSWER_BOUND_S) and self._counts(idle_load)
        streamed.wait_ended(FIRST_ANSWER_BOUND_S)
        first, again = streamed.life.completion, self.complete(prompt, max_tokens=max_tokens)
        if first is None or not isinstance(again, Completion):
            said = streamed.life.error or (str(again) if isinstance(again, Call) else "no answer in time")
            return Control(False, f"a completion was not answered: {said}")
        if first.degenerate:
            return Control(False, f"the completion could prove nothing: {first.degenerate}")
        if difference := first.difference(again):
            return Control(False, f"the same greedy completion differs when asked for twice: {difference}")
        reason = f"awake, healthy, {len(first.tokens)} tokens twice the same"
        return Control(
            True,
            f"{reason}; GET /load {'counts' if tracking else 'does not count'} requests",
            first,
            idle_load if tracking else None,
        )

    def _counts(self, idle_load: int) -> bool:
        """Whether `/load` counts a request in flight; asked of longer ones where one ended before the question."""
        if self.server_load() > idle_load:
            return True
        for tokens in (256, 1000, 3000):
            long = self.post_completion("The engine sleeps.", max_tokens=tokens)
            counted = long.wait_first_token() and self.server_load() > idle_load
            long.wait_ended(60)
            if counted:
                return True
        return False

    def probe(self, control: Control, prompt: str, *, max_tokens: int) -> Probe:
        """Look whether the engine is well, whatever status codes said before; one that is going down is waited for."""
        health = self.health()
        if health != 200 and self.process is not None:
            health = self._health_at_the_end()
        if not control.completion:
            return Probe(self._processes_alive(), health, "not asked for: the control failed")
        answer = self.complete(prompt, max_tokens=max_tokens, timeout_s=30)
        if isinstance(answer, Completion):
            difference = control.completion.difference(answer)
            said = f"differs from the control: {difference}" if difference else "equal to the control"
        else:
            said = f"not answered: {answer}"
        return Probe(self._processes_alive(), health, said)

    def _health_at_the_end(self) -> int | None:
        """Status of /health once a server that is going down is gone; of one that stays, after some seconds."""
        deadline = time.monotonic() + GOING_DOWN_BOUND_S
        while (health := self.health()) is not None and time.monotonic() < deadline:
            time.sleep(0.5)
        return health

    def _processes_alive(self) -> bool | None:
        return None if self.process is None else self.process.running() and not self.dead_members()

    def dead_members(self) -> list[str]:
        """Names of engine processes that have died since it came up; each is marked in the journal."""
        died = self.process.dead_members() if self.process else []
        known = [text for _, text in self.journal.marks]
        for name in died:
            if f"{name} died" not in known:
                self.journal.mark(f"{name} died")
        return died

    def finished(self, prompt: str, *, max_tokens: int) -> Completion:
        """Ask for one greedy completion and wait for it.

        Raises:
            EndpointError: it was not answered with one.
        """
        answer = self.complete(prompt, max_tokens=max_tokens)
        if isinstance(answer, Call):
            raise EndpointError(f"{answer}: {answer.body[:200]}")
        return answer

    def post_completion(self, prompt: str, *, max_tokens: int, stream: bool = True, n: int = 1) -> RequestInFlight:
        """Post one greedy completion, or `n` sampled ones; it is hung up on when the engine is closed."""
        request = super().post_completion(prompt, max_tokens=max_tokens, stream=stream, n=n)
        self._requests.append(request)
        return request

    def sleep(self, level: int = 1, mode: PauseMode | None = None) -> Call:
        """`POST /sleep`; the level is remembered for the end."""
        self._level = level
        return super().sleep(level, mode)

    def logged(self, words: str) -> int | None:
        """How often the engine's log has these words so far; None where there is no log.

        The log is known of an engine that the kit started, and of another one where REPRO_ENGINE_LOG names it.
        """
        named = os.environ.get("REPRO_ENGINE_LOG")
        log = self.process.log if self.process else Path(named) if named else None
        return log.read_text(errors="replace").count(words) if log is not None and log.is_file() else None

    def system(self) -> str:
        """What vLLM's collect_env says of this machine and the engine's environment; empty where nothing does."""
        installation = self.made_from()
        if installation is not None:
            return collected(installation)
        return from_server_info(answered(self.server_info) or {})

    def made_from(self) -> Installation | None:
        """The installation that the engine runs from; None of a server that is not the kit's."""
        known = lent(self.url)
        return self.installation or (known.installation if known else None)

    def lend(self) -> AbstractContextManager[None]:
        """Let the notebooks that are run meanwhile attach to this engine, which the kit started, and know all of it."""
        assert self.process is not None
        assert self.installation is not None
        return lending(self.url, Lent(self.facts, self.installation, self.process.pid), self.process.log)

    def close(self) -> Residue:
        """End an engine that the kit started; leave an attached one awake, unpaused and running."""
        if self._residue is None:
            self._watcher.stop()
            for request in self._requests:
                request.cancel()
            self._client.close()
            if self.process is not None:
                self._residue = self.process.stop()
                shutil.rmtree(self.process.log.parent, ignore_errors=True)
            else:
                self._residue = Residue(left_as_found=restore(self.url, self._level))
            atexit.unregister(self.close)
        return self._residue

    def pids(self) -> Collection[int]:
        """The engine's processes; empty for a server that is not the kit's."""
        if self.process is not None:
            tree = self.process.tree()
        else:
            known = lent(self.url)
            tree = tree_under(known.guard) if known else []
        return [p.pid for p in tree]
