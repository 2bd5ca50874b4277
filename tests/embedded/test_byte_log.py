"""The log of an embedded broker of Kafka 0.7: what is stored, what is seen, what goes, what a crash leaves."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from broker_wire_07 import entries, entry, gzipped

from zkconsumer.testing.embedded.disk.storage import CLEAN_MARK
from zkconsumer.testing.embedded.kafka07.log import ByteLog, LogClosed
from zkconsumer.testing.embedded.kafka07.requests import InvalidSet, TooLarge, check
from zkconsumer.testing.embedded.kafka07.segment_list import (
    EARLIEST,
    LATEST,
    Extent,
    OutOfRange,
    count_expired,
    count_surplus,
    find,
    positions_before,
)
from zkconsumer.testing.embedded.kafka07.settings import BrokerSettings07, LogSettings07
from zkconsumer.testing.embedded.kafka07.storage import Storage07
from zkconsumer.testing.errors import KitError

THREE = [Extent(0, 100, 1_000), Extent(100, 50, 2_000), Extent(150, 30, 3_000)]
NOW = 10_000


# -- the list of segments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("position", "number"), [(0, 0), (99, 0), (100, 1), (149, 1), (150, 2), (179, 2), (180, None)])
def test_a_position_is_in_one_segment(position: int, number: int | None) -> None:
    assert find(THREE, position) == number


@pytest.mark.parametrize("position", [-1, 181])
def test_positions_outside_are_out_of_range(position: int) -> None:
    with pytest.raises(OutOfRange, match=f"position {position} is not within 0 to 180"):
        find(THREE, position)


def test_an_empty_segment_at_the_end_is_the_end() -> None:
    assert find([*THREE, Extent(180, 0, 4_000)], 180) is None
    assert find([Extent(7, 0, 1)], 7) is None


@pytest.mark.parametrize(("retention_ms", "count"), [(9_001, 0), (9_000, 0), (8_999, 1), (7_999, 2), (6_999, 3)])
def test_segments_expire_from_the_oldest_on(retention_ms: int, count: int) -> None:
    assert count_expired(THREE, NOW, retention_ms) == count


def test_a_young_segment_protects_the_older_ones_behind_it() -> None:
    assert count_expired([Extent(0, 1, 9_999), Extent(1, 1, 0)], NOW, 100) == 0


@pytest.mark.parametrize(
    ("retention_bytes", "count"), [(-1, 0), (181, 0), (180, 0), (81, 0), (80, 1), (31, 1), (30, 2), (1, 2), (0, 3)]
)
def test_what_is_beyond_the_size_goes_in_whole_segments(retention_bytes: int, count: int) -> None:
    assert count_surplus(THREE, retention_bytes) == count


@pytest.mark.parametrize(
    ("time_ms", "most", "positions"),
    [
        (LATEST, 10, [180, 150, 100, 0]),
        (LATEST, 2, [180, 150]),
        (LATEST, 0, []),
        (EARLIEST, 10, [0]),
        (999, 10, []),
        (1_000, 10, [0]),
        (2_500, 10, [100, 0]),
        (NOW, 1, [180]),
    ],
)
def test_positions_by_time_go_by_the_last_write(time_ms: int, most: int, positions: list[int]) -> None:
    assert positions_before(THREE, time_ms, most, NOW) == positions


def test_the_end_of_an_empty_last_segment_is_its_start() -> None:
    assert positions_before([*THREE, Extent(180, 0, 4_000)], LATEST, 10, NOW) == [180, 150, 100, 0]


# -- sets -------------------------------------------------------------------------------------------------------------


def test_a_set_keeps_its_bytes_and_messages_are_counted_at_every_depth() -> None:
    nested = gzipped(entries(b"a") + gzipped(entries(b"b", b"c")) + entries(b"d"))
    data = entries(b"first") + entry(b"old", magic=0) + nested
    assert check(data, 1000) == (data, 6)
    assert check(data + data[:9], 1000) == (data, 6)
    assert check(b"", 1000) == (b"", 0)
    assert check(b"\0\0", 1000) == (b"", 0)


@pytest.mark.parametrize(
    "data",
    [
        entry(b"wrong", crc=1),
        entries(b"right") + entry(b"wrong", crc=1),
        entry(b"x", magic=2),
        struct.pack(">i", -1),
        entries(b"right") + struct.pack(">i", -1),
        struct.pack(">i", 100) + b"short",
        struct.pack(">i", 0) + bytes(9),
        struct.pack(">i", 5) + b"\1\0\0\0\0",
        entry(b"no gzip", attributes=1),
        entry(b"codec", attributes=3),
        gzipped(entry(b"wrong", crc=1)),
        gzipped(struct.pack(">i", 100) + b"short"),
    ],
)
def test_a_set_that_java_refuses_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidSet):
        check(data, 1000)


def test_the_limit_is_one_of_the_payload_of_outer_entries() -> None:
    assert check(entries(b"x" * 100), 100).messages == 1
    assert check(gzipped(entries(b"x" * 1000)), 100).messages == 1
    with pytest.raises(TooLarge, match="payload of 101 bytes, at most 100"):
        check(entries(b"small", b"x" * 101), 100)


def test_entries_nested_without_end_are_refused() -> None:
    data = entries(b"x")
    for _ in range(70):
        data = gzipped(data)
    with pytest.raises(InvalidSet, match="more than 64 deep"):
        check(data, 1_000_000)


# -- the log ----------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that stands."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def stored(log: ByteLog, position: int = 0, max_bytes: int = 1 << 20) -> bytes:
    found, length = log.read(position, max_bytes)
    with found:
        data = found.read()
    assert len(data) == length
    return data


def test_what_is_not_flushed_is_not_seen_and_a_count_or_a_time_flushes(tmp_path: Path) -> None:
    clock = Clock()
    log = ByteLog(tmp_path, "clicks", 0, LogSettings07(flush_messages=3, flush_ms=1000), clock=clock)
    first = entries(b"one", b"two")
    assert log.append(first) == 0
    assert (log.end, log.written_end, stored(log)) == (0, len(first), b"")
    with pytest.raises(OutOfRange):
        log.read(1, 10)
    assert log.append(entries(b"three")) == len(first)
    assert log.end == log.written_end == 41
    log.append(entries(b"four"))
    log.flush_if_due()
    assert log.end == 41
    clock.now_ms += 1000
    log.flush_if_due()
    assert log.end == log.written_end == 55


def test_segments_are_named_by_their_position_and_reads_stay_in_one(tmp_path: Path) -> None:
    log = ByteLog(tmp_path, "clicks", 0, LogSettings07(file_bytes=30))
    for value in (b"a" * 10, b"b" * 10, b"c" * 10, b"d"):
        log.append(entries(value))
    assert [path.name for path in log.segment_paths] == [f"{0:020d}.kafka", f"{40:020d}.kafka"]
    assert stored(log) == entries(b"a" * 10, b"b" * 10)
    assert stored(log, 40) == entries(b"c" * 10, b"d")
    assert stored(log, 40, 7) == entries(b"c" * 10)[:7]
    assert stored(log, log.end) == b""
    assert log.positions_before(EARLIEST, 1) == [0]
    assert log.positions_before(LATEST, 5) == [71, 40, 0]


def test_a_segment_rolls_by_the_age_of_its_first_append(tmp_path: Path) -> None:
    clock = Clock()
    log = ByteLog(tmp_path, "clicks", 0, LogSettings07(roll_ms=1000), clock=clock)
    log.append(entries(b"a"))
    clock.now_ms += 1001
    log.append(entries(b"b"))
    assert len(log.segment_paths) == 2


def test_retention_deletes_whole_segments_and_leaves_the_log_its_end(tmp_path: Path) -> None:
    log = ByteLog(tmp_path, "clicks", 0, LogSettings07(file_bytes=5, retention_bytes=30))
    for value in b"abcde":
        log.append(entries(bytes([value]) * 5))
    assert log.apply_retention() == 3
    assert (log.start, log.end) == (45, 75)
    held, _ = log.read(45, 100)
    with held:
        assert log.delete_head(70) == 60
        assert held.read() == entries(b"d" * 5)
    with pytest.raises(OutOfRange):
        log.read(45, 10)


def test_everything_may_go_and_the_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    clock = Clock()
    clock.now_ms = 1 << 50
    log = ByteLog(tmp_path, "clicks", 0, LogSettings07(retention_ms=1000), clock=clock)
    log.append(entries(b"old"))
    assert log.apply_retention() == 1
    assert (log.start, log.end) == (13, 13)
    assert log.apply_retention() == 0
    assert log.append(entries(b"new")) == 13
    assert stored(log, 13) == entries(b"new")


@pytest.mark.parametrize(
    "damage",
    [entry(b"wrong", crc=1), entries(b"cut")[:-1], b"\0\0", struct.pack(">i", 3) + b"123", entry(b"x", magic=7)],
)
def test_recovery_cuts_the_last_segment_at_the_first_bad_entry(tmp_path: Path, damage: bytes) -> None:
    log = ByteLog(tmp_path, "clicks", 0, LogSettings07(file_bytes=30))
    for value in (b"a" * 30, b"b", b"c"):
        log.append(entries(value))
    log.close()
    path = log.segment_paths[-1]
    path.write_bytes(path.read_bytes() + damage + entries(b"behind"))
    again = ByteLog(tmp_path, "clicks", 0, recover=True)
    assert again.end == 40 + 22
    assert stored(again, 40) == entries(b"b", b"c")
    again.close()
    path.write_bytes(path.read_bytes() + damage)
    assert ByteLog(tmp_path, "clicks", 0).end == 62 + len(damage)


def test_a_gap_between_files_is_an_error_that_names_both(tmp_path: Path) -> None:
    log = ByteLog(tmp_path, "clicks", 0, LogSettings07(file_bytes=5))
    for value in (b"a", b"b", b"c"):
        log.append(entries(value))
    log.close()
    log.segment_paths[1].unlink()
    with pytest.raises(KitError, match=r"000\.kafka ends at 11, and .*022\.kafka follows it"):
        ByteLog(tmp_path, "clicks", 0)


def test_a_closed_log_is_neither_read_nor_written(tmp_path: Path) -> None:
    log = ByteLog(tmp_path, "clicks", 0, LogSettings07(flush_messages=100))
    log.append(entries(b"a"))
    log.close(flush=False)
    calls = (lambda: log.append(entries(b"b")), lambda: log.read(0, 1), log.flush, lambda: log.positions_before(-1, 1))
    for call in calls:
        with pytest.raises(LogClosed):
            call()


def test_a_log_can_be_cut_and_damaged(tmp_path: Path) -> None:
    log = ByteLog(tmp_path, "clicks", 0, LogSettings07(file_bytes=20))
    for value in (b"a" * 5, b"b" * 5, b"c" * 5):
        log.append(entries(value))
    log.corrupt(16)
    data = stored(log)
    assert data[:15] == entries(b"a" * 5)
    with pytest.raises(InvalidSet):
        check(data[15:], 100)
    with pytest.raises(ValueError, match="does not hold position 45"):
        log.corrupt(45)
    log.truncate(15)
    assert (log.end, stored(log)) == (15, entries(b"a" * 5))


# -- the folder and its settings --------------------------------------------------------------------------------------


def test_a_clean_stop_leaves_the_mark_and_a_crash_is_recovered(tmp_path: Path) -> None:
    settings = BrokerSettings07()
    storage = Storage07(tmp_path, settings)
    log, is_first = storage.find_or_make("clicks", 1)
    assert is_first
    assert storage.find_or_make("clicks", 1) == (log, False)
    assert not storage.find_or_make("clicks", 0)[1]
    log.append(entries(b"a"))
    with pytest.raises(KitError, match="belongs to another running broker"):
        Storage07(tmp_path, settings)
    storage.close(clean=True)
    assert (tmp_path / CLEAN_MARK).exists()
    path = log.segment_paths[0]
    path.write_bytes(path.read_bytes() + b"rubbish")
    clean = Storage07(tmp_path, settings)
    assert not (tmp_path / CLEAN_MARK).exists()
    assert clean.logs["clicks", 1].end == 11 + 7
    clean.abandon()
    clean.close(clean=False)
    crashed = Storage07(tmp_path, settings)
    assert crashed.logs["clicks", 1].end == 11
    assert crashed.topics == ["clicks"]
    crashed.close(clean=True)


def test_logs_of_kafka_0_8_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "clicks-0").mkdir()
    (tmp_path / "clicks-0" / f"{0:020d}.log").touch()
    for _ in range(2):  # the folder is given back each time
        with pytest.raises(KitError, match=r"clicks-0 is a log of Kafka 0\.8"):
            Storage07(tmp_path, BrokerSettings07())


def test_settings_have_the_names_of_kafka_0_7() -> None:
    settings = BrokerSettings07.from_properties({
        "log.flush.interval": 500, "log.default.flush.interval.ms": "3000", "log.file.size": 4096,
        "num.partitions": 3, "topic.partition.count.map": "clicks:8, views:2", "log.retention.hours": 2,
        "log.retention.size": 100, "max.message.size": 10, "topic.log.retention.hours": "clicks:1",
        "topic.flush.intervals.ms": "clicks:5,other:7", "zk.sessiontimeout.ms": 1000,
    })  # fmt: skip
    assert settings.log == LogSettings07(
        file_bytes=4096, retention_ms=7_200_000, retention_bytes=100, flush_messages=500, flush_ms=3000,
        max_payload_bytes=10,
    )  # fmt: skip
    assert [settings.partitions_of(topic) for topic in ("clicks", "views", "other")] == [8, 2, 3]
    clicks = settings.log_of("clicks")
    assert (clicks.retention_ms, clicks.flush_ms, clicks.file_bytes) == (3_600_000, 5, 4096)
    assert settings.log_of("other").flush_ms == 7
    assert settings.log_of("views") == settings.log
    assert settings.session_timeout_ms == 1000


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"log.segment.bytes": 1}, r"know no setting 'log\.segment\.bytes'; known: log\.file\.size, "),
        ({"num.partitions": "many"}, r"num\.partitions is 'many': a number is needed"),
        ({"num.partitions": 0}, r"num\.partitions is 0: at least 1 is needed"),
        ({"topic.partition.count.map": "clicks"}, r"a list such as 'clicks:8,views:2' is needed"),
        ({"topic.partition.count.map": "clicks:0"}, r"topic\.partition\.count\.map of clicks is 0"),
    ],
)
def test_a_wrong_setting_is_named(properties: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BrokerSettings07.from_properties(properties)
