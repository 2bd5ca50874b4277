"""Logs that an unclean election cuts off, and that have grown again when a query looks at them: noticed by epochs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from simpleconsumer.messages.apis import LIST_OFFSETS
from simpleconsumer.types import EpochEnd, TopicPartition
from zkconsumer.spark.errors import DataLoss, MessagesLost
from zkconsumer.spark.load.audit import OffsetSpan
from zkconsumer.spark.load.cluster_state import ClusterStateReader
from zkconsumer.spark.load.failures import AuditFailed, OffsetsLost
from zkconsumer.spark.load.incarnations import unchanged_epochs
from zkconsumer.spark.load.manifest import LoadState, Manifest
from zkconsumer.spark.load.planning import RunPlan, plan_run
from zkconsumer.spark.options.options import SourceOptions, batch_options, stream_options
from zkconsumer.spark.reading.batch_planning import plan_batch
from zkconsumer.spark.reading.bounds import PlannedRange
from zkconsumer.spark.reading.leader_queries import LogMark, cut_at
from zkconsumer.spark.reading.record_batches import read_range
from zkconsumer.spark.settings_files import open_source
from zkconsumer.spark.streaming import stream_logs
from zkconsumer.spark.streaming.stream_driver import StreamDriver
from zkconsumer.spark.streaming.stream_offsets import StreamOffsets, parse_stream_offsets
from zkconsumer.testing import EmbeddedCluster
from zkconsumer.testing.waiting import wait_until

TOPIC = "t"
ZERO = TopicPartition(TOPIC, 0)
LENIENT = {"failOnDataLoss": "false"}
OLD = [b"old %d" % number for number in range(10)]
NEW = [b"new %d" % number for number in range(20)]


@pytest.fixture(params=["by brokers", pytest.param("by ZooKeeper", marks=pytest.mark.real)])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """A cluster of Kafka 2.8 with ten messages in a topic."""
    zookeeper = request.getfixturevalue("zookeeper") if request.param == "by ZooKeeper" else False
    chroot = f"/{uuid.uuid4().hex}" if zookeeper else ""
    with EmbeddedCluster(2, zookeeper=zookeeper, chroot=chroot, generation="2.8") as made:
        made.create_topic(TOPIC)
        made.wait_leaders(TOPIC, [0])
        for value in OLD:  # each of them is a batch, as logs are cut between batches
            made.produce(TOPIC, [value], partition=0)
        yield made


def cut(cluster: EmbeddedCluster, end: int = 6, new: Sequence[bytes] = NEW) -> None:
    """Lose what is from an offset on, have the other broker lead, and write new messages."""
    cluster.elect_unclean(TOPIC, 0, end, 1 if cluster.leader(TOPIC, 0) == 0 else 0)
    if new:
        cluster.produce(TOPIC, new, partition=0)


def place(cluster: EmbeddedCluster, **given: str) -> dict[str, str]:
    found = ({"zookeeper.connect": cluster.zookeeper_connect} if cluster.has_zookeeper
             else {"bootstrap.servers": cluster.broker_list})  # fmt: skip
    return {**found, "subscribe": TOPIC, "startingOffsets": "earliest", "refresh.leader.backoff.ms": "20",
            "kafkaConsumer.pollTimeoutMs": "20000", **given}  # fmt: skip


def read(ranges: Sequence[PlannedRange], options: SourceOptions) -> list[bytes]:
    return [row["value"] for each in ranges for batch in read_range(each, ("value",), options)
            for row in batch.to_pylist()]  # fmt: skip


@dataclass
class Stream:
    """A stream and its checkpoint."""

    options: SourceOptions
    driver: StreamDriver = field(init=False)
    position: StreamOffsets = field(init=False)

    def __post_init__(self) -> None:
        self.driver = StreamDriver(self.options)
        self.position = self.driver.initial_offsets()
        self.driver.plan(self.position, self.position)

    def end(self) -> StreamOffsets:
        return parse_stream_offsets(self.driver.next_offsets(self.position, None).to_json())

    def batch(self) -> list[bytes]:
        end = self.end()
        found = read(self.driver.plan(self.position, end), self.options)
        self.position = end
        return found

    def batches(self, count: int) -> list[bytes]:
        """Run batches until they have brought so many messages."""
        found: list[bytes] = []

        def has_all() -> bool:
            found.extend(self.batch())
            return len(found) >= count

        wait_until(has_all, 20, f"{count} messages", state=lambda: found)
        return found

    def restarted(self, **given: str) -> Stream:
        """The stream of a new process, with the same checkpoint."""
        self.driver.close()
        again = object.__new__(Stream)
        again.options = self.options if not given else stream_options(given)
        again.driver, again.position = StreamDriver(again.options), self.position
        again.driver.plan(again.position, again.position)
        return again


@pytest.fixture
def streams(cluster: EmbeddedCluster) -> Iterator[Callable[..., Stream]]:
    made: list[Stream] = []

    def make(**given: str) -> Stream:
        made.append(Stream(stream_options(place(cluster, **given))))
        return made[-1]

    yield make
    for each in made:
        each.driver.close()


@pytest.mark.parametrize(
    ("mark", "now", "found", "cut"),
    [
        (LogMark(10, 3), 4, EpochEnd(0, 3, 6), 6),
        (LogMark(10, 3), 4, EpochEnd(0, 2, 6), 6),  # the log has nothing of epoch 3
        (LogMark(10, 3), -1, EpochEnd(0, 2, 6), 6),
        (LogMark(10, 3), 4, EpochEnd(0, 3, 10), None),  # all is there
        (LogMark(10, 3), 4, EpochEnd(0, 3, 12), None),
        (LogMark(10, 3), 3, EpochEnd(0, 3, 6), None),  # within its epoch a log only grows: another topic
        (LogMark(10, 3), -1, EpochEnd(0, 3, 6), None),
        (LogMark(10, 3), 4, EpochEnd(0, -1, -1), None),  # messages without epochs
        (LogMark(10, 3), 4, EpochEnd(0, -1, 6), None),  # a request of version 0
        (LogMark(10, 3), 4, EpochEnd(74, 3, 6), None),
    ],
)
def test_where_a_log_was_cut(mark: LogMark, now: int, found: EpochEnd, cut: int | None) -> None:
    assert cut_at(mark, now, found) == cut


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_epochs_stand_beside_the_offsets() -> None:
    offsets = StreamOffsets({ZERO: 42, TopicPartition(TOPIC, 1): 7}, {TOPIC: 99}, 1_396_000_000_000, {ZERO: 5})
    shown = {"t": {"0": 42, "1": 7}, "@born": {"t": 99, "@cluster": 1_396_000_000_000}, "@epochs": {"t": {"0": 5}}}
    assert offsets.to_json() == shown
    assert parse_stream_offsets(shown) == offsets
    plain = StreamOffsets({ZERO: 42}, epochs={ZERO: 5})
    assert plain.to_json() == {"t": {"0": 42}, "@epochs": {"t": {"0": 5}}}
    gone = StreamOffsets({ZERO: 42}, epochs={TopicPartition("gone", 0): 5})
    assert gone.to_json() == {"t": {"0": 42}}


@pytest.mark.parametrize("epochs", [{"t": {"0": -1}}, {"t": {"1": 5}}, {"u": {"0": 5}}, {"t": 5}, {"t": {"0": "5"}}])
def test_what_is_no_epoch_is_refused(epochs: object) -> None:
    with pytest.raises(ValueError, match="offsets of a stream cannot be read"):
        parse_stream_offsets({"t": {"0": 42}, "@epochs": epochs})


def test_a_position_that_stays_keeps_its_epoch(cluster: EmbeddedCluster, streams: Callable[..., Stream]) -> None:
    """Otherwise each change of a leader would make a batch without messages."""
    stream = streams()
    assert stream.batches(10) == OLD
    before = stream.position
    assert before.epochs[ZERO] >= 0
    cluster.elect_unclean(TOPIC, 0, 10, 1 if cluster.leader(TOPIC, 0) == 0 else 0)  # nothing is lost
    cluster.produce(TOPIC, [b"next"], partition=0)
    assert stream.batches(1) == [b"next"]
    assert stream.position.epochs[ZERO] > before.epochs[ZERO]
    stays = stream.position
    cluster.elect_unclean(TOPIC, 0, 11, 1 if cluster.leader(TOPIC, 0) == 0 else 0)
    wait_until(lambda: _epoch_now(stream) > stays.epochs[ZERO], 20, "the stream to know the new epoch")
    assert stream.end() == stays


def _epoch_now(stream: Stream) -> int:
    return stream.driver._logs.read(new_ends=True).epochs.get(ZERO, -1)


def test_a_checkpoint_without_epochs_is_continued_and_has_them_after_the_next_batch(
    cluster: EmbeddedCluster, streams: Callable[..., Stream]
) -> None:
    stream = streams()
    stream.batches(10)
    shown = stream.position.to_json()
    assert shown.pop("@epochs") == {TOPIC: {"0": stream.position.epochs[ZERO]}}
    stream.position = parse_stream_offsets(shown)
    again = stream.restarted()
    assert again.end() == stream.position, "no batch for the epoch alone"
    cluster.produce(TOPIC, [b"next"], partition=0)
    assert again.batches(1) == [b"next"]
    assert again.position.epochs.keys() == {ZERO}
    again.driver.close()


def test_an_end_that_a_leader_without_epochs_tells_has_none(
    cluster: EmbeddedCluster, streams: Callable[..., Stream]
) -> None:
    """As in the middle of an upgrade: the epoch of the leader before is not that of what the next one has."""
    stream = streams()
    assert stream.batches(10) == OLD
    other = 1 if cluster.leader(TOPIC, 0) == 0 else 0
    broker: Any = cluster.brokers[other]
    broker.served = {**broker.served, LIST_OFFSETS.key: range(3)}
    cluster.elect_unclean(TOPIC, 0, 10, other)
    cluster.produce(TOPIC, [b"next"], partition=0)
    assert stream.batches(1) == [b"next"]
    assert stream.position.epochs == {}


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("grown", [2, 4, 20], ids=["shorter", "as long", "longer"])
def test_a_log_that_was_cut_between_two_batches_is_read_on_where_it_was_cut(
    cluster: EmbeddedCluster,
    streams: Callable[..., Stream],
    caplog: pytest.LogCaptureFixture,
    grown: int,
    is_restarted: bool,
) -> None:
    strict, lenient = streams(), streams(**LENIENT)
    assert (strict.batches(10), lenient.batches(10)) == (OLD, OLD)
    cut(cluster, 6, NEW[:grown])
    if is_restarted:
        strict, lenient = strict.restarted(), lenient.restarted()
    with pytest.raises(
        MessagesLost, match="t-0 from offset 6 to 10: its log was truncated there when its leader changed"
    ):
        wait_until(lambda: strict.end() != strict.position, 20, "the loss")
    assert lenient.batches(grown) == NEW[:grown], "each of the new messages, also those at offsets of before"
    assert caplog.text.count("t-0 from offset 6 to 10: its log was truncated") == 1
    assert lenient.position.offsets == {ZERO: 6 + grown}
    assert lenient.batch() == []
    for each in (strict, lenient):
        each.driver.close()


def test_a_batch_whose_log_is_cut_before_it_is_planned_ends_there(
    cluster: EmbeddedCluster, streams: Callable[..., Stream]
) -> None:
    strict, lenient = streams(), streams(**LENIENT)
    ends = strict.end(), lenient.end()
    cut(cluster)
    for each, end in zip((strict, lenient), ends, strict=True):
        wait_until(lambda: _epoch_now(each) > end.epochs[ZERO], 20, "the new leader to be known")  # noqa: B023
    with pytest.raises(MessagesLost, match="t-0 from offset 6 to 10: its log was truncated there"):
        strict.driver.plan(strict.position, ends[0])
    assert read(lenient.driver.plan(lenient.position, ends[1]), lenient.options) == OLD[:6]
    lenient.position = ends[1]
    assert lenient.batches(20) == NEW


def test_a_task_whose_log_is_cut_before_it_reads_ends_there(
    cluster: EmbeddedCluster, streams: Callable[..., Stream], caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = streams(), streams(**LENIENT)
    ends = strict.end(), lenient.end()
    ranges = [each.driver.plan(each.position, end) for each, end in zip((strict, lenient), ends, strict=True)]
    cut(cluster)
    with pytest.raises(DataLoss, match="t/0: 4 offsets from 6 to 9 are not in the log: the log was truncated at 6,"):
        read(ranges[0], strict.options)
    assert read(ranges[1], lenient.options) == OLD[:6]
    assert "4 offsets that are not in the log were omitted" in caplog.text
    lenient.position = ends[1]
    assert lenient.batches(20) == NEW, "the next batch begins where the log was cut"


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_table_whose_log_is_cut_after_it_was_planned_has_what_is_left_of_it(cluster: EmbeddedCluster) -> None:
    strict, lenient = batch_options(place(cluster)), batch_options(place(cluster, **LENIENT, minPartitions="5"))
    planned, split = plan_batch(strict), plan_batch(lenient)
    assert len(split) == 5
    cut(cluster)
    with pytest.raises(DataLoss, match="t/0: 4 offsets from 6 to 9 are not in the log"):
        read(planned, strict)
    assert read(split, lenient) == OLD[:6]
    assert read(plan_batch(strict), strict) == [*OLD[:6], *NEW]


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("end", [0, 6])
def test_a_log_that_is_cut_while_it_is_read_is_noticed_with_what_was_read(
    cluster: EmbeddedCluster, end: int, is_strict: bool
) -> None:
    """Each message is a fetch of its own, and a few are fetched ahead of their use."""
    given = place(cluster, **{"fetch.message.max.bytes": "100"})
    options = batch_options(given if is_strict else {**given, **LENIENT})
    [whole] = plan_batch(options)
    batches = read_range(whole, ("value",), options)
    found = [value.as_py() for value in next(batches)["value"]]
    assert found[0] == OLD[0]
    cut(cluster, end)
    if is_strict:
        with pytest.raises(
            DataLoss,
            match=rf"t/0: {10 - end} offsets from {end} to 9 are not in the log: the log "
            r"was truncated",
        ):
            list(batches)
    else:
        found += [value.as_py() for batch in batches for value in batch["value"]]
        assert found == OLD[: len(found)], "what is new was not planned"
        assert 1 <= len(found) < 10


def test_a_leader_that_changes_without_any_loss_is_followed(cluster: EmbeddedCluster) -> None:
    options = batch_options(place(cluster))
    planned = plan_batch(options)
    cut(cluster, 10)
    assert read(planned, options) == OLD


def test_a_topic_that_was_created_again_is_told_by_an_earlier_epoch(cluster: EmbeddedCluster) -> None:
    cut(cluster, 10, [])
    options = batch_options(place(cluster, **{"kafkaConsumer.pollTimeoutMs": "3000"}))
    planned = plan_batch(options)
    cluster.delete_topic(TOPIC)
    wait_until(lambda: cluster.leader(TOPIC, 0) is None, 20, "the topic to be gone")
    cluster.create_topic(TOPIC)
    cluster.wait_leaders(TOPIC, [0])
    cluster.produce(TOPIC, NEW, partition=0)
    with pytest.raises(
        DataLoss, match="t/0: 10 offsets from 0 to 9 are not in the log: its leader has epoch 0, but had 1 before"
    ):
        read(planned, options)


# -- loads -------------------------------------------------------------------------------------------------------------


def load_plan(cluster: EmbeddedCluster, before: LoadState, *, skip: bool = False) -> RunPlan:
    """What a run of a load would read; its manifest is written and read in between, as by two processes."""
    options = batch_options(place(cluster))
    with open_source(options.config) as source, ClusterStateReader(source, options, before, lambda: ()) as reader:
        state = reader.read(at_latest=False, may_be_silent=False)
        plan = plan_run(before, state, allow_loss=skip, selects=reader.selects)
    manifest = Manifest(1, "", "", "", "parquet", "none", plan.state)
    return plan._replace(state=Manifest.from_json("p", manifest.to_json()).state)


@pytest.mark.parametrize("new", [NEW, NEW[:4], NEW[:2], []], ids=["past the end", "to the end", "not so far", "none"])
def test_a_load_goes_on_where_the_log_was_cut_as_a_stream_does(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, new: list[bytes]
) -> None:
    monkeypatch.setattr(stream_logs, "SHRUNK_S", 0.3)
    first = load_plan(cluster, LoadState())
    assert first.asked == {ZERO: OffsetSpan(0, 10)}
    cut(cluster, 6, new)
    with pytest.raises(
        OffsetsLost, match="t-0 from offset 6 to 10: its log was truncated there when its leader changed"
    ):
        load_plan(cluster, first.state)
    second = load_plan(cluster, first.state, skip=True)
    assert second.asked == ({ZERO: OffsetSpan(6, 6 + len(new))} if new else {})
    assert [(each.begin, each.end) for each in second.lost] == [(6, 10)]
    again = load_plan(cluster, second.state)
    assert (again.asked, again.lost) == ({}, ()), "the loss is named once"
    assert again.state.equals(second.state)


def test_a_load_does_not_take_a_leader_that_changed_without_loss_for_news(cluster: EmbeddedCluster) -> None:
    first = load_plan(cluster, LoadState())
    cut(cluster, 10, [])
    second = load_plan(cluster, first.state)
    assert (second.asked, second.lost, second.state.equals(first.state)) == ({}, (), True)
    cluster.produce(TOPIC, NEW, partition=0)
    third = load_plan(cluster, second.state)
    assert third.asked == {ZERO: OffsetSpan(10, 30)}
    assert third.state.offsets.epochs[ZERO] > first.state.offsets.epochs[ZERO]


def test_a_load_of_a_log_that_was_cut_after_the_plan_is_not_published(cluster: EmbeddedCluster) -> None:
    """What it has read then may be of either log."""
    plan = load_plan(cluster, LoadState())
    options = batch_options(place(cluster))
    with open_source(options.config) as source:
        assert unchanged_epochs(source, options, plan.state.offsets, {ZERO}) == plan.state.offsets.epochs
        cut(cluster, 6)
        with pytest.raises(
            AuditFailed, match="nothing was published: logs were truncated while they were read: t/0 at 6"
        ):
            unchanged_epochs(source, options, plan.state.offsets, {ZERO})
