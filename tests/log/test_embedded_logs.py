"""Logs of Kafka 0.7 as an embedded broker keeps them: rolled, cut at their head, and not closed in order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from simpleconsumer.kafka07.requests import encode_message_set
from simpleconsumer.types import Message
from zkconsumer.log import Damage, Gap, LogReading, LogTail, open_log
from zkconsumer.log.checking import check_partition
from zkconsumer.testing.embedded.kafka07.log import ByteLog
from zkconsumer.testing.embedded.kafka07.settings import LogSettings07


def filled(folder: Path) -> tuple[ByteLog, list[bytes]]:
    """A log of some segments, with every codec of 0.7, and its values."""
    log = ByteLog(folder, "clicks", 3, LogSettings07(file_bytes=2000))
    draw = random.Random(1)
    values: list[bytes] = []
    for number in range(60):
        some = [b"%d " % number + draw.randbytes(draw.choice((0, 10, 200))) for _ in range(draw.randint(1, 5))]
        log.append(encode_message_set(some, ("none", "gzip", "snappy")[number % 3]))
        values += some
    return log, values


def read(folder: Path) -> list[Message]:
    return list(open_log(folder).read_topic("clicks", broker_id=7))


def test_all_messages_with_their_positions(tmp_path: Path) -> None:
    log, values = filled(tmp_path)
    found = read(tmp_path)
    assert [message.value for message in found] == values
    assert {message.partition for message in found} == {"7-3"}
    ends = [message.next_offset for message in found]
    assert ends[-1] == log.end
    assert len(log.segment_paths) > 2
    log.close()


def test_a_range_of_positions_starts_at_entries(tmp_path: Path) -> None:
    log, _ = filled(tmp_path)
    every = read(tmp_path)
    start, end = every[20].offset, every[60].offset
    [partition] = open_log(tmp_path).partitions
    found = [event for event in LogReading(partition, "0-3", start=start, end=end).events()
             if isinstance(event, Message)]  # fmt: skip
    assert [message.value for message in found] == [each.value for each in every if start <= each.offset < end]
    log.close()


def test_no_false_alarm_after_retention_and_without_a_close(tmp_path: Path) -> None:
    log, _ = filled(tmp_path)
    first = log.segment_paths[2]
    log.delete_head(int(first.stem))
    [partition] = open_log(tmp_path).partitions
    findings = list(check_partition(partition, records=True))
    assert not [item for item in findings if isinstance(item, Damage)]
    assert [item.kind.value for item in findings if isinstance(item, Gap)] == ["below_log_start"]
    log.close()


@pytest.mark.parametrize("cut", [1, 3, 5, 30])
def test_a_write_that_a_crash_has_cut_off(tmp_path: Path, cut: int) -> None:
    log, values = filled(tmp_path)
    log.append(encode_message_set([b"last" * 20]))
    log.close()
    path = log.segment_paths[-1]
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - cut)
    [partition] = open_log(tmp_path).partitions
    findings = list(check_partition(partition))
    assert [item.kind for item in findings if isinstance(item, LogTail)] == ["torn"]
    assert [message.value for message in read(tmp_path)] == values
