"""The log of the embedded broker on disk: appending, rolling, reading, retention, recovery."""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path

import pytest
from broker_wire import entry, gzipped, message_set, offsets_and_values, unpacked

from zkconsumer.testing.embedded.disk.log import EARLIEST, LATEST, LogSettings, PartitionLog
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.disk.storage import CLEAN_MARK, LogStorage
from zkconsumer.testing.errors import KitError

HOUR_MS = 3_600_000


def open_log(folder: Path, *, clean: bool = False, **settings: int) -> PartitionLog:
    return PartitionLog(folder, "t", 0, LogSettings(**settings), clean=clean)


def stored(log: PartitionLog, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
    with log.read(offset, max_bytes) as part:
        return offsets_and_values(part.read())


def read_all(log: PartitionLog) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    offset = log.start_offset
    while offset < log.end_offset:
        found += stored(log, offset)
        offset = found[-1][0] + 1
    return found


def numbered(first: int, count: int) -> list[tuple[int, bytes]]:
    return [(n, b"value-%06d" % n) for n in range(first, first + count)]


def append_numbered(log: PartitionLog, first: int, count: int, each: int = 10) -> None:
    for start in range(first, first + count, each):
        assert log.append(message_set(*(value for _, value in numbered(start, each)))) == start


def code_of(refused: pytest.ExceptionInfo[Refusal]) -> int:
    return refused.value.code


class TestAppending:
    def test_messages_get_consecutive_offsets_whatever_the_producer_wrote(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        assert log.append(entry(900, b"a") + entry(3, b"b")) == 0
        assert log.append(message_set(b"c")) == 2
        assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert log.end_offset == 3

    def test_the_file_is_named_by_its_base_offset_and_holds_the_entries_alone(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append(message_set(b"a", b"b"))
        path = tmp_path / "t-0" / "00000000000000000000.log"
        assert log.segment_paths == [path]
        assert path.read_bytes() == entry(0, b"a") + entry(1, b"b")

    def test_a_wrapper_is_repacked_with_absolute_offsets_its_own_being_the_last(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append(message_set(b"first"))
        assert log.append(gzipped(message_set(b"a", b"b", b"c"))) == 1
        with log.read(2, 1 << 20) as part:
            [(wrapper, inside)] = unpacked(part.read(), "gzip")
        assert wrapper == 3
        assert [offset for offset, _ in inside] == [1, 2, 3]
        assert [message[14:] for _, message in inside] == [b"a", b"b", b"c"]
        assert log.end_offset == 4

    def test_plain_and_nested_messages_beside_a_wrapper_end_in_one_flat_wrapper(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append(entry(0, b"plain") + gzipped(entry(0, b"a") + gzipped(entry(0, b"deep"))))
        with log.read(0, 1 << 20) as part:
            [(wrapper, inside)] = unpacked(part.read(), "gzip")
        assert wrapper == 2
        assert [message[14:] for _, message in inside] == [b"plain", b"a", b"deep"]

    def test_plain_messages_behind_a_wrapper_are_wrapped_too(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append(gzipped(entry(0, b"a")) + entry(0, b"plain"))
        with log.read(0, 1 << 20) as part:
            [(wrapper, inside)] = unpacked(part.read(), "gzip")
        assert wrapper == 1
        assert [message[14:] for _, message in inside] == [b"a", b"plain"]

    def test_a_partial_entry_at_the_end_is_left_out(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        assert log.append(message_set(b"a", b"b")[:-1]) == 0
        assert log.end_offset == 1

    def test_a_set_without_a_whole_message_stores_nothing(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        assert [log.append(b""), log.append(entry(0, b"a")[:20])] == [-1, -1]
        assert log.end_offset == 0

    @pytest.mark.parametrize(
        ("broken", "code"),
        [
            (entry(0, b"ok") + entry(1, b"bad")[:-1] + b"X", 2),
            (struct.pack(">qi", 0, 13) + bytes(13), 2),
            (entry(0, b"x" * 2000), 10),
            (entry(0, b"no gzip at all", codec=1), -1),
            (entry(0, b"a", codec=7), -1),
        ],
        ids=["checksum", "size below 14", "too large", "does not inflate", "unknown codec"],
    )
    def test_a_bad_set_is_refused_as_a_whole(self, tmp_path: Path, broken: bytes, code: int) -> None:
        log = open_log(tmp_path, max_message_bytes=1000)
        with pytest.raises(Refusal) as refused:
            log.append(broken)
        assert code_of(refused) == code
        assert (log.end_offset, log.size_bytes) == (0, 0)

    def test_message_max_bytes_counts_offset_and_size_fields_too(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, max_message_bytes=126)
        assert log.append(entry(0, b"x" * 100)) == 0
        with pytest.raises(Refusal) as refused:
            log.append(entry(0, b"x" * 101))
        assert code_of(refused) == 10

    def test_a_set_larger_than_a_segment_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, segment_bytes=100)
        with pytest.raises(Refusal) as refused:
            log.append(message_set(*[b"x" * 30] * 3))
        assert code_of(refused) == 18

    def test_appends_from_many_threads_lose_and_double_nothing(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, segment_bytes=4096)

        def append(name: int) -> None:
            for n in range(100):
                log.append(message_set(b"%d-%d" % (name, n)))

        threads = [threading.Thread(target=append, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = read_all(log)
        assert [offset for offset, _ in found] == list(range(800))
        assert {value for _, value in found} == {b"%d-%d" % (name, n) for name in range(8) for n in range(100)}


class TestRolling:
    def test_a_segment_begins_when_the_next_set_does_not_fit(self, tmp_path: Path) -> None:
        one_set = len(message_set(*(value for _, value in numbered(0, 10))))
        log = open_log(tmp_path, segment_bytes=2 * one_set)
        append_numbered(log, 0, 50)
        assert [int(path.stem) for path in log.segment_paths] == [0, 20, 40]
        assert read_all(log) == numbered(0, 50)

    def test_a_segment_begins_when_the_old_one_is_too_old_but_not_while_it_is_empty(self, tmp_path: Path) -> None:
        now = [1_000_000]
        log = PartitionLog(tmp_path, "t", 0, LogSettings(segment_ms=HOUR_MS), clock=lambda: now[0])
        now[0] += 2 * HOUR_MS
        log.append(message_set(b"a"))
        assert len(log.segment_paths) == 1
        log.append(message_set(b"b"))
        assert [int(path.stem) for path in log.segment_paths] == [0, 1]

    def test_flushing_by_count_and_time_is_asked_of_the_disk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now, flushed = [0], []
        monkeypatch.setattr(os, "fsync", flushed.append)
        log = PartitionLog(tmp_path, "t", 0, LogSettings(flush_messages=3, flush_ms=500), clock=lambda: now[0])
        log.append(message_set(b"a", b"b"))
        assert len(flushed) == 0
        log.append(message_set(b"c"))
        assert len(flushed) == 1
        log.append(message_set(b"d"))
        log.flush_if_due()
        assert len(flushed) == 1
        now[0] += 500
        log.flush_if_due()
        log.flush_if_due()
        assert len(flushed) == 2


class TestReading:
    def test_at_the_end_there_is_nothing_and_no_error(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        assert stored(log, 0) == []
        log.append(message_set(b"a"))
        assert stored(log, 1) == []

    @pytest.mark.parametrize("offset", [-1, 4, 9, 21, 1 << 40])
    def test_before_the_start_and_beyond_the_end_is_out_of_range(self, tmp_path: Path, offset: int) -> None:
        log = open_log(tmp_path, segment_bytes=400)
        append_numbered(log, 0, 20)
        log.delete_head(10)
        assert log.start_offset == 10
        with pytest.raises(Refusal) as refused:
            log.read(offset, 100)
        assert code_of(refused) == 1

    def test_every_offset_of_a_log_with_a_sparse_index_is_found(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, segment_bytes=20_000, index_interval_bytes=512)
        append_numbered(log, 0, 2000, each=20)
        assert len(log.segment_paths) > 3
        for offset in range(0, 2000, 7):
            assert stored(log, offset, 100)[0] == numbered(offset, 1)[0]

    def test_a_message_larger_than_the_search_window_hides_nothing_behind_it(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append(message_set(b"a", b"x" * 100_000, b"y" * 50_000, b"b"))
        assert stored(log, 3) == [(3, b"b")]
        assert stored(log, 2)[0] == (2, b"y" * 50_000)

    def test_bytes_are_cut_at_the_limit_even_within_the_only_message(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append(message_set(b"hello", b"world"))
        whole = entry(0, b"hello") + entry(1, b"world")
        for limit in range(len(whole) + 2):
            with log.read(0, limit) as part:
                assert part.read() == whole[:limit]

    def test_an_offset_inside_of_a_wrapper_gives_the_whole_wrapper(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.append(gzipped(message_set(b"a", b"b", b"c")))
        log.append(message_set(b"d"))
        parts = []
        for offset in (0, 1, 2):
            with log.read(offset, 1 << 20) as part:
                parts.append(part.read())
        assert parts[0] == parts[1] == parts[2]
        assert stored(log, 3) == [(3, b"d")]

    def test_a_slice_outlives_the_deletion_of_its_segment(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, segment_bytes=400)
        append_numbered(log, 0, 20)
        with log.read(0, 1 << 20) as part:
            log.delete_head(10)
            assert not (log.folder / "00000000000000000000.log").exists()
            assert offsets_and_values(part.read()) == numbered(0, 10)

    def test_a_closed_log_says_that_it_is_not_the_leader(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        log.close()
        for use in (lambda: log.append(message_set(b"a")), lambda: log.read(0, 10)):
            with pytest.raises(Refusal) as refused:
                use()
            assert code_of(refused) == 6

    def test_waiters_are_woken_by_appends_and_by_the_end(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        waiter = threading.Event()
        log.add_waiter(waiter)
        log.append(message_set(b"a"))
        assert waiter.is_set()
        waiter.clear()
        log.close()
        assert waiter.is_set()


class TestOffsetsByTime:
    def make(self, folder: Path) -> PartitionLog:
        """Segments at 0, 10, 20, written at second 1000, 2000, 3000."""
        log = open_log(folder, segment_bytes=400)
        append_numbered(log, 0, 30)
        for path, second in zip(log.segment_paths, (1000, 2000, 3000), strict=True):
            os.utime(path, (second, second))
        return log

    def test_latest_counts_down_from_the_end_and_earliest_is_the_start(self, tmp_path: Path) -> None:
        log = self.make(tmp_path)
        assert log.offsets_before(LATEST, 10) == [30, 20, 10, 0]
        assert log.offsets_before(LATEST, 2) == [30, 20]
        assert log.offsets_before(EARLIEST, 10) == [0]
        assert log.offsets_before(LATEST, 0) == []

    def test_a_time_finds_the_segments_last_written_by_then(self, tmp_path: Path) -> None:
        log = self.make(tmp_path)
        assert log.offsets_before(2_500_000, 10) == [10, 0]
        assert log.offsets_before(2_000_000, 10) == [10, 0]
        assert log.offsets_before(999_999, 10) == []
        assert log.offsets_before(1 << 50, 1) == [30]

    def test_an_empty_log_has_its_start_alone(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        assert log.offsets_before(LATEST, 10) == [0]
        assert log.offsets_before(EARLIEST, 1) == [0]


class TestRetention:
    def test_segments_older_than_the_limit_go_oldest_first(self, tmp_path: Path) -> None:
        log = PartitionLog(tmp_path, "t", 0, LogSettings(segment_bytes=400, retention_ms=HOUR_MS))
        append_numbered(log, 0, 40)
        for path in log.segment_paths[:2]:
            os.utime(path, (1000, 1000))
        assert log.apply_retention() == 2
        assert (log.start_offset, log.end_offset) == (20, 40)
        assert read_all(log) == numbered(20, 20)
        assert sorted(int(path.stem) for path in log.folder.glob("*.log")) == [20, 30]

    def test_a_wholly_expired_log_is_empty_but_goes_on_counting(self, tmp_path: Path) -> None:
        log = PartitionLog(tmp_path, "t", 0, LogSettings(segment_bytes=400, retention_ms=HOUR_MS))
        append_numbered(log, 0, 20)
        for path in log.segment_paths:
            os.utime(path, (1000, 1000))
        assert log.apply_retention() == 2
        assert (log.start_offset, log.end_offset, log.size_bytes) == (20, 20, 0)
        assert log.apply_retention() == 0
        append_numbered(log, 20, 10)
        assert read_all(log) == numbered(20, 10)

    def test_the_log_shrinks_to_its_size_limit_by_whole_segments(self, tmp_path: Path) -> None:
        log = PartitionLog(tmp_path, "t", 0, LogSettings(segment_bytes=400, retention_bytes=900))
        append_numbered(log, 0, 50)
        segment_bytes = log.segment_paths[0].stat().st_size
        log.apply_retention()
        assert 900 <= log.size_bytes < 900 + segment_bytes
        assert log.end_offset == 50

    def test_without_limits_nothing_goes(self, tmp_path: Path) -> None:
        log = PartitionLog(tmp_path, "t", 0, LogSettings(segment_bytes=400, retention_ms=-1))
        append_numbered(log, 0, 30)
        for path in log.segment_paths:
            os.utime(path, (1000, 1000))
        assert log.apply_retention() == 0

    def test_topic_settings_come_before_those_of_the_broker(self) -> None:
        broker = LogSettings(retention_ms=5, segment_bytes=1000)
        topic = broker.with_topic({"segment.bytes": "77", "unclean.leader.election.enable": "false"})
        assert (topic.segment_bytes, topic.retention_ms) == (77, 5)
        assert broker.with_topic({"cleanup.policy": "compact"}).retention_ms == -1


class TestRecovery:
    def crashed(self, folder: Path, **settings: int) -> Path:
        """The last file of a log of 30 messages that was never closed in order."""
        log = open_log(folder, **settings)
        append_numbered(log, 0, 30)
        path = log.segment_paths[-1]
        log.close(flush=False)
        return path

    @pytest.mark.parametrize("torn", [1, 11, 12, 20, 34])
    def test_a_torn_tail_is_cut_off(self, tmp_path: Path, torn: int) -> None:
        path = self.crashed(tmp_path)
        whole = path.read_bytes()
        path.write_bytes(whole + entry(30, b"torn away")[:torn])
        log = open_log(tmp_path)
        assert log.end_offset == 30
        assert path.read_bytes() == whole
        append_numbered(log, 30, 10)
        assert read_all(log) == numbered(0, 40)

    def test_everything_from_the_first_bad_checksum_on_is_cut_off(self, tmp_path: Path) -> None:
        path = self.crashed(tmp_path)
        data = bytearray(path.read_bytes())
        size = len(entry(0, b"value-000000"))
        data[17 * size + 30] ^= 1
        path.write_bytes(data)
        log = open_log(tmp_path)
        assert log.end_offset == 17
        assert read_all(log) == numbered(0, 17)

    def test_zeros_at_the_end_as_a_file_system_leaves_them_are_cut_off(self, tmp_path: Path) -> None:
        path = self.crashed(tmp_path)
        whole = path.read_bytes()
        path.write_bytes(whole + bytes(5000))
        assert open_log(tmp_path).end_offset == 30
        assert path.read_bytes() == whole

    def test_only_the_last_segment_is_checked_and_the_older_ones_stay(self, tmp_path: Path) -> None:
        path = self.crashed(tmp_path, segment_bytes=400)
        path.write_bytes(path.read_bytes()[:-5])
        log = open_log(tmp_path, segment_bytes=400)
        assert log.end_offset == 29
        assert read_all(log) == numbered(0, 29)

    def test_an_index_of_before_the_crash_misleads_nobody(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, index_interval_bytes=64)
        append_numbered(log, 0, 100)
        log.close()
        index = log.folder / "00000000000000000000.index"
        assert index.stat().st_size > 0
        path = log.segment_paths[0]
        path.write_bytes(path.read_bytes()[:-1000])
        log = open_log(tmp_path, index_interval_bytes=64)
        end = log.end_offset
        assert 0 < end < 100
        append_numbered(log, end, 50)
        for offset in range(end + 50):
            assert stored(log, offset, 60)[0] == numbered(offset, 1)[0]

    @pytest.mark.parametrize("index", [b"", b"\x01", b"\xff" * 16, struct.pack(">ii", 5, 10**6)])
    def test_a_clean_log_with_a_useless_index_is_scanned(self, tmp_path: Path, index: bytes) -> None:
        log = open_log(tmp_path)
        append_numbered(log, 0, 30)
        log.close()
        (log.folder / "00000000000000000000.index").write_bytes(index)
        log = open_log(tmp_path, clean=True)
        assert log.end_offset == 30
        assert read_all(log) == numbered(0, 30)

    def test_a_clean_log_goes_on_where_it_ended(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, segment_bytes=1000, index_interval_bytes=64)
        append_numbered(log, 0, 100)
        log.append(gzipped(message_set(b"a", b"b")))
        log.close()
        log = open_log(tmp_path, clean=True, segment_bytes=1000, index_interval_bytes=64)
        assert log.end_offset == 102
        append_numbered(log, 102, 10)
        assert stored(log, 102) == numbered(102, 10)
        assert stored(log, 55, 60)[0] == numbered(55, 1)[0]

    def test_truncation_drops_later_offsets_across_segments(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, segment_bytes=400)
        append_numbered(log, 0, 30)
        log.truncate(14)
        assert log.end_offset == 14
        append_numbered(log, 14, 10)
        assert read_all(log) == numbered(0, 24)


class TestStorage:
    def test_a_clean_stop_leaves_its_mark_and_a_checkpoint(self, tmp_path: Path) -> None:
        storage = LogStorage(tmp_path, PartitionLog)
        assert storage.was_clean is False
        storage.open("t", 0, LogSettings()).append(message_set(b"a", b"b"))
        storage.close()
        assert (tmp_path / CLEAN_MARK).exists()
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 2\n"
        again = LogStorage(tmp_path, PartitionLog)
        assert again.was_clean is True
        assert not (tmp_path / CLEAN_MARK).exists()
        assert again.open("t", 0, LogSettings()).end_offset == 2
        again.close(clean=False)
        assert not (tmp_path / CLEAN_MARK).exists()

    def test_a_folder_belongs_to_one_broker(self, tmp_path: Path) -> None:
        storage = LogStorage(tmp_path, PartitionLog)
        with pytest.raises(KitError, match="another running broker"):
            LogStorage(tmp_path, PartitionLog)
        storage.close()
        LogStorage(tmp_path, PartitionLog).close()
