"""Temporary folders that are removed when they are given up, and when this process ends by whatever means.

A killed process cannot clean up, and its folders hold logs, data and, with a login, passwords. So another process does
(`sweeper`). It runs while there is a folder, one for all folders of this process, in a session of its own: no Ctrl-C
reaches it.

Threads: any. A forked copy of this process has folders and a sweeper of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

SWEEPER = Path(__file__).with_name("sweeper.py")
_END_S = 15.0


class _Sweeper:
    """The folders of this process, and the process that removes them after its end."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.folders: set[Path] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, folder: Path) -> None:
        with self.lock:
            self.folders.add(folder)
            if not self._say(b"+", folder):
                self._end()
                self._start()

    def discard(self, folder: Path) -> None:
        with self.lock:
            self.folders.discard(folder)
            if not self.folders:
                self._end()
            else:
                self._say(b"-", folder)  # one that was killed is replaced at the next folder

    def forget(self) -> None:
        """In a forked copy: leave the process to the parent."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()  # only the copy of this process
            process.returncode = 0  # it is no child of this process

    def _say(self, change: bytes, folder: Path) -> bool:
        """Report a folder; False if there is no process."""
        if self._process is None:
            return False
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(change + os.fsencode(folder) + b"\0")
        except BrokenPipeError:
            return False
        return True

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SWEEPER), str(os.getpid()), *map(str, self.folders)], bufsize=0,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)


_sweeper = _Sweeper()


def _forked() -> None:
    global _sweeper
    _sweeper.forget()
    _sweeper = _Sweeper()


os.register_at_fork(after_in_child=_forked)


def temporary_folder(prefix: str) -> Path:
    """Make a folder that nobody else can read.

    Raises:
        OSError: It cannot be made, or no process can be started.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        _sweeper.add(folder)
    except OSError:
        remove_folder(folder)
        raise
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it; nothing happens if it is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    _sweeper.discard(folder)
