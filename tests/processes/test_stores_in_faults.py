"""Groups of ours and of Java 0.8.2.2 that keep their offsets in Kafka, under random kills of brokers and members.

The default run has one short sequence of one group. The others: `pytest -m slow
tests/processes/test_stores_in_faults.py -s`. A failing one is run again alone with its id, as `dual+kafka-mixed-3`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fault_stage import Row, open_stage
from fault_stores import SETUP, StoresChurn, StoresStage

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.real

GROUPS = ("dual", "kafka", "zookeeper+dual", "dual+kafka")
SHORT, LONG = 5, 40
CASES = [
    pytest.param("dual+kafka", "mixed", 0, SHORT),
    pytest.param("zookeeper+dual", "mixed", 1, SHORT, marks=pytest.mark.slow),
] + [
    pytest.param(storages, cast, seed, LONG, marks=pytest.mark.slow)
    for storages in GROUPS for cast in ("ours", "mixed") for seed in range(2, 4)
]  # fmt: skip


@pytest.mark.catalogue("E13")
@pytest.mark.parametrize(("storages", "cast", "seed", "steps"), CASES)
def test_nothing_is_lost_whatever_happens_to_the_offset_manager(
    fresh_group: str, fresh_topic: Callable[[], str], report: list[Row], storages: str, cast: str, seed: int, steps: int
) -> None:
    with (
        ZooKeeperServer() as server,
        KafkaCluster("0.8.2.2", 2, zookeeper=server, settings=SETUP.broker) as cluster,
        open_stage(cluster, cast, fresh_group, fresh_topic(), SETUP, StoresStage) as stage,
    ):
        stage.storages = tuple(storages.split("+"))
        stage.wait_manager()
        stage.gather()
        churn = StoresChurn(stage, seed)
        stage.mark()
        try:
            churn.begin()
            for _ in range(steps):
                churn.step()
                churn.go_on(churn.rng.choice([0.05, 0.2, 1.0, 4.0]))
            churn.end()
            stage.settle()
            row = stage.row(f"{storages} by seed {seed}")
            print("", *churn.steps, row, sep="\n")
            report.append(row)
            stage.assert_promises()
        except BaseException as error:
            error.add_note("\n".join(churn.steps))
            raise
