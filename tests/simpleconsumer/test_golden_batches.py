"""Record batches of real brokers, decoded and compared with what an independent reader found in them."""

from __future__ import annotations

import golden_batches
import pytest
from batch_decoding import decode_all, decode_simply
from golden_batches import GoldenAnswer, GoldenRecord

from simpleconsumer.kafka011.batch_head import IS_CONTROL, read_head
from simpleconsumer.kafka011.record_batch import decode_messages
from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.types import HeaderMessage, Message

ANSWERS = golden_batches.answers()


def shown(messages: list[Message]) -> list[tuple[object, ...]]:
    return [(m.offset, m.timestamp_ms, m.key, m.value, m.headers) for m in messages]


def expected(records: list[GoldenRecord]) -> list[tuple[object, ...]]:
    return [tuple(record[:5]) for record in records if not record.attributes & IS_CONTROL]


def test_the_recordings_are_all_here() -> None:
    names = {version: [each.name for each in ANSWERS if each.version == version] for version in golden_batches.VERSIONS}
    codecs = ["m2-gzip", "m2-lz4", "m2-none", "m2-none-from-2", "m2-none-max20", "m2-snappy", "m2-txn"]
    for found in names.values():
        assert sorted(set(found) - {"m2-zstd", "m2-txn-committed"}) == codecs
    assert ["m2-zstd" in found for found in names.values()] == [False, True, True]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda each: f"{each.version}-{each.name}")
def test_every_record_of_every_codec_is_read_and_no_control_record(answer: GoldenAnswer) -> None:
    messages, errors = decode_all(answer.record_set, high_watermark=answer.high_watermark)
    assert errors == []
    assert shown(messages) == expected(answer.records)
    assert [type(message) for message in messages] == [HeaderMessage if m.headers else Message for m in messages]


@pytest.mark.parametrize("version", golden_batches.VERSIONS)
def test_read_committed_leaves_out_what_was_aborted(version: str) -> None:
    answer = golden_batches.answer(version, "m2-txn-committed")
    assert [tuple(each) for each in answer.aborted] == [(0, 3)]
    messages, errors = decode_all(answer.record_set, aborted=answer.aborted)
    assert ([m.value for m in messages], errors) == ([b"kept 1", b"kept 2", b"kept 3"], [])
    assert [m.value for m in decode_all(answer.record_set)[0]] == [b"kept 1", b"kept 2", b"dropped", b"kept 3"]


@pytest.mark.parametrize("start", range(6))
@pytest.mark.parametrize("name", ["m2-none", "m2-gzip"])
def test_messages_before_the_offset_asked_for_are_passed_over(name: str, start: int) -> None:
    answer = golden_batches.answer("4.3.1", name)
    assert [m.offset for m in decode_messages(answer.record_set, "t", 0, start)] == list(range(start, 5))


@pytest.mark.parametrize("version", golden_batches.VERSIONS)
def test_what_java_encoded_is_encoded_to_the_same_bytes(version: str) -> None:
    answer = golden_batches.answer(version, "m2-none")
    messages = decode_simply(answer.record_set)
    epoch = read_head(answer.record_set, 0).leader_epoch
    first = encode_record_batch(messages[:4], first_offset=0, leader_epoch=epoch)
    second = encode_record_batch(messages[4:], first_offset=4, leader_epoch=epoch)
    assert first + second == answer.record_set


@pytest.mark.parametrize("name", ["m2-none", "m2-gzip"])
def test_a_set_that_is_cut_off_yields_its_whole_batches(name: str) -> None:
    data = golden_batches.answer("4.3.1", name).record_set
    first_bytes = 12 + read_head(data, 0).size
    for end in range(len(data) + 1):
        messages, errors = decode_all(data[:end])
        assert errors == []
        assert [m.offset for m in messages] == list(range(0 if end < first_bytes else 4 if end < len(data) else 5))
