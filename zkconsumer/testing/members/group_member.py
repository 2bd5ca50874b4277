"""The interface of members of either kind: `JavaMember` and `MemberProcess`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from kazoo.client import KazooClient

from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.history.events import Event, Place
from zkconsumer.testing.processes import ChildProcess

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
    """What a member subscribes to.

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
        """Its temporary folder, with its log and what it has written."""

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
        """Kill it if it still runs, and remove its folder; what it has delivered stays readable, its log does not."""

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
    """What makes members, with the arguments that all kinds have: the class `JavaMember`, or `MemberProcess`."""

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
