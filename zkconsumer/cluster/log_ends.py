"""Asks the leaders of partitions where their logs start, end, or were at a time: one request a leader and time.

Rules, and which failure each prevents:
- One request names all partitions of a leader, up to `PARTITIONS_A_REQUEST`: a request for each partition would take
  thousands of round trips for a large topic.
- Leaders are asked at the same time, and all answers have one deadline: brokers that hang delay the caller once, not
  once each.
- An error belongs to its partition, and a broker that does not answer is asked nothing more: the other answers count.
- A time is searched as readers search it (`time_search.py`): exactly where brokers and messages have times. Segment
  files would answer with the start of a segment, and a group that is set there would read the whole segment again.

Runs calls that wait for brokers at the same time, on threads that never keep a program from ending.

`concurrent.futures.ThreadPoolExecutor` waits for its threads at the end of its block and of the program: with a broker
that does not answer, Ctrl-C and SIGTERM would wait for its time-out.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, TypeVar

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import dialect_of
from simpleconsumer.errors import AuthenticationFailed, BrokerError, SimpleConsumerError
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.cluster.time_search import TimeSearch, log_segments

LogOffsets = tuple[int | None, ...] | str
"""One offset for each time, None where no message is that recent; or why nothing is known, a clause."""
PARTITIONS_A_REQUEST: Final = 500
"""Most partitions of one request: the answer stays small, and the broker serves other clients in between."""
_MOST_LEADERS_AT_A_TIME: Final = 16
_LAST_MESSAGE_BYTES: Final = 1024 * 1024
"""Most bytes to fetch of the last message of a log, to see whether it has a timestamp."""


class OneTime(NamedTuple):
    """The answer of a broker about one end of logs, or about one time.

    Attributes:
        offsets: Partition -> offset, or None where there is none.
        refused: Partition -> error code, of the others.
    """

    offsets: dict[TopicPartition, int | None]
    refused: dict[TopicPartition, int]


def in_requests(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    """Yield the partitions in as many pieces as there have to be requests."""
    for first in range(0, len(partitions), PARTITIONS_A_REQUEST):
        yield partitions[first : first + PARTITIONS_A_REQUEST]


def ask_at(consumer: SimpleConsumer, partitions: Sequence[TopicPartition], time_ms: int) -> OneTime:
    """Return where the logs of partitions start, or end, by one request.

    Args:
        consumer: Connected to the leader of all of them.
        time_ms: `EARLIEST` or `LATEST`.

    Raises:
        SimpleConsumerError: The broker does not answer.
    """
    found: dict[TopicPartition, int | None] = {}
    refused: dict[TopicPartition, int] = {}
    answers = consumer.multi_offsets_before(partitions, time_ms) if partitions else []
    for name, (code, offsets) in zip(partitions, answers, strict=True):
        if code:
            refused[name] = code
        else:
            found[name] = offsets[0] if offsets else None
    return OneTime(found, refused)


def ask_leaders(
    leaders: Mapping[TopicPartition, Broker],
    times_ms: Sequence[int],
    client_id: str,
    timeout_s: float,
    deadline_s: float,
    security: Security | None = None,
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, LogOffsets]:
    """Return the offsets of partitions at some times, as their leaders report them.

    Args:
        leaders: Partition -> its leader.
        timeout_s: Longest wait for one answer.
        deadline_s: Longest wait for all answers together, from now on.
        security: TLS and SASL of the connections; None for neither.
        read_committed: Logs end at the first open transaction.
    """
    by_leader: defaultdict[Broker, list[TopicPartition]] = defaultdict(list)
    for name, broker in leaders.items():
        by_leader[broker].append(name)
    questions = [
        _Question(broker, names, times_ms, _connection(broker, timeout_s, client_id, security, read_committed))
        for broker, names in by_leader.items()
    ]
    waiting: queue.SimpleQueue[_Question] = queue.SimpleQueue()
    for question in questions:
        waiting.put(question)
    deadline = time.monotonic() + deadline_s
    threads = [
        threading.Thread(target=_run, args=(waiting, deadline), name="log-ends", daemon=True)
        for _ in range(min(len(questions), _MOST_LEADERS_AT_A_TIME))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    found: dict[TopicPartition, LogOffsets] = {}
    for question in questions:
        question.consumer.close()  # ends a request that is still under way
        found.update(question.result(deadline_s))
    log_segments({name for question in questions for name in question.by_segment})
    return found


def _connection(
    broker: Broker, timeout_s: float, client_id: str, security: Security | None, read_committed: bool
) -> SimpleConsumer:
    return SimpleConsumer(
        broker.host, broker.port, timeout_s, client_id, dialect=dialect_of(broker), security=security,
        read_committed=read_committed,
    )  # fmt: skip


class _Question:
    """The questions to one leader, and its answers so far.

    Attributes:
        consumer: The connection.
        by_segment: Partitions whose times were searched by segment.

    Threads: One fills `answers` and `by_segment`, and sets `failure`; the one that waits reads them and `result` after
        the deadline.
    """

    def __init__(
        self, broker: Broker, partitions: Sequence[TopicPartition], times_ms: Sequence[int], consumer: SimpleConsumer
    ) -> None:
        self.consumer = consumer
        self.by_segment: set[TopicPartition] = set()
        self._broker = broker
        self._partitions = partitions
        self._times_ms = times_ms
        self._answers: dict[TopicPartition, LogOffsets] = {}
        self._failure: str | None = None

    def ask(self, deadline: float) -> None:
        """Send the requests until one fails or the deadline is over."""
        try:
            for names in in_requests(self._partitions):
                if time.monotonic() > deadline:
                    return
                self._answers.update(self._ask(names))
        except (SimpleConsumerError, AuthenticationFailed) as error:
            self._failure = f"broker {self._broker.id}: {error}"
        finally:
            self.consumer.close()

    def _ask(self, names: Sequence[TopicPartition]) -> dict[TopicPartition, LogOffsets]:
        found: dict[TopicPartition, LogOffsets] = dict.fromkeys(names, ())
        known = list(names)
        for time_ms in self._times_ms:
            answer = ask_at(self.consumer, known, time_ms) if time_ms < 0 else self._at_time(known, time_ms)
            for name, offset in answer.offsets.items():
                before = found[name]
                assert isinstance(before, tuple)
                found[name] = (*before, offset)
            for name, code in answer.refused.items():
                found[name] = BrokerError(code, name.topic, name.partition).name
            known = list(answer.offsets)
        return found

    def _at_time(self, names: Sequence[TopicPartition], time_ms: int) -> OneTime:
        """Return the first messages at or after a time."""
        search = TimeSearch(dict.fromkeys(names, time_ms), False, _LAST_MESSAGE_BYTES)
        refused = search.ask(self.consumer, self._broker, names) if names else {}
        self.by_segment = self.by_segment | search.by_segment  # replaced: another thread may read it
        return OneTime({name: at.offset for name, at in search.found.items()}, refused)

    def result(self, deadline_s: float) -> dict[TopicPartition, LogOffsets]:
        """Return what is known of each partition."""
        answers = dict(self._answers)
        failure = self._failure or f"broker {self._broker.id}: no answer within {deadline_s:g} s"
        return {name: answers.get(name, failure) for name in self._partitions}


def _run(waiting: queue.SimpleQueue[_Question], deadline: float) -> None:
    """Ask one leader after the other, until no question is left."""
    while True:
        try:
            question = waiting.get_nowait()
        except queue.Empty:
            return
        question.ask(deadline)


T = TypeVar("T")


def run_together(calls: Sequence[Callable[[], T]], most: int, name: str) -> list[T]:
    """Return the results of the calls, in their order; raises what one of them raises.

    Args:
        calls: Each has its own deadline.
        most: Most calls that run at the same time.
        name: That of the threads.
    """
    waiting: queue.SimpleQueue[tuple[Callable[[], T], Future[T]]] = queue.SimpleQueue()
    futures: list[Future[T]] = [Future() for _ in calls]
    for each in zip(calls, futures, strict=True):
        waiting.put(each)
    for _ in range(min(most, len(calls))):
        threading.Thread(target=_run_call, args=(waiting,), name=name, daemon=True).start()
    return [future.result() for future in futures]


def _run_call(waiting: queue.SimpleQueue[tuple[Callable[[], T], Future[T]]]) -> None:
    """Make one call after the other, until none is left."""
    while True:
        try:
            call, future = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            future.set_exception(error)
