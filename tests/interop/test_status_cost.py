"""The status is read on the thread that renews the lease, so it must not take longer than the partitions it lists."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType

from consuming import member

from rebalance.lease import lease_clock
from zkconsumer.member.status_reading import read_status
from zkconsumer.testing.kafka import KafkaCluster


def count_calls(call: Callable[[], object]) -> Counter[str]:
    """How often each Python function was entered during `call`, by qualified name."""
    calls: Counter[str] = Counter()

    def entered(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(entered)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls


def test_no_function_is_called_more_than_a_few_times_for_each_partition(
    kafka_0822: KafkaCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic, partitions = fresh_topic(), 40
    kafka_0822.create_topic(topic, partitions)
    with member(kafka_0822, fresh_group) as consumer:
        consumer.create_message_streams({topic: 1})
        assert len(consumer.status().owned) == partitions
        joined = consumer._member
        assert joined is not None
        calls = count_calls(lambda: read_status(joined.coordination, joined.delivery, lease_clock()))
    assert calls["_owned"] == partitions
    a_few_for_each = {name: times for name, times in calls.items() if times > 5 * partitions}
    assert not a_few_for_each
