"""The dialect of Kafka 0.7: what its requests say of themselves, and that every argument reaches the decoders."""

from __future__ import annotations

from typing import Any

import pytest
from kafka07_decoding import PARTITION

from simpleconsumer.dialect import KAFKA07
from simpleconsumer.dialect_types import Boundary, PositionIs
from simpleconsumer.errors import MessageError, MessageTooLarge, NoSuchRequest
from simpleconsumer.kafka07.requests import encode_entry, encode_message_set, encode_wrapper
from simpleconsumer.types import FetchRequest, TopicPartition

ENTRY = encode_message_set([b"a", b"b", b"c"], "gzip")
DATA = encode_message_set([b"before"]) + ENTRY + encode_message_set([b"behind"])
START = 1000
ENTRY_AT = START + 16
BEHIND_AT = ENTRY_AT + len(ENTRY)
NAMES = ("value", "offset", "entry_index", "next_offset")


def test_requests_that_only_read_can_be_sent_again_and_none_has_a_version() -> None:
    wanted = [FetchRequest("t", number, 0, 10) for number in range(2)]
    reading = [
        KAFKA07.fetch(wanted[:1], 0, 0, 0), KAFKA07.fetch(wanted, 0, 0, 0),
        *KAFKA07.offsets([TopicPartition("t", 0), TopicPartition("t", 1)], -1, 1),
    ]  # fmt: skip
    assert [(each.version, each.can_resend, each.has_answer) for each in reading] == [(0, True, True)] * 4
    one, two = ({TopicPartition("t", number): b"x" for number in range(count)} for count in (1, 2))
    writing = [KAFKA07.produce(one, 1, 0, 0), KAFKA07.produce(two, 1, 0, 0)]
    assert [(each.version, each.can_resend, each.has_answer) for each in writing] == [(0, False, False)] * 2
    assert [each.decode(memoryview(b"")) for each in writing] == [[], []]


@pytest.mark.parametrize(
    ("ask", "about", "remedy"),
    [
        (lambda: KAFKA07.metadata(["t"]), "metadata",
         "brokers and topics are in ZooKeeper, and the name of a partition says which broker has it"),
        (lambda: KAFKA07.api_versions(), "the versions that they serve",
         "all brokers of 0.7 serve the same requests, which have no versions"),
        (lambda: KAFKA07.log_ends([]), "the epoch of a log's end",
         "partitions have no leaders: each is on one broker"),
        (lambda: KAFKA07.epoch_ends({}), "the end of a leader's epoch",
         "partitions have no leaders: each is on one broker"),
        (lambda: KAFKA07.offsets_for_times({}), "the message of a time",
         "messages have no timestamps: `get_offsets_before` finds segments of a time"),
    ],
)  # fmt: skip
def test_remedies_for_requests_that_do_not_exist(ask: Any, about: str, remedy: str) -> None:
    with pytest.raises(NoSuchRequest) as caught:
        ask()
    assert (caught.value.request, caught.value.remedy) == (about, remedy)


def test_messages_are_encoded_in_the_magic_that_is_asked_for() -> None:
    for magic in (0, 1):
        assert KAFKA07.encode_messages([b"x"], "none", magic, None) == encode_entry(b"x", magic)
    assert KAFKA07.encode_messages([b"x"], "none", None, None) == encode_entry(b"x", 1)


def rows(data: bytes, start: int, **options: Any) -> list[tuple[Any, ...]]:
    return [
        (m.value, m.offset, m.index, m.next_offset)
        for m in KAFKA07.decode_messages(data, "t", PARTITION, start, **options)
    ]


def column_rows(data: bytes, start: int, **options: Any) -> list[tuple[Any, ...]]:
    batches = KAFKA07.decode_columns(data, "t", PARTITION, start, columns=NAMES, **options)
    return [row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in NAMES), strict=True)]


@pytest.mark.parametrize("decoded", [rows, column_rows])
def test_decoding_starts_at_the_place_that_is_asked_for(decoded: Any) -> None:
    assert decoded(DATA, ENTRY_AT, start_index=2, data_offset=START) == [
        (b"c", ENTRY_AT, 2, BEHIND_AT), (b"behind", BEHIND_AT, 0, BEHIND_AT + 16),
    ]  # fmt: skip


@pytest.mark.parametrize("decoded", [rows, column_rows])
def test_an_entry_above_the_limit_is_an_error_with_its_place_and_is_not_met_again_behind_it(decoded: Any) -> None:
    with pytest.raises(MessageTooLarge, match=f"t/{PARTITION} at {ENTRY_AT}: gzip: inflates to more than 20") as caught:
        decoded(DATA[16:], ENTRY_AT, max_decoded_bytes=20)
    resume = caught.value.resume
    assert decoded(DATA[16:], ENTRY_AT, resume=resume) == [(b"behind", BEHIND_AT, 0, BEHIND_AT + 16)]


def test_batches_end_before_the_end_that_is_asked_for_and_have_the_size_that_is_asked_for() -> None:
    assert [row[0] for row in column_rows(DATA, START, end_offset=BEHIND_AT)] == [b"before", b"a", b"b", b"c"]
    data = encode_message_set([b"x" * 90] * 100)
    batches = list(KAFKA07.decode_columns(data, "t", PARTITION, 0, columns=["value"], max_batch_bytes=1000))
    assert [batch.num_rows for batch in batches] == [10] * 10


def test_places_of_rows_and_behind_them() -> None:
    [batch] = KAFKA07.decode_columns(DATA, "t", PARTITION, START, columns=NAMES)
    assert [KAFKA07.place_of(batch, row) for row in range(5)] == [
        (START, 0), (ENTRY_AT, 0), (ENTRY_AT, 1), (ENTRY_AT, 2), (BEHIND_AT, 0),
    ]  # fmt: skip
    assert [KAFKA07.place_behind(batch, row) for row in range(5)] == [
        (ENTRY_AT, 0), (ENTRY_AT, 1), (ENTRY_AT, 2), (BEHIND_AT, 0), (BEHIND_AT + 16, 0),
    ]  # fmt: skip


def test_what_is_known_of_entries_and_positions() -> None:
    assert KAFKA07.find_boundary(DATA, START, ENTRY_AT + 1) == Boundary(PositionIs.INSIDE, ENTRY_AT, BEHIND_AT)
    assert KAFKA07.first_entry_fault(b"\0\0\0\4" + bytes(4)) == "entry at byte 0 has size 4"
    assert KAFKA07.first_entry_fault(DATA) is None


def test_an_error_two_levels_deep_names_topic_and_partition_in_columns() -> None:
    bad = bytearray(encode_entry(b"bad"))
    bad[-1] ^= 1
    with pytest.raises(MessageError) as caught:
        column_rows(encode_wrapper(encode_wrapper(bytes(bad), "gzip"), "gzip"), 0)
    assert (caught.value.topic, caught.value.partition) == ("t", PARTITION)
