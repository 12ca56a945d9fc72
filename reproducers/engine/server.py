"""A running vLLM, started by the kit or attached to: the endpoints, the healthy path, and the end."""

import atexit
import os
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from reproducers.calls import answered
from reproducers.client import LifecycleClient, PauseMode
from reproducers.engine.attach import Lent, lending, lent, restore
from reproducers.engine.installation import Installation
from reproducers.engine.process import EngineProcess, Members, residue_of, tree_under
from reproducers.engine.switch import FIX_OFF_VARIABLE, FIX_VARIABLE, FixSwitch
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
LOAD_PERIOD_S = 0.005
"""Seconds between the first two questions for the load, then more and more: a request of 64 tokens takes 0.1 s."""
LOAD_LOOKS = 35
"""How often it is asked for during one request, over 18 s."""
GOING_DOWN_BOUND_S = 20.0
"""A server whose engine core has died ends within a second or two, from 0.24.0 on; on a busy machine later. One of an
older release stays."""


class Engine(LifecycleClient):
    """A vLLM engine with its endpoints; closed at the latest when the kernel ends.

    Args:
        facts: which engine it is.
        url: where it listens.
        process: its processes, where the kit started it.
        installation: what it was started from then.
        switch: of the fixes that were loaded into it then.
    """

    def __init__(
        self,
        facts: EngineFacts,
        url: str,
        process: EngineProcess | None = None,
        installation: Installation | None = None,
        switch: FixSwitch | None = None,
    ) -> None:
        super().__init__(url, Journal())
        self.facts = facts
        self.process = process
        self.installation = installation
        self._switch = switch
        self.workers = Workers(self)
        self._requests: list[RequestInFlight] = []
        self._level = 1
        self._residue: Residue | None = None
        self._lent = None if process else lent(self.url)
        self._lent_members = Members(self._lent.guard) if self._lent else None
        self._watcher = Watcher(self.url, self.journal, self.pids)
        atexit.register(self.close)

    def control(self, prompt: str, *, max_tokens: int) -> Control:
        """Walk the healthy path: awake, healthy, the same completion twice, and whether load tracking works."""
        try:
            if self.is_sleeping():
                return Control(False, "the engine is asleep or paused before the trigger")
            if (status := self.health()) != 200:
                return Control(False, f"/health answers {status} before the trigger")
            idle_load = self._idle_load()
        except EndpointError as error:
            return Control(False, str(error))
        streamed = self.post_completion(prompt, max_tokens=max_tokens)
        streamed.wait_ended(FIRST_ANSWER_BOUND_S)
        tracking = streamed.life.completion is not None and self._counts(idle_load)
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

    def _idle_load(self) -> int:
        """The least that `/load` says over a short while: a request is still counted just after its end."""
        least = self.server_load()
        for _ in range(20):
            if least == 0:
                break
            time.sleep(0.05)
            least = min(least, self.server_load())
        return least

    def _counts(self, idle_load: int) -> bool:
        """Whether `/load` is seen to count a request in flight, of which it is asked from the moment of posting on.

        On a busy machine a short one is over between two questions: then longer ones are posted.
        """
        for tokens in (64, 256, 1000, 3000):
            request = self.post_completion("The engine sleeps.", max_tokens=tokens, stream=False)
            counted, looks = False, 0
            while not counted and looks < LOAD_LOOKS and request.life.ended is None:
                counted, looks = self.server_load() > idle_load, looks + 1
                request.wait_ended(0 if counted else LOAD_PERIOD_S * 1.2**looks)
            request.wait_ended(FIRST_ANSWER_BOUND_S)
            if counted:
                return True
        return False

    def probe(self, control: Control, prompt: str, *, max_tokens: int) -> Probe:
        """Look whether the engine is well, whatever status codes said before; one that is going down is waited for."""
        health = self.health()
        if health != 200:
            health = self._health_at_the_end()
        if not control.completion:
            return Probe(self._processes_alive(), health, "not asked for: the control failed")
        answer = self.complete(prompt, max_tokens=max_tokens, timeout_s=30)
        if isinstance(answer, Completion):
            difference = control.completion.difference(answer)
            said = f"differs from the control: {difference}" if difference else "equal to the control"
        else:
            said = f"not answered: {answer}"
            failed = (answer.status or 500) >= 500 and "Timeout" not in answer.error
            if health == 200 and failed:  # it may have died of this request, or just before
                health = self._health_at_the_end()
        probe = Probe(self._processes_alive(), health, said)
        if probe.dead and isinstance(answer, Call):  # whether its last word was a 500 or a reset, chance decides
            return replace(probe, completion="not answered")
        return probe

    def _health_at_the_end(self) -> int | None:
        """Status of /health once a server that is going down is gone, processes and all; else after the bound.

        A server closes its port before its processes end, and one that hangs answers nothing and stays. One whose
        processes cannot be seen is asked once: it is somebody else's, and may be restarted.
        """
        deadline = time.monotonic() + GOING_DOWN_BOUND_S
        while True:
            health, alive = self.health(), self._processes_alive()
            gone = health is None and not alive
            if gone or alive is None or time.monotonic() > deadline:
                return health
            time.sleep(0.5)

    def _processes_alive(self) -> bool | None:
        if self.process is None:
            return None if self._lent_members is None else not self.dead_members()
        return self.process.running() and not self.dead_members()

    def dead_members(self) -> list[str]:
        """Names of engine processes that have died since it came up, or was lent; each is marked in the journal."""
        members = self.process or self._lent_members
        died = [] if members is None else members.dead_members()
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
        return self.installation or (self._lent.installation if self._lent else None)

    @contextmanager
    def with_fixes(self, *names: str) -> Iterator[None]:
        """Let these of the fixes that were loaded be on meanwhile, and no others; afterwards those of before.

        The engine must be awake and idle at both ends. Its facts, and so the records, say what is on and what is off.

        Raises:
            UsageError: one of them is not loaded.
        """
        assert self._switch is not None
        before = self._switch.on()
        self._turn(names)
        try:
            yield
        finally:
            self._turn(before)

    def _turn(self, on: Sequence[str]) -> None:
        assert self._switch is not None
        kept = {n: v for n, v in self.facts.settings.items() if n not in {FIX_VARIABLE, FIX_OFF_VARIABLE}}
        self.facts = replace(self.facts, settings=kept | dict(self._switch.turn(on)))

    def lend(self) -> AbstractContextManager[None]:
        """Let the notebooks that are run meanwhile attach to this engine, which the kit started, and know all of it."""
        assert self.process is not None
        assert self.installation is not None
        return lending(self.url, Lent(self.facts, self.installation, self.process.pid), self.process.log)

    def close(self) -> Residue:
        """End an engine that the kit started; leave an attached one awake, unpaused and running, unless it has died."""
        if self._residue is None:
            self._watcher.stop()
            for request in self._requests:
                request.cancel()
            self._client.close()
            if self.process is not None:
                self._residue = self.process.stop()
                shutil.rmtree(self.process.log.parent, ignore_errors=True)
            elif restore(self.url, self._level):
                self._residue = Residue()
            else:
                self._residue = self._left_of_the_lent()
            atexit.unregister(self.close)
        return self._residue

    def _left_of_the_lent(self) -> Residue:
        """What is left of an engine that cannot be brought back: of a lent one that has ended, as of one's own."""
        if self._lent_members is None or not self._lent_members.dead_members():
            return Residue(left_as_found=False)
        return residue_of(list(self._lent_members.processes), None, None)

    def pids(self) -> Collection[int]:
        """The engine's processes; empty for a server that is not the kit's."""
        if self.process is not None:
            return [p.pid for p in self.process.tree()]
        return [p.pid for p in tree_under(self._lent.guard)] if self._lent else []
