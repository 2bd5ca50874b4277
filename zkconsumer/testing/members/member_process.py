"""Runs a consumer of ours as a child process, and reads the history that it writes."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kazoo.client import KazooClient

from zkconsumer.config.keys import find_key, unknown_setting
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.history.events import Event, parse_event
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until

READY_S = 20.0


@dataclass(frozen=True)
class Note:
    """A line that a member has printed about itself; see `program.py`."""

    time_ns: int
    word: str
    text: str


class MemberProcess:
    """One member of ours in a process of its own."""

    def __init__(
        self,
        connect: str,
        group: str,
        name: str,
        *,
        topics: dict[str, int] | None = None,
        whitelist: str | None = None,
        blacklist: str | None = None,
        streams: int = 1,
        copies: int = 1,
        work_ms: float = 0.0,
        commit_on_revoke: bool = False,
        verbose: bool = False,
        skip: int = 0,
        twice: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Start the process.

        Args:
            connect: `zookeeper.connect`.
            group: its `group.id`.
            name: its `consumer.id`.
            topics: topic -> number of streams; or
            whitelist: a filter, with `streams` streams; or
            blacklist: a filter, with `streams` streams.
            copies: so many members in the process, named `<name>00`, `<name>01`, ...
            work_ms: how long the application works on each message.
            commit_on_revoke: its listener calls `commit_offsets()`.
            verbose: log every step.
            skip: number of the message that its application forgets; 0: none. Such a history must not pass as clean.
            twice: number of the message that its application handles twice; 0: none. The same.
            settings: consumer properties.

        Raises:
            UnknownSetting: There is no such setting.
        """
        for setting in settings or {}:
            if find_key(setting) is None:
                raise unknown_setting(setting)
        self.name = name
        self.group = group
        self.id = f"{group}_{name}"
        self.folder = Path(tempfile.mkdtemp(prefix=f"zkconsumer-member-{name}-"))
        self._output = self.folder / "history"
        self._read_bytes = 0
        self._events: list[Event] = []
        self._notes: list[Note] = []
        command = [sys.executable, "-m", "zkconsumer.testing.members.program"]
        command += ["--connect", connect, "--group", group, "--name", name]
        if topics is not None:
            command += ["--topics", ",".join(f"{topic}={count}" for topic, count in topics.items())]
        for option, text in (("--whitelist", whitelist), ("--blacklist", blacklist)):
            if text is not None:
                command += [f"{option}={text}", "--streams", str(streams)]
        command += ["--copies", str(copies), "--work-ms", str(work_ms)] + (["--verbose"] if verbose else [])
        command += ["--commit-on-revoke"] if commit_on_revoke else []
        command += ["--skip", str(skip), "--twice", str(twice)]
        command += [f"{key}={value}" for key, value in (settings or {}).items()]
        self.process = ChildProcess(f"member {name}", command, self.folder / "log", output_path=self._output)

    # ---- what it did

    def _read(self) -> None:
        try:
            with self._output.open("rb") as output:
                output.seek(self._read_bytes)
                data = output.read()
        except FileNotFoundError:
            return
        end = data.rfind(b"\n") + 1
        self._read_bytes += end
        for line in data[:end].decode().splitlines():
            if line.startswith("#"):
                _, time_ns, word, text = line.split(" ", 3)
                self._notes.append(Note(int(time_ns), word, text))
            else:
                self._events.append(parse_event(line))

    def events(self, *kinds: str, since_ns: int = 0) -> list[Event]:
        """Its history so far: events of some kinds (of all, without any), not older than a moment."""
        self._read()
        return [each for each in self._events if (not kinds or each.kind in kinds) and each.time_ns >= since_ns]

    def notes(self, word: str, since_ns: int = 0) -> list[Note]:
        """What it printed about itself under this word."""
        self._read()
        return [note for note in self._notes if note.word == word and note.time_ns >= since_ns]

    def session_id(self, client: KazooClient) -> int:
        """Id of its ZooKeeper session: the owner of its registration."""
        return int(client.get(f"/consumers/{self.group}/ids/{self.id}")[1].ephemeralOwner)

    # ---- start and end

    def wait_ready(self, timeout_s: float = READY_S) -> Self:
        """Return when its streams exist."""
        wait_until(
            lambda: self.notes("ready"), timeout_s, f"member {self.name} to be ready",
            state=lambda: (self.process.returncode, self.process.tail(15)),
        )  # fmt: skip
        return self

    def wait_for(self, kind: str, *, since_ns: int = 0, count: int = 1, timeout_s: float = READY_S) -> list[Event]:
        """The events of a kind since a moment, once there are `count`."""
        wait_until(
            lambda: len(self.events(kind, since_ns=since_ns)) >= count,
            timeout_s,
            f"{count} times {kind!r} of member {self.name}",
            state=lambda: (self.process.returncode, self.process.tail(15)),
        )
        return self.events(kind, since_ns=since_ns)

    def leave(self, timeout_s: float = 15.0) -> None:
        """Leave the group in order (SIGTERM); returns when the process has ended.

        Raises:
            KitError: its exit status is not 0.
        """
        code = self.process.stop(timeout_s)
        if code != 0:
            raise KitError(f"member {self.name} ended with {code}\n{self.process.tail()}")

    def kill(self) -> Event:
        """SIGKILL; the event of it, which the history keeps."""
        self.process.kill()
        killed = Event(time.monotonic_ns(), "killed", self.name)
        self._events.append(killed)
        return killed

    def pause(self) -> Event:
        """SIGSTOP; the event of it, which the history keeps: from now on other members cannot rely on it."""
        self.process.pause()
        stopped = Event(time.monotonic_ns(), "killed", self.name)
        self._events.append(stopped)
        return stopped

    def close(self) -> None:
        """Kill it if it still runs; its history stays readable in memory."""
        if self.process.running:
            if self.process.paused:
                self.process.resume()
            self.process.kill()
        self._read()
        shutil.rmtree(self.folder, ignore_errors=True)
