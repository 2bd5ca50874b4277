"""The marks that transactions leave in a log from Kafka 0.11 on, made without a producer's library."""

from __future__ import annotations

import socket
import struct
import uuid

from simpleconsumer.consumer import LATEST, SimpleConsumer
from zkconsumer.testing.waiting import wait_until

FIND_COORDINATOR, INIT_PRODUCER, ADD_PARTITIONS, END_TRANSACTION = 10, 22, 24, 26


def add_mark(port: int, topic: str, partition: int) -> None:
    """Begin a transaction without messages and commit it: one mark, which takes one offset."""
    name = uuid.uuid4().hex
    with SimpleConsumer("127.0.0.1", port) as log, socket.create_connection(("127.0.0.1", port), 30) as broker:
        [end] = log.get_offsets_before(topic, partition, LATEST)
        until_done(broker, FIND_COORDINATOR, 1, string(name) + b"\1", 4)
        answer = until_done(broker, INIT_PRODUCER, 0, string(name) + struct.pack(">i", 60_000), 4)
        producer = answer[6:16]
        where = struct.pack(">i", 1) + string(topic) + struct.pack(">ii", 1, partition)
        until_done(broker, ADD_PARTITIONS, 0, string(name) + producer + where, 4 + 4 + 2 + len(topic) + 4 + 4)
        until_done(broker, END_TRANSACTION, 0, string(name) + producer + b"\1", 4)
        wait_until(lambda: log.get_offsets_before(topic, partition, LATEST) == [end + 1], 60, "the mark in the log")


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def until_done(broker: socket.socket, api: int, version: int, body: bytes, code_at: int) -> bytes:
    """Ask until the answer has no error code; a coordinator takes a moment to begin."""
    answers: list[bytes] = []

    def is_done() -> bool:
        head = struct.pack(">hhi", api, version, 7) + string("marks")
        broker.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", read(broker, 4))
        answers.append(read(broker, size)[4:])
        (code,) = struct.unpack_from(">h", answers[-1], code_at)
        return bool(code == 0)

    wait_until(is_done, 60, f"request {api} to be served")
    return answers[-1]


def read(broker: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = broker.recv(size - len(data))
        assert more, "the broker closed the connection"
        data += more
    return data
