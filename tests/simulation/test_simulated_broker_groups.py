"""Groups of brokers in virtual time: with faults drawn by seed, and without any.

Members are the machine alone, with little around it, or the production code: coordinator, partitions, takeovers and
offsets. 10,000 runs of those take about five minutes:
`pytest -m slow tests/simulation/test_simulated_broker_groups.py -n 2`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rebalance.brokers import events as e
from rebalance.brokers.assignor import Subscriptions
from rebalance.brokers.consumer_protocol import Partition
from rebalance.brokers.coordinator import Coordinator
from rebalance.brokers.machine import MemberMachine, MemberState
from rebalance.brokers.sticky import CooperativeStickyAssignor, balanced, claims_of, owned_in_subscription
from rebalance.lease import Lease
from tests.simulation.broker_group import Faults, SimulatedMember, Simulation, Violation
from tests.simulation.production_member import ProductionMember
from zkconsumer.testing.embedded.group_values import GroupRules

AGES = {
    "0.9": GroupRules(initial_delay_s=0.0, renews_while_completing=False, ends_without_sync=False,
                      keeps_empty_groups=False),
    "2.5": GroupRules(renews_while_completing=False, ends_without_sync=False),
    "3.9": GroupRules(),
}  # fmt: skip
KINDS = pytest.mark.parametrize("is_cooperative", [False, True], ids=["eager", "cooperative"])
MEMBERS = pytest.mark.parametrize("kind", [SimulatedMember, ProductionMember], ids=["machine", "production"])


@MEMBERS
@KINDS
@pytest.mark.parametrize("age", list(AGES))
@pytest.mark.parametrize("seed", range(20))
def test_without_faults_members_come_and_go_and_nothing_is_read_twice(
    seed: int, age: str, is_cooperative: bool, kind: type[Any]
) -> None:
    simulation = Simulation(seed, is_cooperative=is_cooperative, rules=AGES[age], faults=None, members=4, kind=kind)
    simulation.later(60.0, simulation.members[1].leave)
    simulation.later(90.0, simulation.members[2].leave)
    simulation.run(59.0)
    assert simulation.is_at_rest()
    simulation.run(150.0)
    assert simulation.is_at_rest()
    assert simulation.repeated == 0


@MEMBERS
@KINDS
@pytest.mark.parametrize("age", list(AGES))
@pytest.mark.parametrize("seed", range(30))
def test_whatever_goes_wrong_the_group_comes_to_rest_and_nothing_is_skipped(
    seed: int, age: str, is_cooperative: bool, kind: type[Any]
) -> None:
    run_with_faults(seed, age, kind, is_cooperative=is_cooperative)


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(17))
def test_ten_thousand_runs_of_the_production_code(hundred: int) -> None:
    for seed in range(hundred * 100, hundred * 100 + 100):
        for age in AGES:
            for is_cooperative in (False, True):
                run_with_faults(seed, age, ProductionMember, is_cooperative=is_cooperative)


def run_with_faults(seed: int, age: str, kind: type[Any], *, is_cooperative: bool) -> None:
    rng = random.Random(seed)
    faults = Faults(120.0, rng.choice([0.0, 0.02, 0.1]), rng.randrange(4), rng.randrange(2), rng.randrange(3))
    simulation = Simulation(seed, is_cooperative=is_cooperative, rules=AGES[age], faults=faults, kind=kind)
    simulation.run(120.0)
    simulation.run(260.0)
    assert simulation.is_at_rest(), (seed, [(each.name, each.machine.state, each.held) for each in simulation.members])


# -- bugs that the checks must find ------------------------------------------------------------------------------------


def renews_whatever_happens(machine: MemberMachine, sent_at: float, *, rebalances: bool = False) -> list[e.Action]:
    return [] if machine.fence is None else [e.RenewLease(machine.fence, sent_at)]


def keeps_what_is_lost(machine: MemberMachine, reason: str, *, forget_id: bool) -> list[e.Action]:
    actions = LOST(machine, reason, forget_id=forget_id)
    return [action for action in actions if not isinstance(action, e.Lose | e.EndLease)]


def joins_before_it_gives_back(machine: MemberMachine) -> list[e.Action]:
    machine._go(MemberState.JOINING)
    return machine._ask()


def gives_what_others_hold(
    assignor: CooperativeStickyAssignor, counts: Mapping[str, int], subscriptions: Subscriptions
) -> dict[str, list[Partition]]:
    return balanced(counts, subscriptions, claims_of(owned_in_subscription(subscriptions)).owned)


LOST = MemberMachine._lost


def keeps_its_partitions(coordinator: Coordinator, reason: str) -> None:
    """Lost, and not noticed by what delivers."""
    coordinator._give_back, coordinator._moves_away = None, False


def waits_for_nobody(coordinator: Coordinator, asked: e.GiveBack) -> bool:
    return True


def never_ends(lease: Lease, sent_at: float, until: float) -> None:
    lease.renewed_at, lease.until = sent_at, math.inf


@pytest.mark.parametrize(("where", "name", "bug", "is_cooperative"), [
    (MemberMachine, "_renewed", renews_whatever_happens, True),
    (MemberMachine, "_lost", keeps_what_is_lost, True),
    (MemberMachine, "_rejoin", joins_before_it_gives_back, False),
    (CooperativeStickyAssignor, "assign", gives_what_others_hold, True),
    (Coordinator, "_lose", keeps_its_partitions, True),
    (Coordinator, "_is_given_back", waits_for_nobody, False),
    (Lease, "prove", never_ends, True),
])  # fmt: skip
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, bug: Callable[..., object], is_cooperative: bool
) -> None:
    monkeypatch.setattr(where, name, bug)
    kind = ProductionMember if where in (Coordinator, Lease) else SimulatedMember
    for seed in range(400):
        faults = Faults(120.0, 0.1, 3, 0, 2)
        simulation = Simulation(seed, is_cooperative=is_cooperative, rules=AGES["3.9"], faults=faults, kind=kind)
        try:
            simulation.run(240.0)
        except Violation:
            return
    pytest.fail("400 seeds found nothing")
