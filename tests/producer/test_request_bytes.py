"""What a producer writes to its socket is what Java's producers of 0.7.2 and 0.8 wrote for the same messages."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from simpleconsumer.dialect import dialect_of
from simpleconsumer.types import Broker
from tests.simpleconsumer import golden_frames
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.producer import Producer
from zkconsumer.producer.sending.sending import FoundCluster
from zkconsumer.producer.sending.topic_lookup import FoundTopic

WAIT_S = 20.0
SINCE_08 = ("0.8.0", "0.8.1.1", "0.8.2.2")
CODECS_08 = [(version, codec) for version in SINCE_08 for codec in ("gzip", "snappy")] + [("0.8.2.2", "lz4")]
KEYED = list(zip(golden_frames.KEYS, golden_frames.VALUES, strict=True))
THREE, TWO = KEYED[:3], KEYED[3:5]
PLAIN = [b"hello", b"", "grüße ✓".encode()]
"""The messages of 0.7, which has no keys."""


class Recorder:
    """Takes one connection, records its first request, and answers nothing."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.request = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        connection, _ = self._server.accept()
        with connection, connection.makefile("rb") as stream:
            size = stream.read(4)
            self.request = size + stream.read(*struct.unpack(">i", size))

    def recorded(self) -> bytes:
        self._thread.join(WAIT_S)
        self._server.close()
        return self.request


class Lookup:
    """Knows one partition of every topic."""

    def __init__(self, partition: int | str, broker: Broker) -> None:
        self.found = FoundTopic({partition: broker})

    def look_up(self, topics: Sequence[str]) -> dict[str, FoundTopic]:
        return dict.fromkeys(topics, self.found)


def written(topic: str, messages: Sequence[Any], codec: str, generation: str, partition: int | str = 0) -> bytes:
    """Return the request of a producer for these messages."""
    recorder = Recorder()
    # The recorder answers nothing; in Kafka 0.7 an answer is waited for behind what was sent, for twice this time.
    timeout_ms = 250 if generation == "kafka07" else 10_000
    lookup = Lookup(partition, Broker(0, "127.0.0.1", recorder.port, generation=generation))
    config = ProducerConfig(
        metadata_broker_list="127.0.0.1:1", client_id="golden", compression_codec=codec, message_send_max_retries=0,
        producer_type="async", request_timeout_ms=timeout_ms,
    )  # fmt: skip
    made = Producer(config, cluster=FoundCluster(lookup, generation != "kafka07", lambda: None))
    with made:
        for message in messages:
            key, value = message if isinstance(message, tuple) else (None, message)
            made.send(topic, value, key)
        made.flush(WAIT_S)
    return recorder.recorded()


def same_correlation_id(frame: bytes, other: bytes) -> bytes:
    """Return a frame of 0.8 with the correlation id of another one: each client counts its own requests."""
    return frame[:8] + other[8:12] + frame[12:]


@pytest.mark.parametrize("version", SINCE_08)
@pytest.mark.parametrize(("name", "messages"), [("java-produce-none", THREE), ("java-second-none", TWO)])
def test_requests_of_08_are_those_of_the_scala_producer(version: str, name: str, messages: Sequence[Any]) -> None:
    java = golden_frames.frame(version, f"{name}-request")
    assert same_correlation_id(written("g-none", messages, "none", "kafka08"), java) == java


@pytest.mark.parametrize(("version", "codec"), CODECS_08)
def test_compressed_requests_of_08_differ_in_the_compressed_bytes_alone(version: str, codec: str) -> None:
    topic = f"g-{codec}"
    java = golden_frames.frame(version, f"java-produce-{codec}-request")
    ours = same_correlation_id(written(topic, THREE, codec, "kafka08"), java)
    head = 4 + 8 + 2 + len("golden") + 2 + 4 + 4 + 2 + len(topic) + 4 + 4  # to the size of the message set
    assert ours[4:head] == java[4:head]
    assert _content(ours[head + 4 :], "kafka08") == _content(java[head + 4 :], "kafka08")
    entry = slice(head + 4 + 16, head + 4 + 22)  # magic, attributes, and the key that a wrapper has not
    assert ours[entry] == java[entry]


@pytest.mark.parametrize(
    ("name", "messages", "partition"),
    [("none", PLAIN, "0-0"), ("random-partition", [b"anywhere"], "0-any"), ("gzip-plain", [b"sixth"], "0-0")],
)
def test_requests_of_07_are_those_of_the_java_producer(name: str, messages: list[bytes], partition: str) -> None:
    java = golden_frames.frame("0.7.2", f"java-produce-{name}-request")
    (length,) = struct.unpack_from(">h", java, 6)
    assert written(java[8 : 8 + length].decode(), messages, "none", "kafka07", partition) == java


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_compressed_requests_of_07_differ_in_the_compressed_bytes_alone(codec: str) -> None:
    topic = f"g-{codec}"
    java = golden_frames.frame("0.7.2", f"java-produce-{codec}-request")
    ours = written(topic, PLAIN, codec, "kafka07", "0-0")
    head = 4 + 2 + 2 + len(topic) + 4
    assert ours[4:head] == java[4:head]
    assert _content(ours[head + 4 :], "kafka07") == _content(java[head + 4 :], "kafka07")
    entry = slice(head + 8, head + 10)  # magic and attributes
    assert ours[entry] == java[entry]


def _content(message_set: bytes, generation: str) -> list[tuple[bytes | None, bytes | None]]:
    dialect = dialect_of(Broker(0, "", 0, generation=generation))
    found = dialect.decode_messages(memoryview(message_set), "t", 0, 0)
    return [(message.key, message.value) for message in found]
