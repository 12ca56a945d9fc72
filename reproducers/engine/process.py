"""The processes of an engine that the kit started: start, watch, stop, and what is left."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from reproducers.engine.log import root_cause
from reproducers.errors import EngineFailed
from reproducers.memory import used_bytes
from reproducers.states import Residue

__all__ = ["OWNER_VARIABLE", "EngineProcess", "Members", "free_port", "owned_processes", "residue_of", "tree_under"]

OWNER_VARIABLE = "REPRO_RUN_ID"
"""Environment variable that marks every process of a run, so that what is left of it can be found."""

GRACE_S = 3.0
"""How long an engine is given after SIGTERM; on an idle machine it takes one second."""


def free_port() -> socket.socket:
    """Return a bound socket that keeps a free port on 127.0.0.1 for the server.

    It is bound but does not listen: with SO_REUSEADDR, which vLLM sets as well, Linux lets the server bind to the
    same port, and gives it to nobody who asks for any free port.
    """
    keeper = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    return keeper


def owned_processes(owner: str) -> list[psutil.Process]:
    """Every living process, besides this one, that carries the mark of a run in its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            marked = process.environ().get(OWNER_VARIABLE) == owner
        except psutil.Error:
            continue
        if marked and process.pid != os.getpid() and _alive(process):
            found.append(process)
    return found


def tree_under(pid: int) -> list[psutil.Process]:
    """The processes below one that are alive now; empty where it is gone."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def residue_of(processes: list[psutil.Process], port: int | None, before: int | None, bound_s: float = 5) -> Residue:
    """What is left of an engine; waits up to `bound_s` seconds for the driver to give memory back."""
    deadline = time.monotonic() + bound_s
    while True:
        names = tuple(sorted(_name(p) for p in processes if _alive(p)))
        used = used_bytes()
        device = None if used is None or before is None else max(0, used.unclaimed - before)
        listening = int(port is not None and _listens(port)) or sum(_listening(p) for p in processes)
        residue = Residue(names, listening, device)
        if residue.clean or time.monotonic() > deadline:
            return residue
        time.sleep(0.2)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return "gone"


def _listening(process: psutil.Process) -> int:
    try:
        return sum(c.status == psutil.CONN_LISTEN for c in process.net_connections(kind="tcp"))
    except psutil.Error:
        return 0


def _listens(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Members:
    """The processes that an engine consisted of at one moment, of which each must go on living.

    Args:
        guard: the process that they are under.
    """

    def __init__(self, guard: int) -> None:
        self.processes = {p: _name(p) for p in tree_under(guard)}

    def dead_members(self) -> list[str]:
        """Names of those that have ended since."""
        return [name for p, name in self.processes.items() if not _alive(p)]


class EngineProcess:
    """An engine under its guard: it dies with this process, however this process ends."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path, port: int) -> None:
        self.log = log
        self.port = port
        used = used_bytes()
        self._bytes_before = None if used is None else used.unclaimed
        guard = Path(__file__).with_name("guard.py")
        with log.open("wb") as output:
            self._guard = subprocess.Popen(
                [sys.executable, str(guard), ",".join(map(str, _owners())), str(GRACE_S), "--", *command],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._members: Members | None = None

    @property
    def pid(self) -> int:
        """Of the guard, under which the engine's processes are."""
        return self._guard.pid

    def note_members(self) -> None:
        """Remember which processes the engine consists of, once it serves."""
        self._members = Members(self.pid)

    def tree(self) -> list[psutil.Process]:
        """The processes of the engine that are alive now."""
        return tree_under(self.pid)

    def running(self) -> bool:
        """Whether the guard, and so the API server, is there."""
        return self._guard.poll() is None

    def dead_members(self) -> list[str]:
        """Names of the processes that have ended since the engine came up."""
        return self._members.dead_members() if self._members else []

    def failure(self) -> EngineFailed:
        """Why the engine is not there, from its log."""
        return EngineFailed(f"the engine ended with status {self._guard.poll()}: {root_cause(self.log)}")

    def stop(self) -> Residue:
        """End the whole tree and say what is left of it."""
        noted = self._members.processes if self._members else ()
        members = {p.pid: p for p in [*noted, *self.tree()]}
        self._guard.terminate()
        try:
            self._guard.wait(GRACE_S + 10)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        for process in members.values():  # none, unless the guard was killed from outside
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self._guard.stdin:
            self._guard.stdin.close()
        return residue_of(list(members.values()), self.port, self._bytes_before)


def _owners() -> list[int]:
    """This process and, for a Jupyter kernel, the process that started the kernel."""
    parent = os.environ.get("JPY_PARENT_PID")
    return [os.getpid(), *([int(parent)] if parent and int(parent) == os.getppid() else [])]
