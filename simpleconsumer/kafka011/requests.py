"""The requests of Kafka 0.10.0 and later, in whichever of their versions a connection has."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from simpleconsumer.dialect_types import MAX_ANSWER_BYTES, Request, VersionedRequest
from simpleconsumer.kafka011 import (
    add_partitions_to_txn,
    apis,
    describe_configs,
    end_txn,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
)
from simpleconsumer.kafka011.api_versions import decode_api_versions
from simpleconsumer.kafka011.apis import APIS
from simpleconsumer.kafka011.group_requests import GroupRequests
from simpleconsumer.kafka011.init_producer_id import NO_ID, ProducerId
from simpleconsumer.kafka011.sasl_authenticate import SaslAnswer
from simpleconsumer.kafka011.versioned_requests import request_of, serves, versioned
from simpleconsumer.kafka08 import requests as requests_08
from simpleconsumer.numbered_offsets import numbered
from simpleconsumer.types import (
    Buffer,
    ClusterMetadata,
    EpochEnd,
    FetchedPartition,
    FetchRequest,
    LogEnd,
    OffsetAndTimestamp,
    ProducedPartition,
    TopicPartition,
)

__all__ = ["Requests"]

T = TypeVar("T")

_LATEST = -1
_EARLIEST = -2
_FIRST_WITH_ONE_OFFSET = 1
_FIRST_WITH_BATCHES = 3
"""Produce: the first version that takes record batches, and the last one that takes none is the one before."""
_FIRST_WITHOUT_CREATION = 4
_SMALLEST_BATCH_MAGIC = 2
_FIRST_FETCH_THAT_MUTES = 8
_COUNTED_AS = {api.key: re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower() for api in APIS.values()}
"""Names of APIs in statistics and log lines, by key."""


class Requests(GroupRequests):
    """The part of a dialect (`simpleconsumer.dialect.Dialect`) that makes requests.

    The version of a request is chosen when it is sent. Versions that the interface lets callers pass are not looked at.
    """

    def frame(self, request: Request[Any], correlation_id: int, client_id: str) -> bytes:
        """Return a whole request, but for its tail."""
        tail_bytes = sum(map(len, request.tail))
        return APIS[request.api_key].frame(request.version, correlation_id, client_id, request.body, tail_bytes)

    def throttle(self, request: Request[Any], answer: Buffer) -> tuple[str, int]:
        """Return the name of a request, and for how many ms its answer says that the client is throttled."""
        api = APIS[request.api_key]
        return _COUNTED_AS[api.key], api.throttle_ms(request.version, answer)

    def mutes(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker is of Kafka 2.0 or later, which reads nothing more of a client that it throttles."""
        return _FIRST_FETCH_THAT_MUTES in served.get(apis.FETCH.key, ())

    def limits_answers(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker is of Kafka 0.10.1 or later."""
        return serves(served, apis.FETCH, apis.FETCH.versions[1:])

    def fetch(
        self,
        wanted: Sequence[FetchRequest],
        max_wait_ms: int,
        min_bytes: int,
        version: int = 0,
        *,
        read_committed: bool = False,
        rack: str = "",
        max_bytes: int = MAX_ANSWER_BYTES,
    ) -> VersionedRequest[list[FetchedPartition]]:
        """Return a fetch of several partitions; the answer has one result for each, in their order."""
        for each in wanted:
            numbered(TopicPartition(each.topic, each.partition))

        def at(version: int) -> Request[list[FetchedPartition]]:
            body = fetch.encode_fetch(
                wanted, max_wait_ms, min_bytes, version, read_committed=read_committed, rack=rack, max_bytes=max_bytes
            )
            return request_of(
                apis.FETCH, version, body, lambda answer: fetch.decode_fetch(answer, wanted, version), True
            )

        return versioned(apis.FETCH, at, can_resend=True)

    def offsets(
        self, partitions: Sequence[TopicPartition], time_ms: int, max_offsets: int, *, read_committed: bool = False
    ) -> list[VersionedRequest[list[tuple[int, list[int]]]]]:
        """Return one request for all partitions.

        Ends of logs are served in all versions. Starts of segments are in version 0 alone, which Kafka 4 does not have.
        """
        wanted = [numbered(partition) for partition in partitions]
        is_one = time_ms == _EARLIEST or (time_ms == _LATEST and max_offsets == 1)

        def at(version: int) -> Request[list[tuple[int, list[int]]]]:
            if version < _FIRST_WITH_ONE_OFFSET:
                body = requests_08.encode_offsets(wanted, time_ms, max_offsets)
                return request_of(
                    apis.LIST_OFFSETS, version, body, lambda answer: requests_08.decode_offsets(answer, wanted), True
                )
            body = list_offsets.encode_list_offsets(
                dict.fromkeys(wanted, time_ms), version, read_committed=read_committed
            )

            def decode(answer: Buffer) -> list[tuple[int, list[int]]]:
                found = list_offsets.decode_list_offsets(answer, wanted, version)
                return [(code, [at.offset] if at.offset >= 0 else []) for code, at in found]

            return request_of(apis.LIST_OFFSETS, version, body, decode, True)

        versions = apis.LIST_OFFSETS.versions
        return [versioned(apis.LIST_OFFSETS, at, versions if is_one else versions[:1], can_resend=True)]

    def log_ends(
        self, partitions: Sequence[TopicPartition], *, read_committed: bool = False
    ) -> VersionedRequest[list[LogEnd]]:
        """Return the request for the ends of logs, with the epochs of their leaders from Kafka 2.1 on.

        Kafka 0.10.1 and later.
        """
        wanted = [numbered(partition) for partition in partitions]

        def at(version: int) -> Request[list[LogEnd]]:
            body = list_offsets.encode_list_offsets(
                dict.fromkeys(wanted, _LATEST), version, read_committed=read_committed
            )
            return request_of(
                apis.LIST_OFFSETS, version, body,
                lambda answer: list_offsets.decode_log_ends(answer, wanted, version), True,
            )  # fmt: skip

        return versioned(apis.LIST_OFFSETS, at, apis.LIST_OFFSETS.versions[1:], can_resend=True)

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> VersionedRequest[list[tuple[int, OffsetAndTimestamp]]]:
        """Return the request for the first messages at or after some times: Kafka 0.10.1 and later."""
        wanted = {numbered(partition): time_ms for partition, time_ms in times_ms.items()}

        def at(version: int) -> Request[list[tuple[int, OffsetAndTimestamp]]]:
            body = list_offsets.encode_list_offsets(wanted, version, read_committed=read_committed)
            return request_of(
                apis.LIST_OFFSETS, version, body,
                lambda answer: list_offsets.decode_list_offsets(answer, list(wanted), version), True,
            )  # fmt: skip

        return versioned(apis.LIST_OFFSETS, at, apis.LIST_OFFSETS.versions[1:], can_resend=True)

    def serves_offsets_for_times(self, served: Mapping[int, range]) -> bool:
        """Return whether a broker that serves these versions answers `offsets_for_times`."""
        return serves(served, apis.LIST_OFFSETS, apis.LIST_OFFSETS.versions[1:])

    def api_versions(self) -> Request[tuple[int, dict[int, range]]]:
        """Return the request for error code and served versions."""
        return request_of(apis.API_VERSIONS, 0, b"", decode_api_versions, True)

    def metadata(self, topics: Sequence[str], *, create: bool = True) -> VersionedRequest[ClusterMetadata]:
        """Return the request for brokers and leaders; no topics means all of them.

        Args:
            create: Whether the broker may create topics that do not exist.
        """
        return self.cluster_metadata(topics or None, create=create)

    def cluster_metadata(
        self, topics: Collection[str] | None, *, create: bool = False
    ) -> VersionedRequest[ClusterMetadata]:
        """Return the request for brokers, and leaders of some topics; a topic that is not there gets code 3.

        Args:
            topics: Their names; None for all, and none of them for the brokers alone.
            create: Whether the broker may create topics that do not exist.
        """

        def at(version: int) -> Request[ClusterMetadata]:
            # Older brokers create whatever is named, so nothing is named.
            is_safe = create or not topics or version >= _FIRST_WITHOUT_CREATION
            named = topics if is_safe else None
            body = metadata.encode_metadata(named, version, create=create)
            return request_of(
                apis.METADATA, version, body, lambda answer: metadata.decode_metadata(answer, version, topics), True
            )

        return versioned(apis.METADATA, at, can_resend=True)

    def epoch_ends(
        self, epochs: Mapping[TopicPartition, tuple[int, int]]
    ) -> VersionedRequest[list[EpochEnd]]:
        """Return the request for the ends of epochs of leaders: Kafka 0.11 and later.

        Args:
            epochs: Partition -> the epoch, and the epoch of now as far as it is known (-1: not known).
        """
        wanted = {numbered(partition): epoch for partition, epoch in epochs.items()}

        def at(version: int) -> Request[list[EpochEnd]]:
            body = offset_for_leader_epoch.encode_offset_for_leader_epoch(wanted, version)
            return request_of(
                apis.OFFSET_FOR_LEADER_EPOCH, version, body,
                lambda answer: offset_for_leader_epoch.decode_offset_for_leader_epoch(answer, list(wanted), version),
                True,
            )  # fmt: skip

        return versioned(apis.OFFSET_FOR_LEADER_EPOCH, at, can_resend=True)

    def topic_settings(
        self, topics: Sequence[str], names: Sequence[str]
    ) -> VersionedRequest[list[tuple[int, Mapping[str, str | None]]]]:
        """Return the request for error code and settings in force of each topic: Kafka 0.11 and later.

        Args:
            names: Of the settings that are asked for.
        """

        def at(version: int) -> Request[list[tuple[int, Mapping[str, str | None]]]]:
            body = describe_configs.encode_describe_configs(topics, names, version)
            return request_of(
                apis.DESCRIBE_CONFIGS, version, body,
                lambda answer: describe_configs.decode_describe_configs(answer, topics, version), True,
            )  # fmt: skip

        return versioned(apis.DESCRIBE_CONFIGS, at, can_resend=True)

    # -- producers -----------------------------------------------------------------------------------------------------

    def produce(
        self,
        message_sets: Mapping[TopicPartition, bytes],
        acks: int,
        timeout_ms: int,
        version: int = 0,
        *,
        transactional_id: str | None = None,
    ) -> VersionedRequest[list[ProducedPartition]]:
        """Return the request that appends record batches, or message sets of Kafka 0.10, to partitions.

        Raises:
            ValueError: Sets of both kinds: no version takes them together.
        """
        wanted = {numbered(partition): data for partition, data in message_sets.items()}
        kinds = {produce.magic_of(data) >= _SMALLEST_BATCH_MAGIC for data in wanted.values()}
        if len(kinds) > 1:
            raise ValueError("record batches and older message sets cannot be sent in one request")

        def at(version: int) -> Request[list[ProducedPartition]]:
            body, *tail = produce.encode_produce(wanted, acks, timeout_ms, version, transactional_id)
            return request_of(
                apis.PRODUCE, version, body, lambda answer: produce.decode_produce(answer, list(wanted), version),
                has_answer=acks != 0, tail=tail,
            )  # fmt: skip

        is_batch = kinds == {True}
        versions = tuple(each for each in apis.PRODUCE.versions if (each >= _FIRST_WITH_BATCHES) is is_batch)
        return versioned(apis.PRODUCE, at, versions, has_answer=acks != 0)

    def newest_magic(self, served: Mapping[int, range]) -> int:
        """Return 2, record batches, for a broker of Kafka 0.11 or later, and 1 for one of 0.10."""
        return 2 if serves(served, apis.PRODUCE, apis.PRODUCE.versions[1:]) else 1

    def producer_id(
        self, transactional_id: str | None, transaction_timeout_ms: int, before: ProducerId = NO_ID
    ) -> VersionedRequest[tuple[int, ProducerId]]:
        """Return the request for error code and a producer's id: Kafka 0.11 and later.

        Args:
            transactional_id: None for a producer that is idempotent alone; else the request goes to the coordinator of
                that id, and fences all producers that had it before.
            transaction_timeout_ms: When the coordinator aborts a transaction that is not ended.
            before: What the producer had: the coordinator refuses one that is not the last one of its transactional
                id. Kafka 2.5 and later.
        """

        def at(version: int) -> Request[tuple[int, ProducerId]]:
            body = init_producer_id.encode_init_producer_id(transactional_id, transaction_timeout_ms, before, version)
            decode = partial(init_producer_id.decode_init_producer_id, version=version)
            return request_of(apis.INIT_PRODUCER_ID, version, body, decode)

        api = apis.INIT_PRODUCER_ID
        first = init_producer_id.FIRST_WITH_PRODUCER if before != NO_ID else 0
        return versioned(api, at, tuple(version for version in api.versions if version >= first))

    def add_to_transaction(
        self, transactional_id: str, producer: ProducerId, partitions: Sequence[TopicPartition]
    ) -> VersionedRequest[list[int]]:
        """Return the request that adds partitions to a transaction; the answer is one error code for each."""
        wanted = [numbered(partition) for partition in partitions]
        body = add_partitions_to_txn.encode_add_partitions_to_txn(transactional_id, producer, wanted)

        def decode(answer: Buffer) -> list[int]:
            return add_partitions_to_txn.decode_add_partitions_to_txn(answer, wanted)

        api = apis.ADD_PARTITIONS_TO_TXN
        return versioned(api, partial(request_of, api, body=body, decode=decode))

    def end_transaction(self, transactional_id: str, producer: ProducerId, *, commit: bool) -> VersionedRequest[int]:
        """Return the request that commits or aborts a transaction; the answer is an error code."""
        body = end_txn.encode_end_txn(transactional_id, producer, commit=commit)
        return versioned(
            apis.END_TXN, partial(request_of, apis.END_TXN, body=body, decode=end_txn.decode_end_txn)
        )

    # -- authentication ------------------------------------------------------------------------------------------------

    def sasl_handshake(self, mechanism: str) -> VersionedRequest[tuple[int, list[str]]]:
        """Return the request for a mechanism of authentication; error code, and the mechanisms that there are."""
        body = sasl_handshake.encode_sasl_handshake(mechanism)
        decode = sasl_handshake.decode_sasl_handshake
        return versioned(apis.SASL_HANDSHAKE, partial(request_of, apis.SASL_HANDSHAKE, body=body, decode=decode))

    def sasl_authenticate(self, token: bytes) -> VersionedRequest[SaslAnswer]:
        """Return the request for one step of an authentication: Kafka 1.0 and later, after a handshake of version 1."""

        def at(version: int) -> Request[SaslAnswer]:
            return request_of(
                apis.SASL_AUTHENTICATE, version, sasl_authenticate.encode_sasl_authenticate(token),
                lambda answer: sasl_authenticate.decode_sasl_authenticate(answer, version),
            )  # fmt: skip

        return versioned(apis.SASL_AUTHENTICATE, at)
