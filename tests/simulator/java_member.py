"""A Java 0.8.2.2 or 0.7.2 consumer and its application as a member of a simulated group. Pure.

The counterpart of the real one (`zkconsumer.testing.members.java_member`), with the same counts. What it asks of
ZooKeeper, and in which order, is compared with recordings of real ones (tests/simulation/test_java_model_traces.py).
Like a real one it does not announce what it owns; it records `deliver`, `done`, `reset`, `blocked_try` and `gave_up`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rebalance.subscription import Subscription
from rebalance.zookeeper.znodes_07 import GENERATION_07
from tests.simulator.actor import MemberSpec, Owned, Surroundings
from tests.simulator.application import Pace
from tests.simulator.java_connector import JavaConnector
from tests.simulator.java_connector_07 import JavaConnector07
from tests.simulator.java_delivery import Fetchers, Stream
from tests.simulator.java_delivery_07 import Fetchers07
from tests.simulator.java_layout import Kafka082
from tests.simulator.java_layout_07 import Kafka072
from tests.simulator.java_rebalance import GivenUp
from tests.simulator.java_settings import ConnectorSettings
from tests.simulator.java_threads import USUAL_PACE, Body, JavaFailure, Threads
from tests.simulator.java_zkclient import ZkClient
from tests.simulator.pipe import Latency
from zkconsumer.testing.history import Place
from zkconsumer.testing.history.limits import NS
from zkconsumer.testing.proxy.zookeeper_exchanges import Entry

__all__ = ["JavaMember"]

_LAYOUT: Final = Kafka082()
_LAYOUT_07: Final = Kafka072()


class JavaMember:
    """A Java consumer, see `tests.simulator.actor.Actor`.

    Its port should be one of `java_zkclient.java_port`, whose client keeps what it receives in order.

    Args:
        pace: how long its threads take between two steps.
        heard: told of what passes between it and ZooKeeper, with the name of the thread; None for nobody.

    Attributes:
        has_left: whether `shutdown()` has returned.
        start_failure: what `createMessageStreams` threw, empty if it did not. The application has no streams then, but
            the consumer lives on until its process ends: registered, and claiming partitions that nobody reads.
        when_failed: called when a stream has thrown an exception. The application ends its process then.
    """

    def __init__(
        self,
        spec: MemberSpec,
        surroundings: Surroundings,
        pace: Latency = USUAL_PACE,
        heard: Callable[[str, Entry], None] | None = None,
    ) -> None:
        self.spec = spec
        is_07 = surroundings.brokers.generation is GENERATION_07
        # Of 0.7 each process has an id of its own, as without `consumerid`, which is for tests: one that starts again
        # with its old id takes the registration of its old session for its own, and is without one when that ends.
        self.consumer_id = f"{surroundings.group}_{surroundings.process.name if is_07 else spec.name}"
        self.start_failure = ""
        self.when_failed: Callable[[], object] = lambda: None
        self._surroundings = surroundings
        self._threads = threads = Threads(surroundings.process, surroundings.rng, pace)
        self._pace = Pace(surroundings.rng, spec.work_s)
        self.has_left = False
        self._is_ready = False
        zookeeper = ZkClient(surroundings.port, threads, surroundings.rng)
        zookeeper.heard = heard
        self._connector = self._build_connector(zookeeper)

    def _build_connector(self, zookeeper: ZkClient) -> JavaConnector:
        surroundings, threads, reset = self._surroundings, self._threads, self.spec.reset
        settings = _settings(self.spec, surroundings.group, self.consumer_id)
        if surroundings.brokers.generation is not GENERATION_07:
            fetchers = Fetchers(surroundings, threads, reset, self._read_brokers)
            return JavaConnector(settings, _LAYOUT, zookeeper, fetchers, threads, surroundings)
        fetchers = Fetchers07(surroundings, threads, reset, self._store_offset)
        return JavaConnector07(settings, _LAYOUT_07, zookeeper, fetchers, threads, surroundings)

    def _store_offset(self, topic: str, partition: int | str, offset: int) -> Body[None]:
        assert isinstance(self._connector, JavaConnector07)
        yield from self._connector.store_offset(topic, partition, offset)

    # -- the face of an actor ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the group; once."""
        self._threads.start("main", self._main())

    def leave(self, wait_s: float | None = None) -> None:
        """Begin to leave in order (`shutdown()`); a second call does nothing."""
        if not self._connector.is_shutting_down:
            self._threads.start("shutdown", self._shut_down())

    @property
    def has_ended(self) -> bool:
        """Whether it has left, or got no streams."""
        return self.has_left or self.start_failure != ""

    @property
    def is_at_rest(self) -> bool:
        """Whether it takes part and nothing of a rebalance is under way or wanted."""
        connector = self._connector
        return (
            self._is_ready
            and not connector.is_shutting_down
            and not connector.rebalance_lock.is_held
            and not connector.rebalancer.is_triggered
            and connector.zookeeper.is_idle
        )

    def owned(self) -> Owned:
        """The partitions that it takes for its own, with the threads that read them."""
        registry = self._connector.registry
        return {
            (topic, partition): info.thread_id
            for topic, partitions in registry.items()
            for partition, info in partitions.items()
        }

    def slow_down(self, work_s: float, until_s: float) -> None:
        """Let its application take `work_s` for each message that is begun before the virtual time `until_s`."""
        self._pace.slow_down(work_s, until_s)

    def hold_up(self, until_s: float) -> None:
        """Nothing: the model has no thread that could be late by itself."""

    def states(self, place: Place | None = None) -> frozenset[str]:
        """It has none of our machines."""
        return frozenset()

    def warnings(self) -> frozenset[str]:
        """It has no status."""
        return frozenset()

    def when_moved(self, call: Callable[[], None]) -> None:
        """Nobody waits for a state of it."""

    def describe(self) -> str:
        """One line for a trace."""
        connector = self._connector
        if self.has_ended:
            state = "left" if self.has_left else f"failed: {self.start_failure}"
        elif connector.rebalance_lock.is_held:
            state = f"rebalancing, attempt {self.rebalance_attempts} of its life"
        else:
            state = "at rest" if self.is_at_rest else "starting" if not self._is_ready else "about to rebalance"
        owned = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(self.owned())) or "nothing"
        link = "" if connector.zookeeper.is_connected else "; not connected"
        if self.waits_for_own_registration:
            link += "; waits for its own registration to vanish"
        return f"java {self.consumer_id} {state}; owns {owned}; gave up {self.gave_up} times{link}"

    # -- what it has been through -----------------------------------------------------------------------------------

    @property
    def rebalance_attempts(self) -> int:
        """How often it began to rebalance."""
        return self._connector.rebalancer.attempts

    @property
    def rebalance_failures(self) -> int:
        """How many single attempts failed; some are normal in every change of a group."""
        return self._connector.rebalancer.failures

    @property
    def conflicts(self) -> int:
        """How often it found a partition it should own still owned by another."""
        return self._connector.rebalancer.conflicts

    @property
    def gave_up(self) -> int:
        """How often it used up all its attempts, which leaves its partitions unread: it must never be our fault."""
        return len(self._connector.rebalancer.given_up)

    @property
    def given_up(self) -> list[GivenUp]:
        """When it used up all its attempts, and what stood in the way of the last one."""
        return list(self._connector.rebalancer.given_up)

    @property
    def waits_for_own_registration(self) -> bool:
        """Whether it hears of no change any more, for ever, by a fault of its own: see `JavaConnector`."""
        return self._connector.waits_for_own_registration

    @property
    def thread_failures(self) -> list[str]:
        """Exceptions that a real one would have logged as errors."""
        return list(self._threads.failures)

    # -- its threads ------------------------------------------------------------------------------------------------

    def _main(self) -> Body[None]:
        connector = self._connector
        try:
            yield from connector.create_streams()
        except JavaFailure as failure:
            self.start_failure = repr(failure)
            return
        self._is_ready = True
        for number, stream in enumerate(connector.streams):
            self._threads.start(f"stream {number}", self._consume(stream))

    def _consume(self, stream: Stream) -> Body[None]:
        record, spec, process = self._surroundings.record, self.spec, self._surroundings.process
        taken = 0
        while not self.has_left:
            try:
                delivered = yield from stream.next()
            except JavaFailure as failure:
                self._threads.failures.append(f"next: {failure!r}")
                self.when_failed()
                return
            if delivered is None:
                return
            place, message = delivered
            record("deliver", place, message.offset, message.id)
            delivered_s = process.schedule.now
            yield self._threads.sleep(self._pace.draw_s(delivered_s))
            record("done", place, message.offset, str(int(delivered_s * NS)))
            taken += 1
            if not spec.auto_commit_s and spec.commit_every and taken % spec.commit_every == 0:
                try:
                    yield from self._connector.commit_offsets(is_auto=False)
                except JavaFailure as failure:
                    self._threads.failures.append(f"commitOffsets: {failure!r}")

    def _shut_down(self) -> Body[None]:
        yield from self._connector.shut_down()
        self.has_left = True

    def _read_brokers(self) -> Body[list[str]]:
        return (yield from self._connector.rebalancer.read_brokers())


def _settings(spec: MemberSpec, group: str, consumer_id: str) -> ConnectorSettings:
    if spec.whitelist:
        subscription = Subscription.white_list(spec.whitelist, spec.streams)
    else:
        subscription = Subscription.static(dict(spec.topics))
    return ConnectorSettings(
        group,
        consumer_id,
        subscription,
        strategy=spec.strategy,
        order=spec.order or "0.8",
        storage=spec.storage or "zookeeper",
        session_s=spec.session_s,
        auto_commit_s=spec.auto_commit_s,
        backoff_s=spec.backoff_s,
        max_retries=spec.max_retries,
        reset=spec.reset,
    )
