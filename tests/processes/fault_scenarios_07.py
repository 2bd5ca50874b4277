"""Faults that Kafka 0.7 alone has: partitions that go and come back with their broker, and its nodes below a topic."""

from __future__ import annotations

from fault_scenario import Scenario
from fault_scenarios_servers import OWN
from fault_stage import RATE_PER_S, Stage

from zkconsumer.testing.processes import free_port

FEWER = 2
"""Partitions of the broker whose number an operator lowers; it has four."""


def broker_away(stage: Stage) -> None:
    """A broker is killed, its partitions are gone with it, and it comes back with its log on another port."""
    stage.mark()
    stage.cluster.kill(1, expire=True)
    stage.wait_full()
    stage.load.grow(int(RATE_PER_S))
    stage.cluster.start(1, port=free_port())
    _back(stage)


def broker_restarted(stage: Stage) -> None:
    """A broker is ended in order, and comes back with its log."""
    stage.mark()
    stage.cluster.stop(1)
    stage.wait_full()
    stage.load.grow(int(RATE_PER_S))
    stage.cluster.start(1)
    _back(stage)


def broker_node_deleted(stage: Stage) -> None:
    """An operator deletes the node of a broker below the topic, and makes it again."""
    path = _broker_node(stage)
    data = stage.cluster.client.get(path)[0]
    stage.mark()
    stage.cluster.client.delete(path)
    stage.wait_full()
    stage.load.grow(int(RATE_PER_S))
    stage.cluster.client.create(path, data)
    _back(stage)


def broker_node_rewritten(stage: Stage) -> None:
    """An operator writes a lower number into the node of a broker below the topic, and a member joins; then as before.

    Members that know the former number and one that does not have to come to one assignment.
    """
    path = _broker_node(stage)
    before = stage.cluster.client.get(path)[0]
    stage.mark()
    stage.cluster.client.set(path, b"%d" % FEWER)
    late = stage.prepare("late")
    stage.launch(late)
    stage.wait_full()
    stage.load.grow(int(RATE_PER_S))
    stage.cluster.client.set(path, before)
    late.begin_to_leave()
    late.process.wait(30.0)
    _back(stage)


def _broker_node(stage: Stage) -> str:
    return f"/brokers/topics/{stage.topic}/1"


def _back(stage: Stage) -> None:
    """All partitions are owned again, read on where they were, and nothing of it was repeated."""
    stage.wait_full()
    stage.wait_committed()
    stage.most_repeats = 0


FAULTS_07 = (
    Scenario("broker killed, back on another port", broker_away, OWN, generations=("0.7",)),
    Scenario("broker restarted", broker_restarted, OWN, generations=("0.7",)),
    Scenario("broker node of the topic deleted", broker_node_deleted, generations=("0.7",)),
    Scenario("broker node of the topic rewritten", broker_node_rewritten, generations=("0.7",)),
)
