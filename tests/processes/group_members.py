"""Members of a group as child processes, and the load they consume."""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient

from simpleconsumer import SimpleConsumer
from zkconsumer.testing.history import Event, parse_event
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until

PROGRAM = Path(__file__).with_name("member.py")
READY_S = 20.0
# Short waits, so that a fault and its end fit into a few seconds; what depends on a wait is computed from these.
SESSION_S = 3.0
AUTO_COMMIT_S = 0.5
SETTINGS = {
    "zookeeper.session.timeout.ms": int(SESSION_S * 1000),
    "zookeeper.connection.timeout.ms": 15_000,
    "auto.commit.interval.ms": int(AUTO_COMMIT_S * 1000),
}


@dataclass(frozen=True)
class Note:
    """What a member said about itself; see `member.py`."""

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
        streams: int = 1,
        copies: int = 1,
        work_ms: float = 0.0,
        commit_on_revoke: bool = False,
        verbose: bool = False,
        **settings: object,
    ) -> None:
        """Start the process; settings with `_` for `.`, over `SETTINGS`."""
        self.name = name
        self.group = group
        self.id = f"{group}_{name}"
        self.folder = Path(tempfile.mkdtemp(prefix=f"zkconsumer-member-{name}-"))
        self._output = self.folder / "history"
        self._read_bytes = 0
        self._events: list[Event] = []
        self._notes: list[Note] = []
        chosen = {**SETTINGS, **{key.replace("_", "."): value for key, value in settings.items()}}
        command = [sys.executable, str(PROGRAM), "--connect", connect, "--group", group, "--name", name]
        if topics is not None:
            command += ["--topics", ",".join(f"{topic}={count}" for topic, count in topics.items())]
        if whitelist is not None:
            command += ["--whitelist", whitelist, "--streams", str(streams)]
        command += ["--copies", str(copies), "--work-ms", str(work_ms)] + (["--verbose"] if verbose else [])
        command += ["--commit-on-revoke"] if commit_on_revoke else []
        command += [f"{key}={value}" for key, value in chosen.items()]
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
        """What it said about itself under this word."""
        self._read()
        return [note for note in self._notes if note.word == word and note.time_ns >= since_ns]

    def session_id(self, client: KazooClient) -> int:
        """Id of its ZooKeeper session: the owner of its registration."""
        return int(client.get(f"/consumers/{self.group}/ids/{self.id}")[1].ephemeralOwner)

    # ---- life

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
        """Leave the group in order (SIGTERM); returns when the process has ended."""
        code = self.process.stop(timeout_s)
        assert code == 0, f"member {self.name} ended with {code}\n{self.process.tail()}"

    def kill(self) -> Event:
        """SIGKILL; the event of it, which the history keeps."""
        self.process.kill()
        killed = Event(time.monotonic_ns(), "killed", self.name)
        self._events.append(killed)
        return killed

    def pause(self) -> Event:
        """SIGSTOP; the event of it, which the history keeps: from now on nobody may count on this member."""
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


class Group:
    """Members of one group, ours, closed together."""

    def __init__(self, connect: str, name: str) -> None:
        self.connect = connect
        self.name = name
        self.members: dict[str, MemberProcess] = {}

    def join(self, name: str, *, connect: str | None = None, **options: Any) -> MemberProcess:
        """A new member, when its streams exist."""
        return self.launch(name, connect=connect, **options).wait_ready()

    def launch(self, name: str, *, connect: str | None = None, **options: Any) -> MemberProcess:
        """A new member, not waited for; the history of an earlier one of this name is forgotten."""
        if name in self.members:
            self.members.pop(name).close()
        member = MemberProcess(connect or self.connect, self.name, name, **options)
        self.members[name] = member
        return member

    def events(self) -> list[Event]:
        """The histories of all members."""
        return [event for member in self.members.values() for event in member.events()]

    def close(self) -> None:
        """End all members."""
        for member in self.members.values():
            member.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members.values():
            print(f"---- log of {member.name}\n{member.process.tail(60)}", file=sys.stderr)  # shown when a test fails
        self.close()


class SteadyLoad:
    """Messages with unique values at a steady rate, spread over partitions, each acknowledged by its leader."""

    def __init__(self, cluster: KafkaCluster, topics: Sequence[str], partitions: int, rate_per_s: float = 200) -> None:
        """Prepare; nothing is sent before the `with` block.

        Args:
            partitions: of each topic.
            rate_per_s: messages per second over all partitions.
        """
        self.acked: list[Event] = []
        self._targets = [
            (topic, partition, cluster.port(leader))
            for topic in topics
            for partition, leader in cluster.wait_leaders(topic, list(range(partitions))).items()
        ]
        self._interval_s = 1.0 / rate_per_s
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def _run(self) -> None:
        brokers = {port: SimpleConsumer("127.0.0.1", port) for _, _, port in self._targets}
        try:
            due = time.monotonic()
            for number, (topic, partition, port) in enumerate(itertools.cycle(self._targets)):
                if self._stop.wait(max(0.0, due - time.monotonic())):
                    return
                value = f"{topic}-{partition}-{number}"
                offset = brokers[port].produce(topic, partition, [value.encode()], acks=1)
                self.acked.append(Event(time.monotonic_ns(), "acked", "", topic, partition, offset, value))
                due = max(due + self._interval_s, time.monotonic() - 1.0)
        except Exception as error:  # noqa: BLE001 - top of the thread: `stop` raises it
            self._error = error
        finally:
            for broker in brokers.values():
                broker.close()

    def stop(self) -> None:
        """End the load; raises what went wrong in it."""
        self._stop.set()
        self._thread.join(30)
        if self._error is not None:
            raise self._error

    def grow(self, count: int, timeout_s: float = 30.0) -> None:
        """Return when `count` more messages are acknowledged."""
        wanted = len(self.acked) + count
        wait_until(lambda: len(self.acked) >= wanted, timeout_s, f"{count} more messages", state=lambda: self._error)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(30)
