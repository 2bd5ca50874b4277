"""Histories of mixed groups: which violations our members have caused, and which they have not."""

from __future__ import annotations

from fault_verdict import Write, blame
from kafka_put_backs import Commit, put_backs

from zkconsumer.testing.history import Event
from zkconsumer.testing.history.checks import Limits

NS = 1_000_000_000
PLACE = ("t", 0)
JAVA = {"j"}
LIMITS = Limits(repeat_before_end_s=1.5)


def at(seconds: float, kind: str, member: str = "", offset: int = -1) -> Event:
    return Event(int(seconds * NS), kind, member, *PLACE, offset)


def blamed(events: list[Event], writes: list[Write] | None = None, in_hand: int = 0) -> list[str]:
    return [finding.check for finding in blame(events, writes or [], JAVA, LIMITS, in_hand)]


def handover(offset: int) -> list[Event]:
    """Ours holds the partition up to an offset and lets go in order."""
    acked = [at(0, "acked", offset=n) for n in range(offset)]
    delivered = [at(2 + n / 10, "deliver", "a", n) for n in range(offset)]
    done = [at(2.05 + n / 10, "done", "a", n) for n in range(offset)]
    return [*acked, at(1, "assigned", "a", 0), *delivered, *done, at(5, "revoked", "a")]


def test_a_java_member_that_repeats_what_ours_had_done_is_javas_affair() -> None:
    assert blamed([*handover(4), at(6, "deliver", "j", 3)]) == []


def test_a_message_that_nobody_got_is_ours_to_answer_for() -> None:
    assert blamed([*handover(4), at(0, "acked", offset=4), at(0, "acked", offset=5), at(6, "deliver", "j", 5)]) == [
        "lost"
    ]


def test_ours_that_delivers_after_a_java_member_has_begun_is_a_fault() -> None:
    history = [*handover(4)[:-1], at(0, "acked", offset=4), at(3, "owner_gone", "a"), at(3.5, "deliver", "j", 3)]
    assert "zombie" in blamed([*history, at(4, "deliver", "a", 4)])


def test_a_stopped_member_may_have_one_message_in_hand() -> None:
    history = [*handover(4)[:-1], at(0, "acked", offset=4), at(2.4, "killed", "a"), at(2.5, "owner_gone", "a")]
    history += [at(3.5, "deliver", "j", 3), at(4, "deliver", "a", 4), at(6, "deliver", "j", 4)]
    assert blamed(history, in_hand=1) == []
    assert blamed(history) == ["zombie"]


def test_a_java_member_that_goes_on_without_owning_does_not_make_ours_a_second_owner() -> None:
    history = handover(4)[:-1]
    history += [at(2.15, "deliver", "j", 0), at(2.25, "deliver", "j", 1)]
    assert blamed(history) == []


def test_an_offset_that_a_java_member_may_have_put_back_is_javas_affair_and_one_of_ours_is_not() -> None:
    history = [*handover(4), at(3, "offset_node", offset=4), at(4, "offset_node", offset=2)]
    ours, javas = Write(int(3.9 * NS), "a", PLACE), Write(int(3.8 * NS), "j", PLACE)
    assert blamed(history, [ours]) == ["offset went back"]
    assert blamed(history, [ours, javas]) == []
    assert blamed(history, []) == ["offset went back"]


def test_ours_that_gets_again_what_ours_had_done_is_a_fault_beside_java_members_too() -> None:
    again = [at(6, "assigned", "b", 3), at(7, "deliver", "b", 3)]
    assert blamed([*handover(4), *again]) == ["repeated"]


def overtaken(late_s: float, end: str) -> list[str]:
    """The findings for a member that delivers once more, so long after its owner node was gone and another's came."""
    taken = [at(3, "owner_gone", "a"), at(3.001, "assigned", "b", 3), at(3.002, "deliver", "b", 3)]
    return blamed([*handover(4)[:-2], *taken, at(3 + late_s, "deliver", "a", 3), at(3.2, end, "a")])


def test_a_delivery_under_way_when_the_session_ended_is_no_fault_though_the_next_owner_was_quicker() -> None:
    assert overtaken(0.004, "lost") == []


def test_one_that_comes_late_or_at_an_orderly_end_is() -> None:
    assert "zombie" in overtaken(0.1, "lost")
    assert "two owners" in overtaken(0.004, "revoked")


def test_a_watcher_that_is_slower_than_a_member_makes_no_zombie() -> None:
    history = handover(4)[:-1]
    history += [at(2.5, "lost", "a"), at(2.52, "assigned", "a", 4), at(2.54, "owner_gone", "a")]
    history += [at(0, "acked", offset=4), at(3.5, "deliver", "a", 4)]
    assert blamed(history) == []
    assert blamed([*history[:-5], at(2.54, "owner_gone", "a"), *history[-2:]]) == ["zombie"]


def test_a_watcher_that_is_slower_than_the_next_owner_makes_no_second_owner_but_a_late_delivery_is_one() -> None:
    history = handover(4)[:-1]
    history += [at(6, "assigned", "b", 4), at(6.02, "owner_gone", "a"), at(6.5, "lost", "a")]
    history += [at(0, "acked", offset=4), at(7, "deliver", "b", 4)]
    assert blamed(history) == []
    assert "zombie" in blamed([*history, at(0, "acked", offset=5), at(6.2, "deliver", "a", 5)])


# -- offsets in Kafka, which no watcher sees ---------------------------------------------------------------------------


def again_from(offset: int) -> list[Event]:
    """Ours has lost its partition, has it again, and starts below what it was done with."""
    acked = [at(0, "acked", offset=n) for n in range(4)]
    java = [at(0.1 + n / 10, "deliver", "j", n) for n in range(2)]
    ours = [at(2 + n / 10, "deliver", "a", n) for n in (2, 3)] + [at(2.05 + n / 10, "done", "a", n) for n in (2, 3)]
    history = [*acked, *java, at(1, "assigned", "a", 2), *ours, at(4, "lost", "a"), at(5, "assigned", "a", offset)]
    return [*history, *(at(6 + n / 10, "deliver", "a", n) for n in range(offset, 4))]


def committed(*rows: tuple[float, int]) -> list[Commit]:
    return [Commit(int(seconds * NS), PLACE, offset) for seconds, offset in rows]


def test_an_offset_in_kafka_that_a_java_member_has_put_back_is_javas_affair() -> None:
    history = again_from(2)
    assert blamed(history) == ["repeated", "repeated"]
    java = put_backs(committed((0.5, 2), (3.5, 4), (3.8, 2)), history, JAVA)
    assert [(event.member, event.offset) for event in java] == [("j", 4), ("j", 2)]
    assert blamed([*history, *java]) == []


def test_an_offset_in_kafka_that_no_java_member_had_come_to_by_then_is_ours() -> None:
    assert put_backs(committed((3.5, 4), (3.8, 3)), again_from(3), JAVA) == []
    assert put_backs(committed((0.01, 4), (0.02, 2)), again_from(2), JAVA) == []
    assert put_backs(committed((3.5, 4), (3.8, -1)), again_from(2), JAVA) == []


def test_offsets_in_kafka_that_rise_put_nothing_back() -> None:
    assert put_backs(committed((0.5, 1), (0.6, 2), (3.5, 2), (3.8, 4)), again_from(2), JAVA) == []
    assert put_backs([*committed((3.5, 4)), Commit(4 * NS, ("t", 1), 2)], again_from(2), JAVA) == []
