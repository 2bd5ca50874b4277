"""The brokers of the simulated cluster: topics, partitions, logs, leaders, and what goes wrong with them. Pure.

To a consumer it does not matter which brokers exist, but whether a partition has a leader, and what that one stores.
A topic that is deleted and created again is another one: each incarnation has its own `Place`, `t` and then `t~1`, and
so have its messages in a history.

Source: kafka.server.KafkaApis, kafka.log.Log (0.8.2.2).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from rebalance.zookeeper import znodes
from rebalance.zookeeper.znodes_07 import GENERATION_08, Generation
from simpleconsumer.kafka08.message_encode import encode_message
from tests.simulator.controller import Controller
from tests.simulator.offset_storage import OffsetStorage
from tests.simulator.pipe import Latency
from tests.simulator.process import Process
from tests.simulator.schedule import Event, Schedule
from zkconsumer.testing.history import Place
from zkconsumer.testing.history.events import Entries

__all__ = ["Brokers", "Ends", "Fetched", "Log", "Recorder", "StoredMessage"]

NO_LEADER: Final = "no leader"
OUT_OF_RANGE: Final = "out of range"
UNKNOWN: Final = "unknown topic or partition"

_BROKERS: Final = 2
_APART: Final = 10
"""How far apart damaged offsets lie at least."""
LATENCY: Final = Latency(0.0003, 0.01)
ROOTS: Final = ("/brokers", "/brokers/ids", "/brokers/topics", "/consumers")


class StoredMessage(NamedTuple):
    """One message of a log; `entry` is what Kafka 0.8 writes into the log, perhaps with a damaged offset."""

    offset: int
    id: str
    entry: bytes


class Fetched(NamedTuple):
    """The answer to a fetch: messages, or none (the log ends there), or an error.

    Attributes:
        place: whose messages they are, see `Brokers.place`.
        high_watermark: the end of the log.
        error: "", "no leader", "out of range" or "unknown topic or partition".
        behind: the next entry of the log, of which a broker sends as much as there is room for; empty at the end.
        data: the bytes of the log that a broker of Kafka 0.7 sends, in place of messages.
    """

    place: Place
    messages: list[StoredMessage]
    error: str = ""
    high_watermark: int = -1
    behind: bytes = b""
    data: bytes = b""


class Ends(NamedTuple):
    """The answer to the question for the ends of a log: the first offset in it, and the one behind the last."""

    place: Place
    earliest: int = 0
    latest: int = 0
    error: str = ""


class Recorder(Protocol):
    """Records what happens to the logs."""

    def __call__(self, kind: str, place: Place, offset: int, message_id: str = "") -> None: ...


class _Waiter:
    """A fetch at the end of a log that waits for a message."""

    __slots__ = ("answer",)

    def __init__(self, answer: Callable[[], None]) -> None:
        self.answer = answer


class Log:
    """One partition in one incarnation of its topic; `messages` start at offset `first`."""

    __slots__ = ("first", "leader", "messages", "place", "waiters")

    def __init__(self, place: Place, leader: int) -> None:
        self.place = place
        self.leader: int | None = leader
        self.first = 0
        self.messages: list[StoredMessage] = []
        self.waiters: dict[_Waiter, Event] = {}

    @property
    def end(self) -> int:
        return self.first + len(self.messages)

    @property
    def fetched_to(self) -> int:
        """The end of what consumers get."""
        return self.end

    def read(self, offset: int, most: int) -> list[StoredMessage]:
        at = offset - self.first
        return self.messages[at : at + most]


class Brokers:
    """A cluster of two brokers.

    Args:
        schedule, rng: of the simulation.
        controller: writes the nodes.
        record: receives `acked` and `log_start`.

    Attributes:
        generation: how topics and groups are written in ZooKeeper.
        entries: which messages share an entry; none do.
        reborn: topics that were deleted and created again, by their names in the history.
        created_s: when each partition was created; of topics created again: when the earlier incarnation ended.
        offsets: the offsets that the group keeps in Kafka, and the broker that manages them.
        damaged: messages whose offset is damaged, by topic, partition and the offset that they had.
        on_rebirth: called with such a topic and the partitions that are others now, before there is anything in them.
    """

    generation: Generation = GENERATION_08

    def __init__(self, schedule: Schedule, rng: random.Random, controller: Controller, record: Recorder) -> None:
        self.entries = Entries()
        self.offsets = OffsetStorage(schedule, rng)
        self._schedule = schedule
        self._rng = rng
        self._controller = controller
        self._record = record
        self._topics: dict[str, list[Log]] = {}
        self._wanted: dict[str, int] = {}
        self._lives: dict[str, int] = {}
        self.created_s: dict[Place, float] = {}
        self.reborn: set[str] = set()
        self.damaged: dict[tuple[str, int, int], str] = {}
        self.on_rebirth: Callable[[str, Iterable[int | str]], None] = lambda topic, partitions: None
        self._deleted_at_s: dict[str, float] = {}
        for path in ROOTS:
            controller.want(path)
        self._register()

    def _register(self) -> None:
        for number in range(_BROKERS):
            node = {"jmx_port": -1, "timestamp": "1", "host": f"b{number}", "version": 1, "port": 9092}
            self._controller.want(znodes.broker_path(number), json.dumps(node).encode(), ephemeral=True)

    @property
    def is_settled(self) -> bool:
        """Whether what the nodes say of brokers will last."""
        return True

    # -- topics -----------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> dict[str, int]:
        """The topics that exist, with their numbers of partitions."""
        return {topic: len(logs) for topic, logs in self._topics.items()}

    @property
    def partitions(self) -> dict[str, tuple[int | str, ...]]:
        """The topics that exist, with their partitions."""
        return {topic: tuple(range(len(logs))) for topic, logs in self._topics.items()}

    def partition(self, topic: str, number: int) -> int | str:
        """The partition of a topic that a plan gives this number."""
        return number

    def place(self, topic: str, partition: int | str) -> Place:
        """The partition's name in a history: the topic with the number of its incarnation behind it."""
        life = self._lives.get(topic, 0)
        return (f"{topic}~{life}" if life else topic), partition

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, or nothing if it is there: first its nodes, then its logs."""
        if topic not in self._wanted:
            self._wanted[topic] = 0
            self.add_partitions(topic, partitions)

    def add_partitions(self, topic: str, count: int) -> None:
        """Add partitions to a topic that exists."""
        before = self._wanted.get(topic)
        if before is None:
            return
        self._wanted[topic] = before + count
        self._write_topic(topic)
        for number in range(before, before + count):
            self._controller.want(f"{znodes.topic_path(topic)}/partitions/{number}")
            self._write_state(topic, number, number % _BROKERS)
        self._controller.when_written(lambda: self._grow(topic, before + count))

    def _grow(self, topic: str, count: int) -> None:
        if self._wanted.get(topic, 0) < count:
            return  # deleted meanwhile
        if topic not in self._topics:
            self._topics[topic] = []
            self._lives[topic] = self._lives.get(topic, -1) + 1
            if self._lives[topic]:
                self.reborn.add(self.place(topic, 0)[0])
                self.on_rebirth(topic, range(count))
        logs = self._topics[topic]
        for number in range(len(logs), count):
            place = self.place(topic, number)
            logs.append(Log(place, number % _BROKERS))
            self.created_s[place] = self._deleted_at_s.get(topic, self._schedule.now)

    def delete_topic(self, topic: str) -> bool:
        """Whether a topic was there and is deleted, with all that is in it: first its logs, then its nodes.

        Not while the controller cannot write: brokers delete what a node in ZooKeeper names.
        """
        if topic not in self._topics or not self._controller.is_idle:
            return False
        del self._wanted[topic]
        self._deleted_at_s[topic] = self._schedule.now
        for log in self._topics.pop(topic):
            self._record("log_start", log.place, log.end)
            self._answer_all(log)
        self._controller.drop(znodes.topic_path(topic))
        return True

    def _write_topic(self, topic: str) -> None:
        path = znodes.topic_path(topic)
        replicas = {str(number): [0, 1] for number in range(self._wanted[topic])}
        self._controller.want(path, json.dumps({"version": 1, "partitions": replicas}).encode())
        self._controller.want(f"{path}/partitions")

    def _write_state(self, topic: str, partition: int, leader: int | None) -> None:
        state = {
            "controller_epoch": 1,
            "leader": -1 if leader is None else leader,
            "version": 1,
            "leader_epoch": 0,
            "isr": [0, 1],
        }
        self._controller.want(znodes.partition_state_path(topic, partition), json.dumps(state).encode())

    # -- logs -------------------------------------------------------------------------------------------------------

    def produce(self, topic: str, partition: int | str) -> bool:
        """Append a message and have it acknowledged; False if there is no leader."""
        log = self._log(topic, partition)
        if log is None or log.leader is None:
            return False
        offset = log.end
        name = f"{log.place[0]}/{partition}/{offset}"
        log.messages.append(StoredMessage(offset, name, encode_message(offset, None, name.encode())))
        self._record("acked", log.place, offset, name)
        self._answer_all(log)
        return True

    def trim(self, topic: str, partition: int | str, first: int) -> None:
        """Retention: drop what lies before an offset."""
        log = self._log(topic, partition)
        if log is not None and first > log.first:
            first = min(first, log.end)
            del log.messages[: first - log.first]
            log.first = first
            self._record("log_start", log.place, first)

    def damage_offset(self, topic: str, partition: int, back: int, word: str) -> None:
        """Change the offset field of the message that lies so far before the log's end.

        Not next to another damaged one: where several lie side by side, a consumer cannot identify them.
        """
        log = self._log(topic, partition)
        if log is None or not 0 < back <= len(log.messages):
            return
        offset = log.end - back
        if any((topic, partition, other) in self.damaged for other in range(offset - _APART, offset + _APART)):
            return
        message = log.messages[-back]
        found = {"negative": offset - 2**63, "far": 2**63 - 1, "ahead": offset + 3, "back": max(0, offset - 3)}[word]
        log.messages[-back] = message._replace(entry=found.to_bytes(8, signed=True) + message.entry[8:])
        self.damaged[topic, partition, offset] = message.id

    def ends(self, topic: str, partition: int | str) -> tuple[int, int] | None:
        """First offset and log end of a partition as it is now, None without it."""
        log = self._log(topic, partition)
        return None if log is None else (log.first, log.end)

    def left(self, topic: str, partition: int | str, done_to: int) -> int:
        """How many messages of a partition lie behind an offset."""
        return max(0, (self.ends(topic, partition) or (0, 0))[1] - done_to)

    def moved(self, topic: str, partition: int | str, offset: int, by: int) -> int:
        """The offset so many messages behind another one, or before it."""
        return max(0, offset + by)

    def set_leader(self, topic: str, partition: int, broker: int | None) -> None:
        """Have another broker lead, or none."""
        log = self._log(topic, partition)
        if log is not None:
            log.leader = broker
            self._write_state(topic, partition, broker)
            self._answer_all(log)

    def leader(self, topic: str, partition: int | str) -> int | None:
        """The broker that leads, None without one."""
        log = self._log(topic, partition)
        return None if log is None else log.leader

    def _log(self, topic: str, partition: int | str) -> Log | None:
        logs, number = self._topics.get(topic), int(partition)
        return logs[number] if logs is not None and 0 <= number < len(logs) else None

    # -- what consumers ask -----------------------------------------------------------------------------------------

    def ask_ends(self, process: Process, topic: str, partition: int | str, done: Callable[[Ends], None]) -> None:
        """Ask the leader for the ends of a log; `done` runs in `process`, once."""

        def answer() -> None:
            log = self._log(topic, partition)
            if log is None:
                self._reply(process, done, Ends(self.place(topic, partition), error=UNKNOWN))
            elif log.leader is None:
                self._reply(process, done, Ends(log.place, error=NO_LEADER))
            else:
                self._reply(process, done, Ends(log.place, log.first, log.fetched_to))

        self._schedule.after(LATENCY.draw(self._rng), answer)

    def fetch(
        self,
        process: Process,
        topic: str,
        partition: int | str,
        offset: int,
        done: Callable[[Fetched], None],
        most: int = 10,
        wait_s: float = 1.0,
    ) -> None:
        """Ask for messages from an offset on; `done` runs in `process`, once.

        At the end of the log the answer waits for a message, at most `wait_s`.
        """

        def answer(waits: bool) -> None:
            log = self._log(topic, partition)
            if log is None:
                self._reply(process, done, Fetched(self.place(topic, partition), [], UNKNOWN))
            elif log.leader is None:
                self._reply(process, done, Fetched(log.place, [], NO_LEADER))
            elif not log.first <= offset <= log.end:
                self._reply(process, done, Fetched(log.place, [], OUT_OF_RANGE))
            elif offset == log.end and waits:
                waiter = _Waiter(lambda: answer(False))
                log.waiters[waiter] = self._schedule.after(wait_s, time_out, log, waiter)
            else:
                found = log.read(offset, most + 1)
                behind = found[most].entry if len(found) > most else b""
                self._reply(process, done, Fetched(log.place, found[:most], "", log.end, behind))

        def time_out(log: Log, waiter: _Waiter) -> None:
            log.waiters.pop(waiter, None)
            waiter.answer()

        self._schedule.after(LATENCY.draw(self._rng), answer, True)

    def _reply(self, process: Process, done: Callable[[Any], None], answer: Any) -> None:
        process.after(LATENCY.draw(self._rng), done, answer)

    def _answer_all(self, log: Log) -> None:
        waiters, log.waiters = log.waiters, {}
        for waiter, timer in waiters.items():
            self._schedule.cancel(timer)
            waiter.answer()
