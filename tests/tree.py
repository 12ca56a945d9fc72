"""A stand-in for the shape of an engine's process tree, where only the ending of it is under test.

    python tree.py PORT

Listens on the port, and has a child that ignores SIGTERM, in a session of its own, with a child of its own.
"""

import signal
import socket
import subprocess
import sys
import time

GRANDCHILD = "import time; time.sleep(600)"
CHILD = (
    "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    f"subprocess.Popen([sys.executable, '-c', {GRANDCHILD!r}]); time.sleep(600)"
)

if __name__ == "__main__":
    child = subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True)
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", int(sys.argv[1])))
    server.listen()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        time.sleep(60)
