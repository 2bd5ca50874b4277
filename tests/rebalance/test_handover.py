"""From what is held to what should be held: the least that has to move."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rebalance.handover import handover

partitions = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 5))
tables = st.dictionaries(partitions, st.sampled_from(["me-0", "me-1", "me-2"]))


@given(tables, tables)
def test_each_partition_stands_in_one_place_and_nothing_moves_without_need(
    held: dict[tuple[str, int | str], str], target: dict[tuple[str, int | str], str]
) -> None:
    plan = handover(held, target)
    assert set(held) | set(target) == plan.keep | plan.release | set(plan.claim) | set(plan.rethread)
    sizes = len(plan.keep) + len(plan.release) + len(plan.claim) + len(plan.rethread)
    assert sizes == len(set(held) | set(target))
    for partition in plan.keep:
        assert held[partition] == target[partition]
    assert all(partition in held and partition not in target for partition in plan.release)


@given(tables, tables)
def test_done_as_planned_it_leads_to_the_target(
    held: dict[tuple[str, int | str], str], target: dict[tuple[str, int | str], str]
) -> None:
    plan = handover(held, target)
    result = {partition: thread for partition, thread in held.items() if partition not in plan.release}
    result.update(plan.claim)
    result.update(plan.rethread)
    assert result == target
    assert handover(result, target).is_empty


@given(tables)
def test_what_is_as_it_should_be_stays(held: dict[tuple[str, int | str], str]) -> None:
    plan = handover(held, held)
    assert plan.is_empty
    assert plan.keep == set(held)
