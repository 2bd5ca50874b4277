"""An embedded broker of Kafka 0.7: its logs and registration, the frames of its answers, and faults in them.

Also the work of a broker of Kafka 0.7 on each request.

Where others answer with an error, it does the same as the Java broker:

- A produce request is never answered. A set that cannot be stored closes the connection, and the topic is registered
  all the same; one with a payload above `max.message.size` is dropped without a sign.
- An offsets request for a partition that the broker does not have closes the connection.
- A fetch of an unknown topic is answered with an empty set, and makes no topic.

Source: kafka.server.KafkaRequestHandlers, kafka.log.LogManager, kafka.utils.TopicNameValidator (0.7.2).
"""

from __future__ import annotations

import logging
import random
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zkconsumer.testing.embedded import faults as faults
from zkconsumer.testing.embedded.broker import HOST, EmbeddedBroker, NoAnswer, Part, materialize, send
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.disk.segment import LogSlice
from zkconsumer.testing.embedded.faults import Fault, FaultPlan
from zkconsumer.testing.embedded.kafka07 import requests as requests
from zkconsumer.testing.embedded.kafka07.log import ByteLog
from zkconsumer.testing.embedded.kafka07.registration import Registration07
from zkconsumer.testing.embedded.kafka07.requests import (
    SIZE_FIELD,
    Fetch,
    InvalidSet,
    Offsets,
    Produce,
    Request,
    TooLarge,
    outer_entries,
)
from zkconsumer.testing.embedded.kafka07.segment_list import EARLIEST, LATEST
from zkconsumer.testing.embedded.kafka07.settings import BrokerSettings07
from zkconsumer.testing.embedded.kafka07.storage import Storage07
from zkconsumer.testing.embedded.server import Connection
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.kafka.topics_07 import partition_name

_ILLEGAL_TOPIC = re.compile("^\\.{1,2}$|[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_log = logging.getLogger(__name__)


@dataclass
class FetchedSet:
    """The answer to a fetch of one partition.

    Attributes:
        code: error code.
        data: its bytes.
        length: what the answer says; another number than that of the bytes for a negative fetch size alone.
    """

    code: int
    data: Part = b""
    length: int = 0


class Answers:
    """Stores and reads what requests ask for.

    Threads: every method from any thread.
    """

    def __init__(
        self, broker_id: int, storage: Storage07, settings: BrokerSettings07, register: Callable[[str], None]
    ) -> None:
        """Prepare.

        Args:
            register: called with a topic when the broker has made its first log of it.
        """
        self._broker_id = broker_id
        self._storage = storage
        self._settings = settings
        self._register = register

    def produce(self, part: Produce) -> None:
        """Store a message set.

        Raises:
            NoAnswer: it cannot be stored.
        """
        partition = part.partition
        if partition == requests.ANY_PARTITION:
            partition = random.randrange(self._settings.partitions_of(part.topic))
        try:
            self._check(part.topic, partition)
            log, is_first = self._storage.find_or_make(part.topic, partition)
            if is_first:
                self._register(part.topic)
            log.append(part.message_set)
        except TooLarge as reason:
            _log.warning("broker %d drops a set for %s-%d: %s", self._broker_id, part.topic, partition, reason)
        except Refusal as reason:
            raise NoAnswer(f"a set for {part.topic}-{partition} is refused: {reason}") from reason

    def fetch(self, part: Fetch) -> FetchedSet:
        """Return what the partition holds from a position on; the slice in it is to be closed."""
        try:
            log = self._find(part.topic, part.partition)
            if log is None:
                return FetchedSet(requests.NO_ERROR)
            data, length = log.read(part.position, part.max_bytes)
            return FetchedSet(requests.NO_ERROR, data, length)
        except Refusal as refusal:
            return FetchedSet(refusal.code)

    def offsets(self, part: Offsets) -> list[int]:
        """Return starts of segments, and the end, before a time.

        Raises:
            NoAnswer: the broker has no such partition, or the number of positions is negative.
        """
        try:
            log = self._find(part.topic, part.partition)
        except Refusal as reason:
            raise NoAnswer(str(reason)) from reason
        if log is None:
            return [0] if part.time_ms in (LATEST, EARLIEST) else []
        if part.most < 0:
            raise NoAnswer(f"offsets of {part.topic}-{part.partition}: {part.most} of them")
        return log.positions_before(part.time_ms, part.most)

    def _find(self, topic: str, partition: int) -> ByteLog | None:
        self._check(topic, partition)
        return self._storage.find(topic, partition)

    def _check(self, topic: str, partition: int) -> None:
        """Return if there can be such a partition.

        Raises:
            Refusal: -1 the name is none of a topic, 3 the broker has fewer partitions of it.
        """
        if not 0 < len(topic) <= self._settings.max_topic_characters or _ILLEGAL_TOPIC.search(topic):
            raise Refusal(requests.UNKNOWN, f"{topic!r} is no name of a topic")
        count = self._settings.partitions_of(topic)
        if not 0 <= partition < count:
            raise Refusal(requests.WRONG_PARTITION, f"{topic} has the partitions 0 to {count - 1}, not {partition}")


START_TIMEOUT_S: Final = 60.0
_AFTER = (faults.CLOSE, faults.GARBAGE, faults.STALL, faults.CUT_TAIL)
_APIS: Final = {
    requests.PRODUCE: "produce",
    requests.FETCH: "fetch",
    requests.MULTI_FETCH: "fetch",
    requests.MULTI_PRODUCE: "produce",
    requests.OFFSETS: "offsets",
}
"""By which names faults know the requests; one for several partitions has the name of that for one."""


class Broker07(EmbeddedBroker):
    """A broker of the protocol of Kafka 0.7.2.

    Threads: every method from any thread.
    """

    def __init__(
        self, broker_id: int, folder: Path, settings: BrokerSettings07, plan: FaultPlan, *, port: int = 0
    ) -> None:
        super().__init__(
            broker_id, folder, plan, port=port, max_connections=settings.max_connections,
            max_request_bytes=settings.max_request_bytes,
        )  # fmt: skip
        self._settings = settings
        self._storage: Storage07 | None = None
        self._answers: Answers | None = None
        self._registration: Registration07 | None = None
        self._ready = threading.Event()

    # ---- start and end

    def _open_logs(self) -> None:
        self._ready.clear()
        self._storage = Storage07(self.folder, self._settings)
        self._answers = Answers(self.broker_id, self._storage, self._settings, self._register)

    def make_registration(self) -> Registration07:
        """Return what registers the broker, not yet started: with its address and the topics of its logs."""
        topics = {topic: self._settings.partitions_of(topic) for topic in self.topics}
        return Registration07(self.broker_id, HOST, self.advertised_port or self.port, topics)

    def serve_as(self, registration: Registration07 | None) -> None:
        """Answer requests from now on, and register new topics; None: without ZooKeeper."""
        self._registration = registration
        self._ready.set()

    def _register(self, topic: str) -> None:
        if self._registration is not None:
            self._registration.add(topic, self._settings.partitions_of(topic))

    def end(self, *, clean: bool) -> None:
        """Close connections and logs, then the session; not `clean`: as a killed process leaves them."""
        self.stopping.set()
        self._ready.set()
        super().end(clean=clean)
        self.unregister(abruptly=not clean)

    def unregister(self, *, abruptly: bool) -> None:
        """End the session, if there is one; `abruptly`: only its connection."""
        registration, self._registration = self._registration, None
        if registration is not None:
            registration.close(abruptly=abruptly)

    def _leave_logs(self, *, clean: bool) -> None:
        if not clean and self._storage is not None:
            self._storage.abandon()

    def _close_logs(self, *, clean: bool) -> None:
        storage, self._storage = self._storage, None
        if storage is not None:
            storage.close(clean=clean)

    # ---- logs

    @property
    def topics(self) -> list[str]:
        """The topics of which it has logs; empty while it does not run."""
        storage = self._storage
        return [] if storage is None else storage.topics

    def partitions(self, topic: str) -> list[str]:
        """The names of the partitions that it registers for a topic; empty without a log of it."""
        if topic not in self.topics:
            return []
        return [partition_name(self.broker_id, number) for number in range(self._settings.partitions_of(topic))]

    def log(self, topic: str, partition: int) -> ByteLog:
        """Return the log of a partition.

        Raises:
            KitError: it does not run, or has no such log: a log is made by the first produce request for it.
        """
        storage = self._storage
        if storage is None:
            raise KitError(f"broker {self.broker_id} does not run")
        found = storage.find(topic, partition)
        if found is None:
            raise KitError(f"broker {self.broker_id} has no log of {topic}-{partition}: nothing was produced to it")
        return found

    # ---- requests

    def _serve_one(self, connection: Connection, frame: bytearray) -> bool:
        request = requests.decode_request(frame)
        api = _APIS[request.kind]
        where = [each for part in request.parts for each in self._names(part)]
        self._ready.wait(START_TIMEOUT_S)
        for fault in self._take((faults.DELAY,), api, where):
            self._faults.wait_out(fault, self.stopping)
        if self.stopping.is_set() or self._answers is None:
            return False
        parts = self._answer(self._answers, request, self._take((faults.ERROR,), api, where))
        try:
            after = self._take(_AFTER, api, where)
            sets = [self._spoil(part, each, after) if isinstance(part, Fetch) and isinstance(each, FetchedSet) else each
                    for part, each in zip(request.parts, parts, strict=False)]  # fmt: skip
            return not self.stopping.is_set() and send(
                connection, _frame(request.kind, sets), after, lambda stall: self._faults.wait_out(stall, self.stopping)
            )
        finally:
            _close(parts)

    def _answer(self, answers: Answers, request: Request, errors: Sequence[Fault]) -> list[FetchedSet | bytes]:
        """The answers to the parts of a request, none for produce requests."""
        found: list[FetchedSet | bytes] = []
        try:
            for part in request.parts:
                code = next((fault.code for fault in errors if self._hits(fault, part)), 0)
                if isinstance(part, Produce):
                    if code:
                        raise NoAnswer(f"{part.topic}-{part.partition}: error {code} on purpose")
                    answers.produce(part)
                elif isinstance(part, Fetch):
                    found.append(FetchedSet(code) if code else answers.fetch(part))
                else:
                    found.append(requests.encode_offsets(code, [] if code else answers.offsets(part)))
        except BaseException:
            _close(found)
            raise
        return found

    # ---- faults

    def _names(self, part: Produce | Fetch | Offsets) -> Iterable[tuple[str, int | str]]:
        """A partition as faults may name it: by its number, or by `broker-number`."""
        return (part.topic, part.partition), (part.topic, partition_name(self.broker_id, part.partition))

    def _hits(self, fault: Fault, part: Produce | Fetch | Offsets) -> bool:
        return any(fault.hits(*name) for name in self._names(part))

    def _take(self, kinds: Sequence[str], api: str, where: Sequence[tuple[str, int | str]]) -> list[Fault]:
        return self._faults.take(kinds, self.broker_id, api, "", where)

    def _spoil(self, part: Fetch, fetched: FetchedSet, after: Sequence[Fault]) -> FetchedSet:
        """Return an answer with the damage that faults want."""
        for fault in self._faults.pending(faults.CORRUPT):
            if fault.matches(self.broker_id, "fetch", "", self._names(part)) and part.position <= fault.offset:
                fetched.data = materialize(fetched.data)
                data = bytearray(fetched.data)
                last = _last_byte(data, fault.offset - part.position)
                if last is not None:
                    data[last] ^= 0xFF
                    self._faults.take_one(fault)
                fetched.data = bytes(data)
        for fault in after:
            if fault.kind == faults.CUT_TAIL and self._hits(fault, part):
                whole = materialize(fetched.data)
                fetched.data = whole[: max(len(whole) - fault.count_bytes, 0)]
                fetched.length = len(fetched.data)
        return fetched


def _close(answers: Iterable[FetchedSet | bytes]) -> None:
    """Give the descriptors of slices back."""
    for each in answers:
        if isinstance(each, FetchedSet) and isinstance(each.data, LogSlice):
            each.data.close()


def _last_byte(data: bytearray, at: int) -> int | None:
    """The last byte of the whole entry that holds a byte of a set; None if there is none."""
    try:
        for start, size in outer_entries(memoryview(data)):
            if start - SIZE_FIELD <= at < start + size:
                return start + size - 1
    except InvalidSet:
        pass  # the fetch starts within an entry
    return None


def _frame(kind: int, answers: Sequence[FetchedSet | bytes]) -> list[Part]:
    """The whole answer, ready to be sent."""
    parts: list[Part] = []
    if kind == requests.MULTI_FETCH:
        parts.append(requests.multi_head([each.length for each in answers if isinstance(each, FetchedSet)]))
    for each in answers:
        parts += [requests.set_head(each.code, each.length), each.data] if isinstance(each, FetchedSet) else [each]
    return parts
