"""Statistics: what is counted agrees with what happened, and reporting them disturbs nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from consuming import COUNT, PATIENCE_S, BackgroundReader, config, member, preset_offset, read, wait_owned, wait_stored

from zkconsumer import (
    ConfigError,
    ConnectorStatistics,
    ConsumerConfig,
    ConsumerConnector,
    MessageError,
)
from zkconsumer.testing import EmbeddedCluster, Fault, TcpProxy
from zkconsumer.testing.waiting import Deadline, wait_until


def told_by(
    cluster: EmbeddedCluster, group: str, told: Callable[[ConnectorStatistics], object], **settings: Any
) -> ConsumerConnector:
    return ConsumerConnector(config(cluster, group, **settings), on_statistics=told)


def test_what_was_fetched_read_and_committed_is_told_for_each_partition(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    with member(embedded_cluster, fresh_group, auto_commit_interval_ms=20) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        reader = BackgroundReader(stream)
        reader.wait(2 * COUNT)
        for partition in (0, 1):
            wait_stored(embedded_cluster, fresh_group, topic, partition, COUNT)
        statistics = consumer.statistics()
        for each in statistics.status.owned:
            assert (each.position, each.committed, each.log_end, each.lag) == (COUNT, COUNT, COUNT, 0)
            assert each.fetched_messages == COUNT
            assert each.fetched_bytes > COUNT
            assert each.messages_per_s > 0
        assert statistics.broker_requests["fetch"] >= 2
        assert statistics.broker_requests["metadata"] >= 1
        assert statistics.zookeeper_requests["multi"] >= 3  # registering, claiming, committing
        assert statistics.errors == {}
        assert (statistics.rebalances.count, statistics.rebalances.taken) == (1, 2)
        assert 0 < statistics.rebalances.last_s < PATIENCE_S


def test_lag_and_queue_are_told_of_what_nobody_reads(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    with member(embedded_cluster, fresh_group) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        read(stream, 1)
        wait_until(lambda: all(each.queued_bytes for each in consumer.statistics().status.owned), PATIENCE_S, "queues")
        statistics = consumer.statistics()
        assert [each.lag for each in statistics.status.owned] == [COUNT, COUNT]
        assert statistics.queued_bytes == sum(each.queued_bytes for each in statistics.status.owned)


def test_statistics_are_one_line_of_json_at_any_time(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    consumer = member(embedded_cluster, fresh_group)
    states = [consumer.statistics()]
    with consumer:
        consumer.create_message_streams({topic: 1})
        states.append(consumer.statistics())
    states.append(consumer.statistics())
    assert [each.status.state for each in states] == ["created", "stable", "closed"]
    for each in states:
        line = each.to_json()
        assert "\n" not in line
        assert json.loads(line)["group"] == fresh_group
    assert states[2].rebalances.count == 1  # what was counted stays


def test_a_join_and_a_leave_are_two_rebalances_and_a_look_is_none(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    with member(embedded_cluster, fresh_group, "a") as a:
        a.create_message_streams({topic: 1})
        with member(embedded_cluster, fresh_group, "b") as b:
            b.create_message_streams({topic: 1})
            wait_owned(a, [(topic, 0)])
            wait_until(lambda: a.statistics().rebalances.count == 2, PATIENCE_S, "the release to be counted")
        wait_until(lambda: a.statistics().rebalances.count == 3, PATIENCE_S, "the claim to be counted")
        with member(embedded_cluster, fresh_group, "c") as c:
            c.create_message_streams({})  # changes nobody's share
        figures = a.statistics().rebalances
        assert (figures.count, figures.taken, figures.released, figures.lost) == (3, 3, 1, 0)
        assert figures.last_s <= figures.longest_s <= figures.total_s


def test_errors_are_counted_by_kind(embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError

    class Fails:
        on_partitions_assigned = staticmethod(fail)

    faults = embedded_cluster.faults
    preset_offset(embedded_cluster, fresh_group, topic, 1, b"1000")
    faults.add(Fault.corrupt(topic, 0, offset=0), times=None)
    faults.add(Fault.close(api="fetch", topic=topic), times=3)  # the first time it is asked again at once
    with member(embedded_cluster, fresh_group, listener=Fails()) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        with pytest.raises(MessageError):
            read(stream, 2 * COUNT)  # whichever partition comes first
        wanted = {"message", "listener", "out_of_range", "broker_connection"}
        wait_until(lambda: wanted <= consumer.statistics().errors.keys(), PATIENCE_S, "all kinds",
                   state=consumer.statistics)  # fmt: skip
        errors = consumer.statistics().errors
    assert errors["message"] == 1
    assert errors["out_of_range"] == 1


def test_a_lost_connection_is_counted(embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str) -> None:
    with TcpProxy(embedded_cluster.zookeeper_hosts) as proxy:
        connect = embedded_cluster.zookeeper_connect.replace(embedded_cluster.zookeeper_hosts, proxy.address)
        properties = config(embedded_cluster, fresh_group).to_properties() | {"zookeeper.connect": connect}
        with ConsumerConnector(ConsumerConfig.from_properties(properties)) as consumer:
            consumer.create_message_streams({topic: 1})
            proxy.drop()
            wait_until(lambda: consumer.statistics().errors.get("zookeeper_connection"), PATIENCE_S, "the loss")


# -- the callback ------------------------------------------------------------------------------------------------------


def test_statistics_are_told_from_time_to_time_on_a_thread_of_their_own_until_the_shutdown(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    before = set(threading.enumerate())
    told: list[tuple[str, ConnectorStatistics]] = []
    consumer = told_by(embedded_cluster, fresh_group, lambda each: told.append((threading.current_thread().name, each)),
                       statistics_interval_ms=20)  # fmt: skip
    with consumer:
        consumer.create_message_streams({topic: 1})
        wait_until(lambda: len(told) >= 3, PATIENCE_S, "three calls")
    count = len(told)
    assert {name for name, _ in told} == {"zkconsumer-statistics"}
    assert all(each.group == fresh_group for _, each in told)
    assert "zkconsumer-statistics" not in {thread.name for thread in set(threading.enumerate()) - before}
    assert len(told) == count


def test_a_callback_that_fails_is_logged_once_and_counted(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise ZeroDivisionError("in the application")

    with told_by(embedded_cluster, fresh_group, fail, statistics_interval_ms=5) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        wait_until(lambda: consumer.statistics().errors.get("on_statistics", 0) > 3, PATIENCE_S, "calls that fail")
        assert len(read(stream, 2 * COUNT)) == 2 * COUNT
    assert caplog.text.count("on_statistics failed") == 1


def test_a_callback_that_never_returns_holds_up_neither_the_stream_nor_the_shutdown(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    inside, let_go = threading.Event(), threading.Event()

    def hang(_: object) -> None:
        inside.set()
        let_go.wait(PATIENCE_S)

    try:
        with told_by(embedded_cluster, fresh_group, hang, statistics_interval_ms=5) as consumer:
            [stream] = consumer.create_message_streams({topic: 1})[topic]
            assert inside.wait(PATIENCE_S)
            assert len(read(stream, 2 * COUNT)) == 2 * COUNT
            deadline = Deadline(PATIENCE_S)
        assert not deadline.expired
        assert not let_go.is_set()
    finally:
        let_go.set()


def test_a_callback_may_shut_the_connector_down(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    with told_by(embedded_cluster, fresh_group, lambda _: consumer.shutdown(), statistics_interval_ms=5) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        reader = BackgroundReader(stream)
        reader.join()


def test_a_callback_without_a_time_is_refused_and_a_time_without_a_callback_is_warned_about(
    embedded_cluster: EmbeddedCluster, fresh_group: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=r"statistics\.interval\.ms"):
        told_by(embedded_cluster, fresh_group, print)
    with pytest.raises(TypeError, match="on_statistics is 7"):
        told_by(embedded_cluster, fresh_group, 7, statistics_interval_ms=5)  # type: ignore[arg-type]
    member(embedded_cluster, fresh_group, statistics_interval_ms=5)
    assert "on_statistics is not given" in caplog.text
