"""Runs `zkconsumer consume`: joins the group, prints messages, leaves.

Each stream has a thread that reads and prints. The main thread waits for what ends the run, flushes lines that came
slowly, and leaves the group in order.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from rebalance.brokers.coordinator import AWAY
from simpleconsumer.errors import MessageError
from zkconsumer.admin.phrases import count_of
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.messages.line_output import LineOutput
from zkconsumer.cli.messages.printed_offsets import PrintedOffsets
from zkconsumer.cli.terminal.signals import Interrupted, LeaveSignals
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ConsumerConnector
from zkconsumer.errors import ConsumerTimeout, DecoderFailed, PartitionStopped
from zkconsumer.status import ConnectorStatus
from zkconsumer.streams.stream import KafkaStream
from zkconsumer_error import first_few

__all__ = ["Consumption", "Outcome", "not_read", "wait_for_end"]

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


def wait_for_end(
    signals: LeaveSignals, output: LineOutput, output_fd: int, is_over: Callable[[], bool]
) -> None:
    """Wait for a signal, for the end of the lines' reader, or until `is_over`; flush lines meanwhile.

    Args:
        output_fd: The descriptor behind the output.
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
        output_fd: The descriptor behind it, watched for a reader that goes away.
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
