"""Deletes the beginning of a log, as Kafka can from 0.11 on, without a producer's library."""

from __future__ import annotations

import struct

from zkconsumer.testing.kafka.probe import ask

_DELETE_RECORDS = 21


def delete_records(port: int, topic: str, partition: int, before: int) -> None:
    """Delete the messages below an offset; returns when the leader has done so.

    Source: Kafka 0.11, DeleteRecordsRequest and DeleteRecordsResponse, version 0.
    """
    name = topic.encode()
    place = struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiq", 1, partition, before)
    head = struct.pack(">hhih", _DELETE_RECORDS, 0, 1, 0)
    answer = ask(port, head + place + struct.pack(">i", 10_000), timeout_s=15)
    at = 4 + 4 + 4 + 2 + len(name) + 4  # correlation, throttle time, topics, name, partitions
    number, low, code = struct.unpack_from(">iqh", answer, at)
    assert (number, low, code) == (partition, before, 0), (number, low, code)
