"""An embedded broker of Kafka 0.7: its logs and registration, the frames of its answers, and faults in them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from zkconsumer.testing.embedded import faults as faults
from zkconsumer.testing.embedded.broker import HOST, EmbeddedBroker, NoAnswer, Part, materialize, send
from zkconsumer.testing.embedded.disk.segment import LogSlice
from zkconsumer.testing.embedded.faults import Fault, FaultPlan
from zkconsumer.testing.embedded.kafka07 import requests as requests
from zkconsumer.testing.embedded.kafka07.answers import Answers, FetchedSet
from zkconsumer.testing.embedded.kafka07.log import ByteLog
from zkconsumer.testing.embedded.kafka07.messages import SIZE_FIELD, InvalidSet, outer_entries
from zkconsumer.testing.embedded.kafka07.registration import Registration07
from zkconsumer.testing.embedded.kafka07.requests import Fetch, Offsets, Produce, Request
from zkconsumer.testing.embedded.kafka07.settings import BrokerSettings07
from zkconsumer.testing.embedded.kafka07.storage import Storage07
from zkconsumer.testing.embedded.server import Connection
from zkconsumer.testing.errors import KitError
from zkconsumer.testing.kafka.topics_07 import partition_name

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
        """What each part of a request is answered, nothing for produce requests."""
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
