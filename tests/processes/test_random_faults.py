"""Random sequences of all faults over real processes, by seed, for minutes.

Slow; run them with `pytest -m slow tests/processes/test_random_faults.py -s`, those of Kafka 0.7 with `-k 0.7`. A seed
that fails is run again alone with
`pytest "tests/processes/test_random_faults.py::test_any_sequence_of_faults_loses_nothing[0.8.2.2-ours-7]"`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fault_churn import Churn
from fault_scenarios_servers import OWN, REPLICATED
from fault_servers import SERVERS, Servers
from fault_stage import Row, Stage, open_stage

from rebalance.zookeeper.znodes_07 import GENERATION_07

pytestmark = [pytest.mark.real, pytest.mark.slow]

STEPS = 40


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("servers", "cast"),
    [pytest.param(servers, cast, id=f"{servers.name}-{cast}".replace(" ", "-"), marks=servers.marks)
     for servers in SERVERS for cast in ("ours", "java", "mixed") if cast in servers.casts],
)  # fmt: skip
def test_any_sequence_of_faults_loses_nothing(
    fresh_group: str, fresh_topic: Callable[[], str], servers: Servers, cast: str, seed: int, report: list[Row]
) -> None:
    is_07 = servers.generation is GENERATION_07
    setup = OWN if is_07 else REPLICATED
    with (
        servers.running(setup.broker_07 if is_07 else setup.broker) as cluster,
        open_stage(cluster, cast, fresh_group, fresh_topic(), setup, Stage, servers) as stage,
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
