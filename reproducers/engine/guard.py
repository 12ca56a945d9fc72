"""Run an engine and end it with its owner, however that ends; a script of its own, run by path.

    python guard.py OWNER_PID[,PID…] GRACE_S -- COMMAND…

The guard starts COMMAND in a process group of its own and waits for the first of four things: the engine ends; an
owner ends (the kernel, and the process that runs the kernel); the pipe on standard input closes, which the kernel's
end does even where its number is taken again; SIGTERM or SIGINT. Then it ends the whole tree: SIGTERM, GRACE_S
seconds, SIGKILL. It becomes the parent of orphans of the tree (a subreaper), so that none escapes; and the kernel
kills the engine at once if the guard itself is killed. It exits with the engine's status, or 0 where it ended it.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
ROUNDS = 5


def prctl(option: int, value: int) -> None:
    """Set one attribute of this process (Linux)."""
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def end_tree(grace_s: float) -> None:
    """End every descendant of this process."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    psutil.wait_procs(children, timeout=grace_s)
    for _ in range(ROUNDS):  # orphans have come to this process by now; one that a driver holds cannot be killed
        if not (remaining := psutil.Process().children(recursive=True)):
            return
        for child in remaining:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(remaining, timeout=1)


def main(owners: list[int], grace_s: float, command: list[str]) -> int:
    """Run `command` until it or one of its owners ends; return its exit status (128 + signal where killed)."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the wake-up pipe tells
    watched = {0: "standard input", wake_read: "signal"}
    try:
        for pid in owners:
            watched[os.pidfd_open(pid)] = f"owner {pid}"
    except ProcessLookupError:
        return 1  # the owner has already gone: start nothing
    engine = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509  one thread only
    )
    watched[os.pidfd_open(engine.pid)] = "engine"
    poll = select.poll()
    for fd in watched:
        poll.register(fd, select.POLLIN | select.POLLHUP)
    poll.poll()
    status = engine.poll()
    end_tree(grace_s)
    return 0 if status is None else status if status >= 0 else 128 - status


if __name__ == "__main__":
    separator = sys.argv.index("--")
    sys.exit(main([int(p) for p in sys.argv[1].split(",")], float(sys.argv[2]), sys.argv[separator + 1 :]))
