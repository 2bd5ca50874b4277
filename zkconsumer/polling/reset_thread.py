"""Asks for the ends of logs to which positions are reset, on a thread of its own: a poll has its time, whoever answers.

A broker that does not answer would else hold up the poll, and with it the records of all other partitions.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from simpleconsumer.types import TopicPartition
from zkconsumer.errors import ZkConsumerError
from zkconsumer.polling.cluster_questions import ClusterQuestions
from zkconsumer.polling.partition_position import ResetRequest

__all__ = ["ResetAnswer", "ResetThread"]

log = logging.getLogger(__name__)

_ANSWER_S: Final = 30.0
_CLOSE_S: Final = 1.0
"""Nobody needs the answer any more: a broker that does not answer must not use up the time of a close."""


class ResetAnswer(NamedTuple):
    """The ends of some logs.

    Attributes:
        wanted: What was asked for.
        found: Partition -> offset, of those that are known.
    """

    wanted: Mapping[TopicPartition, ResetRequest]
    found: Mapping[TopicPartition, int]


class ResetThread:
    """The resets of one consumer.

    Args:
        questions: Asks the cluster; closed by this thread alone.
        wake: Called, on the thread, when there is an answer.
        answer_s: Longest wait for one answer, in seconds.

    Threads: `ask`, `answers` and `close` that of the application which polls.
    """

    def __init__(self, questions: ClusterQuestions, wake: Callable[[], None], answer_s: float = _ANSWER_S) -> None:
        self._questions = questions
        self._wake = wake
        self._answer_s = answer_s
        self._asked: queue.SimpleQueue[tuple[bool, Mapping[TopicPartition, ResetRequest]] | None]
        self._asked = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[ResetAnswer] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def ask(self, wanted: Mapping[TopicPartition, ResetRequest], *, first: bool) -> None:
        """Ask where these logs start, or end."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="zkconsumer-resets", daemon=True)
            self._thread.start()
        self._asked.put((first, wanted))

    def answers(self) -> list[ResetAnswer]:
        """Return the answers that were not taken yet."""
        found: list[ResetAnswer] = []
        while True:
            try:
                found.append(self._answers.get_nowait())
            except queue.Empty:
                return found

    def close(self, timeout_s: float) -> None:
        """End the thread; a request that is under way ends by itself, and is waited for a second at most."""
        self._is_closed = True
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join(max(min(timeout_s, _CLOSE_S), 0.0))
            if self._thread.is_alive():
                log.info("thread %s still waits for a broker, and ends within %g s", self._thread.name,
                         self._answer_s)  # fmt: skip

    def _run(self) -> None:
        try:
            while (asked := self._asked.get()) is not None and not self._is_closed:
                first, wanted = asked
                try:
                    found, _ = self._questions.known_ends(list(wanted), self._answer_s, first=first)
                except ZkConsumerError:  # it is asked again
                    found = {}
                self._answers.put(ResetAnswer(wanted, found))
                self._wake()
        finally:
            self._questions.close()
