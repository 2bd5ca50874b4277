"""The coordinator of embedded brokers answers as the one of Kafka does: the same requests, compared."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator

import pytest
from broker_wire import Wire
from transaction_dance import ADD, END, INIT, Client, dance, dance_of_epochs, dance_of_time, dance_without_adding

from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.embedded.cluster import VERSIONS
from zkconsumer.testing.kafka import KafkaCluster

GENERATIONS = ("0.11", "1.1", "2.8", "3.9", "4.3")
REAL_SETTINGS = {
    "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1, "transaction.state.log.num.partitions": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}  # fmt: skip
FIRST_WITH_EPOCHS = "2.8"

Dance = Callable[[Client], dict[str, object]]
pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module", params=GENERATIONS)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedCluster, KafkaCluster]]:
    generation = request.param
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
    with (
        EmbeddedCluster(generation=generation, zookeeper=False, settings=settings) as embedded,
        KafkaCluster(VERSIONS[generation], settings=REAL_SETTINGS) as real,
    ):
        yield generation, embedded, real


@pytest.mark.parametrize("steps", [dance, dance_of_epochs, dance_of_time, dance_without_adding])
def test_the_answers_are_the_same(pair: tuple[str, EmbeddedCluster, KafkaCluster], steps: Dance) -> None:
    generation, embedded, real = pair
    if steps is dance_of_epochs and generation < FIRST_WITH_EPOCHS:
        pytest.skip("producers before Kafka 2.5 ask for no epoch of their own")
    newest = {key: embedded.brokers[0].served[key].stop - 1 for key in (INIT, ADD, END)}  # type: ignore[attr-defined]
    answers = []
    topic = f"dance-{uuid.uuid4().hex[:8]}"
    for cluster in (real, embedded):
        cluster.create_topic(topic, 2)
        with Wire(cluster.port(min(cluster.brokers))) as wire:
            answers.append(steps(Client(wire, topic, newest)))
    of_kafka, of_ours = ({asked: _plain(answer) for asked, answer in each.items()} for each in answers)
    assert of_ours == of_kafka


def _plain(answer: object) -> str:
    """An answer without the producer ids in it."""
    return re.sub(r"producer_id=\d+", "producer_id=?", repr(answer))
