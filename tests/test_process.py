"""The engine's processes: their guard, their end, and what is left."""

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from conftest import heed_sigint, wait_for

from reproducers.engine import Engine, Installation, server
from reproducers.engine.attach import Lent, lending, lent
from reproducers.engine.process import OWNER_VARIABLE, EngineProcess, free_port, owned_processes, residue_of
from reproducers.states import Control, EngineFacts, Residue

TREE = str(Path(__file__).with_name("tree.py"))


def started(tmp_path: Path) -> EngineProcess:
    keeper = free_port()
    port = int(keeper.getsockname()[1])
    process = EngineProcess([sys.executable, TREE, str(port)], dict(os.environ), tmp_path / "log", port)
    wait_for(lambda: len(process.tree()) == 3, 20, "the tree")
    wait_for(lambda: residue_of([], port, None, bound_s=0).listening, 20, "the port")
    keeper.close()
    process.note_members()
    return process


def test_the_kept_port_is_the_servers_although_it_is_bound_already(tmp_path: Path) -> None:
    process = started(tmp_path)
    assert process.running()
    assert process.stop() == Residue()


def test_stop_ends_the_whole_tree_and_the_port(tmp_path: Path) -> None:
    process = started(tmp_path)
    members = process.tree()
    assert process.stop().clean
    assert not [p for p in members if p.is_running()]


def test_whoever_an_engine_is_lent_to_knows_its_processes(tmp_path: Path) -> None:
    process = started(tmp_path)
    url = "http://127.0.0.1:9"  # nothing listens there, so that nothing is asked
    facts, installation = EngineFacts("0.32.0", "cpu", "tiny", owned=True), Installation("python", "0.32.0", "cpu")
    with lending(url, Lent(facts, installation, process.pid), process.log):
        assert lent(url) == Lent(replace(facts, owned=False), installation, process.pid)
        assert lent("http://127.0.0.1:10") is None
        borrower, other = Engine(facts, url), Engine(facts, "http://127.0.0.1:10")
        assert set(borrower.pids()) == {p.pid for p in process.tree()}
        assert list(other.pids()) == []
        borrower.close()
        other.close()
    assert lent(url) is None
    assert process.stop().clean


def test_a_server_that_has_closed_its_port_is_waited_for_until_a_process_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "GOING_DOWN_BOUND_S", 4.0)
    process = started(tmp_path)
    url = "http://127.0.0.1:9"  # nothing listens there, as when a server that goes down has closed its port
    facts, installation = EngineFacts("0.32.0", "cpu", "tiny", owned=True), Installation("python", "0.32.0", "cpu")
    with lending(url, Lent(facts, installation, process.pid), process.log):
        borrower = Engine(facts, url)
        stays = borrower.probe(Control(False, "was not walked"), "", max_tokens=1)
        assert (stays.process, stays.health) == (True, None)
        ends = threading.Timer(1.5, process.tree()[-1].kill)
        ends.start()
        goes = borrower.probe(Control(False, "was not walked"), "", max_tokens=1)
        assert (goes.process, goes.health) == (False, None)
        ends.join()
    borrower.close()
    process.stop()


def test_a_killed_guard_takes_the_server_along_and_stop_finds_the_rest(tmp_path: Path) -> None:
    process = started(tmp_path)
    members = process.tree()
    os.kill(members[0].ppid(), signal.SIGKILL)
    wait_for(lambda: not process.running(), 5, "the guard's end")
    assert process.stop().clean
    assert not [p for p in members if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_a_dead_member_is_named_and_a_dead_server_ends_its_orphans(tmp_path: Path) -> None:
    process = started(tmp_path)
    server, child, grandchild = process.tree()
    grandchild.kill()
    wait_for(process.dead_members, 5, "the death of the grandchild")
    assert len(process.dead_members()) == 1
    server.kill()
    wait_for(lambda: not process.running(), 10, "the guard's end")
    assert not child.is_running()
    assert "ended with status 137" in str(process.failure())
    assert process.stop().clean


def test_what_is_left_is_named_with_its_port() -> None:
    listener = free_port()
    listener.listen()
    me = psutil.Process()
    residue = residue_of([me], int(listener.getsockname()[1]), None, bound_s=0)
    assert residue.processes == (me.name(),)
    assert residue.listening == 1
    assert not residue.clean
    listener.close()


def test_processes_are_found_by_the_mark_of_their_run() -> None:
    child = psutil.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=os.environ | {OWNER_VARIABLE: "me"})
    wait_for(lambda: owned_processes("me"), 5, "the marked process")
    assert [p.pid for p in owned_processes("me")] == [child.pid]
    child.kill()
    child.wait()
    assert owned_processes("me") == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_tree_dies_with_the_process_that_started_it(tmp_path: Path, number: signal.Signals) -> None:
    script = (
        "import os, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "import test_process; p = test_process.started(Path(sys.argv[2]));"
        "print(*[q.pid for q in p.tree()], p.port, flush=True); import time; time.sleep(600)"
    )
    owner = psutil.Popen(
        [sys.executable, "-c", script, str(Path(__file__).parent), str(tmp_path)],
        stdout=-1,
        stderr=-3,
        text=True,
        preexec_fn=heed_sigint,
    )
    *pids, port = map(int, owner.stdout.readline().split())
    members = [psutil.Process(pid) for pid in pids]
    owner.send_signal(number)
    owner.wait(10)
    owner.stdout.close()
    time.sleep(5)
    assert residue_of(members, port, None, bound_s=0) == Residue()
