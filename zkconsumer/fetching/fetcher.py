"""The threads that fetch: one for each broker that leads partitions of this consumer.

A fetcher asks for all its partitions that have room in one request, queues what comes, and returns a partition to the
leader finder when its broker does not lead it any more. Rules, and which failure each prevents:
- It never waits for a reader: a partition whose queue is full is left out of the next request (in the Java consumer one
  full queue stops all partitions of its broker).
- It never ends by an error: nobody would fetch the partitions of a fetcher that ended silently (KAFKA-1178).
- It asks after a pause for partitions that it cannot ask for now; without anything to ask it waits.
- While its broker throttles this client it sends nothing, and keeps its partitions and its connection. Which share of
  the byte budget they had is free for others meanwhile.
- A broker of Kafka 0.7 answers at once, so the pause is here: short after messages, `fetcher.backoff.ms` while idle.

`fetch_answers` decides about answers.

Source: kafka.server.AbstractFetcherThread, kafka.consumer.ConsumerFetcherThread (0.8.2.2).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from rebalance.rebalance_statistics import Counters
from rebalance.subscription import Partition
from rebalance.takeover import by_reason
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import coordinates_groups, dialect_of
from simpleconsumer.errors import AuthenticationFailed, SimpleConsumerError, Throttled
from simpleconsumer.throttling import HELD_S, Throttle, counting
from simpleconsumer.types import Broker, FetchedPartition, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.config import READ_COMMITTED, ConsumerConfig
from zkconsumer.fetching.byte_budget import ByteBudget
from zkconsumer.fetching.entry_checks import CheckCalls, EntryChecks
from zkconsumer.fetching.fetch_answers import AnswerCalls, AskedPartition, FetchAnswers
from zkconsumer.fetching.fetch_plan import FetchPlans, PlannedFetch, QuietRound
from zkconsumer.fetching.fetch_state import DENIALS_OF_A_LEADER, Need, OutOfRange
from zkconsumer.fetching.leader_finder import LONGEST_DENIED_S
from zkconsumer.fetching.log_end_requests import LogEndRequests
from zkconsumer.fetching.partition_queue import FetchTask
from zkconsumer.wakeup import Wakeup

log = logging.getLogger(__name__)

IDLE_S = 10.0
"""How long a fetcher without partitions keeps its thread and its connection."""
_LARGEST_ANSWER_BYTES: Final = 128 * 1024 * 1024
_MOST_OF_BROKERS_BYTES: Final = 55 * 1024 * 1024
"""`fetch.max.bytes` of brokers of Kafka 2.5 and later, by default: they send no more, whatever was asked for."""
HELD_NOTE_S: Final = 15.0
"""How long it counts, in seconds, that the broker was found to hold an answer back: longer than it is not asked."""
_LONGEST_SLEEP_S: Final = 1.0
_BUDGET_POLL_S: Final = 0.05
_LONGEST_BACKOFF_S: Final = 10.0
_SHORTEST_PAUSE_S: Final = 0.002
"""The first pause after an empty answer of a broker that does not wait for messages; it doubles."""


class FetcherCalls(NamedTuple):
    """The callbacks of a fetcher, on its thread.

    Attributes:
        count_fetchers: Returns how many fetchers share the byte budget now.
        lost: Called with a task whose leader must be found, and with the broker id if that broker does not lead it.
        nearer: Called with a task that is to be fetched from another replica, and with the id of its broker.
        is_idle: Called after some time without work; True ends the thread.
        out_of_range: Called with each partition whose position turns out to be outside its log, with the offsets
            after its end that were read (`FetchState.behind_end`), and with where reading goes on.
        died: Called with a name and an error when the thread ends by an error.
    """

    count_fetchers: Callable[[], int]
    lost: Callable[[FetchTask, int | None], None]
    nearer: Callable[[FetchTask, int], None]
    is_idle: Callable[[Fetcher], bool]
    out_of_range: OutOfRange
    died: Callable[[str, BaseException], None]


class Fetcher:
    """One thread and one connection that fetch the partitions of one broker.

    Args:
        name: Name of the thread.
        calls: The callbacks for all that is not fetching.
        counters: Counts requests and errors.

    Threads: `add`, `stop`, `join` and `tasks` from any thread.
    """

    def __init__(
        self,
        broker: Broker,
        config: ConsumerConfig,
        budget: ByteBudget,
        clock: Callable[[], float],
        name: str,
        calls: FetcherCalls,
        counters: Counters,
    ) -> None:
        self.broker = broker
        self._dialect = dialect_of(broker)
        self._config = config
        self._budget = budget
        self._clock = clock
        self._calls = calls
        self._counters = counters
        self._backoff = Backoff.of_ms(config.refresh_leader_backoff_ms, _LONGEST_BACKOFF_S)
        read_committed = config.isolation_level == READ_COMMITTED
        self._consumer = SimpleConsumer(
            broker.host,
            broker.port,
            config.socket_timeout_ms / 1000,
            config.client_id,
            config.socket_receive_buffer_bytes,
            max_frame_bytes=2 * _LARGEST_ANSWER_BYTES,
            reuse_answers=True,  # chunks are copies
            dialect=self._dialect,
            security=config.security,
            read_committed=read_committed,
            rack=config.client_rack or "",
            held_s=HELD_S if coordinates_groups(broker) else 0.0,  # brokers before 0.9 have no quotas
            on_throttle=self._note_throttle,
        )
        self._count_throttle = counting(counters.add)
        self._throttle = ""
        self._checks = EntryChecks(broker.id, self._consumer, counters, CheckCalls(self._fail, calls.out_of_range))
        self._log_ends = LogEndRequests(
            broker, self._consumer, clock, counters, self._fail,
            lambda task, reason: self._lose(task, reason, broker.id), calls.out_of_range, self._checks.compare_later,
        )  # fmt: skip
        largest_bytes = min(max(config.queued_max_bytes, config.fetch_message_max_bytes), _LARGEST_ANSWER_BYTES)
        self._answers = FetchAnswers(
            broker, largest_bytes, read_committed, clock, counters, self._checks,
            AnswerCalls(self._fail, self._lose, self._go_nearer),
        )  # fmt: skip
        # Reentrant: a signal handler may shut down on a thread that is inside.
        self._lock = threading.RLock()
        self._tasks: dict[TopicPartition, FetchTask] = {}
        self._news: dict[Partition, str] = {}
        self._empty_pause = Backoff(_SHORTEST_PAUSE_S, max(config.fetcher_backoff_ms / 1000, _SHORTEST_PAUSE_S), 2.0)
        self._empty_rounds = 0
        self._connects = 0
        self._quiet: QuietRound | None = None
        self._changes = 0
        self._fault: str | None = None
        self._wakeup = Wakeup()
        self._plans = FetchPlans(
            self, config, budget, clock, self._consumer, calls.count_fetchers, self._wakeup.wake,
            _LARGEST_ANSWER_BYTES,
        )  # fmt: skip
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, task: FetchTask, leader_epoch: int = -1) -> None:
        """Fetch a partition from now on, until it is not wanted any more or the broker does not lead it.

        Args:
            leader_epoch: In which the broker leads it; -1: not known.
        """
        task.state.led_by(self.broker, leader_epoch)
        self._take_on(task)

    def follow(self, task: FetchTask) -> None:
        """Fetch a partition from this broker although it does not lead it: its leader has named it."""
        task.state.fetched_from(self.broker, self._clock())
        self._take_on(task)

    def _take_on(self, task: FetchTask) -> None:
        if task.queue is not None:
            task.queue.on_room(self._wakeup.wake)
        with self._lock:
            self._tasks[task.state.partition] = task
            self._changes += 1
        self._wakeup.wake()

    def tasks(self) -> list[FetchTask]:
        """Return the tasks of this fetcher."""
        with self._lock:
            return list(self._tasks.values())

    def stop(self) -> None:
        """End the thread, in the middle of a request if there is one."""
        self._is_stopped = True
        self._wakeup.wake()
        self._consumer.close()

    def join(self, timeout_s: float) -> bool:
        """Return whether the thread has ended within the time."""
        if self._thread is not threading.current_thread():
            self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._fetch_on()
        except BaseException as error:  # noqa: BLE001 - without a thread its partitions would wait for ever
            if not self._is_stopped:
                self._calls.died(f"the fetcher of broker {self.broker.id}", error)

    def _fetch_on(self) -> None:
        failures = 0
        try:
            while not self._is_stopped:
                try:
                    if self._step():
                        return
                    failures = 0
                except AuthenticationFailed:
                    raise  # another try would be refused, too
                except Exception:
                    failures += 1
                    self._answers.wake_readers()
                    log.exception("the fetcher of broker %d failed; continuing after a pause", self.broker.id)
                    self._wakeup.wait(min(self._backoff.wait_s(failures), _LONGEST_SLEEP_S))
        finally:
            self._answers.wake_readers()
            self._budget.leave(self)
            self._consumer.close()

    def _step(self) -> bool:
        """Do one round: requests for offsets, then one fetch, or a wait. Return True if it was idle for long."""
        tasks = self._wanted()
        quiet = self._quiet if self._quiet is not None and self._quiet.is_of(tasks, self._changes) else None
        self._quiet = None
        if quiet is None and (
            not tasks or self._consumer.throttled_s > 0 or any(task.state.need is not Need.FETCH for task in tasks)
        ):
            self._answers.wake_readers()
        if not tasks:
            self._budget.leave(self)
            return not self._wakeup.wait(IDLE_S) and self._calls.is_idle(self)
        throttled_s = self._consumer.throttled_s
        if throttled_s > 0:
            self._say_throttled(tasks, throttled_s)
            self._wakeup.wait(min(throttled_s, _LONGEST_SLEEP_S))
            return False
        try:
            if quiet is not None and not self._plans.has_room_for(quiet.planned):
                quiet = None
            planned = self._plan(tasks) if quiet is None else quiet.planned
            if not planned.asked:
                self._answers.wake_readers()
                self._sleep()
            elif self._fetch(planned, quiet):
                self._empty_rounds = 0
            elif not self._dialect.has_long_poll:
                self._wakeup.wait(self._empty_pause.wait_s(self._empty_rounds))
                self._empty_rounds += 1
        except Throttled:
            pass  # the next round waits; nothing was sent, and nothing is lost
        except SimpleConsumerError as error:
            self._answers.wake_readers()
            self._lose_all(error)
        finally:
            self._log_news()
        return False

    def _wanted(self) -> list[FetchTask]:
        """Return the tasks that are still wanted, and remove the others."""
        with self._lock:
            for partition, task in list(self._tasks.items()):
                if not task.is_wanted:
                    del self._tasks[partition]
            return list(self._tasks.values())

    def _sleep(self) -> None:
        """Wait for room, for a new task, or until a retry is due."""
        now = self._clock()
        tasks = self.tasks()
        due = [task.state.retry_at - now for task in tasks if task.state.retry_at > now]
        if self._plans.is_refused:
            due.append(_BUDGET_POLL_S)  # others may give room back, too, which does not wake us
        self._wakeup.wait(min([*due, _LONGEST_SLEEP_S]))

    # -- fetching ------------------------------------------------------------------------------------------------------

    def _plan(self, tasks: list[FetchTask]) -> PlannedFetch:
        """Ask for the ends of logs that are needed, and return what to fetch now."""
        now, changes = self._clock(), self._changes
        for task in tasks:
            if task.state.follows_until is not None and task.state.follows_until <= now:
                self._give_away(task)
                self._calls.lost(task, None)
        if all(task.queue is None for task in tasks):
            self._log_ends.pause_for_more()
            tasks = self._wanted()
        self._log_ends.ask(tasks)
        if self._dialect.has_byte_positions:
            self._checks.ask(tasks, self._clock())
        return self._plans.plan([task for task in tasks if task.is_placed], changes)

    def _fetch(self, planned: PlannedFetch, quiet: QuietRound | None) -> bool:
        """Fetch once; return whether any of it was not empty."""
        self._counters.add("broker_requests", "fetch")
        try:
            answers = self._consumer.multifetch_once(
                planned.requests,
                max_wait_ms=planned.wait_ms,
                min_bytes=self._config.fetch_min_bytes,
                version=self.broker.fetch_version,
                max_bytes=self._config.queued_max_bytes,
                meanwhile=self._answers.wake_readers,
            )
            self._fault = None
            if not answers:  # it throttles this client, which `_note_throttle` has noted
                return True
            if quiet is not None and quiet.is_answered_again(answers, self._clock()):
                self._quiet = quiet
                return False
            if self._dialect.has_byte_positions and self._consumer.connects != self._connects:
                self._connects = self._consumer.connects
                self._compare_logs()
            is_any = self._take(planned.asked, answers)
            if not (is_any or self._dialect.has_byte_positions or self._consumer.pace.most_bytes is not None):
                self._quiet = QuietRound.after(planned, answers)
            return is_any
        finally:
            self._budget.answered(self)

    def _take(self, asked: list[AskedPartition], answers: list[FetchedPartition]) -> bool:
        """Handle the answers about all partitions; return whether any of them was not empty."""
        found = {TopicPartition(answer.topic, answer.partition): answer for answer in answers}
        is_any = any(len(answer.message_set) for answer in answers)
        is_cut = is_any and self._may_be_cut(asked)
        for one in asked:
            answer = found.get(one.task.state.partition)
            if answer is None:
                self._fail(one.task, "the answer lacks this partition")
            elif one.task.is_wanted and one.task.state.asked_offset == one.offset:
                self._answers.take(one, answer, is_cut=is_cut)
        if self._dialect.has_byte_positions:
            self._answers.ask_about_them()
        return is_any

    def _may_be_cut(self, asked: list[AskedPartition]) -> bool:
        """Return whether some partitions may have had all the room of an answer, so that an empty set says nothing."""
        if not self._consumer.limits_answers:
            return False
        limits = self._consumer.pace.most_bytes, self._config.queued_max_bytes, _MOST_OF_BROKERS_BYTES
        return sum(one.size_bytes for one in asked) > min(limit for limit in limits if limit is not None)

    def _note_throttle(self, throttle: Throttle) -> None:
        """Count that the broker throttles this client, and say so of the partitions that wait for it."""
        self._count_throttle(throttle)
        if throttle.is_answered and throttle.is_held:
            return  # it is over
        self._throttle = f"broker {self.broker.id} {throttle}"
        self._say_throttled(self.tasks(), self._consumer.throttled_s if throttle.is_answered else HELD_NOTE_S)

    def _say_throttled(self, tasks: list[FetchTask], seconds: float) -> None:
        until = self._clock() + seconds
        for task in tasks:
            task.state.throttled(self._throttle, until)

    def _compare_logs(self) -> None:
        """Have the last entries read again, in Kafka 0.7: on a new connection a broker may have other logs.

        A request over a connection that was idle is sent again over a new one, without an error.
        """
        for task in self.tasks():
            if task.state.need is Need.FETCH:
                self._checks.compare_later(task)

    # -- failures ------------------------------------------------------------------------------------------------------

    def _fail(self, task: FetchTask, reason: str) -> None:
        """Ask for this partition again after a pause."""
        self._counters.add("errors", "broker_answer")
        if task.state.failed(reason, self._clock(), self._backoff):
            self._news[task.state.partition] = reason

    def _log_news(self) -> None:
        """Log failures that are new, those of one answer together."""
        news, self._news = self._news, {}
        for names, reason in by_reason(news, "/"):
            log.warning("%s on broker %d: %s", names, self.broker.id, reason)

    def _lose(self, task: FetchTask, reason: str, denied_by: int | None) -> None:
        """Return a partition to the leader finder."""
        self._give_away(task)
        now, state = self._clock(), task.state
        is_new = state.failed(reason, now, self._backoff)
        # A name of Kafka 0.7 says the broker, so the first denial is no leader that has moved.
        first_warning = 1 if self._dialect.has_byte_positions else DENIALS_OF_A_LEADER
        if denied_by is not None and state.denied(now, first_warning):
            log.warning(
                "%s/%s on broker %d: %s; trying again after pauses that grow to %d s",
                *state.partition, denied_by, reason, LONGEST_DENIED_S,
            )  # fmt: skip
        elif is_new:
            log.info("%s/%s on broker %d: %s; looking up its leader", *state.partition, self.broker.id, reason)
        self._calls.lost(task, denied_by)

    def _give_away(self, task: FetchTask) -> None:
        with self._lock:
            if self._tasks.get(task.state.partition) is task:
                del self._tasks[task.state.partition]
        task.is_placed = False

    def _go_nearer(self, task: FetchTask, broker_id: int) -> None:
        """Return a partition, to be fetched from the replica that its leader has named."""
        self._give_away(task)
        self._calls.nearer(task, broker_id)

    def _lose_all(self, error: SimpleConsumerError) -> None:
        """Return all partitions after the connection failed, or an answer could not be decoded."""
        if self._is_stopped:
            return
        self._counters.add("errors", "broker_connection")
        if str(error) != self._fault:
            self._fault = str(error)
            log.warning("broker %d: %s", self.broker.id, error)
        for task in self.tasks():
            self._lose(task, str(error), None)
