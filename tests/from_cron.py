"""Starts a command in the environments of cron, `nohup`, `&` in a script and a careless parent, all at once.

`.venv/bin/python tests/from_cron.py .venv/bin/pytest tests/cli`: tests give the same results as from a terminal.

    signals           those that may be ignored are ignored, all are blocked
    standard input    is closed
    terminal          there is none: a session of its own
    environment       PATH alone, and the C locale
    umask             no rights for other users
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGALRM)
KEPT = {"PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "JAVA_HOME", "ZKCONSUMER_CACHE", "ZKCONSUMER_REQUIRE_REAL"}
"""The variables that a crontab has to set itself."""


def start(command: Sequence[str]) -> None:
    """Become the command."""
    if os.getpgrp() == os.getpid():  # the leader of a process group cannot start a session
        child = os.fork()
        if child:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    os.setsid()
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.umask(0o077)
    os.close(0)
    environment = {name: value for name, value in os.environ.items() if name in KEPT}
    os.execvpe(command[0], list(command), {**environment, "LC_ALL": "C"})


if __name__ == "__main__":
    start(sys.argv[1:])
