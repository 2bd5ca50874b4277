"""In which leader epoch records were appended, and who has set their time, by the heads of their entries."""

from __future__ import annotations

from struct import pack

import pytest

from simpleconsumer.dialect_types import Appended
from simpleconsumer.kafka011.batch_head import appended
from tests.simpleconsumer import golden_apis


def batch(base: int, delta: int, epoch: int, attributes: int = 0, body: bytes = b"body") -> bytes:
    fields = pack(">ibIhiqqqhii", epoch, 2, 0, attributes, delta, 0, 0, -1, -1, -1, delta + 1)
    return pack(">qi", base, len(fields) + len(body)) + fields + body


def message(offset: int, magic: int, attributes: int) -> bytes:
    fields = pack(">IbB", 0, magic, attributes) + (b"12345678" if magic else b"") + pack(">ii", -1, -1)
    return pack(">qi", offset, len(fields)) + fields


def test_batches_of_one_epoch_are_one_run() -> None:
    data = batch(0, 4, 3) + batch(5, 0, 3) + batch(9, 2, 4) + batch(12, 0, 4, attributes=8)
    assert appended(data) == [Appended(5, 3, False), Appended(11, 4, False), Appended(12, 4, True)]


def test_an_epoch_of_minus_one_is_not_known() -> None:
    assert appended(batch(7, 1, -1)) == [Appended(8, None, False)]


def test_messages_of_older_magic_have_no_epoch() -> None:
    data = message(1, 0, 0x08) + message(2, 1, 0x08) + message(3, 1, 0x00) + batch(4, 0, 1)
    assert appended(data) == [
        Appended(1, None, False), Appended(2, None, True), Appended(3, None, False), Appended(4, 1, False),
    ]  # fmt: skip


@pytest.mark.parametrize("missing", range(1, 60))
def test_what_is_no_whole_head_is_left_out(missing: int) -> None:
    whole, last = batch(0, 0, 1), batch(1, 0, 2, body=b"")
    assert appended(whole + last[: len(last) - missing]) == [Appended(0, 1, False)]


def test_an_impossible_size_ends_the_walk() -> None:
    assert appended(pack(">qi", 5, -12) + bytes(60)) == [Appended(5, None, False)]
    assert appended(b"") == []


def test_recorded_batches_have_epochs_of_real_brokers() -> None:
    frames = next(each for each in golden_apis.every() if (each.kafka, each.name[:15]) == ("4.3.1", "Fetch-aborted-v"))
    data = [each for answer in frames.decoded() for each in [bytes(answer.message_set)] if each]
    assert data
    for each in data:
        assert all(run.leader_epoch is not None and run.leader_epoch >= 0 for run in appended(each))
