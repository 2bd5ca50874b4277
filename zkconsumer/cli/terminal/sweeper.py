"""Removes a folder when the process that started this one has ended: its pipe to our stdin closes then.

Started by `zkconsumer.cli.terminal.scratch` as `python -I -S sweeper.py FOLDER`; imports nothing of the project.
"""

from __future__ import annotations

import os
import shutil
import sys
import time

_TRIES, _PAUSE_S = 100, 0.1
"""Servers that die with that process may write for a moment longer."""


def sweep(folder: str) -> None:
    """Remove a folder as soon as standard input has ended."""
    while os.read(0, 4096):
        pass
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    sweep(sys.argv[1])
