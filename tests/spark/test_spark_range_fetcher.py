"""What a task reads if its query is slow, or if a bad wrapper lies across its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from simpleconsumer.calls import broker_client
from zkconsumer.spark.errors import PartitionUnreadable
from zkconsumer.spark.options.options import batch_options
from zkconsumer.spark.reading import range_fetcher
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.connections import search_leader
from zkconsumer.spark.reading.range_fetcher import FetchedSet, Interrupted, RangeFetcher
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.testing import load
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault


@pytest.mark.embedded_cluster(brokers=2)
def test_the_time_that_the_query_takes_uses_up_no_patience(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic)
    load(embedded_cluster, topic, 1000)
    options = batch_options({
        "zookeeper.connect": embedded_cluster.zookeeper_connect, "subscribe": topic, "refresh.leader.backoff.ms": "20",
        "fetch.message.max.bytes": "1000",
    })  # fmt: skip
    [whole] = plan_batch(options)
    fetcher = RangeFetcher(
        whole, options.config, search_leader(options.config), patience_s=60,
        max_bytes=options.max_message_bytes, fail_on_data_loss=True,
    )  # fmt: skip
    passed_s = 0.0
    monkeypatch.setattr(range_fetcher, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s))
    fetched = fetcher.fetch()
    next(fetched)
    passed_s = 3600.0
    embedded_cluster.move_leader(topic, 0, 1 if embedded_cluster.leader(topic, 0) == 0 else 0)
    assert sum(1 for _ in fetched) > 2


@pytest.mark.parametrize("parts", [1, 4])
def test_a_corrupt_wrapper_across_the_end_of_what_is_wanted_is_told_once(
    embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str], parts: int
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic)
    load(embedded_cluster, topic, 100, codec="gzip", batch=10)
    embedded_cluster.log(topic, 0).corrupt(50)  # the wrapper of 50 to 59

    def read(end: int, on_message_error: str) -> list[dict[str, object]]:
        options = batch_options({
            "zookeeper.connect": embedded_cluster.zookeeper_connect, "subscribe": topic, "minPartitions": f"{parts}",
            "endingOffsets": f'{{"{topic}": {{"0": {end}}}}}', "onMessageError": on_message_error,
        })  # fmt: skip
        return [row for each in plan_batch(options) for batch in read_range(each, ("offset", "error"), options)
                for row in batch.to_pylist()]  # fmt: skip

    for end in (51, 55, 60):
        with pytest.raises(PartitionUnreadable, match=f"{topic}/0 at 59 .* CrcMismatch"):
            read(end, "raise")
        assert len(read(end, "skip")) == 50
        assert [(row["offset"], row["error"] is None) for row in read(end, "row")] == [
            *((offset, True) for offset in range(50)), (end - 1, False),
        ]  # fmt: skip
    assert len(read(50, "raise")) == 50


@pytest.mark.parametrize("generation", ["1.1", "2.8", "4.3"])
def test_a_broker_that_throttles_uses_up_no_patience(generation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It throttles for longer than the range may make no progress; nothing is wrong, and nothing is lost."""
    monkeypatch.setattr(broker_client, "_LATE_S", 0.2)
    with EmbeddedCluster(1, generation=generation, zookeeper=False) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"%d" % number for number in range(100)], partition=0)
        options = batch_options({"kafka.bootstrap.servers": cluster.broker_list, "subscribe": "t"})
        [whole] = plan_batch(options)
        fault = cluster.faults.add(Fault.throttle(2, api="fetch", topic="t"))
        fetcher = RangeFetcher(
            whole, options.config, search_leader(options.config), patience_s=1,
            max_bytes=options.max_message_bytes, fail_on_data_loss=True,
        )  # fmt: skip
        [fetched] = fetcher.fetch()
        assert isinstance(fetched, FetchedSet)
        assert fetched.high_watermark == 100
        assert cluster.faults.used(fault) == 1
        assert cluster.faults.early_requests == 0


def test_a_throttled_range_is_interrupted_at_once() -> None:
    with EmbeddedCluster(1, generation="2.8", zookeeper=False) as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"a"], partition=0)
        options = batch_options({"kafka.bootstrap.servers": cluster.broker_list, "subscribe": "t"})
        [whole] = plan_batch(options)
        fault = cluster.faults.add(Fault.throttle(60, api="fetch", topic="t"))
        fetcher = RangeFetcher(
            whole, options.config, search_leader(options.config), patience_s=4,
            max_bytes=options.max_message_bytes, fail_on_data_loss=True,
        )  # fmt: skip
        stopping = threading.Thread(target=lambda: (cluster.faults.wait_used(fault), fetcher.interrupt()))
        stopping.start()
        started = time.monotonic()
        with pytest.raises(Interrupted):
            list(fetcher.fetch())
        assert time.monotonic() - started < 15
        stopping.join()
