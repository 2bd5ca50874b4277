"""The log of the embedded broker with record batches: what is stored, refused, kept over a restart, and lost."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_wire import entry, message_set
from hypothesis import given, settings
from hypothesis import strategies as st

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.types import AbortedTransaction, Message, OffsetAndTimestamp
from zkconsumer.testing.embedded.disk.log import LogSettings, PartitionLog
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.kafka011.batches import LeaderEpochs
from zkconsumer.testing.embedded.kafka011.log import BatchLog, Read

STAMP = 1_700_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> BatchLog:
    return opened(tmp_path)


def opened(folder: Path, **changed: int) -> BatchLog:
    """A log as a leader of epoch 0 has it; what is 22 years old stays."""
    found = BatchLog(folder, "t", 0, LogSettings(retention_ms=-1, **changed), clean=True)
    found.begin_epoch(0)
    return found


def batch(*values: bytes, codec: str = "none", producer: BatchProducer | None = None, stamp: int = STAMP) -> bytes:
    messages = [Message("t", 0, 0, 0, None, value, stamp + number) for number, value in enumerate(values)]
    return encode_record_batch(messages, codec, producer=producer or BatchProducer())


def of_producer(producer_id: int, sequence: int, *values: bytes, epoch: int = 0, transactional: bool = False) -> bytes:
    return batch(*values, producer=BatchProducer(producer_id, epoch, sequence, transactional))


def read(log: BatchLog, offset: int = 0, max_bytes: int = 1 << 20, **how: bool) -> Read:
    return log.read_batches(offset, max_bytes, **({"whole_first": True, "is_committed": False} | how))


def values(found: Read, start: int = 0) -> list[bytes]:
    with found.data as part:
        data = part.read()
    messages = KAFKA011.decode_messages(data, "t", 0, start, aborted=found.aborted or ())
    return [bytes(message.value) for message in messages if message.value is not None]


def code_of(call: Callable[[], object]) -> int:
    with pytest.raises(Refusal) as refused:
        call()
    return refused.value.code


class TestBatches:
    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_a_batch_is_kept_as_it_was_produced_but_for_its_place(self, log: BatchLog, codec: str) -> None:
        log.begin_epoch(7)
        sent = batch(b"a", b"b", codec=codec)
        assert [log.append_batch(sent), log.append_batch(sent)] == [0, 2]
        with read(log, 3).data as part:
            stored = part.read()
        assert struct.unpack_from(">q4xi", stored) == (2, 7)
        assert stored[8:12] + stored[16:] == sent[8:12] + sent[16:]
        assert log.end_offset == 4

    def test_what_no_producer_sends_is_refused(self, log: BatchLog) -> None:
        good = batch(b"a", b"b")
        assert code_of(lambda: log.append_batch(good[:-1])) == 2
        assert code_of(lambda: log.append_batch(good[:40])) == 2
        assert code_of(lambda: log.append_batch(good[:-1] + b"x")) == 2
        assert code_of(lambda: log.append_batch(good + good)) == 87
        assert code_of(lambda: log.append_batch(b"")) == 87
        old = message_set(b"an old message, and long enough to hold the head of a batch")
        assert code_of(lambda: log.append_batch(old)) == 87
        marker = encode_record_batch([(b"\0\0\0\0", b"")], producer=BatchProducer(1, 0, -1, True), is_control=True)
        assert code_of(lambda: log.append_batch(marker)) == 87
        gaps = encode_record_batch([b"a", b"b"], offsets=[0, 2])
        assert code_of(lambda: log.append_batch(gaps)) == 87
        assert code_of(lambda: log.append_produced(batch(b"a", codec="zstd"), takes_zstd=False)) == 76
        assert log.end_offset == 0

    def test_a_batch_above_the_limit_is_refused(self, tmp_path: Path) -> None:
        log = opened(tmp_path, max_message_bytes=200)
        assert code_of(lambda: log.append_batch(batch(bytes(200)))) == 10
        assert log.append_batch(batch(bytes(100))) == 0

    @settings(max_examples=50)
    @given(st.data())
    def test_a_flipped_bit_is_refused_or_changes_the_place_alone(self, tmp_path_factory, data: st.DataObject) -> None:
        log = opened(tmp_path_factory.mktemp("flipped"))
        sent = bytearray(batch(b"a", b"bb", codec=data.draw(st.sampled_from(["none", "gzip", "lz4"]))))
        at = data.draw(st.integers(0, len(sent) - 1))
        sent[at] ^= 1 << data.draw(st.integers(0, 7))
        if at < 8 or 12 <= at < 16:  # base offset and epoch, which the broker sets
            assert log.append_batch(bytes(sent)) == 0
            assert values(read(log)) == [b"a", b"bb"]
        else:
            assert code_of(lambda: log.append_batch(bytes(sent))) in (2, 10, 87)


class TestReading:
    def test_the_first_batch_comes_whole_however_small_the_limit(self, log: BatchLog) -> None:
        for value in (b"a", b"b", b"c"):
            log.append_batch(batch(value))
        assert values(read(log, max_bytes=1)) == [b"a"]
        assert read(log, max_bytes=1, whole_first=False).data.length == 0
        assert values(read(log, max_bytes=2 * len(batch(b"a")) + 5)) == [b"a", b"b"]

    def test_a_limit_cuts_the_last_batch(self, log: BatchLog) -> None:
        log.append_batch(batch(b"a"))
        log.append_batch(batch(b"b"))
        size = len(batch(b"a"))
        assert read(log, max_bytes=size + 5).data.length == size + 5

    def test_an_offset_within_a_batch_finds_it(self, log: BatchLog) -> None:
        log.append_batch(batch(b"a", b"b", b"c"))
        log.append_batch(batch(b"d"))
        assert values(read(log, 1), 1) == [b"b", b"c", b"d"]
        assert values(read(log, 3), 3) == [b"d"]

    def test_an_offset_that_is_not_there_is_out_of_range(self, log: BatchLog) -> None:
        log.append_batch(batch(b"a"))
        assert read(log, 1).data.length == 0
        assert code_of(lambda: read(log, 2)) == 1
        assert code_of(lambda: read(log, -1)) == 1

    def test_a_read_stays_within_its_segment_and_the_next_one_goes_on(self, tmp_path: Path) -> None:
        log = opened(tmp_path, segment_bytes=2 * len(batch(b"a")))
        for number in range(10):
            log.append_batch(batch(b"%d" % number))
        assert len(log.segment_paths) == 5
        assert [values(read(log, offset), offset) for offset in (0, 2, 3)] == [[b"0", b"1"], [b"2", b"3"], [b"3"]]

    def test_the_first_message_of_a_time_is_found(self, log: BatchLog) -> None:
        log.append_batch(batch(b"a", b"b", stamp=STAMP))
        log.append_batch(batch(b"c", b"d", stamp=STAMP + 1000, codec="gzip"))
        assert log.at_time(STAMP - 5) == OffsetAndTimestamp(0, STAMP)
        assert log.at_time(STAMP + 1) == OffsetAndTimestamp(1, STAMP + 1)
        assert log.at_time(STAMP + 2) == OffsetAndTimestamp(2, STAMP + 1000)
        assert log.at_time(STAMP + 1002) is None


class TestOldFormats:
    def test_entries_of_all_formats_stand_in_one_log(self, tmp_path: Path) -> None:
        before = PartitionLog(tmp_path, "t", 0, LogSettings(retention_ms=-1))
        before.append(message_set(b"a", b"b"))
        before.close()
        log = opened(tmp_path)
        log.append_batch(batch(b"c", b"d"))
        assert values(read(log)) == [b"a", b"b", b"c", b"d"]
        assert values(read(log, 3), 3) == [b"d"]
        log.append_as_is(entry(4, b"e") + entry(6, b"g"))
        assert (values(read(log)), log.end_offset) == ([b"a", b"b", b"c", b"d", b"e", b"g"], 7)

    def test_entries_as_they_are_must_be_whole_and_behind_the_end(self, log: BatchLog) -> None:
        log.append_batch(batch(b"a"))
        for data in (entry(0, b"x"), entry(1, b"x")[:-1], b""):
            with pytest.raises(ValueError):
                log.append_as_is(data)
        assert log.end_offset == 1


class TestIdempotence:
    def test_a_batch_that_comes_again_is_stored_once(self, log: BatchLog) -> None:
        sent = [of_producer(9, number, b"%d" % number) for number in range(7)]
        assert [log.append_batch(each) for each in sent] == list(range(7))
        assert [log.append_batch(each) for each in sent[2:]] == list(range(2, 7))
        assert log.end_offset == 7

    def test_one_that_comes_again_is_answered_with_the_newest_time_in_the_log(self, log: BatchLog) -> None:
        sent, timed = of_producer(9, 0, b"a", b"b"), of_producer(9, 2, b"c")
        assert [log.append_produced(sent) for _ in range(2)] == [(0, -1), (0, STAMP + 1)]
        assert [log.append_produced(timed, append_time_ms=now) for now in (5, 6)] == [(2, 5), (2, 5)]

    def test_one_older_than_the_last_five_or_out_of_order_is_refused(self, log: BatchLog) -> None:
        for number in range(7):
            log.append_batch(of_producer(9, number, b"x"))
        assert code_of(lambda: log.append_batch(of_producer(9, 0, b"x"))) == 45
        assert code_of(lambda: log.append_batch(of_producer(9, 8, b"x"))) == 45
        assert log.append_batch(of_producer(9, 7, b"x")) == 7

    def test_producers_do_not_disturb_each_other(self, log: BatchLog) -> None:
        assert [log.append_batch(of_producer(each, 0, b"x")) for each in (1, 2, 3)] == [0, 1, 2]
        assert log.append_batch(batch(b"x")) == 3

    def test_an_epoch_begins_at_sequence_0_and_ends_the_one_before(self, log: BatchLog) -> None:
        log.append_batch(of_producer(9, 0, b"x"))
        assert code_of(lambda: log.append_batch(of_producer(9, 1, b"x", epoch=1))) == 45
        assert log.append_batch(of_producer(9, 0, b"x", epoch=1)) == 1
        assert code_of(lambda: log.append_batch(of_producer(9, 1, b"x", epoch=0))) == 47

    def test_sequences_begin_at_0_again_behind_the_largest(self, log: BatchLog) -> None:
        last = 2**31 - 1
        log.append_batch(of_producer(9, last - 1, b"x"))
        assert log.append_batch(of_producer(9, last, b"x", b"y")) == 1
        assert log.append_batch(of_producer(9, 1, b"x")) == 3

    @pytest.mark.parametrize("clean", [True, False])
    def test_a_restart_changes_nothing(self, tmp_path: Path, clean: bool) -> None:
        log = opened(tmp_path)
        for number in range(3):
            log.append_batch(of_producer(9, number, b"x"))
        log.close()
        again = BatchLog(tmp_path, "t", 0, LogSettings(retention_ms=-1), clean=clean)
        assert again.append_batch(of_producer(9, 2, b"x")) == 2
        assert code_of(lambda: again.append_batch(of_producer(9, 4, b"x"))) == 45

    def test_what_a_truncation_took_can_come_again(self, log: BatchLog) -> None:
        for number in range(3):
            log.append_batch(of_producer(9, number, b"x"))
        log.truncate(1)
        assert log.append_batch(of_producer(9, 1, b"x")) == 1


class TestTransactions:
    def fill(self, log: BatchLog) -> None:
        """0 a, of a transaction that is committed; 1 b, aborted; 2 its marker; 3 c; 4 the other marker; 5 d, open."""
        log.append_batch(of_producer(1, 0, b"a", transactional=True))
        log.append_batch(of_producer(2, 0, b"b", transactional=True))
        log.append_marker(2, commit=False)
        log.append_batch(batch(b"c"))
        log.append_marker(1, commit=True)
        log.append_batch(of_producer(2, 1, b"d", transactional=True))

    @pytest.mark.parametrize("is_reopened", [False, True])
    def test_the_committed_part_ends_at_the_first_open_transaction(self, tmp_path: Path, is_reopened: bool) -> None:
        log = opened(tmp_path)
        self.fill(log)
        if is_reopened:
            log.close()
            log = opened(tmp_path)
        committed = read(log, is_committed=True)
        assert committed[1:] == (6, 5, 0, [AbortedTransaction(2, 1)])
        assert values(committed) == [b"a", b"c"]
        assert values(read(log)) == [b"a", b"b", b"c", b"d"]
        assert read(log, is_committed=False).aborted is None
        assert read(log, 3, is_committed=True).aborted == []
        assert read(log, 5, is_committed=True).data.length == 0

    def test_an_end_moves_the_committed_part_on(self, log: BatchLog) -> None:
        self.fill(log)
        log.append_marker(2, commit=True)
        assert log.last_stable_offset == log.end_offset == 7
        assert values(read(log, is_committed=True)) == [b"a", b"c", b"d"]

    def test_a_message_without_the_open_transaction_is_refused(self, log: BatchLog) -> None:
        self.fill(log)
        assert code_of(lambda: log.append_batch(of_producer(2, 2, b"x"))) == 48

    def test_marks_are_found_by_their_time(self, log: BatchLog) -> None:
        """As in Kafka 4.3."""
        self.fill(log)
        found = log.at_time(STAMP + 1000)
        assert found is not None
        assert (found.offset, found.timestamp_ms > STAMP + 1000) == (2, True)

    def test_a_truncation_opens_what_a_lost_marker_ended(self, log: BatchLog) -> None:
        self.fill(log)
        log.truncate(2)
        assert (log.last_stable_offset, log.end_offset) == (0, 2)


class TestEpochs:
    def test_epochs_end_where_the_next_one_begins(self, log: BatchLog) -> None:
        log.append_batch(batch(b"a", b"b"))
        log.begin_epoch(3)
        log.begin_epoch(3)
        log.append_batch(batch(b"c"))
        assert [log.epoch_end(epoch) for epoch in (0, 1, 2, 3, 4, -1)] == [
            (0, 2), (0, 2), (0, 2), (3, 3), (-1, -1), (-1, -1),
        ]  # fmt: skip
        assert [log.epoch_at(offset) for offset in (0, 1, 2)] == [0, 0, 3]

    def test_an_epoch_without_messages_is_forgotten(self, log: BatchLog) -> None:
        log.begin_epoch(1)
        log.begin_epoch(2)
        log.append_batch(batch(b"a"))
        assert log.epoch_end(1) == (1, 0)
        assert log.epoch_end(2) == (2, 1)

    def test_epochs_outlive_a_restart_and_those_that_were_lost_do_not(self, tmp_path: Path) -> None:
        log = opened(tmp_path)
        log.append_batch(batch(b"a", b"b"))
        log.begin_epoch(1)
        log.append_batch(batch(b"c"))
        log.close()
        again = BatchLog(tmp_path, "t", 0, LogSettings(retention_ms=-1), clean=True)
        assert (again.leader_epoch, again.epoch_end(0)) == (1, (0, 2))
        again.truncate(1)
        again.begin_epoch(2)
        assert [again.epoch_end(epoch) for epoch in (0, 1, 2)] == [(0, 1), (0, 1), (2, 1)]

    def test_a_client_that_knows_another_epoch_is_refused(self, log: BatchLog) -> None:
        log.begin_epoch(5)
        log.require_epoch(5)
        log.require_epoch(-1)
        assert code_of(lambda: log.require_epoch(4)) == 74
        assert code_of(lambda: log.require_epoch(6)) == 75

    @given(st.text())
    def test_a_file_of_anything_is_read(self, text: str) -> None:
        assert LeaderEpochs(text).latest >= -1

    def test_the_file_is_kafkas(self) -> None:
        epochs = LeaderEpochs()
        epochs.begin(0, 0)
        epochs.begin(4, 17)
        assert epochs.text() == "0\n2\n0 0\n4 17\n"
        assert LeaderEpochs(epochs.text()).text() == epochs.text()
