"""One member reads batches, another one messages: what moves between them goes on at the exact next message."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from consuming import PATIENCE_S, BackgroundReader, member, owned, position, wait_owned, wait_stored

from zkconsumer import ConsumerTimeout, KafkaStream, MessageBatch, TopicPartition
from zkconsumer.testing import EmbeddedCluster, LastingLoad
from zkconsumer.testing.waiting import Deadline, wait_until

PARTITIONS = 4
PATIENT = {"rebalance_drain_timeout_ms": 20_000}


class BatchReader:
    """Reads batches of a stream on a thread of its own until it ends."""

    def __init__(self, stream: KafkaStream) -> None:
        self.found: list[tuple[int, int]] = []
        self.sizes: list[int] = []
        self.thread = threading.Thread(target=self._run, args=[stream], daemon=True)
        self.thread.start()

    def _run(self, stream: KafkaStream) -> None:
        batches = stream.batches(max_messages=7, columns=["offset"])
        while True:
            try:
                for batch in batches:
                    offsets = batch.record_batch.column("offset").to_pylist()
                    assert (offsets[0], offsets[-1]) == (batch.offset, batch.last_offset)
                    self.found += [(int(batch.partition), offset) for offset in offsets]
                    self.sizes.append(len(batch))
                return
            except ConsumerTimeout:
                continue


def first_of(stream: KafkaStream) -> MessageBatch:
    deadline = Deadline(PATIENCE_S)
    while True:
        try:
            return next(stream.batches(max_messages=10))
        except ConsumerTimeout:
            assert not deadline.expired


def test_partitions_move_between_batches_and_messages_under_load_and_nothing_is_lost_or_repeated(
    embedded_cluster: EmbeddedCluster, fresh_group: str, fresh_topic: Callable[[], str]
) -> None:
    topic = fresh_topic()
    embedded_cluster.create_topic(topic, partitions=PARTITIONS)
    everything = [(topic, partition) for partition in range(PARTITIONS)]
    with (
        LastingLoad(embedded_cluster, [topic], partitions=PARTITIONS, rate_per_s=400) as load,
        member(embedded_cluster, fresh_group, "ann", **PATIENT) as ann,
    ):
        readers: list[BackgroundReader] = []
        batches = BatchReader(ann.create_message_streams({topic: 1})[topic][0])
        wait_owned(ann, everything)
        for _ in range(3):
            load.grow(100)
            with member(embedded_cluster, fresh_group, "bob", **PATIENT) as bob:  # from batches to messages
                readers.append(BackgroundReader(*bob.create_message_streams({topic: 1})[topic]))
                wait_until(lambda: len(owned(ann)) == len(owned(bob)) == 2, PATIENCE_S, "two partitions each")
                load.grow(100)
                wait_until(lambda: readers[-1].messages, PATIENCE_S, "messages of the second member")
            wait_owned(ann, everything)  # and back
        load.grow(50)
        load.stop()
        acked = Counter((event.partition, event.offset) for event in load.acked)

        def delivered() -> Counter[tuple[int, int]]:
            messages = [(int(m.partition), m.offset) for reader in readers for m in reader.messages]
            return Counter(messages) + Counter(batches.found)

        wait_until(lambda: len(delivered()) == len(acked), PATIENCE_S, "everything to be delivered")
        assert delivered() == acked
        assert all(reader.messages and not reader.errors for reader in readers)
    batches.thread.join(PATIENCE_S)
    assert not batches.thread.is_alive()
    assert max(batches.sizes) <= 7


def test_an_explicit_commit_counts_the_batch_in_hand_and_a_map_a_part_of_it(
    embedded_cluster: EmbeddedCluster, fresh_group: str, topic: str
) -> None:
    with member(embedded_cluster, fresh_group, auto_commit_enable=False) as consumer:
        [stream] = consumer.create_message_streams({topic: 1})[topic]
        batch = first_of(stream)
        partition = int(batch.partition)
        consumer.commit_offsets({TopicPartition(topic, partition): 4})
        wait_stored(embedded_cluster, fresh_group, topic, partition, 4)
        assert position(consumer, topic, partition) == 4
        consumer.commit_offsets()
        wait_stored(embedded_cluster, fresh_group, topic, partition, 10)
