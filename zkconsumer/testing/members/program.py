"""A consumer that writes its history, one event a line: the program that `MemberProcess` runs.

`python -m zkconsumer.testing.members.program --connect 127.0.0.1:2181 --group g --name a --topics t=2`. SIGTERM makes
it leave the group in order. Its lines are events as `zkconsumer.testing.history` defines them (assigned, deliver, done,
commit, revoked, lost), and notes: `#`, a time in nanoseconds, a word, and the rest:

    # 123 ready           the streams exist
    # 123 message ...     a message was delivered: topic, partition, offset, stream, value and key (`format_message`)
    # 123 blocked t/0     a claim has waited for long
    # 123 error ...       raised by a stream or by a commit
    # 123 leaving         SIGTERM came
    # 123 unstored t/0 .. a position that `shutdown()` could not store, and why
    # 123 left            `shutdown()` has returned
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from zkconsumer import (
    Blacklist,
    CommitFailed,
    ConsumerConfig,
    ConsumerConnector,
    KafkaStream,
    Message,
    TopicPartition,
    Whitelist,
)
from zkconsumer.testing.history.events import Event, format_event, id_of
from zkconsumer.testing.members.message_lines import MESSAGE, format_message
from zkconsumer.wakeup import Wakeup


class History:
    """Writes events as they happen; each is one `write`, so a killed process leaves whole lines."""

    def __init__(self, member: str, descriptor: int) -> None:
        self._member = member
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, kind: str, topic: str, partition: int | str, offset: int = -1, value: str = "") -> None:
        """Append one event."""
        with self._lock:
            event = Event(time.monotonic_ns(), kind, self._member, topic, partition, offset, value)
            os.write(self._descriptor, f"{format_event(event)}\n".encode())

    def deliver(self, message: Message, stream: int) -> None:
        """Append the event of a delivered message, and its content."""
        now = time.monotonic_ns()
        offset = message.offset + message.index
        event = Event(now, "deliver", self._member, message.topic, message.partition, offset, id_of(message.value))
        lines = f"{format_event(event)}\n# {now} {MESSAGE} {format_message(message, stream)}\n"
        with self._lock:
            os.write(self._descriptor, lines.encode())

    def note(self, word: str, text: str = "") -> None:
        """Append a line about the member itself."""
        with self._lock:
            os.write(self._descriptor, f"# {time.monotonic_ns()} {word} {text}\n".encode())


class Listener:
    """Writes down what a rebalance does."""

    def __init__(self, history: History, commit: Callable[[], None]) -> None:
        self._history = history
        self._commit = commit

    def on_partitions_assigned(self, positions: dict[TopicPartition, int]) -> None:
        for partition, offset in positions.items():
            self._history.write("assigned", *partition, offset)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._commit()
        for partition in partitions:
            self._history.write("revoked", *partition)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._history.write("lost", *partition)

    def on_partitions_blocked(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._history.note("blocked", f"{partition.topic}/{partition.partition}")


class Application:
    """An application that works on the messages of a consumer, and writes down that it did.

    `skip` and `twice` make it a bad one: it forgets that message of all it gets, or handles it twice.
    """

    def __init__(self, options: argparse.Namespace, connector: ConsumerConnector, history: History) -> None:
        self._options = options
        self._connector = connector
        self._history = history
        self._counter = itertools.count(1)

    def read(self, stream: KafkaStream, number: int) -> None:
        """Handle the messages of a stream until it ends.

        Args:
            number: the number of the stream among those of its member.
        """
        since_commit: dict[TopicPartition, int] = {}
        commit_every = self._options.commit_every
        for count in itertools.count(1):
            message = self._next(stream)
            if message is None:
                return
            self._handle(message, number)
            since_commit[TopicPartition(message.topic, message.partition)] = message.next_offset
            if commit_every and count % commit_every == 0:
                commit(self._connector, self._history, since_commit)
                since_commit.clear()

    def _next(self, stream: KafkaStream) -> Message | None:
        while True:
            try:
                return next(stream)
            except StopIteration:
                return None
            except Exception as error:  # noqa: BLE001 - an application that survives a bad message, and says what it saw
                self._history.note("error", repr(error))

    def _handle(self, message: Message, stream: int) -> None:
        number = next(self._counter)
        if number == self._options.skip:
            return
        for _ in range(2 if number == self._options.twice else 1):
            self._history.deliver(message, stream)
            if self._options.work_ms:
                time.sleep(self._options.work_ms / 1000)
            self._history.write("done", message.topic, message.partition, message.offset + message.index)


def commit(connector: ConsumerConnector, history: History, positions: Mapping[TopicPartition, int]) -> None:
    """Commit what this thread has read, and write down what of it is stored."""
    failed: Collection[tuple[str, int | str]] = ()
    try:
        connector.commit_offsets()
    except CommitFailed as error:
        history.note("error", repr(error))
        failed = error.reasons.keys()
    for partition, offset in positions.items():
        if partition not in failed:
            history.write("commit", *partition, offset)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--connect", help="zookeeper.connect, of a group in ZooKeeper")
    place.add_argument("--brokers", help="bootstrap.servers, of a group that brokers coordinate")
    parser.add_argument("--settings-file", help="settings of the consumer, a JSON object")
    parser.add_argument("--group", required=True)
    parser.add_argument("--name", required=True, help="consumer.id")
    parser.add_argument("--topics", help="topic=streams,topic=streams")
    parser.add_argument("--whitelist", help="a filter, with --streams streams")
    parser.add_argument("--blacklist", help="a filter, with --streams streams")
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--copies", type=int, default=1, help="so many members, named <name>00, <name>01, ...")
    parser.add_argument("--work-ms", type=float, default=0.0, help="how long each message takes")
    parser.add_argument("--commit-every", type=int, default=0, help="call commit_offsets() every so many messages")
    parser.add_argument("--commit-on-revoke", action="store_true", help="call commit_offsets() in the listener")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="forget message number N")
    parser.add_argument("--twice", type=int, default=0, metavar="N", help="handle message number N twice")
    parser.add_argument("--verbose", action="store_true", help="log every step to standard error")
    parser.add_argument("settings", nargs="*", help="more settings, key=value")
    parsed = parser.parse_args(arguments)
    if [parsed.topics, parsed.whitelist, parsed.blacklist].count(None) != 2:
        parser.error("one of --topics, --whitelist and --blacklist is needed")
    return parsed


def open_streams(connector: ConsumerConnector, options: argparse.Namespace) -> list[KafkaStream]:
    """The streams the command line asks for."""
    if options.whitelist is not None:
        return connector.create_message_streams_by_filter(Whitelist(options.whitelist), options.streams)
    if options.blacklist is not None:
        return connector.create_message_streams_by_filter(Blacklist(options.blacklist), options.streams)
    counts = {topic: int(count) for topic, _, count in (entry.partition("=") for entry in options.topics.split(","))}
    return [stream for streams in connector.create_message_streams(counts).values() for stream in streams]


def _settings_of(file: str | None) -> dict[str, str]:
    return {} if file is None else dict(json.loads(Path(file).read_text(encoding="utf-8")))


class Member:
    """One connector and the threads that read its streams."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name = name
        self.has_joined = False
        self._options = options
        self._history = History(name, sys.stdout.fileno())
        by_zookeeper = options.connect is not None
        settings = {
            "zookeeper.connect" if by_zookeeper else "bootstrap.servers": options.connect or options.brokers,
            "group.id": options.group,
            "consumer.id": name,
            "auto.offset.reset": "smallest",
            **_settings_of(options.settings_file),
            **dict(entry.split("=", 1) for entry in options.settings),
        }
        on_revoke = self._commit if options.commit_on_revoke else lambda: None
        self._connector = ConsumerConnector(
            ConsumerConfig.from_properties(settings), Listener(self._history, on_revoke)
        )
        self._readers: list[threading.Thread] = []

    def _commit(self) -> None:
        self._connector.commit_offsets()

    def join(self) -> None:
        """Create the streams and read them."""
        application = Application(self._options, self._connector, self._history)
        for number, stream in enumerate(open_streams(self._connector, self._options)):
            reader = threading.Thread(target=application.read, args=[stream, number], name=stream.thread_id)
            self._readers.append(reader)
            reader.start()
        self.has_joined = True

    def leave(self) -> None:
        """Leave the group in order."""
        for (topic, partition), reason in self._connector.shutdown().items():
            self._history.note("unstored", f"{topic}/{partition} {reason}")
        for reader in self._readers:
            reader.join()


def main(arguments: Sequence[str]) -> None:
    """Consume until SIGTERM."""
    options = parse_arguments(arguments)
    logging.basicConfig(
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
    )
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    faulthandler.register(signal.SIGUSR1)  # all stacks to standard error, to find out why it hangs
    stop = Wakeup()  # an Event would wait on where the signal strikes just before its `wait`
    signal.signal(signal.SIGTERM, lambda number, frame: stop.wake())
    numbered = [f"{options.name}{number:02}" for number in range(options.copies)]
    members = [Member(name, options) for name in (numbered if options.copies > 1 else [options.name])]
    joining = [threading.Thread(target=member.join, name=f"join-{member.name}") for member in members]
    for thread in joining:
        thread.start()
    for thread in joining:
        thread.join()
    history = History(options.name, sys.stdout.fileno())
    if not all(member.has_joined for member in members):
        raise SystemExit(1)
    history.note("ready")
    stop.wait(None)
    history.note("leaving")
    for member in members:
        member.leave()
    history.note("left")


if __name__ == "__main__":
    main(sys.argv[1:])
