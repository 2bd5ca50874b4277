"""Lanes on embedded brokers that fail on request: lost connections, errors, moved leaders, calls that end in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import pytest
from lane_writing import SOURCE, WAIT_S, Wire, counted, lane, source_batch, write

from rebalance.errors import AccessRefused, RebalanceError
from simpleconsumer.types import Broker, TopicPartition
from zkconsumer.mirror.errors import BatchRefused, LaneClosed, LaneStuck, NumberRefused
from zkconsumer.mirror.lanes import lane as lane_module
from zkconsumer.mirror.lanes.lane_events import Run
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault
from zkconsumer.testing.waiting import wait_until


@pytest.fixture
def cluster(embedded_clusters: Callable[[int, str], EmbeddedCluster]) -> EmbeddedCluster:
    return embedded_clusters(2, "4.3")


@pytest.fixture
def name(cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> TopicPartition:
    topic = fresh_topic()
    cluster.create_topic(topic)
    return TopicPartition(topic, 0)


@pytest.fixture
def run(cluster: EmbeddedCluster, name: TopicPartition) -> Run:
    return Run(Wire(cluster, name).new_id(), 0)


FAULTS = [Fault.close(api="produce"), Fault.close(api="offsets"), Fault.close(api="fetch"),
          Fault.error(6, api="produce"), Fault.error(7, api="produce"), Fault.error(19, api="produce"),
          Fault.error(45, api="produce"),
          Fault.error(6, api="offsets"), Fault.error(78, api="offsets"), Fault.error(6, api="describe_producers"),
          Fault.close(api="describe_producers"), Fault.error(29, api="describe_producers")]  # fmt: skip


def test_faults_of_all_kinds_cost_no_record_and_repeat_none(
    cluster: EmbeddedCluster, name: TopicPartition, run: Run
) -> None:
    with lane(cluster, name, run, timeout_ms=2_000) as sender:
        end = 0
        for fault in FAULTS:
            plan = cluster.faults.add(fault, times=2)
            if fault.api != "produce":
                cluster.faults.add(Fault.close(api="produce"))
            end += 200
            write(sender, end)
            assert cluster.faults.used(plan) >= 1, fault
            cluster.faults.clear()
        cluster.move_leader(name.topic, 0, 1 - (cluster.leader(name.topic, 0) or 0))
        assert write(sender, end + 200) == end + 200
    assert counted(cluster, name.topic) == end + 200


def test_an_answer_that_comes_late_is_no_answer_and_what_was_stored_is_found(
    cluster: EmbeddedCluster, name: TopicPartition, run: Run
) -> None:
    with lane(cluster, name, run, timeout_ms=150) as sender:
        write(sender, 50)
        cluster.faults.add(Fault.delay(1.0, api="produce"), times=3)
        assert write(sender, 300) == 300
    assert counted(cluster, name.topic) == 300


def test_what_is_refused_for_good_is_an_error(cluster: EmbeddedCluster, name: TopicPartition, run: Run) -> None:
    for code, error in ((10, BatchRefused), (59, NumberRefused)):
        with lane(cluster, name, run) as sender:
            cluster.faults.add(Fault.error(code, api="produce"), times=9)
            with pytest.raises(error, match=f"{name.topic}/0: .*code {code}"):
                write(sender, 300)
            with pytest.raises(error):
                sender.position(WAIT_S)
            cluster.faults.clear()


def test_a_lane_that_gets_no_further_says_so_in_time_and_goes_on_later(
    cluster: EmbeddedCluster, name: TopicPartition, run: Run
) -> None:
    with lane(cluster, name, run, timeout_ms=100) as sender:
        write(sender, 50)
        cluster.faults.add(Fault.error(19, api="produce"), times=None)
        sender.send(source_batch(50, 10), SOURCE, 50, WAIT_S)
        with pytest.raises(LaneStuck, match=f"{name.topic}/0: the lane got no further within 0.5 s: .*code 19"):
            sender.flush(0.5)
        cluster.faults.clear()
        assert sender.flush(WAIT_S) == 60


def test_a_lane_goes_on_after_any_error_that_a_call_has_raised(
    cluster: EmbeddedCluster, name: TopicPartition, run: Run
) -> None:
    no_rights = AccessRefused("no rights", "give some")
    errors: list[BaseException] = [RebalanceError("no session"), KeyboardInterrupt(), no_rights]

    def leaders(wanted: Mapping[TopicPartition, int | None]) -> Mapping[TopicPartition, Broker]:
        if errors:
            raise errors[-1]
        return look_up(wanted)

    with lane(cluster, name, run, timeout_ms=2_000) as sender:
        look_up, sender._leaders = sender._leaders, leaders
        for end in (50, 100):
            while errors:
                with pytest.raises(type(errors[-1])):
                    sender.flush(WAIT_S)
                errors.pop()
            assert write(sender, end) == end
            errors += [RebalanceError("no session"), KeyboardInterrupt()]
            cluster.faults.add(Fault.close(api="produce"))
            sender.send(source_batch(end, 10), SOURCE, sender.position(WAIT_S), WAIT_S)
        errors.clear()
        assert sender.flush(WAIT_S) == 110
    assert counted(cluster, name.topic) == 110


def test_a_lane_that_is_throttled_waits_on_its_connection_for_as_long_as_the_call_may_take(
    cluster: EmbeddedCluster, name: TopicPartition, run: Run
) -> None:
    """Its requests may take 0.2 s, which is less than the throttle times."""
    with lane(cluster, name, run, timeout_ms=100) as sender:
        plan = cluster.faults.add(Fault.throttle(0.5, api="offsets"))
        assert sender.position(WAIT_S) == 0
        client = sender._client
        produce = cluster.faults.add(Fault.throttle(0.5, api="produce"), times=2)
        assert write(sender, 60) == 60
        cluster.faults.add(Fault.throttle(30.0, api="produce"))
        sender.send(source_batch(60, 10), SOURCE, 60, WAIT_S)
        assert sender.flush(WAIT_S) == 70
        assert sender.send(source_batch(70, 10), SOURCE, 70, WAIT_S)
        with pytest.raises(LaneStuck, match=r"within 0\.3 s: the broker throttles this client, for \d+\.\d s more"):
            sender.flush(0.3)
        assert sender._client is client, "it is the same connection"
        assert (cluster.faults.used(plan), cluster.faults.used(produce)) == (1, 2)
        assert cluster.faults.early_requests == 0
        threading.Timer(0.2, sender.close).start()
        with pytest.raises(LaneClosed):
            sender.flush(WAIT_S)
    assert counted(cluster, name.topic) == 70


def test_what_is_known_of_the_log_may_get_too_old_while_a_throttle_is_waited_for(
    cluster: EmbeddedCluster, name: TopicPartition, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lane(cluster, name, run) as sender:
        write(sender, 50)
        monkeypatch.setattr(lane_module, "FRESH_S", 0.5)
        cluster.faults.add(Fault.throttle(1.0, api="produce"))
        sender.send(source_batch(50, 10), SOURCE, 50, WAIT_S)
        assert sender.flush(WAIT_S) == 60
        reads = cluster.faults.add(Fault.delay(0.0, api="describe_producers"), times=None)
        sender.send(source_batch(60, 10), SOURCE, 60, WAIT_S)
        assert sender.flush(WAIT_S) == 70
        assert cluster.faults.used(reads) >= 1, "the end is read again before the batch is sent"
    assert counted(cluster, name.topic) == 70


def test_a_lane_that_waits_for_replicas_says_what_they_have(
    cluster: EmbeddedCluster, name: TopicPartition, run: Run
) -> None:
    """The leader says of the producer that it has ten records more than the log, as the run starts where it ends."""
    Wire(cluster, name).put(run.producer, 0)
    lag = "replicas have the offsets before 10, the leader those before 20"
    with lane(cluster, name, run._replace(first_offset=10)) as sender, pytest.raises(LaneStuck, match=lag):
        sender.position(0.2)


def test_a_closed_lane_ends_the_call_that_waits(cluster: EmbeddedCluster, name: TopicPartition, run: Run) -> None:
    sender = lane(cluster, name, run)
    cluster.faults.add(Fault.error(19, api="produce"), times=None)
    sender.send(source_batch(0, 10), SOURCE, sender.position(WAIT_S), WAIT_S)
    found: list[BaseException] = []

    def flush() -> None:
        try:
            sender.flush(WAIT_S)
        except LaneClosed as error:
            found.append(error)

    thread = threading.Thread(target=flush, daemon=True)
    thread.start()
    started = time.monotonic()
    sender.close()
    wait_until(lambda: found, WAIT_S, "the call to end")
    assert time.monotonic() - started < 5
    cluster.faults.clear()
