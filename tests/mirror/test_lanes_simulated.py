"""The machine of a lane against a small model of a leader, with faults at any moment; planted bugs are found."""

from __future__ import annotations

from typing import Any

import pytest
from lane_model import (
    DAY_MS,
    KAFKA_011,
    KAFKA_1,
    KAFKA_2_5,
    KAFKA_4,
    NOW_MS,
    Flavor,
    World,
)

from zkconsumer.mirror.errors import AnotherWriter, Misplaced, NumberRefused
from zkconsumer.mirror.lanes.lane import MOST_UNDER_WAY, LaneMachine, LaneState
from zkconsumer.mirror.lanes.lane_events import (
    SEQUENCES,
    Action,
    Answered,
    Cause,
    Connected,
    EndRead,
    Event,
    GoOn,
    Moment,
    Stored,
)

SEEDS = range(60)
FLAVORS = pytest.mark.parametrize("flavor", [KAFKA_011, KAFKA_1, KAFKA_2_5, KAFKA_4], ids=["0.11", "1", "2.5", "4"])
RACE: dict[str, Any] = {"owners": 2, "faults": ("lose", "lose late", "elect", "throttle")}
CUTS: dict[str, Any] = {"faults": ("lose", "elect uncleanly", "refuse", "throttle")}
OLD: dict[str, Any] = {"faults": ("lose", "forget", "refuse", "throttle"), "newest_ms": NOW_MS - 40 * DAY_MS}
"""Records of forty days ago, for which leaders forget a producer at any time; the one owner is alone."""
FOREIGN: dict[str, Any] = {"faults": ("lose", "foreign")}


def run(seed: int, machine: type[LaneMachine] = LaneMachine, **more: Any) -> World:
    return World(seed, machine, **more).run()


@FLAVORS
def test_two_owners_race_for_a_partition_and_every_record_is_there_once_and_in_order(flavor: Flavor) -> None:
    for seed in SEEDS:
        run(seed, flavor=flavor, **RACE).check()


@FLAVORS
def test_a_log_that_was_cut_off_is_filled_again(flavor: Flavor) -> None:
    for seed in SEEDS:
        world = run(seed, flavor=flavor, **CUTS)
        assert [(base, batch.first) for base, batch in world.leader.log if base != batch.first] == []
        assert world.leader.end == world.goal


@FLAVORS
def test_where_leaders_forget_the_producer_one_request_at_a_time_keeps_every_record_once(flavor: Flavor) -> None:
    for seed in SEEDS:
        world = run(seed, flavor=flavor, **OLD)
        stopped = world.owners[0].stopped
        world.check(may_stop=stopped is not None)
        assert stopped is None or (flavor.unknown_code and isinstance(stopped, NumberRefused))


def test_numbers_begin_at_0_again_after_the_last_one() -> None:
    for seed in SEEDS:
        run(seed, first_sequence=SEQUENCES - 10, flavor=KAFKA_4, **RACE).check()


def test_a_foreign_batch_stops_the_lane_before_anything_wrong_counts_as_stored() -> None:
    for seed in SEEDS:
        check_foreign(run(seed, **FOREIGN))


def check_foreign(world: World) -> None:
    """What an owner counts as stored is where it belongs; after a foreign batch it has stopped, or had ended."""
    [owner] = world.owners
    wrong = [base for base, batch in world.leader.log if batch.first != base]
    assert not wrong or owner.acknowledged <= wrong[0]
    assert not wrong or owner.acknowledged == world.goal or isinstance(owner.stopped, AnotherWriter | Misplaced)


# -- planted bugs ------------------------------------------------------------------------------------------------------


class BelievesAnswers(LaneMachine):
    """Does not compare the offset of an answer."""

    def take(self, event: Event, now: Moment) -> list[Action]:
        if isinstance(event, Answered) and not event.code and self.state is not LaneState.DRAINING:
            event = Answered(0, self._held[0].offset)
        return super().take(event, now)


class SendsAtOnce(LaneMachine):
    """Sends on a new connection without reading the end."""

    def take(self, event: Event, now: Moment) -> list[Action]:
        if not isinstance(event, Connected) or self.stored is None:
            return super().take(event, now)
        self.state = LaneState.ALONE
        self._fresh_at = now.boot_s
        return self._fill()


class NeverAlone(LaneMachine):
    """Has five requests under way at any time."""

    def _most_under_way(self) -> int:
        return MOST_UNDER_WAY


class BelievesTheEnd(LaneMachine):
    """Takes its position from the end of the log alone."""

    def _foreign(self, event: EndRead) -> None:
        return None


class CountsWhatItSent(LaneMachine):
    """Takes all that was sent before the end was read for stored."""

    def _go_on(self, event: EndRead) -> list[Action]:
        before, sent = self.stored, self._sent_to
        actions = super()._go_on(event)
        if before is None or sent <= (self.stored or 0):
            return actions
        self._held.clear()
        self._under_way = 0
        self.stored = sent
        return [Stored(before, sent), GoOn(sent, Cause.MOVED)]


PLANTED = [
    (BelievesAnswers, FOREIGN), (SendsAtOnce, OLD), (NeverAlone, OLD), (BelievesTheEnd, FOREIGN),
    (CountsWhatItSent, RACE),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "how"), PLANTED, ids=lambda each: getattr(each, "__name__", ""))
def test_a_planted_bug_is_found(machine: type[LaneMachine], how: dict[str, Any]) -> None:
    def is_found(seed: int) -> bool:
        try:
            world = run(seed, machine, **how)
            check_foreign(world) if how is FOREIGN else world.check()
        except AssertionError:
            return True
        return False

    assert any(is_found(seed) for seed in range(200))
