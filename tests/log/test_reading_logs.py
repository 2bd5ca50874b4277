"""Messages read from logs on disk: ranges, transactions, deleted records, ends of logs, and files that change."""

from __future__ import annotations

import errno
import os
import random
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from simpleconsumer import encode_message_set
from simpleconsumer.kafka011.record_encode import BatchProducer, encode_record_batch
from simpleconsumer.types import Message
from tests.log.test_drawn_faults import fields, findings, messages
from tests.log.written_logs import TOPIC, WrittenLog, all_messages, file_name, write_log
from zkconsumer.log import Damage, Gap, GapKind, LogFailed, LogReading, LogTail, open_log
from zkconsumer.log.checking import CheckedPartition, FileNote
from zkconsumer.log.transactions import aborted_of_index

KEY_OF_MARKER = {"abort": b"\0\0\0\0", "commit": b"\0\0\0\1"}


def sound(tmp_path: Path, form: str = "2", **how: object) -> WrittenLog:
    return write_log(tmp_path, random.Random(7), (form,), **how)  # type: ignore[arg-type]


def write(folder: Path, *entries: bytes, base: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(base)
    path.write_bytes(b"".join(entries))
    return path


def of_transaction(first: int, values: list[bytes], producer_id: int) -> bytes:
    return encode_record_batch(values, first_offset=first, timestamp_ms=5,
                               producer=BatchProducer(producer_id, 0, first, is_transactional=True))  # fmt: skip


def marker(offset: int, kind: str, producer_id: int) -> bytes:
    return encode_record_batch([(KEY_OF_MARKER[kind], b"\0\0\0\0\0\0")], first_offset=offset, timestamp_ms=5,
                               producer=BatchProducer(producer_id, 0, -1, is_transactional=True),
                               is_control=True)  # fmt: skip


def values(folder: Path, **how: object) -> list[bytes | None]:
    [partition] = open_log(folder).partitions
    found = LogReading(partition, 0, **how).events()  # type: ignore[arg-type]
    return [event.value for event in found if isinstance(event, Message)]


# -- ranges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["0", "1", "2"])
def test_any_range_of_offsets(tmp_path: Path, form: str) -> None:
    log = sound(tmp_path, form)
    every = list(all_messages(log.rows))
    draw = random.Random(1)
    disk = open_log(tmp_path)
    for _ in range(40):
        start, end = sorted(draw.choices(range(log.end + 2), k=2))
        found = list(disk.read_topic(TOPIC, start=start, end={0: end}))
        assert fields(found) == [row for row in every if start <= row[0] < end]


def test_what_a_disk_has_not_is_named(tmp_path: Path) -> None:
    sound(tmp_path)
    disk = open_log(tmp_path)
    with pytest.raises(LogFailed, match="topics with a log: clicks"):
        list(disk.read_topic("orders"))
    with pytest.raises(LogFailed, match="there is no log of clicks-7"):
        list(disk.read_topic(TOPIC, [7]))
    with pytest.raises(LogFailed, match="has no log"):
        open_log(tmp_path / "..")
    with pytest.raises(LogFailed, match="cannot be listed"):
        open_log(tmp_path / "nowhere")
    shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-2")
    with pytest.raises(LogFailed, match="one broker at a time"):
        open_log(tmp_path, tmp_path.parent / f"{tmp_path.name}-2").select(TOPIC)


def test_the_folder_of_a_partition_is_enough_and_its_checkpoints_count(tmp_path: Path) -> None:
    log = sound(tmp_path)
    [partition] = open_log(log.folder).partitions
    assert (partition.topic, partition.partition, partition.checkpoint.high_watermark) == (TOPIC, 0, log.end)


def test_folders_that_are_no_longer_a_partition_are_listed_and_not_read(tmp_path: Path) -> None:
    log = sound(tmp_path)
    for state in ("delete", "future", "stray"):
        shutil.copytree(log.folder, tmp_path / f"{TOPIC}-0.{'ab' * 16}-{state}")
    disk = open_log(tmp_path)
    assert [each.state for each in disk.partitions] == ["", "delete", "future", "stray"]
    assert len(list(disk.read_topic(TOPIC))) == len(list(all_messages(log.rows)))


# -- deleted, compacted, replaced --------------------------------------------------------------------------------------


def test_deleted_records_are_below_the_start_of_the_log(tmp_path: Path) -> None:
    log = sound(tmp_path)
    start = log.rows[3].first + 1
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {start}\n")
    every = list(all_messages(log.rows))
    assert fields(messages(log)) == [row for row in every if row[0] >= start]
    [gap] = [item for item in findings(log) if isinstance(item, Gap)]
    assert gap == Gap(GapKind.BELOW_LOG_START, 0, start - 1, start)


def test_a_stale_start_is_no_loss(tmp_path: Path) -> None:
    """A broker that was killed may have deleted segments since it wrote the checkpoint."""
    log = sound(tmp_path)
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 1\n")
    for file in log.files[:2]:
        log.path(file).unlink()
        log.path(file).with_suffix(".index").unlink()
    [gap] = [item for item in findings(log) if isinstance(item, Gap)]
    assert (gap.kind, gap.last_offset) == (GapKind.BELOW_LOG_START, log.base(log.files[2]) - 1)


def test_replaced_files_are_notes_and_a_swapped_one_is_read(tmp_path: Path) -> None:
    log = sound(tmp_path)
    for suffix in ("deleted", "cleaned"):
        shutil.copy(log.path(log.files[0]), log.folder / f"{log.files[0]}.{suffix}")
    swapped = log.path(log.files[1])
    swapped.rename(swapped.with_name(f"{swapped.name}.swap"))
    found = findings(log)
    assert len([item for item in found if isinstance(item, FileNote)]) == 2
    assert not [item for item in found if isinstance(item, Damage)]
    assert fields(messages(log)) == list(all_messages(log.rows))


def test_what_compaction_left_is_counted_not_lost(tmp_path: Path) -> None:
    log = sound(tmp_path, "2", is_compacted=True, start=50)
    found = findings(log)
    [counted] = [item for item in found if isinstance(item, CheckedPartition)]
    missing = sum(item.missing for item in found if isinstance(item, Gap) and item.kind == GapKind.COMPACTED)
    assert missing == log.end - 50 - len(list(all_messages(log.rows)))
    assert (counted.damaged, counted.gaps) == (0, 0)


def test_holes_are_unexplained_where_nothing_says_that_the_log_was_compacted(tmp_path: Path) -> None:
    batches = [encode_record_batch([b"a"], first_offset=offset, timestamp_ms=5) for offset in (0, 1, 5, 6)]
    write(tmp_path / "clicks-0", *batches)
    [partition] = open_log(tmp_path).partitions
    [gap] = [event for event in partition.scan() if isinstance(event, Gap)]
    assert (gap.kind, gap.first_offset, gap.last_offset) == (GapKind.UNEXPLAINED, 2, 4)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nclicks 0 7\n")
    [partition] = open_log(tmp_path).partitions
    [gap] = [event for event in partition.scan() if isinstance(event, Gap)]
    assert (gap.kind, gap.missing) == (GapKind.COMPACTED, 3)


# -- transactions ------------------------------------------------------------------------------------------------------


def transactions(folder: Path) -> None:
    write(
        folder,
        of_transaction(0, [b"kept 1"], 1), of_transaction(1, [b"aborted"], 2),
        encode_record_batch([b"plain"], first_offset=2, timestamp_ms=5), marker(3, "abort", 2), marker(4, "commit", 1),
        of_transaction(5, [b"kept 2"], 2), marker(6, "commit", 2), of_transaction(7, [b"open"], 3),
        encode_record_batch([b"last"], first_offset=8, timestamp_ms=5),
    )  # fmt: skip


def test_only_what_was_committed(tmp_path: Path) -> None:
    transactions(tmp_path / "clicks-0")
    assert values(tmp_path) == [b"kept 1", b"aborted", b"plain", b"kept 2", b"open", b"last"]
    [partition] = open_log(tmp_path).partitions
    reading = LogReading(partition, 0, read_committed=True)
    found = [event.value for event in reading.events() if isinstance(event, Message)]
    assert found == [b"kept 1", b"plain", b"kept 2", b"last"]
    assert reading.left_out == 1
    [gap] = [event for event in partition.scan() if isinstance(event, Gap)]
    assert (gap.kind, gap.first_offset, gap.last_offset, gap.missing) == (GapKind.TRANSACTION, 3, 6, 3)


def test_the_index_says_what_a_damaged_marker_would(tmp_path: Path) -> None:
    folder = tmp_path / "clicks-0"
    entries = [of_transaction(0, [b"aborted"], 1), marker(1, "abort", 1), of_transaction(2, [b"kept"], 1),
               marker(3, "commit", 1)]  # fmt: skip
    damaged = bytearray(entries[1])
    damaged[-1] ^= 1
    path = write(folder, entries[0], bytes(damaged), *entries[2:])
    assert values(tmp_path, read_committed=True) == [b"aborted", b"kept"]
    row = (0).to_bytes(2, "big") + b"".join(number.to_bytes(8, "big") for number in (1, 0, 1, 4))
    assert aborted_of_index(row) == [(1, 0, 1)]
    path.with_suffix(".txnindex").write_bytes(row)
    assert values(tmp_path, read_committed=True) == [b"kept"]


# -- ends of logs ------------------------------------------------------------------------------------------------------


def without_mark(log: WrittenLog) -> None:
    (log.folder.parent / "replication-offset-checkpoint").unlink()


@pytest.mark.parametrize("form", ["07", "0", "1", "2"])
def test_room_that_a_broker_has_reserved_is_no_damage(tmp_path: Path, form: str) -> None:
    log = sound(tmp_path, form)
    path = log.path(log.files[-1])
    size = path.stat().st_size
    os.truncate(path, size + 1_000_000)
    found = findings(log)
    assert [item for item in found if isinstance(item, LogTail)] == [LogTail(size, size + 1_000_000, "zeros")]
    assert not [item for item in found if isinstance(item, Damage)]


@pytest.mark.parametrize("form", ["07", "0", "1", "2"])
def test_a_torn_write_is_no_damage_and_is_a_loss_if_it_was_replicated(tmp_path: Path, form: str) -> None:
    log = sound(tmp_path, form)
    path = log.path(log.files[-1])
    last = log.rows[-1]
    with open(path, "r+b") as file:
        file.truncate(last.end - 3)
    if form != "07":
        assert [item.kind for item in findings(log) if isinstance(item, Gap)] == [GapKind.DAMAGED]
        without_mark(log)
    found = findings(log)
    assert [item for item in found if isinstance(item, LogTail)] == [LogTail(last.start, last.end - 3, "torn")]
    assert not [item for item in found if isinstance(item, Damage | Gap)]
    assert len(messages(log)) == len(list(all_messages(log.rows[:-1])))


def test_zeros_in_the_middle_of_a_log_are_damage(tmp_path: Path) -> None:
    log = sound(tmp_path)
    path = log.path(log.files[0])
    size = path.stat().st_size
    os.truncate(path, size + 4096)
    [damage] = [item for item in findings(log) if isinstance(item, Damage)]
    assert (damage.start_byte, damage.end_byte, damage.first_offset) == (size, size + 4096, None)


def test_an_empty_segment_says_where_the_log_ends(tmp_path: Path) -> None:
    log = sound(tmp_path)
    without_mark(log)
    log.path(file_name(log.end)).touch()
    assert not [item for item in findings(log) if isinstance(item, Gap)]
    log.path(log.files[-1]).unlink()
    log.path(log.files[-1]).with_suffix(".index").unlink()
    [gap] = [item for item in findings(log) if isinstance(item, Gap)]
    assert (gap.kind, gap.first_offset, gap.last_offset) == (
        GapKind.SEGMENT_MISSING, log.base(log.files[-1]), log.end - 1
    )  # fmt: skip


# -- files and memory --------------------------------------------------------------------------------------------------


def test_pages_that_the_disk_cannot_read_are_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = sound(tmp_path, "2", files=1, entries=40)
    row = next(row for row in log.rows if row.start > 8192)
    page = row.start // 4096 * 4096
    pread = os.pread

    def failing(fd: int, size: int, position: int) -> bytes:
        if position < page + 4096 and page < position + size:
            raise OSError(errno.EIO, "Input/output error")
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", failing)
    touched = log.touched(row.file, page, page + 4096)
    [damage] = [item for item in findings(log) if isinstance(item, Damage)]
    assert (damage.start_byte, damage.end_byte) == (touched[0].start, touched[-1].end)
    assert damage.reason.startswith("the disk cannot read it")
    assert len(messages(log)) == len(list(all_messages([each for each in log.rows if each not in touched])))


def grow(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"x")


def shrink(path: Path) -> None:
    os.truncate(path, 10)


CHANGES = [(grow, "has grown"), (shrink, "become shorter"), (Path.unlink, "removed")]


@pytest.mark.parametrize(("change", "what"), CHANGES)
def test_a_file_that_changes_is_an_error(tmp_path: Path, change: Callable[[Path], None], what: str) -> None:
    log = sound(tmp_path)
    [partition] = open_log(tmp_path).partitions
    events = partition.scan()
    next(events)
    change(log.path(log.files[0]))
    with pytest.raises(LogFailed, match=rf"{what}.*read a copy"):
        list(events)


def test_a_file_that_is_gone_before_it_is_read(tmp_path: Path) -> None:
    log = sound(tmp_path)
    [partition] = open_log(tmp_path).partitions
    log.path(log.files[2]).unlink()
    with pytest.raises(LogFailed, match="no longer exists"):
        list(partition.scan())


@pytest.mark.parametrize("stated", [2**31 - 1, 150_000_000, 49, 0, -1])
def test_memory_is_bounded_whatever_a_size_says(tmp_path: Path, stated: int) -> None:
    good = encode_record_batch([b"a"], first_offset=0, timestamp_ms=5)
    bad = encode_record_batch([b"b" * 100, b"c"], first_offset=1, timestamp_ms=5)
    path = write(tmp_path / "clicks-0", good, bad[:8], stated.to_bytes(4, "big", signed=True), bad[12:80])
    os.truncate(path, 200_001_000)  # a sparse file, zeros behind
    with open(path, "r+b") as file:
        file.seek(200_000_000)
        file.write(b"x" * 1000)
    tracemalloc.start()
    [partition] = open_log(tmp_path).partitions
    [found] = [event for event in partition.scan() if isinstance(event, Damage | LogTail)]
    assert tracemalloc.get_traced_memory()[1] < 100_000_000
    tracemalloc.stop()
    # An entry that reaches beyond the end of the log looks like a write that was cut off.
    is_torn = isinstance(found, LogTail)
    assert is_torn == (stated > 200_001_000)
    assert tuple(found[:2] if is_torn else found[1:3]) == (len(good), 200_001_000)


def test_files_are_opened_for_reading_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = sound(tmp_path)
    flags: list[int] = []
    opened = os.open

    def watched(path: object, how: int, *rest: object, **more: object) -> int:
        flags.append(how)
        return opened(path, how, *rest, **more)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, "open", watched)
    for path in [*log.folder.iterdir(), log.folder, tmp_path]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert messages(log)
    assert flags
    assert not any(how & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) for how in flags)


def test_an_entry_whose_checksum_fits_and_that_cannot_be_decoded(tmp_path: Path) -> None:
    """A producer has sent it like this; those around it are read."""
    from simpleconsumer.kafka08.message_encode import encode_message

    broken = encode_message(1, None, b"no gzip", 0, 1)
    write(tmp_path / "clicks-0", encode_message_set([b"a"], first_offset=0), broken,
          encode_message_set([b"c"], first_offset=2))  # fmt: skip
    assert values(tmp_path) == [b"a", b"c"]
    [partition] = open_log(tmp_path).partitions
    [damage] = [event for event in partition.scan() if isinstance(event, Damage)]
    assert (damage.first_offset, damage.last_offset) == (1, 1)
