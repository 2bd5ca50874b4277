"""Ends of logs with the epochs of their leaders, as real brokers have answered."""

from __future__ import annotations

import pytest
from golden_apis import Frames, in_version

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import KAFKA011, KAFKA07, KAFKA08
from simpleconsumer.errors import NoSuchRequest
from simpleconsumer.types import LogEnd, TopicPartition
from zkconsumer.testing import EmbeddedCluster

ZERO = TopicPartition("g-apis", 0)


@pytest.mark.parametrize(
    ("kafka", "name", "epoch"),
    [
        ("1.1.1", "ListOffsets-latest-v2", -1),
        ("2.8.2", "ListOffsets-latest-v1", -1),
        ("2.8.2", "ListOffsets-latest-v4", 0),
        ("4.3.1", "ListOffsets-latest-v5", 0),
        ("4.3.1", "ListOffsets-stable-v5", 0),
    ],
)
def test_an_end_has_the_epoch_from_version_4_on(kafka: str, name: str, epoch: int) -> None:
    recorded = Frames(kafka, name)
    asked = in_version(KAFKA011.log_ends([ZERO], read_committed="stable" in name), recorded.version)
    assert asked.body == recorded.asked.body
    [end] = asked.decode(memoryview(recorded.answer))
    [(code, [offset])] = recorded.decoded()
    assert end == LogEnd(code, offset, epoch)


def test_older_dialects_have_no_such_request() -> None:
    for dialect in (KAFKA07, KAFKA08):
        with pytest.raises(NoSuchRequest):
            dialect.log_ends([ZERO])


def test_a_new_leader_has_another_epoch() -> None:
    with EmbeddedCluster(1, zookeeper=False, generation="2.8") as cluster:
        cluster.create_topic("t")
        cluster.produce("t", [b"a", b"b"], partition=0)
        with SimpleConsumer("127.0.0.1", cluster.port(0), dialect=KAFKA011) as broker:
            assert broker.log_ends([]) == []
            assert broker.log_ends([("t", 0), ("t", 7)]) == [LogEnd(0, 2, 0), LogEnd(3, -1)]  # type: ignore[list-item]
            cluster.elect_unclean("t", 0, 2)
            assert broker.log_ends([TopicPartition("t", 0)]) == [LogEnd(0, 2, 1)]
