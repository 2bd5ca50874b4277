"""Mirrors that write in transactions: brokers never forget the producers of old records, whatever is killed."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from mirroring import (
    TARGET_SETTINGS,
    WAIT_S,
    command,
    end_of,
    numbered,
    running,
    send,
    servers_of,
    settings_of,
)

from zkconsumer import read_topic
from zkconsumer.mirror.audit.lane_audit import audit
from zkconsumer.mirror.errors import LaneStuck
from zkconsumer.mirror.lane_runs import RunCause, RunRecord
from zkconsumer.mirror.lanes import lane_transactions
from zkconsumer.mirror.lanes.lane_transactions import LaneTransactions
from zkconsumer.mirror.mirror_process import Mirror
from zkconsumer.mirror.reports import mirror_status
from zkconsumer.mirror.sides import Both, MirrorSettings
from zkconsumer.mirror.state_log import read_runs
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real

FORGETS = {"transactional.id.expiration.ms": 604_800_000, "producer.id.expiration.check.interval.ms": 1000,
           "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
           "transaction.remove.expired.transaction.cleanup.interval.ms": 1000}  # fmt: skip
"""Brokers look each second which producers they forget."""


@pytest.fixture(scope="module", params=["4.3.1", "0.11.0.3", "2.8.2"])
def target(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param, 1, settings={**TARGET_SETTINGS, **FORGETS}) as found:
        yield found


@pytest.fixture(scope="module")
def source() -> Iterator[KafkaCluster]:
    """Its records have no times."""
    with KafkaCluster("0.8.2.2", 1) as found:
        yield found


def found_by_readers(cluster: KafkaCluster, topic: str, isolation: str) -> list[bytes | None]:
    properties = {"bootstrap.servers": servers_of(cluster), "isolation.level": isolation}
    with read_topic(None, topic, [0], properties=properties) as reader:
        return [message.value for message in reader]


def runs_of(settings: MirrorSettings) -> list[RunRecord]:
    [found] = read_runs(None, settings.target, settings.state_topic).values()
    return found.runs


def assert_each_once(target: KafkaCluster, settings: MirrorSettings, topic: str, expected: list[bytes]) -> None:
    for isolation in ("read_committed", "read_uncommitted"):
        assert found_by_readers(target, topic, isolation) == expected, isolation
    [state] = mirror_status(settings)
    assert state.lag == 0
    [audited] = audit(settings)
    assert (audited.records, audited.different, audited.not_copied) == (len(expected), 0, 0)


def test_a_lane_is_described_across_its_markers(
    source: KafkaCluster, target: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_transactions, "COMMIT_BYTES", 20_000)
    topic = f"pinned-{target.version}"
    source.create_topic(topic)
    settings = settings_of(topic, source, target, topic, until_end=True, pins_producers=True)
    for first in range(0, 3000, 1000):
        send(source, topic, numbered(first, first + 1000, 100))
        Mirror(settings).run()
    assert_each_once(target, settings, topic, numbered(0, 3000, 100))
    assert [run.cause for run in runs_of(settings)].count(RunCause.MARKER) >= 3


def test_processes_that_are_killed_in_transactions_leave_each_record_once(
    source: KafkaCluster, target: KafkaCluster
) -> None:
    topic = f"pinned-killed-{target.version}"
    source.create_topic(topic)
    expected = numbered(0, 40_000, 50)
    send(source, topic, expected)
    settings = settings_of(topic, source, target, topic, pins_producers=True)
    arguments = command(settings, "--whitelist", topic, "--pin-producers", "--rate", "300000")
    rng = random.Random(11)
    for index in range(5):
        before = end_of(target, topic)
        process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
        wait_until(lambda: end_of(target, topic) > max(before, 0), WAIT_S, "records", state=process.poll)  # noqa: B023
        time.sleep(rng.uniform(0.0, 1.5))  # the moment of the kill, whichever it is
        process.send_signal(signal.SIGTERM if index == 2 else signal.SIGKILL)
        process.wait(WAIT_S)
    Mirror(settings_of(topic, source, target, topic, until_end=True, pins_producers=True)).run()
    assert_each_once(target, settings, topic, expected)


def test_a_transaction_that_the_coordinator_has_aborted_is_copied_again(
    source: KafkaCluster, target: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"pinned-aborted-{target.version}"
    source.create_topic(topic)
    settings = settings_of(topic, source, target, topic, until_end=True, pins_producers=True)
    send(source, topic, numbered(0, 100))
    Mirror(settings).run()
    with monkeypatch.context() as patch:  # a mirror whose processes are all away before it commits

        def never(self: LaneTransactions, producer: object, end: int) -> None:
            raise LaneStuck(self._name, 0.0, "the coordinator is away")

        patch.setattr(LaneTransactions, "commit", never)
        patch.setattr(lane_transactions, "_TIMEOUTS_MS", (2000,))
        patch.setattr(lane_transactions, "COMMIT_S", 0.5)
        send(source, topic, numbered(100, 150))
        with running(settings_of(topic, source, target, topic, pins_producers=True)):
            wait_until(lambda: end_of(target, topic) >= 151, WAIT_S, "records of an open transaction")
    take_epoch(settings, target, topic)
    Mirror(settings).run()
    expected = numbered(0, 150)
    assert found_by_readers(target, topic, "read_committed") == expected
    [audited] = audit(settings)
    assert (audited.records, audited.different) == (150, 0)


def take_epoch(settings: MirrorSettings, target: KafkaCluster, topic: str, *, aborts: bool = True) -> None:
    """Take the next epoch, which aborts what is open, as a coordinator does when a transaction takes too long."""
    with ExitStack() as stack:
        both = Both(settings, stack)
        lane = runs_of(settings)[0].lane
        with LaneTransactions(lane.target, settings.transactional_id(lane), both.target) as transactions:
            before = transactions.end()
            transactions.new_producer()
            if aborts:
                wait_until(lambda: transactions.end() > before, WAIT_S, "the marker of the abort")


def test_a_process_that_was_killed_after_it_had_a_new_epoch_is_followed_by_one_with_the_next(
    source: KafkaCluster, target: KafkaCluster
) -> None:
    topic = f"pinned-epoch-{target.version}"
    source.create_topic(topic)
    settings = settings_of(topic, source, target, topic, until_end=True, pins_producers=True)
    send(source, topic, numbered(0, 100))
    Mirror(settings).run()
    before = runs_of(settings)[-1].producer
    for first in (100, 150):
        with running(settings_of(topic, source, target, topic, pins_producers=True)) as mirror:
            send(source, topic, numbered(first, first + 20))
            wait_until(lambda: end_of(target, topic) > first, WAIT_S, "an open transaction", state=mirror.figures)  # noqa: B023
            take_epoch(settings, target, topic)
            send(source, topic, numbered(first + 20, first + 50))
            wait_until(lambda: mirror_status(settings)[0].lag == 0, WAIT_S, "the others", state=mirror.figures)
    take_epoch(settings, target, topic, aborts=False)
    Mirror(settings).run()
    assert found_by_readers(target, topic, "read_committed") == numbered(0, 200)
    assert runs_of(settings)[-1].producer != before
    [audited] = audit(settings)
    assert (audited.records, audited.different) == (200, 0)
