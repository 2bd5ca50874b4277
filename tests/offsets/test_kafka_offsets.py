"""Offsets in Kafka as a member uses them: loaded after a claim, committed while its registration stands."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from running_offsets import FENCE, running_offsets

from rebalance.subscription import Partition
from zkconsumer.offsets import kafka_offsets
from zkconsumer.offsets.kafka_offsets import RELEASED, KafkaOffsetTimes
from zkconsumer.testing import EmbeddedCluster, Fault, wait_until
from zkconsumer.testing.embedded.offsets import OFFSETS_TOPIC

pytestmark = pytest.mark.real


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    embedded_cluster.create_topic(name, 3)
    return name


def partitions_of(topic: str) -> list[Partition]:
    return [(topic, number) for number in range(3)]


def records_written(cluster: EmbeddedCluster) -> int:
    return cluster.log(OFFSETS_TOPIC, 0).end_offset


def test_what_is_committed_is_loaded_by_the_next_member(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first, second, third = partitions_of(topic)
    with running_offsets(embedded_cluster, fresh_group) as one:
        assert [one.load(each) for each in (first, second, third)] == [None, None, None]
        assert one.commit({first: 5, second: 0}) == {}
        assert one.offsets.committed() == {first: 5, second: 0}
        assert one.offsets.is_stored(first, 5)
        assert not one.offsets.is_stored(first, 6)
    with running_offsets(embedded_cluster, fresh_group) as other:
        assert [other.load(each) for each in (first, second, third)] == [5, 0, None]


def test_loads_that_are_asked_for_together_take_one_request(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    with running_offsets(embedded_cluster, fresh_group) as one:
        one.load((topic, 0))
        counters = one.offsets._manager._counters
        before = counters.counts("broker_requests")["offset_fetch"]
        answers: list[int | None] = []
        one.call(lambda: [one.offsets.load(FENCE, each, answers.append) for each in partitions_of(topic)])
        wait_until(lambda: len(answers) == 3, 30.0, "three answers")
        assert counters.counts("broker_requests")["offset_fetch"] == before + 1


def test_an_unchanged_offset_is_stored_again_by_each_commit(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group) as one:
        assert one.commit({first: 5}) == {}
        written = records_written(embedded_cluster)
        assert one.commit({first: 5}) == {}
        assert records_written(embedded_cluster) == written + 1


@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_from_before_the_log_became_shorter_does_not_stop_the_commits_after_the_reset(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, is_there: bool
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group) as one:
        if is_there:
            assert one.commit({first: 100}) == {}
        assert one.load(first) == (100 if is_there else None)
        one.call(one.offsets.out_of_range, first, range(100, 111), 0)
        for position in (104, 105, 0, 3):
            assert one.commit({first: position}) == {}
            assert one.offsets.committed() == {first: position}
        assert one.commit({first: 2}) == {}
        assert one.offsets.committed() == {first: 3}
    with running_offsets(embedded_cluster, fresh_group) as other:
        assert other.load(first) == 3


def test_nothing_is_stored_while_the_lease_is_overdue(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group, KafkaOffsetTimes(lease_s=0.2)) as one:
        one.has_lease = False
        assert one.commit({first: 5}) == {first: "ZooKeeper has not confirmed the session in time"}
        assert one.load(first) is None
        one.has_lease = True
        assert one.commit({first: 5}) == {}


def test_a_commit_waits_until_the_session_is_confirmed_again(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group) as one:
        one.has_lease = False
        waiting = one.begin(one.offsets.commit, FENCE, {first: 5})
        assert one.offsets.committed() == {}
        one.has_lease = True
        assert waiting() == {}
        assert one.load(first) == 5


def test_a_commit_of_a_member_that_its_group_has_lost_names_the_group_and_no_zookeeper(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group, is_fenced=True) as one:
        assert one.commit({first: 5}) == {}
        one.call(one.offsets.session_over)
        assert one.commit({first: 6}) == {first: "the member is no longer in its group"}


def test_a_commit_that_waits_for_the_session_ends_with_it(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group) as one:
        one.has_lease = False
        waiting = one.begin(one.offsets.commit, FENCE, {first: 5})
        one.call(one.offsets.session_over)
        assert waiting() == {first: "the ZooKeeper session is over"}
        one.has_lease = True
        one.fence = replace(FENCE, session_id=2)
        one.call(one.offsets.session_opened, one.fence)
        assert one.load(first) is None
        assert one.commit({first: 7}) == {}


def test_what_a_commit_without_an_answer_may_have_stored_is_not_stored_lower(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group, KafkaOffsetTimes(commit_s=0.2)) as one:
        embedded_cluster.faults.add(Fault.error(14, "offset_commit", topic, 0), times=None)
        assert set(one.commit({first: 7})) == {first}
        embedded_cluster.faults.clear()
        assert one.commit({first: 6}) == {}
        assert one.load(first) == 7
        assert one.commit({first: 2}, explicit=True) == {}
        assert one.load(first) == 2


def test_nothing_is_stored_of_a_partition_that_is_released_meanwhile(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first, second, _ = partitions_of(topic)
    with running_offsets(embedded_cluster, fresh_group) as one:
        assert one.commit({first: 3}) == {}
        fault = embedded_cluster.faults.add(Fault.error(14, "offset_commit", topic, 0), times=None)
        under_way = one.begin(one.offsets.commit, FENCE, {first: 7, second: 7})
        embedded_cluster.faults.wait_used(fault)
        behind = one.begin(one.offsets.commit, FENCE, {first: 8, second: 8})
        unchanged = one.begin(one.offsets.commit, FENCE, {first: 3}, explicit=True)
        one.call(one.offsets.released, first)
        assert under_way() == {first: RELEASED}
        embedded_cluster.faults.clear()
        assert behind() == {first: RELEASED}
        assert unchanged() == {}
        assert [one.load(first), one.load(second)] == [3, 8]
        assert one.commit({first: 9}) == {}, "it is held again since its offset was loaded"


def test_an_offset_goes_back_only_by_an_explicit_commit(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group) as one:
        assert one.commit({first: 9}) == {}
        assert one.commit({first: 4}) == {}
        assert caplog.messages == [], "two threads commit, and one has stored its message in hand"
        assert one.load(first) == 9
        assert one.commit({first: 4}, explicit=True) == {}
        assert one.load(first) == 4


def test_done_work_counts_where_the_commit_was_lost_and_an_offset_lowered_by_others_is_obeyed(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group) as one, running_offsets(embedded_cluster, fresh_group) as other:
        assert one.load(first) is None
        assert one.commit({first: 9}) == {}
        one.call(one.offsets.remember, first, 12)
        assert one.offsets.behind() == {first: 12}
        assert one.load(first) == 12
        assert other.commit({first: 3}, explicit=True) == {}
        assert one.load(first) == 3


def test_a_commit_ends_with_the_session_in_which_it_was_decided(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group) as one:
        assert one.commit({first: 1}) == {}
        fault = embedded_cluster.faults.add(Fault.error(14, "offset_commit", topic, 0), times=None)
        waiting = one.begin(one.offsets.commit, FENCE, {first: 7})
        embedded_cluster.faults.wait_used(fault)
        one.call(one.offsets.session_over)
        assert waiting() == {first: "the ZooKeeper session is over"}
        one.fence = replace(FENCE, session_id=2)
        one.call(one.offsets.session_opened, one.fence)
        embedded_cluster.faults.clear()
        assert one.load(first) == 1
        assert one.commit({first: 8}) == {}


def test_without_a_registration_nothing_is_stored(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    with running_offsets(embedded_cluster, fresh_group, is_registered=False) as one:
        assert one.commit({(topic, 0): 5}) == {(topic, 0): "the ZooKeeper session is over"}
        assert one.offsets.failures == 1


def test_a_partition_waits_while_its_offset_is_not_known(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group, KafkaOffsetTimes(load_s=0.3)) as one:
        assert one.commit({first: 6}) == {}
        embedded_cluster.faults.add(Fault.error(14, "offset_fetch", topic, 0), times=None)
        waiting = one.begin(one.offsets.load, FENCE, first)
        wait_until(lambda: first in one.offsets.refused, 30.0, "the reason")
        assert "OffsetsLoadInProgress (code 14)" in one.offsets.refused[first]
        embedded_cluster.faults.clear()
        assert waiting() == 6
        assert one.offsets.refused == {}


def test_a_start_is_stored_unless_somebody_has_stored_an_offset(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first, second, _ = partitions_of(topic)
    with running_offsets(embedded_cluster, fresh_group) as one:
        assert one.load(first) is None
        assert one.answer(one.offsets.commit_start, FENCE, first, 4) == {}
        assert one.load(first) == 4
        assert one.commit({second: 9}) == {}
        assert one.answer(one.offsets.commit_start, FENCE, second, 2) == {}
        assert one.load(second) == 9


def test_an_offset_of_a_topic_before_it_was_created_anew_is_none(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group) as one:
        assert one.commit({first: 9}) == {}
        one.call(one.offsets.forget_topic, topic, 1)
        assert one.load(first) is None
        assert one.commit({first: 2}) == {}
        assert one.load(first) == 2
        assert one.commit({first: 9}) == {}
        assert one.load(first) == 9  # the same number, and now of the new log


def test_an_offset_that_another_member_stored_before_a_topic_was_created_anew_is_none(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first, second, third = partitions_of(topic)
    with (
        running_offsets(embedded_cluster, fresh_group) as one,
        running_offsets(embedded_cluster, fresh_group) as other,
    ):
        assert one.commit({first: 9, second: 5, third: 7}) == {}
        other.call(other.offsets.forget_topic, topic, 1, (0, 1, 2))
        assert other.load(first) is None
        assert one.commit({second: 6}) == {}
        assert other.load(second) == 6, "it was stored since then"
        assert other.commit({first: 9}) == {}
        assert other.load(first) == 9, "the same number, and now of the new log"
        other.call(other.offsets.session_over)
        other.call(other.offsets.session_opened, FENCE)
        assert other.load(third) is None, "still of the old log"


def test_offsets_at_the_creation_anew_count_as_old_only_until_others_may_have_stored_the_same(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_offsets, "_SURVEY_COUNTS_S", 0.5)
    first, second, _ = partitions_of(topic)
    with (
        running_offsets(embedded_cluster, fresh_group) as one,
        running_offsets(embedded_cluster, fresh_group) as other,
    ):
        assert one.commit({first: 9}) == {}
        other.call(other.offsets.forget_topic, topic, 1, (0, 1))
        assert other.load(second) is None
        time.sleep(1.0)
        assert other.load(first) == 9


def test_offsets_that_cannot_be_read_at_the_creation_anew_are_reported(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str, caplog: pytest.LogCaptureFixture
) -> None:
    with running_offsets(embedded_cluster, fresh_group, KafkaOffsetTimes(load_s=0.3)) as one:
        assert one.commit({(topic, 0): 9, (topic, 1): 5}) == {}
        embedded_cluster.faults.add(Fault.error(3, "offset_fetch", topic, 1), times=None)
        one.call(one.offsets.forget_topic, topic, 1, (0, 1))
        assert one.load((topic, 0)) is None
    assert any(
        line.startswith(f"offsets of 1 partitions of {topic}, which was created again, cannot be read from Kafka: ")
        for line in caplog.messages
    )


def test_commits_with_nothing_to_write_are_answered_in_their_order_however_many_wait(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    answers, early = list[object](), list[object]()
    with running_offsets(embedded_cluster, fresh_group) as one:

        def ask() -> None:  # on the thread that answers: it answers nothing before this ends
            one.offsets.commit(FENCE, {(topic, 0): 5}, answers.append)
            for number in range(2000):
                one.offsets.commit(FENCE, {}, lambda _, number=number: answers.append(number), explicit=True)
            early.extend(answers)

        one.call(ask)
        wait_until(lambda: len(answers) == 2001, 30.0, "all answers")
        assert early == []
        assert answers == [{}, *range(2000)]


def test_a_commit_behind_one_of_a_topic_that_was_created_anew_is_not_reported_as_that_one(
    embedded_cluster: EmbeddedCluster, topic: str, fresh_group: str
) -> None:
    first = (topic, 0)
    with running_offsets(embedded_cluster, fresh_group) as one:
        embedded_cluster.faults.add(Fault.delay(0.5, "offset_commit", topic))
        one.begin(one.offsets.commit, FENCE, {first: 1})
        old = one.begin(one.offsets.commit, FENCE, {first: 5})
        one.call(one.offsets.forget_topic, topic, 1)
        new = one.begin(one.offsets.commit, FENCE, {first: 6})
        assert old() == {first: "the topic was created again"}
        assert new() == {}
        assert one.load(first) == 6
