"""Runs `zkconsumer consume` without a group: reads a topic and prints its messages.

A thread reads and prints. The main thread waits for what ends the run, and flushes lines that came slowly.
"""

from __future__ import annotations

import threading

import click

from simpleconsumer.errors import MessageError
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.messages.consumption import Outcome, wait_for_end
from zkconsumer.cli.messages.line_output import LineOutput
from zkconsumer.cli.terminal.signals import LeaveSignals
from zkconsumer.errors import ConsumerTimeout, PartitionStopped
from zkconsumer.topic_reader.topic_reader import TopicReader

__all__ = ["TopicPrinting"]

_AT_ONCE = 500
"""Most messages that are formatted together."""
_LAST_FLUSH_S = 1.0
_JOIN_S = 0.5


class TopicPrinting:
    """Prints what a reader reads.

    Args:
        reader: It is closed at the end.
        signals: Wakes the main thread, also to end.
        output: Where the lines go; its `notify` is `signals.wake`.
        output_fd: The descriptor behind it, watched for a reader that goes away.
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
