"""The consumers of `zkconsumer tryout`: processes of their own that run `zkconsumer consume`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable

from zkconsumer.cli.tryout_ledger import Delivered

__all__ = ["MemberProcess"]

_LEAVE_S = 15.0


class MemberProcess:
    """One consumer process.

    Should this process die, its pipe breaks, and the consumer leaves.

    Args:
        name: its `consumer.id`.
        on_message: called with each message it prints.
        on_note: called with each line it writes to stderr.

    Threads: both are called on threads of this object.
    """

    def __init__(
        self,
        name: str,
        zookeeper: str,
        topic: str,
        group: str,
        on_message: Callable[[Delivered], None],
        on_note: Callable[[str, str], None],
    ) -> None:
        self.name = name
        self._on_message = on_message
        self._on_note = on_note
        command = [
            sys.executable, "-m", "zkconsumer.cli", "consume", "--zookeeper", zookeeper, "--topic", topic,
            "--group", group, "--json", "--property", f"consumer.id={name}",
            "--property", "auto.offset.reset=smallest", "--property", "auto.commit.interval.ms=1000",
        ]
        # A session of its own: Ctrl-C is for the tryout, which then ends the consumers in order.
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            encoding="utf-8", start_new_session=True,
        )
        self._threads = [
            threading.Thread(target=read, name=f"{name}-{what}", daemon=True)
            for what, read in (("messages", self._read_messages), ("notes", self._read_notes))
        ]
        for thread in self._threads:
            thread.start()

    def _read_messages(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            entry = json.loads(line)
            number = int(entry["value"].rpartition(" ")[2])
            self._on_message(Delivered(self.name, entry["topic"], entry["partition"], entry["offset"], number))

    def _read_notes(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._on_note(self.name, line.rstrip("\n"))

    def leave(self) -> int:
        """Ask it to leave (SIGTERM); its exit status once it is gone and all it printed was read."""
        self.process.terminate()
        try:
            status = self.process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            status = self.process.wait()
        for thread in self._threads:
            thread.join(_LEAVE_S)
        return status

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
