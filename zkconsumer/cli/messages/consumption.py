"""Runs `zkconsumer consume`, with a group and without one.

Runs `zkconsumer consume`: joins the group, prints messages, leaves.

Each stream has a thread that reads and prints. The main thread waits for what ends the run, flushes lines that came
slowly, and leaves the group in order.

Also the checks and changes of `zkconsumer consume` before it joins a group, and their removal afterwards.

Topics and offsets are looked at first, so that errors are reported before the group is joined.

Runs `zkconsumer consume` without a group: reads a topic and prints its messages.

A thread reads and prints. The main thread waits for what ends the run, and flushes lines that came slowly.

Also the partitions that `zkconsumer consume` reads without a group; contradicting options are refused.

Rule: `--partition`, `--offset`, `--until-end`, and `--bootstrap-server` without `--group`, choose this mode. Nothing is
stored then, and options about a group or about stored offsets would have no effect, so they are refused.
"""

from __future__ import annotations

import difflib
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import click

from rebalance.brokers.coordinator import AWAY
from rebalance.subscription import Subscription
from rebalance.zookeeper import znodes
from simpleconsumer.errors import MessageError
from zkconsumer.admin.broker_groups import BrokerAdmin
from zkconsumer.admin.groups.group_deletion import delete_offsets, remove_group, stored_offsets
from zkconsumer.admin.values import NotFound, count_of
from zkconsumer.cli.connection_options import connection_settings, named_places, no_zookeeper
from zkconsumer.cli.messages.line_output import LineOutput, PrintedOffsets
from zkconsumer.cli.terminal import CliError, Interrupted, LeaveSignals
from zkconsumer.cluster.cluster import open_cluster
from zkconsumer.cluster.zookeeper_connection import children, configured_connection, zookeeper_connection
from zkconsumer.config import ConsumerConfig
from zkconsumer.config.connection_settings import canonical
from zkconsumer.config.zookeeper_tls import zookeeper_options
from zkconsumer.connector import ConsumerConnector
from zkconsumer.errors import ConsumerTimeout, DecoderFailed, PartitionStopped, ZkConsumerError
from zkconsumer.status import ConnectorStatus
from zkconsumer.streams.stream import KafkaStream
from zkconsumer.topic_reader.start_at import StartAt, parse_start
from zkconsumer.topic_reader.topic_reader import TopicReader, read_topic
from zkconsumer_error import first_few

_LAST_FLUSH_S = 1.0
_LEAVE_S = 3.0
"""Longest wait for the last commit, which the connector makes when it releases its partitions."""
_JOIN_S = 0.5
_ANSWER_S = 1.0
"""A leader that is reachable answers within this time, also when it has no message."""
_LEAST_SEARCH_S = 5.0
"""How long the coordinator of a group is looked for at least: on a new cluster there is none at first."""
_REFUSED = "ZooKeeper does not let this client"
"""How a warning starts that may concern partitions of this member."""
_DISCONNECTED = "disconnected"


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        printed: Messages whose lines were written.
        unreadable: Messages that could not be printed.
        problem: Why the run failed, None if it did not.
    """

    printed: int
    unreadable: int
    problem: Exception | None


def wait_for_end(signals: LeaveSignals, output: LineOutput, output_fd: int, is_over: Callable[[], bool]) -> None:
    """Wait for a signal, for the end of the lines' reader, or until `is_over`; flush lines meanwhile.

    Args:
        output_fd: The file descriptor of the output.
        is_over: Asked whenever `signals.wake` was called.
    """
    poll = select.poll()
    poll.register(signals.fd, select.POLLIN)
    poll.register(output_fd, 0)  # 0: only that its reader is gone
    while not signals.came and not is_over():
        due_s = output.flush_if_due()
        ready = dict(poll.poll(None if due_s is None else max(1, int(due_s * 1000))))
        if signals.fd in ready:
            signals.drain()
        if ready.get(output_fd, 0) & (select.POLLERR | select.POLLHUP):
            return


def not_read(status: ConnectorStatus, timed_out: bool, silence_s: float) -> CliError | None:
    """Return the error about partitions that could not be read up to the end of a run, None without any.

    Args:
        timed_out: No message came any more: then each partition must have been read to its end. Otherwise as many
            messages were printed as were wanted, and only partitions count that could not be read from the start.
        silence_s: How long no message came.
    """
    hidden = [warning for warning in status.warnings if warning.startswith((_REFUSED, AWAY))]
    if timed_out and status.state == _DISCONNECTED:
        hidden.append(f"ZooKeeper has not answered for {status.since_s:.0f} s")
    reasons: dict[str, str] = {}
    for row in status.owned:
        reason = row.error if timed_out or row.position is None else None
        if reason is None and timed_out and row.log_end is None and not row.paused and silence_s >= _ANSWER_S:
            reason = hidden[0] if hidden else "no leader has answered"
        if reason is not None:
            reasons[f"{row.topic}-{row.partition}"] = reason
    if reasons:
        rows = [f"{name}: {reason}" for name, reason in reasons.items()]
        shown = first_few(*rows, most=3, between="; ", rest="; and {} more")
        verb = "was" if len(reasons) == 1 else "were"
        return CliError(f"{count_of(len(reasons), 'partition')} {verb} not read to the end ({shown})")
    if hidden and timed_out:
        return CliError(f"it is not known whether all partitions were read: {hidden[0]}")
    return None


class Consumption:
    """Prints the messages of a group member.

    Args:
        config: Settings, without auto-commit.
        commit_interval_s: Time between two commits of printed messages; None: never commit.
        subscribe: Creates the streams.
        signals: Wakes the main thread, also to leave.
        output: Where the lines go; its `notify` is `signals.wake`.
        output_fd: Its file descriptor, watched for a reader that goes away.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        commit_interval_s: float | None,
        subscribe: Callable[[ConsumerConnector], Sequence[KafkaStream]],
        signals: LeaveSignals,
        output: LineOutput,
        output_fd: int,
    ) -> None:
        self._config = config
        self._offsets = PrintedOffsets(output, commit_interval_s)
        self._connector = ConsumerConnector(config, self._offsets)
        if config.consumer_timeout_ms >= 0:
            self._connector._search_s = max(config.consumer_timeout_ms / 1000, _LEAST_SEARCH_S)
        self._subscribe = subscribe
        self._signals = signals
        self._output = output
        self._output_fd = output_fd
        self._threads: list[threading.Thread] = []
        self._timed_out = False
        self._unreadable = 0
        self._error: Exception | None = None

    def run(self) -> Outcome:
        """Print until something ends the run.

        Raises:
            Interrupted: A signal came before the group was joined.
            What `ConsumerConnector.create_message_streams` raises.
        """
        self._offsets.attach(self._connector)
        try:
            streams = self._subscribe(self._connector)
            self._threads = [
                threading.Thread(target=self._read, args=(stream,), name=stream.thread_id, daemon=True)
                for stream in streams
            ]
        except Interrupted:
            self._connector.shutdown(0)
            raise
        self._signals.wait_quietly()
        for thread in self._threads:
            thread.start()
        wait_for_end(self._signals, self._output, self._output_fd, self._is_over)
        return self._leave()

    # -- a stream's thread ---------------------------------------------------------------------------------------------

    def _read(self, stream: KafkaStream) -> None:
        try:
            self._print(stream)
        except Exception as error:  # noqa: BLE001 - top of a thread: the main thread raises it
            self._error = error
        finally:
            self._signals.wake()

    def _print(self, stream: KafkaStream) -> None:
        put = self._output.put
        timeout_s = self._config.consumer_timeout_ms / 1000
        started_s = time.monotonic()
        while True:
            try:
                for message in stream:
                    if not put(message):
                        return
                return
            except ConsumerTimeout:
                # Other streams may have had messages: the run ends only when no stream has got one for so long.
                if time.monotonic() - max(started_s, self._output.last_taken_s) >= timeout_s:
                    self._timed_out = True
                    return
            except (MessageError, DecoderFailed, PartitionStopped) as error:
                self._unreadable += 1
                click.echo(f"zkconsumer: {error}", err=True)

    # -- the main thread -----------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        alive = any(thread.is_alive() for thread in self._threads)
        return self._output.is_closed or self._timed_out or self._error is not None or not alive

    def _leave(self) -> Outcome:
        """Flush, and leave the group, which commits the printed messages."""
        self._offsets.stop()
        problem = self._error
        if problem is None and not self._signals.came:
            problem = not_read(self._connector.status(), self._timed_out, self._config.consumer_timeout_ms / 1000)
        self._output.flush(_LAST_FLUSH_S, close=True)
        unstored = self._connector.shutdown(_LEAVE_S)
        if unstored and problem is None:
            (topic, partition), reason = next(iter(unstored.items()))
            count = count_of(len(unstored), "partition")
            problem = CliError(
                f"the last positions of {count} could not be committed ({topic}-{partition}: {reason})",
                "their last messages will be delivered again",
            )
        for thread in self._threads:
            thread.join(_JOIN_S)
        if self._output.failure is not None and problem is None:
            reason = self._output.failure.strerror or str(self._output.failure)
            problem = CliError(f"standard output cannot be written: {reason}")
        return Outcome(self._output.count, self._unreadable, problem)


_PREPARATION_ANSWER_S: Final = 5.0


class WantedGroup(NamedTuple):
    """The group that is to be joined.

    Attributes:
        config: The settings.
        topics: The topics that are named; empty with a filter.
        has_filter: Whether a filter selects topics.
        subscription: The subscription.
        is_generated: The group was generated for this run.
    """

    config: ConsumerConfig
    topics: tuple[str, ...]
    has_filter: bool
    subscription: Subscription
    is_generated: bool

    def is_read(self, topic: str) -> bool:
        """Return whether a topic is subscribed to."""
        return self.subscription.matches(topic, self.config.exclude_internal_topics)


def prepare(wanted: WantedGroup, *, from_beginning: bool, delete_first: bool) -> None:
    """Check topics and offsets, and delete offsets if that is wanted.

    Raises:
        CliError: The group has offsets, and is to start at the beginning.
        ZkConsumerError: ZooKeeper or the brokers cannot be asked.
    """
    if wanted.config.coordination == "brokers":
        _prepare_at_brokers(wanted, from_beginning, delete_first)
        return
    config = wanted.config
    with configured_connection(config) as port:
        _report_missing(wanted, children(port, znodes.TOPICS) or [])
        if not wanted.is_generated:
            _prepare_offsets(
                wanted, from_beginning, delete_first,
                lambda: len(stored_offsets(port, config.group_id, wanted.is_read)),
                lambda: delete_offsets(port, config.group_id, wanted.is_read),
            )  # fmt: skip


def _prepare_at_brokers(wanted: WantedGroup, from_beginning: bool, delete_first: bool) -> None:
    config = wanted.config
    with open_cluster(config, _PREPARATION_ANSWER_S) as opened:
        _report_missing(wanted, opened.cluster.topics())
    given = {name: value for name, value in config.to_properties().items() if name != "bootstrap.servers"}
    with BrokerAdmin(config.to_properties()["bootstrap.servers"], properties=given) as admin:

        def topics() -> dict[str, int]:
            try:
                rows = admin.offsets(config.group_id).partitions
            except NotFound:
                return {}
            found: dict[str, int] = {}
            for row in rows:
                if row.offset is not None and wanted.is_read(row.topic):
                    found[row.topic] = found.get(row.topic, 0) + 1
            return found

        def delete() -> int:
            found = topics()
            for topic in found:
                admin.delete_offsets(config.group_id, topic)
            return sum(found.values())

        _prepare_offsets(wanted, from_beginning, delete_first, lambda: sum(topics().values()), delete)


def _prepare_offsets(
    wanted: WantedGroup, from_beginning: bool, delete_first: bool, count: Callable[[], int], delete: Callable[[], int]
) -> None:
    group = wanted.config.group_id
    if delete_first:
        click.echo(f"Deleted {count_of(delete(), 'offset')} of group {group}", err=True)
    elif from_beginning and (found := count()):
        raise CliError(
            f"group {group!r} already has offsets for {count_of(found, 'partition')}, so it would not start at the "
            "beginning",
            "add --delete-offsets, give another --group, or leave --from-beginning out",
        )


def _report_missing(wanted: WantedGroup, topics: Sequence[str]) -> None:
    for sentence in _missing(wanted, topics):
        click.echo(sentence, err=True)


def _missing(wanted: WantedGroup, topics: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each topic that does not exist, or one if the filter matches none."""
    for topic in wanted.topics:
        if topic not in topics:
            near = difflib.get_close_matches(topic, topics, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            yield f"topic {topic!r} does not exist{hint}; waiting for it to be created"
    if wanted.has_filter and not wanted.subscription.topics(set(topics)):
        yield f"the filter matches none of the {len(topics)} topics; waiting for one that matches"


def remove_generated(config: ConsumerConfig) -> None:
    """Remove a generated group from ZooKeeper; a failure must not hide how the run ended."""
    try:
        with zookeeper_connection(config.zookeeper, 2.0, **zookeeper_options(config)) as port:
            remove_group(port, config.group_id)
    except ZkConsumerError as error:
        click.echo(f"warning: group {config.group_id} stays in ZooKeeper: {error}", err=True)


_AT_ONCE = 500
"""Most messages that are formatted together."""


class TopicPrinting:
    """Prints what a reader reads.

    Args:
        reader: It is closed at the end.
        signals: Wakes the main thread, also to end.
        output: Where the lines go; its `notify` is `signals.wake`.
        output_fd: Its file descriptor, watched for a reader that goes away.
    """

    def __init__(self, reader: TopicReader, signals: LeaveSignals, output: LineOutput, output_fd: int) -> None:
        self._reader = reader
        self._signals = signals
        self._output = output
        self._output_fd = output_fd
        self._error: Exception | None = None
        self._is_done = False
        self._thread = threading.Thread(target=self._read, name="read-topic", daemon=True)

    def run(self) -> Outcome:
        """Print until something ends the run."""
        try:
            self._signals.wait_quietly()
            self._thread.start()
            wait_for_end(self._signals, self._output, self._output_fd, self._is_over)
            self._output.flush(_LAST_FLUSH_S, close=True)
        finally:
            self._reader.close()
        self._thread.join(_JOIN_S)
        problem = self._error
        if self._output.failure is not None and problem is None:
            reason = self._output.failure.strerror or str(self._output.failure)
            problem = CliError(f"standard output cannot be written: {reason}")
        return Outcome(self._output.count, self._reader.failed, problem)

    def _is_over(self) -> bool:
        return self._is_done or self._output.is_closed

    def _read(self) -> None:
        try:
            self._print()
        except Exception as error:  # noqa: BLE001 - top of a thread: the main thread raises it
            self._error = error
        finally:
            self._is_done = True  # before the wake: the thread itself is still alive then
            self._signals.wake()

    def _print(self) -> None:
        put_all = self._output.put_all
        while True:
            try:
                while messages := self._reader.next_messages(_AT_ONCE):
                    if not put_all(messages):
                        return
                return
            except ConsumerTimeout:
                return
            except (MessageError, PartitionStopped) as error:
                click.echo(f"zkconsumer: {error}", err=True)


STALL_TIMEOUT_S: Final = 60.0


def reads_without_group(options: Mapping[str, Any]) -> bool:
    """Return whether the options choose to read without a group."""
    return bool(
        options["partitions"]
        or options["start"] is not None
        or options["until_end"]
        or (options["brokers"] is not None and options["group"] is None)
    )


def check_mode(options: Mapping[str, Any], properties: Mapping[str, str]) -> None:
    """Refuse options that contradict each other.

    Raises:
        click.UsageError: The text names both options.
    """
    if not reads_without_group(options):
        if options["stall_timeout"] is not None:
            raise click.UsageError(
                "--stall-timeout is for reading without a group: also give --partition, --offset or --until-end."
            )
        return
    mode = "--partition" if options["partitions"] else "--offset" if options["start"] is not None else "--until-end"
    if options["brokers"] is not None and mode == "--until-end" and not options["until_end"]:
        mode = "--bootstrap-server without --group"
    for name, is_given in (
        ("--group", options["group"] is not None),
        ("--property group.id", "group.id" in canonical(properties)),
        ("--whitelist", options["whitelist"] is not None),
        ("--blacklist", options["blacklist"] is not None),
        ("--delete-offsets", options["delete_offsets"]),
        ("--streams", options["streams"] != 1),
    ):
        if is_given:
            raise click.UsageError(
                f"{mode} reads without a group, and {name} is for reading in a group: leave one of them out."
            )
    if len(set(options["topics"])) > 1:
        raise click.UsageError(f"{mode} reads one topic; {len(set(options['topics']))} are given.")
    if options["start"] is not None and options["from_beginning"]:
        raise click.UsageError("--offset and --from-beginning both say where to start: leave one of them out.")


def _start(options: Mapping[str, Any]) -> StartAt:
    if options["from_beginning"]:
        return "earliest"
    if options["start"] is None:
        # From the end to the end there would be nothing to read.
        return "earliest" if options["until_end"] else "latest"
    try:
        return parse_start(options["start"])
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--offset") from None


def open_reader(options: Mapping[str, Any], properties: Mapping[str, str]) -> TopicReader:
    """Return the reader that the options ask for.

    Args:
        properties: The settings of `--property`.

    Raises:
        click.UsageError: No ZooKeeper or no start can be made of the options.
        What `read_topic` raises.
    """
    found = connection_settings()
    settings: dict[str, Any] = {**found.properties, **canonical(properties)}
    zookeeper, brokers = options["zookeeper"], options["brokers"]
    settings.pop("bootstrap.servers", None)
    if brokers is not None:
        zookeeper, settings["bootstrap.servers"] = None, brokers
    elif zookeeper is None:
        raise no_zookeeper(found, or_brokers=True)
    if options["timeout_ms"] is not None:
        settings["consumer.timeout.ms"] = options["timeout_ms"]
    if options["isolation_level"] is not None:
        settings["isolation.level"] = options["isolation_level"]
    with named_places():
        return read_topic(
            zookeeper,
            options["topics"][0],
            options["partitions"] or None,
            start=_start(options),
            until="end" if options["until_end"] else None,
            properties=settings,
            stall_timeout_s=options["stall_timeout"] or STALL_TIMEOUT_S,
            client_id="zkconsumer-consume",
        )
