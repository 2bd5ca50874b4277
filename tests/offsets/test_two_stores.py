"""Two stores behind one interface: what a release waits for, and how long differing offsets are read again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stepped_offsets import FENCE, P0, SteppedOffsets

from rebalance.rebalance_statistics import Counters
from rebalance.zookeeper.port.requests import GetData
from zkconsumer.offsets.kafka_offsets import KafkaOffsets
from zkconsumer.offsets.offset_manager import ChannelSettings, OffsetAnswer
from zkconsumer.offsets.two_stores import Intent, OffsetComparison, TwoStores
from zkconsumer.testing import wait_until

READ_AGAIN_S = 5.0


_STARTED: list[KafkaOffsets] = []


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    yield
    while _STARTED:
        _STARTED.pop().close(0.0)


class Group:
    """A group with offsets in ZooKeeper, on a clock that stands still, in a cluster without offsets in Kafka."""

    def __init__(self, intent: Intent, *, is_dual: bool) -> None:
        self.steps = SteppedOffsets()
        self.steps.know(p0=50)
        manager = OffsetComparison(
            "g", list, ChannelSettings("test"), Counters(), has_offsets=lambda: False, is_required=True
        )
        kafka = KafkaOffsets(manager, self.steps.loop, lambda: True)
        written = (kafka, self.steps.offsets) if is_dual else (self.steps.offsets,)
        self.stores = TwoStores(kafka, self.steps.offsets, intent, written, self.steps.loop)
        self.stores.session_opened(FENCE)
        self.reads = 0
        _STARTED.append(kafka)

    def pump(self) -> bool:
        """Run the loop and answer ZooKeeper once; return whether anything happened."""
        happened = self.steps.loop.step() or bool(self.steps.waiting)
        self.reads += sum(isinstance(request, GetData) for request in self.steps.waiting)
        self.steps.answer_all()
        return happened

    def claim(self) -> None:
        """Load the offset of a partition, until it is refused."""
        self.stores.load(FENCE, P0, lambda offset: None)
        self.settle()

    def settle(self) -> None:
        """Run until differing offsets are known again."""
        wait_until(lambda: not self.pump() and P0 in self.stores.refused, 10.0, "the refusal")

    def reads_after(self, seconds: float) -> int:
        """Return how many reads the next seconds bring."""
        before, self.steps.now = self.reads, self.steps.now + seconds
        while self.pump():
            pass
        return self.reads - before


def test_a_commit_without_positions_is_answered_behind_all_earlier_ones() -> None:
    group = Group(Intent.ZOOKEEPER, is_dual=False)
    answers: list[str] = []
    group.stores.commit(FENCE, {P0: 60}, lambda failed: answers.append(f"60 {dict(failed)}"))
    group.stores.commit(FENCE, {}, lambda failed: answers.append(f"none {dict(failed)}"))
    assert answers == []
    group.steps.answer_all()
    assert answers == ["60 {}", "none {}"]


def test_differing_offsets_are_read_again_once_at_a_time_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    group = Group(Intent.REFUSE, is_dual=True)
    for _ in range(3):
        group.claim()
    assert group.stores.refused[P0] == "its offset is none in Kafka and 50 in ZooKeeper, and offsets.intent is refuse"
    assert caplog.text.count("is not started") == 1
    assert group.reads_after(READ_AGAIN_S) == 1


def test_stores_that_an_operator_made_equal_agree_whatever_this_member_has_done_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_kafka = 9
    monkeypatch.setattr(
        OffsetComparison, "fetch", lambda manager, names, deadline: OffsetAnswer(dict.fromkeys(names, in_kafka), {})
    )
    group = Group(Intent.REFUSE, is_dual=False)
    group.stores.remember(P0, 52)
    started: list[int | None] = []
    group.stores.load(FENCE, P0, started.append)
    group.settle()
    assert group.stores.refused[P0] == "its offset is 9 in Kafka and 50 in ZooKeeper, and offsets.intent is refuse"

    in_kafka = 50
    group.steps.now += READ_AGAIN_S
    wait_until(lambda: not group.pump() and bool(started), 10.0, "the start")
    assert started == [52], "what this member has done still counts"
    assert group.stores.refused == {}
    assert group.stores.warnings == set()


@pytest.mark.parametrize("end", ["released", "session over"])
def test_they_are_not_read_again_once_the_partition_is_given_up(end: str) -> None:
    group = Group(Intent.REFUSE, is_dual=True)
    group.claim()
    if end == "released":
        group.stores.released(P0)
    else:
        group.stores.session_over()
    assert group.reads_after(10 * READ_AGAIN_S) == 0
    assert group.stores.refused == {}
    assert group.stores.warnings == set()


def test_an_offset_beyond_the_log_that_the_other_store_had_does_not_stop_the_commits_after_the_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        OffsetComparison, "fetch", lambda manager, names, deadline: OffsetAnswer(dict.fromkeys(names, 100_002), {})
    )
    group = Group(Intent.MAX, is_dual=False)
    started: list[int | None] = []
    group.stores.load(FENCE, P0, started.append)
    wait_until(lambda: not group.pump() and bool(started), 10.0, "the start")
    assert started == [100_002]
    for position in (100_002, 0):
        group.stores.commit(FENCE, {P0: position}, lambda failed: None)
        group.stores.out_of_range(P0, range(100_002, 100_003), 0)
        group.steps.answer_all()
        assert group.steps.stored() == (b"%d" % position, group.steps.offsets.record(P0).version)
