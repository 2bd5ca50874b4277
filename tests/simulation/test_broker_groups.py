"""Groups of brokers in virtual time: with faults drawn by seed, and without any."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from rebalance.brokers import events as e
from rebalance.brokers.assignors.assignor import Subscriptions
from rebalance.brokers.assignors.balance import balanced
from rebalance.brokers.assignors.claims import claims_of, owned_in_subscription
from rebalance.brokers.assignors.sticky import CooperativeStickyAssignor
from rebalance.brokers.consumer_protocol import Partition
from rebalance.brokers.machine import MemberMachine, MemberState
from tests.simulation.broker_group import Faults, Simulation, Violation
from zkconsumer.testing.embedded.groups.values import GroupRules

AGES = {
    "0.9": GroupRules(initial_delay_s=0.0, renews_while_completing=False, ends_without_sync=False,
                      keeps_empty_groups=False),
    "2.5": GroupRules(renews_while_completing=False, ends_without_sync=False),
    "3.9": GroupRules(),
}  # fmt: skip
KINDS = pytest.mark.parametrize("is_cooperative", [False, True], ids=["eager", "cooperative"])


@KINDS
@pytest.mark.parametrize("age", list(AGES))
@pytest.mark.parametrize("seed", range(20))
def test_without_faults_members_come_and_go_and_nothing_is_read_twice(
    seed: int, age: str, is_cooperative: bool
) -> None:
    simulation = Simulation(seed, is_cooperative=is_cooperative, rules=AGES[age], faults=None, members=4)
    simulation.later(60.0, simulation.members[1].leave)
    simulation.later(90.0, simulation.members[2].leave)
    simulation.run(59.0)
    assert simulation.is_at_rest()
    simulation.run(150.0)
    assert simulation.is_at_rest()
    assert simulation.repeated == 0


@KINDS
@pytest.mark.parametrize("age", list(AGES))
@pytest.mark.parametrize("seed", range(30))
def test_whatever_goes_wrong_the_group_comes_to_rest_and_nothing_is_skipped(
    seed: int, age: str, is_cooperative: bool
) -> None:
    rng = random.Random(seed)
    faults = Faults(120.0, rng.choice([0.0, 0.02, 0.1]), rng.randrange(4), rng.randrange(2), rng.randrange(3))
    simulation = Simulation(seed, is_cooperative=is_cooperative, rules=AGES[age], faults=faults)
    simulation.run(120.0)
    simulation.run(240.0)
    assert simulation.is_at_rest(), [(each.name, each.machine.state, each.held) for each in simulation.members]


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


@pytest.mark.parametrize(("where", "name", "bug", "is_cooperative"), [
    (MemberMachine, "_renewed", renews_whatever_happens, True),
    (MemberMachine, "_lost", keeps_what_is_lost, True),
    (MemberMachine, "_rejoin", joins_before_it_gives_back, False),
    (CooperativeStickyAssignor, "assign", gives_what_others_hold, True),
])  # fmt: skip
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, bug: Callable[..., object], is_cooperative: bool
) -> None:
    monkeypatch.setattr(where, name, bug)
    for seed in range(400):
        faults = Faults(120.0, 0.1, 3, 0, 2)
        simulation = Simulation(seed, is_cooperative=is_cooperative, rules=AGES["3.9"], faults=faults)
        try:
            simulation.run(240.0)
        except Violation:
            return
    pytest.fail("400 seeds found nothing")
