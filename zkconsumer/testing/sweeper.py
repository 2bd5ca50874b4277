"""Removes folders when the process that started this one has ended, by whatever means.

Started by `zkconsumer.testing.temporary_folders` and by the command line as `python -I -S sweeper.py PARENT_PID
[FOLDER...]`; imports nothing of the project. Standard input is a pipe that the parent holds open: `+FOLDER` and
`-FOLDER`, each with a NUL at its end, add a folder and take it out. The pipe closes with the parent; a forked copy of
the parent can keep it open, so the parent's id is looked at as well.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import time

_PARENT_CHECK_S = 1.0
_TRIES, _PAUSE_S = 100, 0.1
"""Servers that die with the parent may write for a moment longer."""


def wait_for_end(parent: int, folders: set[str]) -> None:
    """Keep the set of folders up to date until the parent has ended."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    held = b""
    while True:
        if not poll.poll(_PARENT_CHECK_S * 1000):
            if os.getppid() != parent:
                return
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *lines, held = (held + chunk).split(b"\0")
        for line in lines:
            change = folders.add if line.startswith(b"+") else folders.discard
            change(os.fsdecode(line[1:]))


def sweep(folders: set[str]) -> None:
    """Remove folders with all that is in them."""
    for _ in range(_TRIES):
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        if not any(map(os.path.lexists, folders)):
            return
        time.sleep(_PAUSE_S)


def main(parent: int, folders: set[str]) -> None:
    """Wait for the end of the parent, then remove the folders."""
    wait_for_end(parent, folders)
    sweep(folders)


if __name__ == "__main__":
    main(int(sys.argv[1]), set(sys.argv[2:]))
