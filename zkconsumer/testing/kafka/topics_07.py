"""Topics of Kafka 0.7: every broker has partitions of its own, and a topic is made by the first produce request for it.

The number of partitions is a setting of the broker: `num.partitions`, or `topic.partition.count.map` for one topic.
Source: Kafka 0.7.2, LogManager.scala; shared facts in docs/COMPATIBILITY.md.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkconsumer.testing.errors import KitError, NotSupported
from zkconsumer.testing.kafka.probe import OFFSETS_07, ask_on
from zkconsumer.testing.waiting import wait_until

_PRODUCE_07 = 0
_ANY_PARTITION = -1
_LATEST = -1


def partition_name(broker_id: int, number: int) -> str:
    """Return the name of a partition in ZooKeeper, `broker-partition`."""
    return f"{broker_id}-{number}"


def broker_of(partition: int | str) -> int:
    """Return the broker of a partition, of its name.

    Raises:
        KitError: It is no such name.
    """
    broker, dash, number = str(partition).partition("-")
    if not (dash and broker.isdecimal() and number.isdecimal()):
        raise KitError(f"{partition!r} is no partition of Kafka 0.7: broker and number are needed, such as '0-3'")
    return int(broker)


def number_of(partition: int | str) -> int:
    """Return the number of a partition on its broker, of its name; KitError if it is no such name."""
    broker_of(partition)
    return int(str(partition).partition("-")[2])


def create(port: int, topic: str, timeout_s: float = 5.0) -> None:
    """Have a broker make a topic, by a produce request without messages.

    Returns once an offsets request behind it was answered: the broker has made a log then, and registers the topic.

    Raises:
        OSError: The broker does not answer, or refuses the name.
    """
    name = topic.encode()
    place = struct.pack(">h", len(name)) + name
    nothing = struct.pack(">h", _PRODUCE_07) + place + struct.pack(">ii", _ANY_PARTITION, 0)
    offsets = struct.pack(">h", OFFSETS_07) + place + struct.pack(">iqi", 0, _LATEST, 1)
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(nothing)) + nothing)
        ask_on(connection, offsets, timeout_s=timeout_s)


def partitions_of(client: KazooClient, topic: str, brokers: Iterable[int] | None = None) -> list[str]:
    """Return the registered partitions of a topic in the order of Kafka 0.7, that of text; empty without the topic.

    Args:
        brokers: Only of these brokers; None means all.
    """
    path = f"/brokers/topics/{topic}"
    wanted = None if brokers is None else {str(each) for each in brokers}
    found: list[str] = []
    try:
        for broker in client.get_children(path):
            if wanted is None or broker in wanted:
                count, _ = client.get(f"{path}/{broker}")
                found += [partition_name(int(broker), number) for number in range(int(count))]
    except NoNodeError:
        pass  # the topic, or the broker's share of it, is gone
    return sorted(found)


def create_on_all(
    ports: Mapping[int, int], topic: str, wanted: int | None, known: Callable[[], list[str]], timeout_s: float
) -> dict[int | str, int]:
    """Have all running brokers make a topic; return partition -> broker once all have registered it.

    Args:
        ports: By broker id.
        wanted: Partitions on each broker; None: as many as they are set to.
        known: Returns the registered partitions of the topic.

    Raises:
        KitError: The topic exists.
        NotSupported: The brokers are set to another number of partitions.
        WaitTimeout: A broker has not registered it in time.
    """
    if known():
        raise KitError(f"topic {topic} exists already")
    for port in ports.values():
        create(port, topic, timeout_s)
    found: list[str] = []

    def by_all() -> bool:
        found[:] = known()
        return {broker_of(each) for each in found} == set(ports)

    wait_until(by_all, timeout_s, f"topic {topic} to be registered by brokers {sorted(ports)}", state=lambda: found)
    if wanted is not None and wanted * len(ports) != len(found):
        raise NotSupported(
            f"topic {topic} has the partitions {', '.join(found)}: in Kafka 0.7 the brokers' settings decide, as "
            f'settings={{"num.partitions": {wanted}}} or {{"topic.partition.count.map": "{topic}:{wanted}"}}'
        )
    return {each: broker_of(each) for each in found}


def wait_registered(
    known: Callable[[], list[str]], topic: str, partitions: Sequence[int | str], running: Set[int], timeout_s: float
) -> dict[int | str, int]:
    """Return partition -> broker, once all of these partitions are registered and their brokers run.

    Args:
        known: Returns the registered partitions of the topic.
        running: The brokers that run.

    Raises:
        KitError: One of them is no name of a partition.
        WaitTimeout: They are not in time.
    """
    wanted = {each: broker_of(each) for each in partitions}
    found: list[str] = []

    def all_there() -> bool:
        found[:] = known()
        return set(wanted) <= set(found) and set(wanted.values()) <= running

    wait_until(all_there, timeout_s, f"partitions {list(partitions)} of {topic}", state=lambda: found)
    return wanted
