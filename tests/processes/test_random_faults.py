"""Random sequences of all faults over real processes, by seed, for minutes.

Slow; run them with `pytest -m slow tests/processes/test_random_faults.py -s`. A failing seed is run again alone with
`pytest "tests/processes/test_random_faults.py::test_any_sequence_of_faults_loses_nothing[ours-7]"`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fault_churn import Churn
from fault_scenarios_servers import REPLICATED
from fault_stage import Row, Stage, open_stage

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.real, pytest.mark.slow]

STEPS = 40


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cast", ["ours", "java", "mixed"])
def test_any_sequence_of_faults_loses_nothing(
    fresh_group: str, fresh_topic: Callable[[], str], cast: str, seed: int, report: list[Row]
) -> None:
    with (
        ZooKeeperServer() as server,
        KafkaCluster("0.8.2.2", 2, zookeeper=server, settings=REPLICATED.broker) as cluster,
        open_stage(cluster, cast, fresh_group, fresh_topic(), REPLICATED, Stage) as stage,
    ):
        stage.gather()
        churn = Churn(stage, seed)
        stage.mark()
        try:
            for _ in range(STEPS):
                churn.step()
                churn.go_on(churn.rng.choice([0.05, 0.2, 1.0, 4.0]))
            churn.end()
            stage.settle()
            row = stage.row(f"all by seed {seed}")
            print(f"\n{row}")
            report.append(row)
            if not stage.is_java_alone:
                stage.assert_promises()
        except BaseException as error:
            error.add_note("\n".join(churn.steps))
            raise
