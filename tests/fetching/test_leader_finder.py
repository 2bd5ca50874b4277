"""The thread that looks for leaders: when it asks, what it reuses, and what it survives."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rebalance.errors import RebalanceError
from rebalance.lease import lease_clock
from simpleconsumer.types import Broker, TopicPartition
from tests.cluster.leader_registry import P0, P1, Registry, reporting
from tests.fetching.feeding import METADATA
from zkconsumer.cluster.leaders import BrokerDirectory
from zkconsumer.fetching.leader_finder import REMEMBERED_S, LeaderFinder
from zkconsumer.testing.waiting import wait_until

DEADLINE_S = 15.0


@contextmanager
def finding(
    directory: BrokerDirectory, backoff_ms: int = 20, clock: Callable[[], float] = lease_clock
) -> Iterator[tuple[LeaderFinder, dict[TopicPartition, Broker]]]:
    found: dict[TopicPartition, Broker] = {}
    finder = LeaderFinder(directory, found.__setitem__, backoff_ms, clock, uuid.uuid4().hex)
    try:
        yield finder, found
    finally:
        finder.stop()
        finder.join(DEADLINE_S)


def test_the_finder_tries_until_there_is_a_leader_and_then_sleeps() -> None:
    with reporting((5, -1)) as broker, finding(Registry(broker.broker).directory()) as (finder, found):
        finder.look_for(P0, is_new=True)
        wait_until(lambda: broker.requests[METADATA] >= 3, DEADLINE_S, "three tries")
        assert found == {}
        assert finder.missing() == [P0]
        broker.on_metadata = lambda topics: broker.metadata({"t": {0: (0, 0)}})
        wait_until(lambda: found == {P0: broker.broker}, DEADLINE_S, "the leader")
        assert finder.missing() == []


def test_a_partition_that_is_forgotten_is_not_looked_for() -> None:
    with reporting((5, -1)) as broker, finding(Registry(broker.broker).directory()) as (finder, found):
        finder.look_for(P0, is_new=True)
        wait_until(lambda: broker.requests[METADATA] >= 1, DEADLINE_S, "a try")
        finder.forget(P0)
        broker.on_metadata = lambda topics: broker.metadata({"t": {0: (0, 0), 1: (0, 0)}})
        finder.look_for(P1, is_new=True)
        wait_until(lambda: P1 in found, DEADLINE_S, "the other partition")
        assert finder.missing() == []


def test_a_new_partition_does_not_wait_for_the_back_off_of_another() -> None:
    with reporting((5, -1), (0, 0)) as broker, finding(Registry(broker.broker).directory(), 60_000) as (finder, found):
        finder.look_for(P0, is_new=True)
        wait_until(lambda: broker.requests[METADATA] >= 1, DEADLINE_S, "a try")
        finder.look_for(P1, is_new=True)
        wait_until(lambda: P1 in found, DEADLINE_S, "the other partition")
        assert finder.missing() == [P0]


def test_an_answer_serves_the_partitions_that_are_looked_for_within_a_second() -> None:
    now = [100.0]
    with reporting((0, 0), (0, 0)) as broker:
        finding_then = finding(Registry(broker.broker).directory(), clock=lambda: now[0])
        with finding_then as (finder, found):
            finder.look_for(P0, is_new=True)
            wait_until(lambda: P0 in found, DEADLINE_S, "the first partition")
            now[0] += REMEMBERED_S
            finder.look_for(P1, is_new=True)
            wait_until(lambda: P1 in found, DEADLINE_S, "the second partition")
            assert broker.requests[METADATA] == 1
            now[0] += 0.1
            found.clear()
            finder.look_for(P1, is_new=True)
            wait_until(lambda: P1 in found, DEADLINE_S, "the second partition again")
            assert broker.requests[METADATA] == 2


@pytest.mark.parametrize("denied_by", [None, 0])
def test_a_lost_leader_is_looked_up_again(denied_by: int | None) -> None:
    with reporting((0, 0)) as broker, finding(Registry(broker.broker).directory()) as (finder, found):
        finder.look_for(P0, is_new=True)
        wait_until(lambda: P0 in found, DEADLINE_S, "the leader")
        finder.look_for(P0, denied_by)
        wait_until(lambda: broker.requests[METADATA] >= 2, DEADLINE_S, "another question")


@pytest.mark.parametrize(("denied_by", "waits_s"), [(0, [0.2, 0.2, 0.3, 0.45, 10.0]), (None, [0.2] * 5)])
def test_a_leader_that_denies_again_and_again_is_asked_ever_less_often_up_to_a_limit(
    denied_by: int | None, waits_s: list[float]
) -> None:
    finder = LeaderFinder(Registry().directory(), lambda *_: None, 200, lambda: 100.0, "waits")
    waits: list[float] = []
    for denials in (0, 1, 2, 3, 500):
        finder.look_for(P0, denied_by, denials=denials)
        waits.append(finder._missing[P0].due - 100.0)
    finder.stop()
    finder.join(DEADLINE_S)
    assert waits == [pytest.approx(wait, rel=0.26) for wait in waits_s]


def test_a_partition_that_the_last_answer_does_not_name_is_asked_for() -> None:
    with reporting((0, 0)) as broker, finding(Registry(broker.broker).directory(), 60_000) as (finder, found):
        finder.look_for(P0, is_new=True)
        wait_until(lambda: P0 in found, DEADLINE_S, "the first partition")
        broker.on_metadata = lambda topics: broker.metadata({"t": {0: (0, 0), 1: (0, 0)}})
        finder.look_for(P1, is_new=True)
        wait_until(lambda: P1 in found, DEADLINE_S, "the partition that is new")


def test_the_finder_survives_a_lost_zookeeper_and_unexpected_errors(caplog: pytest.LogCaptureFixture) -> None:
    with reporting((0, 0)) as broker:
        faults: list[Exception] = [RebalanceError("ZooKeeper is away"), RuntimeError("a surprise")]

        def read_brokers() -> list[Broker]:
            if faults:
                raise faults.pop(0)
            return [broker.broker]

        directory = BrokerDirectory("zkconsumer-test", 30.0, read_brokers, set, lambda _: {})
        with finding(directory) as (finder, found):
            finder.look_for(P0, is_new=True)
            wait_until(lambda: P0 in found, DEADLINE_S, "the leader")
    assert "ZooKeeper is away" in caplog.text
    assert "a surprise" in caplog.text


def test_a_reason_for_which_leaders_cannot_be_looked_for_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    tries: list[str] = []
    with reporting((0, 0)) as broker:

        def read_brokers() -> list[Broker]:
            tries.append("")
            if len(tries) <= 6:
                raise RebalanceError("ZooKeeper is away" if len(tries) != 4 else "the session has expired")
            if len(tries) == 8:
                raise RebalanceError("ZooKeeper is away")
            return [broker.broker]

        directory = BrokerDirectory("zkconsumer-test", 30.0, read_brokers, set, lambda _: {})
        with finding(directory) as (finder, found):
            finder.look_for(P0, is_new=True)
            wait_until(lambda: P0 in found, DEADLINE_S, "the leader")
            found.clear()
            finder.look_for(P0)
            wait_until(lambda: P0 in found, DEADLINE_S, "the leader again")
    said = [record.getMessage() for record in caplog.records if "cannot be looked up" in record.getMessage()]
    assert [line.partition(": ")[2].partition(";")[0] for line in said] == [
        "ZooKeeper is away", "the session has expired", "ZooKeeper is away",
    ]  # fmt: skip


def test_a_finder_that_nobody_needs_has_no_thread() -> None:
    name = uuid.uuid4().hex
    finder = LeaderFinder(Registry().directory(), lambda *_: None, 20, lease_clock, name)
    finder.stop()
    finder.look_for(P0, is_new=True)
    finder.join(0.0)
    assert not [thread for thread in threading.enumerate() if name in thread.name]
