"""The common part of members of both kinds: a child process that writes down its events, and the waits for them.

The interface of members of either kind: `JavaMember` and `MemberProcess`.
"""

from __future__ import annotations

import time
import uuid
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.errors import KitError, StartFailed
from zkconsumer.testing.history.events import Event, Place
from zkconsumer.testing.java.runtime import ClassArchive
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.temporary_folders import remove_folder, temporary_folder
from zkconsumer.testing.waiting import WithBlock, wait_until
from zkconsumer.testing.zookeeper.client import connected_client
from zkconsumer.testing.zookeeper.group_watch import owned_by
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin

DEFAULTS: Mapping[str, object] = {
    "zookeeper.session.timeout.ms": 6000,
    "zookeeper.sync.time.ms": 200,
    "auto.commit.interval.ms": 1000,
    "auto.offset.reset": "smallest",
}
"""Consumer properties of members, over which go those of a test: commits every second, topics read from their start."""


@dataclass(frozen=True)
class Delivered:
    """A message that the application of a member got.

    Attributes:
        time_ns: when, in nanoseconds of CLOCK_MONOTONIC.
        topic: its topic.
        partition: its partition; in Kafka 0.7 the text `broker-partition`.
        offset: its offset; of a Java member of Kafka 0.7, which is told none, the position that it would commit now.
        stream: the number of the member's stream that delivered it.
        value: None for a message without one.
        key: None for a message without one.
    """

    time_ns: int
    topic: str
    partition: int | str
    offset: int
    stream: int
    value: bytes | None
    key: bytes | None = None


@dataclass(frozen=True)
class Subscription:
    """The subscription of a member.

    Attributes:
        kind: `topics`, `whitelist` or `blacklist`.
        spec: `topic=streams,topic=streams`, or the filter.
        streams: number of streams of a filter.
    """

    kind: str
    spec: str
    streams: int = 1

    @classmethod
    def of(
        cls, topics: Mapping[str, int] | None, whitelist: str | None, blacklist: str | None, streams: int
    ) -> Subscription:
        """The subscription that these arguments of a member mean.

        Raises:
            ValueError: not exactly one of topics, whitelist and blacklist.
        """
        asked = {"topics": topics, "whitelist": whitelist, "blacklist": blacklist}
        chosen = [(kind, value) for kind, value in asked.items() if value is not None]
        if len(chosen) != 1:
            raise ValueError(f"one of topics, whitelist, blacklist is needed, not {[kind for kind, _ in chosen]}")
        kind, value = chosen[0]
        if isinstance(value, Mapping):
            return cls(kind, ",".join(f"{topic}={count}" for topic, count in value.items()))
        return cls(kind, value, streams)


class GroupMember(Protocol):
    """A member of a group in a process of its own: a `JavaMember` or a `MemberProcess`.

    A test that is written for it runs with either, and can be parametrised over both:

        @pytest.mark.parametrize("kind", [JavaMember, MemberProcess])
        def test_a_topic_is_consumed(kind, kafka_cluster):
            ...
            with kind(kafka_cluster, "billing", topics={"clicks": 1}) as member:
                member.wait_messages(100)

    Threads: one at a time.
    """

    @property
    def group(self) -> str:
        """Its `group.id`."""

    @property
    def consumer_id(self) -> str:
        """Its `consumer.id`."""

    @property
    def id(self) -> str:
        """Its name in the group, `<group>_<consumer_id>`; its threads are `<id>-0`, `<id>-1`, ..."""

    @property
    def registration_path(self) -> str:
        """Its node in ZooKeeper, inside the chroot."""

    @property
    def folder(self) -> Path:
        """Its temporary folder, with its log and its output."""

    @property
    def process(self) -> ChildProcess:
        """The running (or last) process; KitError if it was never started."""

    @property
    def running(self) -> bool:
        """True while its process exists, paused or not."""

    @property
    def is_ready(self) -> bool:
        """Whether its streams exist."""

    def launch(self) -> None:
        """Start its process without waiting for it; KitError if it runs."""

    def wait_ready(self, timeout_s: float | None = None) -> Self:
        """The member, when its streams exist; StartFailed if it ends before, WaitTimeout if that takes too long."""

    def start(self) -> Self:
        """`launch()`, unless it runs, and `wait_ready()`; also again after its end."""

    def stop(self, timeout_s: float = 30.0) -> None:
        """Leave the group in order: commit, release, end; returns when the process has ended."""

    def kill(self) -> Event:
        """SIGKILL: nothing is committed, its session runs out by itself; the event of it, which its history keeps."""

    def pause(self) -> Event:
        """SIGSTOP, like a long garbage collection; the event of it, which its history keeps."""

    def resume(self) -> None:
        """SIGCONT after `pause()`."""

    def close(self) -> None:
        """Kill it if it still runs, and remove its folder; its deliveries stay readable, its log does not."""

    def __enter__(self) -> Self:
        """`start()`, and `close()` if that fails."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """`close()`."""

    @property
    def messages(self) -> list[Delivered]:
        """Everything delivered so far, in the order of delivery."""

    def wait_messages(self, count: int, timeout_s: float = 30.0) -> list[Delivered]:
        """All messages so far, once there are at least `count`; WaitTimeout otherwise."""

    def owned(self) -> list[Place]:
        """The partitions whose owner nodes in ZooKeeper name it, in order."""

    def wait_owned(self, count: int, timeout_s: float = 30.0) -> list[Place]:
        """The partitions that it owns, once these are `count`; WaitTimeout otherwise."""

    def events(self, *kinds: str, since_ns: int = 0) -> list[Event]:
        """Its history so far, for `check_history`: events of some kinds (of all, without any), from a moment on."""

    def wait_for(self, kind: str, *, since_ns: int = 0, count: int = 1, timeout_s: float = 20.0) -> list[Event]:
        """The events of a kind since a moment, once there are `count`; WaitTimeout otherwise."""

    def session_id(self, client: KazooClient | None = None) -> int:
        """Id of its ZooKeeper session, to be ended by `end_session`; KitError while it is not registered."""

    def log(self) -> str:
        """Its whole log."""


class MemberKind(Protocol):
    """Makes members, with the arguments that all kinds have: the class `JavaMember`, or `MemberProcess`."""

    def __call__(
        self,
        cluster: Cluster,
        group: str,
        *,
        topics: Mapping[str, int] | None = None,
        whitelist: str | None = None,
        blacklist: str | None = None,
        streams: int = 1,
        consumer_id: str | None = None,
        settings: Mapping[str, object] | None = None,
        zookeeper_connect: str | None = None,
        work_ms: float = 0.0,
        timeout_s: float = 60.0,
    ) -> GroupMember:
        """Prepare a member; nothing runs before `start()`.

        Args:
            topics: topic -> number of streams; or
            whitelist: a filter, with `streams` streams; or
            blacklist: a filter, with `streams` streams.
            consumer_id: its `consumer.id`; None makes one up.
            settings: consumer properties over those of `DEFAULTS`.
            zookeeper_connect: instead of the cluster's, for example a proxy's address and the chroot.
            work_ms: how long the application works on each message, in milliseconds.
            timeout_s: longest wait for its streams.

        Raises:
            ValueError: not exactly one of topics, whitelist and blacklist.
        """


SESSION_S = 30.0
CONNECT_S = 20.0
_SHOWN_LINES = 15


class RecordedMember(WithBlock):
    """A member of a group in a process of its own. `GroupMember` describes its methods.

    Attributes:
        group: its `group.id`.
        consumer_id: its `consumer.id`.
        folder: temporary; holds its log and its output.
        timeout_s: longest wait for its streams.
    """

    def __init__(
        self, cluster: Cluster | str, group: str, consumer_id: str | None, *, id_prefix: str, timeout_s: float
    ) -> None:
        """Prepare a member; nothing runs.

        Args:
            cluster: a cluster or a connect string; where `owned` and `session_id` look.
            id_prefix: start of the `consumer.id` that is made up for None.
        """
        self.group = group
        self.consumer_id = consumer_id or f"{id_prefix}-{uuid.uuid4().hex[:8]}"
        self.timeout_s = timeout_s
        self.folder = temporary_folder(f"zkconsumer-member-{id_prefix}-")
        self._where = cluster
        self._own_client: KazooClient | None = None
        self._output = self.folder / "output"
        self._login: ZooKeeperLogin | None = None if isinstance(cluster, str) else cluster.login
        self._process: ChildProcess | None = None
        self._archive: ClassArchive | None = None
        self._read_bytes = 0
        self._ready = False
        self._messages: list[Delivered] = []
        self._events: list[Event] = []

    # ---- identity

    @property
    def id(self) -> str:
        """Its name in the group, `<group>_<consumer_id>`; its threads are `<id>-0`, `<id>-1`, ..."""
        return f"{self.group}_{self.consumer_id}"

    @property
    def registration_path(self) -> str:
        """Its node in ZooKeeper, inside the chroot."""
        return f"/consumers/{self.group}/ids/{self.id}"

    def session_id(self, client: KazooClient | None = None) -> int:
        """Id of its ZooKeeper session: the owner of its registration.

        Args:
            client: asks ZooKeeper; None takes the cluster's.

        Raises:
            KitError: it is not registered.
        """
        try:
            _, stat = (client or self._client()).get(self.registration_path)
        except NoNodeError:
            raise KitError(f"{self.id} is not registered") from None
        return int(stat.ephemeralOwner)

    def _client(self) -> KazooClient:
        """The cluster's ZooKeeper client; one of its own if only a connect string is known."""
        if not isinstance(self._where, str):
            return self._where.client
        if self._own_client is None:
            self._own_client = connected_client(self._where, self._login, session_s=SESSION_S, timeout_s=CONNECT_S)
        return self._own_client

    # ---- start and end

    @abstractmethod
    def _launched(self) -> ChildProcess:
        """Start the process; its standard output appends to `_output`."""

    @abstractmethod
    def _ask_to_leave(self) -> None:
        """Have the running process leave the group in order."""

    @abstractmethod
    def _take(self, line: str) -> None:
        """Take a line of its output: set `_ready`, append to `_messages` and `_events`."""

    @property
    def process(self) -> ChildProcess:
        """The running (or last) process; KitError if it was never started."""
        if self._process is None:
            raise KitError(f"{self.id} was never started")
        return self._process

    @property
    def running(self) -> bool:
        """True while its process exists, paused or not."""
        return self._process is not None and self._process.running

    def launch(self) -> None:
        """Start its process without waiting for it.

        Raises:
            KitError: it runs.
        """
        if self.running:
            raise KitError(f"{self.id} runs already")
        self._read()
        if self._output.exists():
            self._read_bytes = self._output.stat().st_size  # after the part of a line that a SIGKILL has cut off
        self._ready = False
        self._archive = None
        self._process = self._launched()

    @property
    def is_ready(self) -> bool:
        """Whether its streams exist."""
        self._read()
        return self._ready

    def wait_ready(self, timeout_s: float | None = None) -> Self:
        """The member, when its streams exist, that is after its first rebalance.

        Args:
            timeout_s: None takes the member's.

        Raises:
            StartFailed: it ended; carries the end of its log.
            WaitTimeout: it was not ready in time; carries the end of its log.
        """

        def ready() -> bool:
            ended = not self.process.running  # asked first: its last output is read after that
            if not self.is_ready and ended:
                raise StartFailed(f"{self.process.name} ended: {self.process.returncode}\n{self.process.tail(40)}")
            return self._ready

        limit_s = self.timeout_s if timeout_s is None else timeout_s
        wait_until(ready, limit_s, f"{self.id} to create its streams", state=self._state)
        return self

    def start(self) -> Self:
        """`launch()`, unless it runs, and `wait_ready()`; also again after its end."""
        if not self.running:
            self.launch()
        return self.wait_ready()

    def _enter(self) -> object:
        return self.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Leave the group in order: commit, release, end; returns when the process has ended.

        Raises:
            WaitTimeout: it has not ended within `timeout_s` seconds; it still runs.
            KitError: its exit status is not 0.
        """
        code = self.process.end_in_order(self._ask_to_leave, timeout_s)
        if self._archive is not None:
            self._archive.keep(code)
        if code != 0:
            raise KitError(f"{self.process.name} ended with {code}\n{self.process.tail()}")

    def kill(self) -> Event:
        """SIGKILL: nothing is committed, its session runs out by itself; the event of it, which its history keeps."""
        self.process.kill()
        return self._ended()

    def pause(self) -> Event:
        """SIGSTOP, like a long garbage collection; the event of it, which its history keeps.

        It is an event of the kind `killed`: from now on other members cannot rely on it.
        """
        self.process.pause()
        return self._ended()

    def _ended(self) -> Event:
        event = Event(time.monotonic_ns(), "killed", self._recorded_as)
        self._events.append(event)
        return event

    @property
    def _recorded_as(self) -> str:
        """Its name in events."""
        return self.consumer_id

    def resume(self) -> None:
        """SIGCONT after `pause()`."""
        self.process.resume()

    def close(self) -> None:
        """Kill it if it still runs, and remove its folder; its deliveries stay readable, its log does not."""
        try:
            if self._process is not None:
                self._process.kill()
            self._read()
        finally:
            client, self._own_client = self._own_client, None
            if client is not None:
                client.stop()
                client.close()
            remove_folder(self.folder)

    # ---- what it did

    @property
    def messages(self) -> list[Delivered]:
        """Everything delivered so far, in the order of delivery."""
        self._read()
        return list(self._messages)

    def wait_messages(self, count: int, timeout_s: float = 30.0) -> list[Delivered]:
        """All messages so far, once there are at least `count`; WaitTimeout otherwise."""
        wait_until(
            lambda: len(self.messages) >= count, timeout_s, f"{count} messages at {self.id}",
            state=lambda: (len(self._messages), *self._state()),
        )  # fmt: skip
        return self.messages

    def owned(self) -> list[Place]:
        """The partitions whose owner nodes in ZooKeeper name it, in order; after a SIGKILL until its session ends."""
        return owned_by(self._client(), self.group, self.id)

    def wait_owned(self, count: int, timeout_s: float = 30.0) -> list[Place]:
        """The partitions that it owns, once these are `count`; WaitTimeout otherwise."""
        found: list[Place] = []

        def as_many() -> bool:
            found[:] = self.owned()
            return len(found) == count

        wait_until(as_many, timeout_s, f"{self.id} to own {count} partitions", state=lambda: (found, *self._state()))
        return found

    def events(self, *kinds: str, since_ns: int = 0) -> list[Event]:
        """Its history so far: events of some kinds (of all, without any), not older than a moment."""
        self._read()
        return [each for each in self._events if (not kinds or each.kind in kinds) and each.time_ns >= since_ns]

    def wait_for(self, kind: str, *, since_ns: int = 0, count: int = 1, timeout_s: float = 20.0) -> list[Event]:
        """The events of a kind since a moment, once there are `count`."""
        wait_until(
            lambda: len(self.events(kind, since_ns=since_ns)) >= count, timeout_s,
            f"{count} times {kind!r} of {self.id}", state=self._state,
        )  # fmt: skip
        return self.events(kind, since_ns=since_ns)

    def log(self) -> str:
        """Its whole log."""
        return self.process.log_path.read_text(errors="replace")

    def _state(self) -> tuple[object, ...]:
        """The state of its process, for errors."""
        return self.process.returncode, self.process.tail(_SHOWN_LINES)

    def _read(self) -> None:
        """Take the complete lines by which its output has grown."""
        try:
            with self._output.open("rb") as output:
                output.seek(self._read_bytes)
                data = output.read()
        except FileNotFoundError:
            return
        end = data.rfind(b"\n") + 1
        self._read_bytes += end
        for line in data[:end].decode().split("\n")[:-1]:
            self._take(line)
