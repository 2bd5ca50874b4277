"""The brokers of a simulated cluster of Kafka 0.7: each has partitions of its own, which come and go with it. Pure.

A broker registers itself and the number of its partitions of each topic in a session of its own; both nodes are
ephemeral. Its logs stay while it is away, and are served again at the same positions. Positions count bytes. Messages
are stored in entries: one alone, or several in a compressed one. A log consists of segments, which retention drops as a
whole. What is appended can be fetched when it is flushed: behind so many messages, or after a while.

Source: kafka.server.KafkaZooKeeper, kafka.server.KafkaRequestHandlers, kafka.log.Log (0.7.2).
"""

from __future__ import annotations

import random
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rebalance.zookeeper import znodes, znodes_07
from rebalance.zookeeper.znodes_07 import GENERATION_07
from simpleconsumer.kafka07.requests import CODECS, encode_entry, encode_message_set
from tests.simulator.brokers import LATENCY, NO_LEADER, OUT_OF_RANGE, ROOTS, UNKNOWN, Brokers, Fetched, Log, Recorder
from tests.simulator.controller import Controller
from tests.simulator.port import SimulatedPort
from tests.simulator.port_settings import PortSettings
from tests.simulator.process import Process
from tests.simulator.schedule import Schedule
from tests.simulator.zookeeper import SimulatedZooKeeper
from zkconsumer.fetching.fetch_state import MOST_SEGMENTS, start_of_recent
from zkconsumer.testing.history import Place

__all__ = ["BROKER_SESSION_S", "Brokers07"]

BROKER_SESSION_S: Final = 4.0
_NUMBERS: Final = (0, 2, 10)
"""As text 10 comes before 2."""
_RESTART_S: Final = 0.7
_GOODBYE_S: Final = 0.5
_SEGMENT_ENTRIES: Final = 6
_FLUSH_MESSAGES: Final = 6
_FLUSH_S: Final = 0.25
_CODECS: Final = ("gzip", "gzip", "snappy")


def _encode(values: Iterable[bytes], codec: str) -> bytes:
    """Return an entry, of the same bytes in every process, or the same seed would give other positions and another run.

    What isal writes as gzip differs by a byte now and then.
    """
    inside = encode_message_set(values)
    match codec:
        case "gzip":
            gzip = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
            return encode_entry(gzip.compress(inside) + gzip.flush(), attributes=CODECS[codec])
        case "snappy":
            return encode_entry(_snappy(inside), attributes=CODECS[codec])
        case _:
            return inside


def _snappy(data: bytes) -> bytes:
    """Return a block of literals of up to four bytes.

    A longer one can hold a whole entry, which a member that starts there takes for one of the log (docs/SEMANTICS.md).
    """
    size = bytes([len(data) & 0x7F | 0x80, len(data) >> 7])
    parts = [data[at : at + 4] for at in range(0, len(data), 4)]
    return size + b"".join(bytes([(len(part) - 1) << 2]) + part for part in parts)


class _ByteLog(Log):
    """One partition: the bytes from position 0 on, also of segments that are gone; `first` is the start of the rest."""

    __slots__ = ("_entries", "_flushed", "_unflushed", "data", "segments", "starts", "written_s")

    def __init__(self, place: Place, leader: int) -> None:
        super().__init__(place, leader)
        self.data = bytearray()
        self.starts: list[int] = []
        self.segments = [0]
        self.written_s: dict[int, float] = {}
        self._entries = self._flushed = self._unflushed = 0

    @property
    def end(self) -> int:
        return len(self.data)

    @property
    def fetched_to(self) -> int:
        return self._flushed

    def append(self, entry: bytes, messages: int) -> bool:
        """Append an entry, in a new segment if the last one is full; return whether it is not flushed yet."""
        if self._entries == _SEGMENT_ENTRIES:
            self.roll()
        self._entries += 1
        self.starts.append(self.end)
        self.data += entry
        self._unflushed += messages
        if self._unflushed >= _FLUSH_MESSAGES:
            self.flush()
        return self._unflushed > 0

    def flush(self) -> None:
        """Let consumers have all that was appended."""
        self._flushed, self._unflushed = self.end, 0

    def roll(self) -> None:
        """Flush, and start a segment."""
        self.flush()
        self._entries = 0
        if self.segments[-1] != self.end:
            self.segments.append(self.end)

    def read_bytes(self, position: int, most: int) -> bytes:
        """What is there from a position on, up to the end of its segment."""
        behind = bisect_right(self.segments, position)
        end = self.segments[behind] if behind < len(self.segments) else self.fetched_to
        return bytes(self.data[position : min(position + most, end)])


class _Broker:
    """One broker: whether it answers, and its present session, None while it is away."""

    __slots__ = ("controller", "counts", "is_up", "number", "port", "process", "sessions")

    port: SimulatedPort

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_up = True
        self.counts: dict[str, int] = {}
        self.process: Process | None = None
        self.controller: Controller | None = None
        self.sessions = 0

    def want(self, topic: str) -> None:
        """Register how many partitions of a topic it has."""
        if self.controller is not None:
            self.controller.want(znodes.topic_path(topic))
            count = b"%d" % self.counts[topic]
            self.controller.want(znodes_07.topic_broker_path(topic, self.number), count, ephemeral=True)


class Brokers07(Brokers):
    """A cluster of three brokers of Kafka 0.7.

    A topic of n partitions has them on the brokers in turns; their names are `broker-number`.

    Args:
        zookeeper: where each broker has a session.
        rng_of: random numbers by name, for the parts of each broker.
    """

    generation = GENERATION_07

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        controller: Controller,
        record: Recorder,
        zookeeper: SimulatedZooKeeper,
        rng_of: Callable[[str], random.Random],
    ) -> None:
        self._zookeeper = zookeeper
        self._rng_of = rng_of
        self._nodes = {number: _Broker(number) for number in _NUMBERS}
        self._logs: dict[Place, _ByteLog] = {}
        super().__init__(schedule, rng, controller, record)

    def _register(self) -> None:
        for broker in self._nodes.values():
            self._open_session(broker)

    def _open_session(self, broker: _Broker) -> None:
        broker.sessions += 1
        name = f"broker {broker.number}" + (f".{broker.sessions}" if broker.sessions > 1 else "")
        broker.process = Process(self._schedule, self._rng_of(name), name)
        port = self._zookeeper.port(broker.process, PortSettings(session_timeout_s=BROKER_SESSION_S))
        broker.port = port
        broker.controller = Controller(broker.process, port)
        for path in ROOTS[:-1]:
            broker.controller.want(path)
        address = f"b{broker.number}-{1_300_000_000_000 + broker.sessions}:b{broker.number}:9092"
        broker.controller.want(znodes.broker_path(broker.number), address.encode(), ephemeral=True)
        for topic in broker.counts:
            broker.want(topic)

    # -- brokers ----------------------------------------------------------------------------------------------------

    def stop(self, number: int, word: str = "") -> bool:
        """End a broker, in order, `killed`, or `deaf` (it goes on and does not answer); return whether it was there."""
        broker = self._nodes[_NUMBERS[number % len(_NUMBERS)]]
        if not broker.is_up:
            return False
        broker.is_up = False
        self._set_leaders(broker)
        if word != "deaf":
            self._end_process(broker, word)
        return True

    def _end_process(self, broker: _Broker, word: str) -> None:
        process = broker.process
        if process is None:
            return
        broker.process = broker.controller = None
        if word == "killed":
            process.kill()
        else:
            broker.port.close(0.0)
            self._schedule.after(_GOODBYE_S, process.kill)

    def start(self, number: int, *, anew: bool = False) -> None:
        """Let a broker come back; its nodes are there again when those of its former session are gone.

        Args:
            anew: with empty logs, as after the loss of its disk: in a history they are those of other topics.
        """
        broker = self._nodes[_NUMBERS[number % len(_NUMBERS)]]
        if anew and not broker.is_up:
            self._replace_logs(broker.number)
        broker.is_up = True
        self._set_leaders(broker)
        if broker.process is None:
            self._open_session(broker)

    def starts_of(self, partition: int | str) -> int:
        """How often the broker of a partition was started."""
        return self._nodes[znodes_07.broker_and_number(partition)[0]].sessions

    def _set_leaders(self, broker: _Broker) -> None:
        for (_, partition), log in self._logs.items():
            if znodes_07.broker_and_number(partition)[0] == broker.number:
                log.leader = broker.number if broker.is_up else None

    @property
    def is_settled(self) -> bool:
        """Whether all nodes of the brokers that are there are those of their present sessions."""
        paths = {
            path: broker.port.session_id
            for broker in self._nodes.values() if broker.process is not None
            for path in (znodes.broker_path(broker.number),
                         *(znodes_07.topic_broker_path(topic, broker.number) for topic in broker.counts))
        }  # fmt: skip
        found = {path: self._zookeeper.read(path) for path in paths}
        return all(node is not None and node[1].ephemeral_owner == paths[path] for path, node in found.items())

    def _replace_logs(self, number: int) -> None:
        for (topic, partition), log in list(self._logs.items()):
            if znodes_07.broker_and_number(partition)[0] == number:
                self._record("log_start", log.place, log.end)
                life = int(log.place[0].rpartition("~")[2]) if "~" in log.place[0] else 0
                place = (f"{topic}~{life + 1}", partition)
                self._logs[topic, partition] = _ByteLog(place, number)
                self.created_s[place] = self._schedule.now
                self.reborn.add(place[0])
                self.on_rebirth(topic, [partition])

    # -- topics -----------------------------------------------------------------------------------------------------

    @property
    def topics(self) -> dict[str, int]:
        """The topics that there are, with the numbers of partitions of all their brokers."""
        return {topic: len(names) for topic, names in self._named(lambda broker: True).items()}

    @property
    def partitions(self) -> dict[str, tuple[int | str, ...]]:
        """The topics that there are, with the partitions of the brokers that have not ended."""
        return dict(self._named(lambda broker: broker.process is not None))

    def _named(self, counts: Callable[[_Broker], bool]) -> dict[str, tuple[str, ...]]:
        topics = dict.fromkeys(topic for broker in self._nodes.values() for topic in broker.counts)
        return {
            topic: znodes_07.partition_names(
                {each.number: each.counts[topic] for each in self._nodes.values()
                 if topic in each.counts and counts(each)}
            )
            for topic in topics
        }  # fmt: skip

    def partition(self, topic: str, number: int) -> int | str:
        """The partition of a topic that a plan gives this number."""
        names = self._named(lambda broker: True).get(topic) or ("0-0",)
        return names[number % len(names)]

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic, or nothing if it is there."""
        if topic in self._named(lambda broker: True):
            return
        for number in range(partitions):
            broker = self._nodes[_NUMBERS[number % len(_NUMBERS)]]
            broker.counts[topic] = broker.counts.get(topic, 0) + 1
        for broker in self._nodes.values():
            if topic in broker.counts:
                self._grown(broker, topic)

    def add_partitions(self, topic: str, count: int) -> None:
        """Let another broker have partitions of a topic; if all do, the first starts again with more of them."""
        if topic not in self._named(lambda broker: True):
            return
        for broker in self._nodes.values():
            if topic not in broker.counts:
                broker.counts[topic] = count
                self._grown(broker, topic)
                return
        broker = self._nodes[_NUMBERS[0]]
        broker.counts[topic] += count
        if self.stop(0):
            self._schedule.after(_RESTART_S, self.start, 0)
        else:
            self._end_process(broker, "")  # it is deaf, or away, and comes back with them
        self._open_logs(broker, topic)

    def _grown(self, broker: _Broker, topic: str) -> None:
        self._open_logs(broker, topic)
        broker.want(topic)

    def _open_logs(self, broker: _Broker, topic: str) -> None:
        for name in znodes_07.partition_names({broker.number: broker.counts[topic]}):
            if (topic, name) not in self._logs:
                self._logs[topic, name] = _ByteLog((topic, name), broker.number)
                self.created_s[topic, name] = self._schedule.now
        self._set_leaders(broker)

    def delete_topic(self, topic: str) -> bool:
        """False: topics stay."""
        return False

    def place(self, topic: str, partition: int | str) -> Place:
        """The partition's name in a history: the topic with the number of its log behind it."""
        log = self._logs.get((topic, partition))
        return (topic, partition) if log is None else log.place

    # -- logs -------------------------------------------------------------------------------------------------------

    def _log(self, topic: str, partition: int | str) -> _ByteLog | None:
        return self._logs.get((topic, partition))

    def produce(self, topic: str, partition: int | str) -> bool:
        """Append an entry of one message or some; False if the broker is away."""
        log = self._log(topic, partition)
        if log is None or log.leader is None:
            return False
        start, count = log.end, self._rng.choice((1, 1, 1, 2, 3, 5))
        names = [f"{log.place[0]}/{partition}/{start + number}" for number in range(count)]
        codec = self._rng.choice(_CODECS) if count > 1 or self._rng.random() < 0.2 else "none"
        if log.append(_encode((name.encode() for name in names), codec), count):
            self._schedule.after(_FLUSH_S, log.flush)
        log.written_s[log.segments[-1]] = self._schedule.now
        self.entries.add(log.place, start, count, log.end)
        for number, name in enumerate(names):
            self._record("acked", log.place, start + number, name)
        return True

    def trim(self, topic: str, partition: int | str, first: int) -> None:
        """Retention: drop the segments that end before a position; a log that loses all of them starts at its end."""
        log = self._log(topic, partition)
        if log is None:
            return
        if first >= log.end:
            log.roll()
        start = log.segments[bisect_right(log.segments, first) - 1]
        if start > log.first:
            log.first = start
            log.segments = [each for each in log.segments if each >= start]
            self._record("log_start", log.place, start)

    def damage_offset(self, topic: str, partition: int, back: int, word: str) -> None:
        """Nothing: entries do not name their positions."""

    def left(self, topic: str, partition: int | str, done_to: int) -> int:
        """How many messages lie behind a position."""
        log = self._log(topic, partition)
        if log is None:
            return 0
        starts = log.starts[bisect_right(log.starts, done_to - 1) :]
        return sum(self.entries.of(log.place, start).last - start + 1 for start in starts)

    def moved(self, topic: str, partition: int | str, offset: int, by: int) -> int:
        """The start of the entry so many entries behind a position, or before it."""
        log = self._log(topic, partition)
        if log is None or not log.starts:
            return offset
        at = bisect_right(log.starts, offset) - 1 + by
        return log.starts[at] if 0 <= at < len(log.starts) else 0 if at < 0 else log.end

    def offsets_before(self, topic: str, partition: int | str, earliest: bool, most: int) -> list[int] | None:
        """The starts of segments and the end, the newest first, or the start alone; None while the broker is away."""
        log = self._log(topic, partition)
        if log is None or log.leader is None:
            return None
        if earliest:
            return [log.first]
        return sorted({*log.segments, log.fetched_to}, reverse=True)[:most]

    def start_since(self, topic: str, partition: int | str, since_s: float) -> int:
        """Where a log starts that was written to since then; its end if it was not."""
        log = self._logs[topic, partition]
        before = [start for start in log.segments if log.written_s.get(start, 0.0) <= since_s]
        return start_of_recent(self.offsets_before(topic, partition, False, MOST_SEGMENTS) or [log.end], before[-1:])

    def set_leader(self, topic: str, partition: int, broker: int | None) -> None:
        """Nothing: a partition is its broker's."""

    # -- what consumers ask -----------------------------------------------------------------------------------------

    def fetch(
        self,
        process: Process,
        topic: str,
        partition: int | str,
        offset: int,
        done: Callable[[Fetched], None],
        most: int = 1024,
        wait_s: float = 0.0,
    ) -> None:
        """Ask for up to so many bytes from a position on; `done` runs in `process`, once. There is no waiting."""

        def answer() -> None:
            self._reply(process, done, self.fetched(topic, partition, offset, most))

        self._schedule.after(LATENCY.draw(self._rng), answer)

    def multifetch(
        self, process: Process, wanted: Sequence[tuple[str, int | str, int]], most: int,
        done: Callable[[list[Fetched]], None],
    ) -> None:  # fmt: skip
        """Ask one broker for some partitions, each from a position on; `done` runs in `process`, once."""

        def answer() -> None:
            self._reply(process, done, [self.fetched(*each, most) for each in wanted])

        self._schedule.after(LATENCY.draw(self._rng), answer)

    def fetched(self, topic: str, partition: int | str, position: int, most: int) -> Fetched:
        """What a broker answers about one partition now."""
        log = self._log(topic, partition)
        if log is None:
            return Fetched((topic, partition), [], UNKNOWN)
        if log.leader is None:
            return Fetched(log.place, [], NO_LEADER)
        if not log.first <= position <= log.fetched_to:
            return Fetched(log.place, [], OUT_OF_RANGE)
        return Fetched(log.place, [], data=log.read_bytes(position, most))
