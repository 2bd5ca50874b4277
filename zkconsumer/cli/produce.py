"""`zkconsumer produce`: sends the lines of standard input as messages.

Source: kafka.tools.ConsoleProducer, kafka.producer.DefaultPartitioner (0.8.2.2).
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator

import click

from rebalance.assignment import sort_partitions
from rebalance.requests import ZooKeeperPort
from rebalance.subscription import check_topic
from zkconsumer.cli.connection_options import connection_settings, named_places, open_zookeeper, zookeeper_option
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.messages.input_lines import KeyedLines, LineSplitter
from zkconsumer.cli.messages.sender import CLIENT_ID, KeyValue, Sender, SendSettings
from zkconsumer.cli.messages.sender_07 import Sender07
from zkconsumer.cli.partition_option import PartitionType
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.config.connection_settings import config_without_group
from zkconsumer.producer.partitioners import partition_of_key

__all__ = ["produce"]

_PIECE_BYTES = 256 * 1024
_BATCH_BYTES = 512 * 1024
"""Most bytes in a batch: a compressed one counts as one message, and brokers take 1 MB (`message.max.bytes`)."""

_EPILOG = """\
\b
A line goes to the partition of its key (abs(Arrays.hashCode(key)) % partitions, as in Kafka 0.8.2); lines without a key
go to one partition after the other. Batches are sent when they are full or when the input pauses, and sent again
when a leader changes.

\b
Brokers of Kafka 0.7 acknowledge nothing. There a batch counts as sent when its broker has answered another question
behind it on the same connection; a message that is larger than max.message.size is dropped without a sign. They store
no keys, and make a topic when its first message comes. A partition is named broker-partition, such as 0-3.

\b
Example: three messages, two of them with the same key
  printf 'ann:1\\nbob:2\\nann:3\\n' | zkconsumer produce --zookeeper localhost:2181 --topic clicks --key-separator :
"""


@click.command(epilog=_EPILOG)
@zookeeper_option()
@click.option("--topic", metavar="TOPIC", required=True, help="Topic to write to.")
@click.option("--partition", metavar="P", type=PartitionType(), help="Write all to this partition.")
@click.option("--key-separator", metavar="TEXT", help="Lines are key, this text, value.")
@click.option("--codec", type=click.Choice(["none", "gzip", "snappy", "lz4"]), default="none",
              help="Compression. [none]")
@click.option("--batch-size", metavar="N", type=click.IntRange(min=1), default=200,
              help="Most messages in a batch. [200]")
@click.option("--acks", type=click.Choice(["1", "-1", "0"]), default="1",
              help="Wait for the leader (1), all in-sync replicas (-1), nobody (0). [1]")
@click.option("--no-create", is_flag=True, help="Do not let the brokers create a topic that does not exist.")
def produce(
    zookeeper: str, topic: str, partition: int | str | None, key_separator: str | None, codec: str, batch_size: int,
    acks: str, no_create: bool,
) -> None:
    """Send the lines of stdin as messages.

    The brokers are found in ZooKeeper. A topic that does not exist is created by brokers that create topics on their
    own (auto.create.topics.enable), which is reported on stderr before anything is sent; see --no-create.
    """
    check_topic(topic)
    if sys.stdin is None:
        raise CliError("standard input is closed")
    if key_separator == "":
        raise click.BadParameter("is empty", param_hint="--key-separator")
    lines = KeyedLines(None if key_separator is None else key_separator.encode())
    with open_zookeeper(zookeeper) as port:
        settings = SendSettings(codec, int(acks), may_create=not no_create, has_keys=key_separator is not None)
        cluster = _cluster(port, zookeeper, settings)
        of_07 = cluster.generation().has_broker_nodes
        sender = (Sender07 if of_07 else Sender)(cluster, zookeeper, topic, settings)
        try:
            sender.open()
            if (creation := sender.about_creation()) is not None:
                click.echo(creation, err=True)
            batches = Batches(sender, partition, batch_size)
            try:
                _send_input(batches, lines)
            finally:
                click.echo(sender.about_sent(), err=True)
        finally:
            sender.close()


def _cluster(port: ZooKeeperPort, zookeeper: str, settings: SendSettings) -> Cluster:
    with named_places():
        forced = config_without_group(zookeeper, connection_settings().properties).kafka_generation
        cluster = Cluster(port, CLIENT_ID, settings.request_timeout_s, forced_generation=forced)
        cluster.refuse_other_generation()
    return cluster


class Batches:
    """Collects messages by partition and sends full batches.

    Args:
        fixed: The partition of all messages, None to choose one for each.
        size: Most messages in a batch.
    """

    def __init__(self, sender: Sender, fixed: int | str | None, size: int) -> None:
        if fixed is not None and fixed not in sender.partitions:
            raise sender.no_partition(fixed)
        self._sender = sender
        self._fixed = fixed
        self._size = size
        self._waiting: dict[int | str, list[KeyValue]] = {}
        self._bytes: dict[int | str, int] = {}
        leaderless = set(sender.leaderless())
        # A message without a key may go to any partition, so those without a leader are left out.
        existing = sort_partitions(sender.partitions)
        self._turn = [number for number in existing if number not in leaderless] or existing
        self._count = 0

    def add(self, key: bytes | None, value: bytes) -> None:
        """Add a message, and send its batch when it is full."""
        partition = self._partition(key)
        size = len(key or b"") + len(value) + 26
        if self._bytes.get(partition, 0) + size > _BATCH_BYTES:
            self._send(partition)
        batch = self._waiting.setdefault(partition, [])
        batch.append((key, value))
        self._bytes[partition] = self._bytes.get(partition, 0) + size
        if len(batch) >= self._size:
            self._send(partition)

    def _partition(self, key: bytes | None) -> int | str:
        if self._fixed is not None:
            return self._fixed
        if key is not None:
            return partition_of_key(key, [int(each) for each in self._sender.partitions])
        self._count += 1
        return self._turn[(self._count - 1) % len(self._turn)]

    def _send(self, partition: int | str) -> None:
        batch = self._waiting.pop(partition, [])
        self._bytes[partition] = 0
        if batch:
            self._sender.send(partition, batch)

    def send_all(self) -> None:
        """Send all batches."""
        for partition in sort_partitions(self._waiting):
            self._send(partition)


def _send_input(batches: Batches, lines: KeyedLines) -> None:
    for line in _input_lines():
        if line is None:
            batches.send_all()
            continue
        try:
            key, value = lines.split(line)
        except CliError:
            batches.send_all()  # the lines before it are valid
            raise
        batches.add(key, value)
    batches.send_all()


def _input_lines() -> Iterator[bytes | None]:
    """Yield the lines of stdin, and None whenever there is none at the moment."""
    splitter = LineSplitter()
    fd = sys.stdin.fileno()
    while piece := os.read(fd, _PIECE_BYTES):
        yield from splitter.feed(piece)
        if not select.select([fd], [], [], 0)[0]:
            yield None
    yield from splitter.finish()
