"""Every fault, done to groups of our members, of Kafka's own Java members, and of both; a line of figures for each.

Slow; `pytest -m slow tests/processes/test_fault_suite.py -s` runs it all and prints its table. Our members and mixed
groups must hold the promises; the rows of Java members alone are there to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from fault_scenario import Scenario
from fault_scenarios_members import MEMBER_FAULTS
from fault_scenarios_operators import HAND_FAULTS
from fault_scenarios_servers import SERVER_FAULTS
from fault_stage import Row, Stage, open_stage

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.slow]

ALL = [
    pytest.param(scenario, cast, id=f"{scenario.name.replace(' ', '-')}-{cast}")
    for scenario in (*MEMBER_FAULTS, *SERVER_FAULTS, *HAND_FAULTS)
    for cast in scenario.casts
]


@pytest.fixture
def cluster(request: pytest.FixtureRequest, scenario: Scenario) -> Iterator[KafkaCluster]:
    """The shared cluster, or one of its own for a scenario that breaks it."""
    if not scenario.setup.own_cluster:
        yield request.getfixturevalue("kafka_0822")
        return
    with ExitStack() as stack:
        server = stack.enter_context(ZooKeeperServer())
        yield stack.enter_context(KafkaCluster("0.8.2.2", 2, zookeeper=server, settings=scenario.setup.broker))


@pytest.mark.parametrize(("scenario", "cast"), ALL)
def test_a_fault(
    cluster: KafkaCluster, scenario: Scenario, cast: str, fresh_group: str, fresh_topic: Callable[[], str],
    report: list[Row],
) -> None:  # fmt: skip
    with open_stage(cluster, cast, fresh_group, fresh_topic(), scenario.setup, Stage) as stage:
        stage.gather()
        scenario.act(stage)
        stage.settle()
        row = stage.row(scenario.name)
        print(f"\n{row}")
        report.append(row)
        if not stage.is_java_alone:
            stage.assert_promises()
