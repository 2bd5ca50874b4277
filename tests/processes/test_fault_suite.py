"""Every fault, done to groups of our members, of Kafka's own Java members, and of both; a line of figures for each.

Slow; `pytest -m slow tests/processes/test_fault_suite.py -s` runs it all and prints its table. Our members and mixed
groups must hold the promises; the rows of Java members alone are there to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from fault_players import CASTS
from fault_scenarios import MEMBER_FAULTS, Scenario
from fault_stage import Row, open_stage

from zkconsumer.testing.kafka import KafkaCluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

SCENARIOS = [*MEMBER_FAULTS]


@pytest.fixture
def cluster(request: pytest.FixtureRequest, scenario: Scenario) -> Iterator[KafkaCluster]:
    """The shared cluster, or one of its own for a scenario that breaks it."""
    with ExitStack():
        yield request.getfixturevalue("kafka_0822")


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_fault(
    cluster: KafkaCluster, scenario: Scenario, cast: str, fresh_group: str, fresh_topic: Callable[[], str],
    report: list[Row],
) -> None:  # fmt: skip
    with open_stage(cluster, cast, fresh_group, [fresh_topic()]) as stage:
        stage.gather()
        scenario.act(stage)
        stage.load.grow(200)
        stage.settle()
        row = stage.row(scenario.name)
        print(f"\n{row}")
        report.append(row)
        if not stage.is_java_alone:
            stage.assert_promises()
