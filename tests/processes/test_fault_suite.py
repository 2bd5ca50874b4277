"""Every fault, done to groups of our members, of Kafka's own Java members, and of both; a line of figures for each.

Slow; `pytest -m slow tests/processes/test_fault_suite.py -s` runs it all and prints its table; `-k 0.8.2.2` or `-k 0.7`
chooses a generation. Kafka 0.7 is embedded, and real with Java members where its jar is given. Our members and mixed
groups must hold the promises; the rows of Java members alone are there to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fault_scenario import Scenario
from fault_scenarios_07 import FAULTS_07
from fault_scenarios_members import MEMBER_FAULTS
from fault_scenarios_operators import HAND_FAULTS
from fault_scenarios_servers import SERVER_FAULTS
from fault_servers import KAFKA_08, AnyCluster, Servers
from fault_stage import Row, Stage, open_stage

from rebalance.zookeeper.znodes_07 import GENERATION_07

pytestmark = [pytest.mark.real, pytest.mark.slow]

ALL = [
    pytest.param(
        servers,
        scenario,
        cast,
        id=f"{scenario.name.replace(' ', '-')}-{cast}-{servers.name.replace(' ', '-')}",
        marks=servers.marks,
    )
    for scenario in (*MEMBER_FAULTS, *SERVER_FAULTS, *HAND_FAULTS, *FAULTS_07)
    for servers, cast in scenario.servers()
]


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, servers: Servers, scenario: Scenario,
    shared_servers: Callable[[Servers], AnyCluster],
) -> Iterator[AnyCluster]:  # fmt: skip
    """The shared cluster, or one of its own for a scenario that breaks it."""
    if scenario.setup.own_cluster:
        of_generation = scenario.setup.broker_07 if servers.generation is GENERATION_07 else scenario.setup.broker
        with servers.running(of_generation) as own:
            yield own
    elif servers is KAFKA_08:
        yield request.getfixturevalue("kafka_0822")
    else:
        yield shared_servers(servers)


@pytest.mark.parametrize(("servers", "scenario", "cast"), ALL)
def test_a_fault(
    cluster: AnyCluster, servers: Servers, scenario: Scenario, cast: str, fresh_group: str,
    fresh_topic: Callable[[], str], report: list[Row],
) -> None:  # fmt: skip
    with open_stage(cluster, cast, fresh_group, fresh_topic(), scenario.setup, Stage, servers) as stage:
        stage.gather()
        scenario.act(stage)
        stage.settle()
        row = stage.row(scenario.name)
        print(f"\n{row}")
        report.append(row)
        if not stage.is_java_alone:
            stage.assert_promises()
