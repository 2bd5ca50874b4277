"""A message without a key in a compacted topic: it fails alone, and is named; those with keys are stored in order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.errors import BrokerError
from simpleconsumer.types import ProducedPartition, TopicPartition
from tests.producer.stored_pairs import stored
from zkconsumer.config.producer_config import ProducerConfig
from zkconsumer.producer.batching.accumulator import Accumulator, Finished, Limits
from zkconsumer.producer.batching.batch_queues import Pair
from zkconsumer.producer.errors import MessageNotSent, MessagesNotSent, ProducerError
from zkconsumer.producer.producer import Producer
from zkconsumer.producer.sending.produce_codes import cut_at, is_about_a_message, remedy_for
from zkconsumer.testing.kafka import KafkaCluster, kafka_versions
from zkconsumer.testing.kafka.settings import version_tuple

T0 = TopicPartition("t", 0)
KEYED, KEYLESS = (b"k", b"v"), (None, b"v")
SINCE, BEFORE = (0, 9), (4,)
"""Brokers before the first store messages without a key in compacted topics, too."""


def test_a_batch_is_cut_where_messages_with_and_without_keys_meet() -> None:
    assert cut_at(87, [KEYED, KEYED, KEYLESS, KEYLESS, KEYLESS]) == 2
    assert cut_at(87, [KEYLESS, KEYED, KEYED, KEYED, KEYLESS, KEYED]) == 4
    assert cut_at(2, [KEYED, KEYLESS]) == 1
    assert cut_at(87, [KEYLESS] * 5) is None
    assert cut_at(2, [KEYED] * 5) is None
    assert cut_at(87, [KEYED] * 4) == cut_at(10, [KEYED] * 4) == cut_at(10, [KEYLESS] * 4) == 2
    assert cut_at(10, [KEYED]) is cut_at(87, [KEYED]) is None


@pytest.mark.parametrize(
    ("code", "pairs", "is_about"),
    [(10, [KEYED], True), (87, [KEYED], True), (2, [KEYED], False), (2, [KEYED, KEYLESS], True), (6, [KEYLESS], False)],
)
def test_which_errors_are_about_a_message(code: int, pairs: Sequence[Pair], is_about: bool) -> None:
    assert is_about_a_message(code, pairs) == is_about


@pytest.mark.parametrize(
    ("code", "times_ms", "said"),
    [
        (43, [200, 100, 300, 150], "its batch has times from 100 to 300 (timestamp_ms), but brokers only store times"),
        (32, [7, 5], "its batch has times from 5 to 7 (timestamp_ms): see message.timestamp"),
        (43, [5, 5], "it has the time 5 (timestamp_ms), but"),
    ],
)
def test_an_error_about_times_names_the_earliest_and_the_latest(code: int, times_ms: list[int], said: str) -> None:
    pairs: list[Pair] = [(None, b"v", (), time_ms) for time_ms in times_ms]
    assert remedy_for(BrokerError(code, "t", 0), [KEYED, *pairs]).startswith(said)


class CompactedLog:
    """A partition that refuses every set with a message that has no key, as brokers do."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.values: list[bytes | None] = []
        self.requests = 0

    def append(self, pairs: Sequence[Pair]) -> ProducedPartition:
        self.requests += 1
        if any(key is None for key, _ in pairs):
            return ProducedPartition(self.code, -1)
        self.values += [value for _, value in pairs]
        return ProducedPartition(0, len(self.values) - len(pairs))


@given(
    has_key=st.lists(st.booleans(), min_size=1, max_size=40), code=st.sampled_from([2, 87]),
    batch_messages=st.integers(1, 20), retries=st.integers(0, 5),
)  # fmt: skip
def test_exactly_the_messages_without_keys_fail_and_the_others_keep_their_order(
    has_key: list[bool], code: int, batch_messages: int, retries: int
) -> None:
    limits = Limits(batch_messages=batch_messages, linger_s=0.0, retries=retries, backoff_s=0.0)
    accumulator = Accumulator(limits, random.Random(1))
    accumulator.set_partitions("t", {0: 0}, 0.0)
    values = [b"%d" % number for number in range(len(has_key))]
    for value, is_keyed in zip(values, has_key, strict=True):
        accumulator.add(T0, (b"k" if is_keyed else None, value), 30, False, 0.0)
    log = CompactedLog(code)
    outcomes: dict[bytes | None, ProducerError | None] = {}
    now = 0.0
    while accumulator.messages:
        now += 1.0
        taken = accumulator.take(0, now)
        assert taken
        answer = log.append([pair for batch in taken for pair in batch.pairs])
        for effect in accumulator.answered(taken, {T0: answer}, now):
            if isinstance(effect, Finished):
                outcomes.update((value, effect.error) for _, value in effect.batch.pairs)
        accumulator.set_partitions("t", {0: 0}, now)
    assert [outcomes[value] is None for value in values] == has_key
    assert log.values == [value for value, is_keyed in zip(values, has_key, strict=True) if is_keyed]
    assert all(
        "it has no key, which topics with cleanup.policy=compact" in str(each) for each in outcomes.values() if each
    )
    assert not any(each.may_be_stored for each in outcomes.values() if isinstance(each, MessageNotSent))
    assert log.requests <= 8 * len(has_key) + 8


# -- real brokers ------------------------------------------------------------------------------------------------------


def versions() -> list[Any]:
    found = [each for each in kafka_versions() if SINCE <= version_tuple(each) < BEFORE]
    return [each if each == found[-1] else pytest.param(each, marks=pytest.mark.slow) for each in found]


@pytest.fixture(scope="module", params=versions())
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    settings = {"log.cleanup.policy": "compact", "auto.create.topics.enable": False}
    with KafkaCluster(request.param, brokers=1, settings=settings) as made:
        yield made


@pytest.mark.real
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_real_brokers_store_the_messages_with_keys(cluster: KafkaCluster, codec: str) -> None:
    topic = f"compacted-{codec}"
    cluster.create_topic(topic, 1)
    messages: list[Pair] = [(None if n % 10 == 3 else b"k%d" % n, b"v%d" % n) for n in range(40)]
    config = ProducerConfig(
        metadata_broker_list=f"127.0.0.1:{cluster.port(0)}", compression_codec=codec, retry_backoff_ms=20,
        message_send_max_retries=1000, request_required_acks=-1,
    )  # fmt: skip
    with Producer(config) as made, pytest.raises(MessagesNotSent) as caught:
        made.send_all(messages, topic)
    assert [number for number, _ in caught.value.failures] == [3, 13, 23, 33]
    assert all("it has no key" in str(error) for _, error in caught.value.failures)
    assert stored(cluster, topic, 0) == [pair for pair in messages if pair[0] is not None]
