"""An embedded broker of Kafka 0.9 or later: reads requests, has them answered, and plays the faults in answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from struct import error, pack, pack_into
from typing import Any, Final, NamedTuple

from simpleconsumer.errors import DecodeError
from simpleconsumer.messages import apis as client_apis
from zkconsumer.testing.embedded import faults as faults
from zkconsumer.testing.embedded.broker import Part, materialize, send
from zkconsumer.testing.embedded.disk.segment import LogSlice
from zkconsumer.testing.embedded.faults import Fault, FaultPlan
from zkconsumer.testing.embedded.group_values import GroupRules
from zkconsumer.testing.embedded.kafka011.api import AnyApi, Asked, Habits
from zkconsumer.testing.embedded.kafka011.apis import SERVED
from zkconsumer.testing.embedded.kafka011.fetch_sessions import FetchSessions
from zkconsumer.testing.embedded.kafka011.generations import Generation
from zkconsumer.testing.embedded.kafka011.group_coordinator import GroupCoordinator
from zkconsumer.testing.embedded.kafka011.group_log import RecordFormats
from zkconsumer.testing.embedded.kafka011.log import BatchLog
from zkconsumer.testing.embedded.kafka011.topic_requests import refused_version
from zkconsumer.testing.embedded.kafka011.transaction_coordinator import TransactionCoordinator
from zkconsumer.testing.embedded.leading_broker import LeadingBroker, MovesLeaders
from zkconsumer.testing.embedded.mishaps import Befallen
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC, OffsetStorage
from zkconsumer.testing.embedded.protocol import BadRequest, Reader, TopicPartition
from zkconsumer.testing.embedded.server import Connection
from zkconsumer.testing.embedded.settings import BrokerSettings

_READ_IN_ANY_VERSION: Final = (client_apis.FETCH.key, client_apis.LIST_OFFSETS.key, client_apis.METADATA.key)
"""Brokers of 0.9 take a version of these that they do not know for their newest one."""
_SESSION_EVICTION_MS: Final = 120_000
_API_VERSIONS: Final = client_apis.API_VERSIONS.key
_FIRST_FETCH_WITH_SESSIONS: Final = 7
_SLICE_S: Final = 0.02


class _Request(NamedTuple):
    """A request as read; without `body` it asks for a version of ApiVersions that is not served."""

    api: AnyApi
    version: int
    correlation_id: int
    client_id: str
    body: Any
    is_known: bool = True


class Broker011(LeadingBroker[BatchLog]):
    """A broker that knows which versions it serves; from 0.10 on it lists them.

    Threads: every method from any thread.

    Attributes:
        served: those versions, by API key; a test may put other ones here, as an upgrade does.
        habits: how its version of Kafka differs from others in requests of the same version.
        offset_storage: the committed offsets of groups in ZooKeeper.
        groups: the groups that it coordinates, and their committed offsets.
        fetch_sessions: those of its clients.
        transactions: the transactions that it coordinates.
    """

    def __init__(
        self, broker_id: int, folder: Path, cluster: MovesLeaders, settings: BrokerSettings, plan: FaultPlan,
        generation: Generation, *, port: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(broker_id, folder, cluster, settings, plan, BatchLog, port=port)
        self.served: Mapping[int, range] = generation.served
        self.habits = generation.habits
        self.offset_storage = OffsetStorage(self)
        self.fetch_sessions = FetchSessions(settings.max_incremental_fetch_session_cache_slots, _SESSION_EVICTION_MS)
        self.groups = GroupCoordinator(
            self, _rules(settings, self.habits), _formats(self.habits), self._mishaps.loading_wait
        )
        self.transactions = TransactionCoordinator(
            self, max_timeout_ms=settings.transaction_max_timeout_ms,
            check_interval_ms=settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        )  # fmt: skip

    def _open_logs(self) -> None:
        super()._open_logs()
        self.fetch_sessions.clear()

    def _begin_epoch(self, log: BatchLog, epoch: int) -> None:
        log.begin_epoch(epoch)

    def _leave_logs(self, *, clean: bool) -> None:
        super()._leave_logs(clean=clean)
        self.groups.give_up()  # while connections are open: who waits holds the thread of one

    def lead(self, topic: str, partition: int, config: dict[str, object], **more: Any) -> None:
        """Open the log of a partition and answer for it; see `LeadingBroker.lead`."""
        super().lead(topic, partition, config, **more)
        if topic == OFFSETS_TOPIC:
            self.groups.take_over(self.log(topic, partition))

    def resign(self, topic: str, partition: int, *, delete: bool = False) -> None:
        """Close the log of a partition; see `LeadingBroker.resign`."""
        is_led = (topic, partition) in self.led
        super().resign(topic, partition, delete=delete)
        if topic == OFFSETS_TOPIC and is_led:
            self.groups.give_up()

    # ---- requests

    def _serve_one(self, connection: Connection, frame: bytearray) -> bool:
        try:
            request = self._read(frame)
        except BadRequest:
            if self.habits.is_silent:
                return True
            raise
        api = request.api
        where = list(api.partitions(request.body)) if request.is_known else [("", -1)]
        fetched = api.fetched(request.body, self._cluster.image) if request.is_known else ()
        befallen = Befallen(api.name, request.client_id, where, fetched)
        self._mishaps.before(befallen)
        throttles = self._mishaps.take((faults.THROTTLE,), befallen)
        parts = self._answer(request, befallen)
        if parts is None:
            return True
        if throttles:
            parts = self._throttled(request, parts, throttles[0])
        try:
            after = self._mishaps.after(befallen)
            parts = self._mishaps.spoil(befallen, parts, after)
            self._flowing.wait()  # the request may have waited for others, and the broker is paused meanwhile
            if self.stopping.is_set():
                return False
            whole = [_head(request, parts, after), *parts]
            is_open = send(connection, whole, after, lambda stall: self._faults.wait_out(stall, self.stopping))
            if throttles and not self.habits.is_before_2:
                self._mute(connection, throttles[0])
            return is_open
        finally:
            for part in parts:
                if isinstance(part, LogSlice):
                    part.close()

    def _throttled(self, request: _Request, parts: list[Part], fault: Fault) -> list[Part]:
        """Return an answer that says for how long the client is throttled; before 2.0 after that time.

        Source: kafka.server.KafkaApis.handleFetchRequest, ClientQuotaManager (1.1, 2.8).
        """
        if self.habits.is_before_2:
            self._faults.wait_out(fault, self.stopping)
        throttle_ms, api, version = int(fault.seconds * 1000), request.api.api, request.version
        if api is client_apis.FETCH and not self.habits.is_before_2:
            for part in parts:
                if isinstance(part, LogSlice):
                    part.close()
            before = pack(">i", throttle_ms) if version >= api.throttled_from else b""
            return [before + (pack(">hi", 0, 0) if version >= _FIRST_FETCH_WITH_SESSIONS else b"") + pack(">i", 0)]
        if version < api.throttled_from:
            return parts
        data = bytearray(b"".join(map(materialize, parts)))
        pack_into(">i", data, api.throttle_at if api.throttle_at >= 0 else len(data) + api.throttle_at, throttle_ms)
        return [bytes(data)]

    def _mute(self, connection: Connection, fault: Fault) -> None:
        """Read no request until the throttle time is over."""
        started, is_early, is_over = time.monotonic(), False, False
        while not is_over:
            left_s = fault.seconds - (time.monotonic() - started)
            is_over = left_s <= _SLICE_S
            is_over |= self._faults.wait_out(replace(fault, seconds=max(min(left_s, _SLICE_S), 0.0)), self.stopping)
            # One that comes at the very end was sent in time: the client has counted from a little later on.
            is_early |= connection.has_request() and time.monotonic() - started < 0.9 * fault.seconds
        if is_early and not self.stopping.is_set():
            self._faults.note_early()

    def _read(self, frame: bytearray) -> _Request:
        """Read a request.

        Raises:
            BadRequest: it is cut, or is of an API or version that is not served.
        """
        reader = Reader(frame)
        try:
            key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
            client_id = reader.nullable_string() or ""
            served = self.served.get(key, range(0))
            if self.habits.is_silent and key in _READ_IN_ANY_VERSION:
                version = min(version, served.stop - 1)
            if version not in served:
                if key != _API_VERSIONS or not served:
                    raise BadRequest(f"version {version} of API key {key} is not served")
                return _Request(SERVED[key], version, correlation_id, client_id, None, is_known=False)
            api = SERVED[key]
            reader.is_flexible = version >= api.api.flexible_from
            reader.end()
            has_schema = bool(api.api.response.fields)
            source = api.api.request.decode(version, frame, reader.position) if has_schema else reader
            return _Request(api, version, correlation_id, client_id, api.prepare(self, api.read(source, version)))
        except (error, DecodeError) as cut:
            raise BadRequest(f"request of {len(frame)} bytes: {cut}") from cut

    def _answer(self, request: _Request, befallen: Befallen) -> list[Part] | None:
        if not request.is_known:
            return [refused_version(self.served[_API_VERSIONS])]
        errors = self._mishaps.errors(befallen)

        def take(kind: str, where: TopicPartition) -> Fault | None:
            one = Befallen(befallen.api, befallen.client_id, [where])
            return next(iter(self._mishaps.take((kind,), one)), None)

        answer = request.api.answer(Asked(request.version, request.body, self, errors, take, request.client_id))
        return [request.api.api.response.encode(request.version, answer)] if isinstance(answer, dict) else answer


def _rules(settings: BrokerSettings, habits: Habits) -> GroupRules:
    """How groups are coordinated, with the times and sizes of the settings."""
    return replace(
        habits.groups,
        initial_delay_s=settings.group_initial_rebalance_delay_ms / 1000,
        min_session_s=settings.group_min_session_timeout_ms / 1000,
        max_session_s=settings.group_max_session_timeout_ms / 1000,
        max_size=None if habits.is_before_2 else settings.group_max_size,
    )


def _formats(habits: Habits) -> RecordFormats:
    return RecordFormats(habits.log_magic, habits.offset_record, habits.group_record)


def _head(request: _Request, parts: Sequence[Part], after: Sequence[Fault]) -> bytes:
    """The bytes before the body of an answer; under another correlation id if a fault wants it."""
    is_flexible = request.version >= request.api.api.flexible_from and request.api.api.key != _API_VERSIONS
    tags = b"\0" if is_flexible else b""
    size = len(tags) + sum(part.length if isinstance(part, LogSlice) else len(part) for part in parts)
    return pack(">ii", size + 4, faults.correlation_id(request.correlation_id, after)) + tags
