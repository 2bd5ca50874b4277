"""The dialect of Kafka 0.10.0 and later: versions chosen for each connection, message sets of every magic.

The requests of Kafka 0.10.0 and later, in whichever of their versions a connection has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from simpleconsumer.dialect_types import (
    MAX_ANSWER_BYTES,
    Appended,
    FetchResult,
    NumberedOffsets,
    Request,
    VersionedRequest,
    numbered,
)
from simpleconsumer.kafka011 import batch_head, fetch_and_produce, record_batch
from simpleconsumer.kafka011.acl_requests import AclRequests
from simpleconsumer.kafka011.admin_requests import AdminRequests
from simpleconsumer.kafka011.batch_head import MAGIC, appended
from simpleconsumer.kafka011.calls import call, request_of, serves, versioned
from simpleconsumer.kafka011.classify import NOT_LEADER_CODES, classify
from simpleconsumer.kafka011.group_requests import GroupRequests
from simpleconsumer.kafka011.record_batch import open_reading
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.kafka011.topic_requests import TopicRequests
from simpleconsumer.kafka08.message_encode import Encodable, encode_message_set
from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from simpleconsumer.primitives import results_of, topics_of
from simpleconsumer.types import (
    NO_ID,
    Buffer,
    FetchedPartition,
    FetchRequest,
    Message,
    ProducedPartition,
    ProducerId,
    TopicPartition,
)

_FIRST_WITH_BATCHES: Final = 3
"""Produce: the first version that takes record batches, and the last one that takes none is the one before."""
_SMALLEST_BATCH_MAGIC: Final = 2
_FIRST_FETCH_THAT_MUTES: Final = 8
_FIRST_WITH_PRODUCER: Final = 3
"""InitProducerId: the first version whose request has the producer's earlier id and epoch: Kafka 2.5 (KIP-360)."""
_COUNTED_AS: Final = {api.key: re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower() for api in apis.APIS.values()}
"""Names of APIs in statistics and log lines, by key."""


class Requests(GroupRequests, TopicRequests, AdminRequests, AclRequests):
    """The part of a dialect (`simpleconsumer.dialect.Dialect`) that makes requests.

    The version of a request is chosen when it is sent. Versions that the interface lets callers pass are not looked at.
    """

    def frame(self, request: Request[Any], correlation_id: int, client_id: str) -> bytes:
        """Return a whole request, but for its tail."""
        tail_bytes = sum(map(len, request.tail))
        return apis.APIS[request.api_key].frame(request.version, correlation_id, client_id, request.body, tail_bytes)

    def throttle(self, request: Request[Any], answer: Buffer) -> tuple[str, int]:
        """Return the name of a request, and for how many ms its answer says that the client is throttled."""
        api = apis.APIS[request.api_key]
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
            body = fetch_and_produce.encode_fetch(
                wanted, max_wait_ms, min_bytes, version, read_committed=read_committed, rack=rack, max_bytes=max_bytes
            )
            return request_of(
                apis.FETCH, version, body, lambda answer: fetch_and_produce.decode_fetch(answer, wanted, version), True
            )

        return versioned(apis.FETCH, at, can_resend=True)

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
        kinds = {fetch_and_produce.magic_of(data) >= _SMALLEST_BATCH_MAGIC for data in wanted.values()}
        if len(kinds) > 1:
            raise ValueError("record batches and older message sets cannot be sent in one request")

        def at(version: int) -> Request[list[ProducedPartition]]:
            body, *tail = fetch_and_produce.encode_produce(wanted, acks, timeout_ms, version, transactional_id)
            return request_of(
                apis.PRODUCE,
                version,
                body,
                lambda answer: fetch_and_produce.decode_produce(answer, list(wanted), version),
                has_answer=acks != 0,
                tail=tail,
            )

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
            before: The producer's id and epoch so far: the coordinator refuses any but the last ones of its
                transactional id. Kafka 2.5 and later.
        """

        values = {
            "transactional_id": transactional_id, "transaction_timeout_ms": transaction_timeout_ms,
            "producer_id": before.producer_id, "producer_epoch": before.epoch,
        }  # fmt: skip
        api = apis.INIT_PRODUCER_ID
        first = _FIRST_WITH_PRODUCER if before != NO_ID else 0
        return call(
            api, values,
            lambda answer: (answer["error_code"], ProducerId(answer["producer_id"], answer["producer_epoch"])),
            tuple(version for version in api.versions if version >= first),
        )  # fmt: skip

    def add_to_transaction(
        self, transactional_id: str, producer: ProducerId, partitions: Sequence[TopicPartition]
    ) -> VersionedRequest[list[int]]:
        """Return the request that adds partitions to a transaction; the answer is one error code for each.

        It starts the transaction.
        """
        wanted = [numbered(partition) for partition in partitions]
        return call(
            apis.ADD_PARTITIONS_TO_TXN, _of_producer(transactional_id, producer) | {"topics": topics_of(wanted)},
            lambda answer: results_of(
                "add partitions to transaction", answer["topics"], wanted, lambda row: int(row["error_code"])
            ),
        )  # fmt: skip

    def end_transaction(self, transactional_id: str, producer: ProducerId, *, commit: bool) -> VersionedRequest[int]:
        """Return the request that commits or aborts a transaction; the answer is an error code."""
        return call(
            apis.END_TXN, _of_producer(transactional_id, producer) | {"committed": commit},
            lambda answer: int(answer["error_code"]),
        )  # fmt: skip


def _of_producer(transactional_id: str, producer: ProducerId) -> Values:
    return {
        "transactional_id": transactional_id, "producer_id": producer.producer_id, "producer_epoch": producer.epoch,
    }  # fmt: skip


class Kafka011(NumberedOffsets, Requests):
    """Requests and message sets of Kafka 0.10.0 and later, as `simpleconsumer.dialect.Dialect` describes them."""

    name: Final = "kafka011"
    has_correlation_ids: Final = True
    has_metadata: Final = True
    has_long_poll: Final = True
    has_offsets_without_messages: Final = True
    chooses_versions: Final = True
    not_leader_codes: Final = NOT_LEADER_CODES
    columns: Final = ("key", "value", "offset", "timestamp_ms", "timestamp_type")

    def __repr__(self) -> str:
        return f"<dialect {self.name}>"

    def encode_messages(
        self, messages: Iterable[Encodable], codec: str, magic: int | None, timestamp_ms: int | None
    ) -> bytes:
        """Return a message set to produce, of magic 1 by default, which all of them take; 2 is a record batch."""
        if magic == MAGIC:
            return encode_record_batch(messages, codec, timestamp_ms=timestamp_ms)
        return encode_message_set(messages, codec, 1 if magic is None else magic, timestamp_ms=timestamp_ms)

    def decode_messages(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, *,
        start_index: int = 0, data_offset: int | None = None, **how: Any,
    ) -> Iterator[Message]:  # fmt: skip
        """Return the messages of a set; see `record_batch.decode_messages`."""
        return record_batch.decode_messages(data, topic, partition, start_offset, **how)

    def decode_runs(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, *, start_index: int = 0,
        data_offset: int | None = None, **how: Any,
    ) -> Iterator[Iterable[Message]]:  # fmt: skip
        """Return the same messages in runs; see `record_batch.decode_runs`."""
        return record_batch.decode_runs(open_reading(data, start_offset, **how), topic, partition)

    def decode_columns(
        self, data: Buffer, topic: str, partition: int | str, start_offset: int, *,
        start_index: int = 0, data_offset: int | None = None, **how: Any,
    ) -> Iterator[Any]:  # fmt: skip
        """Return the messages of a set as record batches of Arrow; see `columns.decode_columns`."""
        from simpleconsumer.kafka011.columns import decode_columns

        return decode_columns(data, topic, partition, start_offset, **how)

    def set_end(self, data: Buffer, data_offset: int) -> tuple[int, int | None, int]:
        """Return how many bytes whole entries take, the offset after the last one, and the number of entries."""
        return batch_head.set_end(data)

    def appended(self, data: Buffer) -> Sequence[Appended]:
        """Return in which epochs records were appended, and who has set their time; see `kafka011.appended`."""
        return appended(data)

    def bytes_an_offset(self, data: Buffer, offset: int) -> float | None:
        """Return how many bytes of a set one offset takes; see `batch_head`."""
        return batch_head.bytes_an_offset(data, offset)

    def first_offset_in(self, data: Buffer, offset: int, start: int) -> int:
        """Return the first offset that may be in the entry that holds `offset`; see `batch_head`."""
        return batch_head.first_offset_in(data, offset, start)

    def classify(
        self, answer: FetchedPartition, position: int, asked_bytes: int, largest_bytes: int, version: int = 0
    ) -> FetchResult:
        """Return what the answer to a fetch of one partition means; see `simpleconsumer.kafka011.classify`."""
        return classify(answer, position, asked_bytes, largest_bytes)
