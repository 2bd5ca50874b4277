"""What a task fetches, where the query around it is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from zkconsumer.spark import fetching
from zkconsumer.spark.batch_planning import plan_batch
from zkconsumer.spark.fetching import RangeFetcher
from zkconsumer.spark.leaders import search_in_zookeeper
from zkconsumer.spark.options import batch_options
from zkconsumer.testing import load
from zkconsumer.testing.embedded.cluster import EmbeddedCluster


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
        whole, options.config, search_in_zookeeper(options.config), patience_s=60,
        max_bytes=options.max_message_bytes, fail_on_data_loss=True,
    )  # fmt: skip
    passed_s = 0.0
    monkeypatch.setattr(fetching, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed_s))
    fetched = fetcher.fetch()
    next(fetched)
    passed_s = 3600.0
    embedded_cluster.move_leader(topic, 0, 1 if embedded_cluster.leader(topic, 0) == 0 else 0)
    assert sum(1 for _ in fetched) > 2
