"""`zkconsumer log` as a user runs it: list, check, dump and groups, their lines and their status."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.types import HeaderMessage
from tests.log.written_logs import TOPIC, WrittenLog, all_messages, file_name, write_log
from zkconsumer.cli.program import program
from zkconsumer.testing.embedded.kafka011.group_records import (
    GroupRecord,
    OffsetKey,
    StoredOffset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(program, ["log", *map(str, arguments)])


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def sound(tmp_path: Path, *forms: str) -> WrittenLog:
    return write_log(tmp_path, random.Random(3), forms or ("2",))


def flip(log: WrittenLog, number: int = 1) -> None:
    row = log.rows[number]
    data = bytearray(log.path(row.file).read_bytes())
    data[row.end - 1] ^= 1
    log.path(row.file).write_bytes(data)


# -- list --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forms", [("07",), ("0",), ("1",), ("2",), ("0", "1", "2")])
def test_a_list_of_any_format(tmp_path: Path, forms: tuple[str, ...]) -> None:
    log = sound(tmp_path, *forms)
    result = run("list", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    [row] = json.loads(result.stdout)["partitions"]
    assert (row["topic"], row["partition"], row["segments"]) == (TOPIC, 0, len(log.files))
    assert (row["first_offset"], row["next_offset"], row["problems"]) == (0, log.end, [])
    assert row["size_bytes"] == sum(log.path(file).stat().st_size for file in log.files)
    assert row["formats"][0].startswith("0.7 magic 1" if forms == ("07",) else f"magic {forms[0]}")
    table = run("list", tmp_path)
    assert table.stdout.split("\n")[0].split()[:3] == ["TOPIC", "PARTITION", "FIRST"]
    assert TOPIC in table.stdout


@pytest.mark.parametrize("has_index", [True, False])
def test_a_list_names_what_heads_show(tmp_path: Path, has_index: bool) -> None:
    log = write_log(tmp_path, random.Random(3), ("2",), has_index=has_index)
    log.path(log.files[1]).unlink()
    [row] = json.loads(run("list", tmp_path, "--json").stdout)["partitions"]
    first, end = log.base(log.files[1]), log.base(log.files[2])
    assert row["problems"] == [f"offsets {first} to {end - 1} before {log.files[2]} are missing"]
    assert f"{TOPIC}-0: offsets {first}" in run("list", tmp_path).stderr


# -- check -------------------------------------------------------------------------------------------------------------


def test_a_check_of_a_sound_log(tmp_path: Path) -> None:
    log = sound(tmp_path)
    result = run("check", tmp_path)
    assert result.exit_code == 0, result.output
    counted, summary = lines(result)
    assert counted["type"] == "partition"
    assert (counted["messages"], counted["next_offset"]) == (len(list(all_messages(log.rows))), log.end)
    assert summary == {"type": "summary", "partitions": 1, "bytes": counted["size_bytes"], "damaged": 0, "gaps": 0,
                       "messages": counted["messages"], "status": "clean"}  # fmt: skip


def test_damage_and_a_missing_segment_are_named(tmp_path: Path) -> None:
    log = sound(tmp_path)
    flip(log)
    log.path(log.files[2]).unlink()
    result = run("check", tmp_path, "--topic", TOPIC, "--partition", "0")
    assert result.exit_code == 2
    row = log.rows[1]
    damage, damaged, missing, _, summary = lines(result)
    assert (damage["type"], damage["file"], damage["is_repaired"]) == ("damage", row.file, False)
    assert (damage["start_byte"], damage["end_byte"]) == (row.start, row.end)
    assert (damage["first_offset"], damage["last_offset"]) == (row.first, row.last)
    assert (damaged["type"], damaged["kind"], damaged["first_offset"]) == ("gap", "damaged", row.first)
    assert (missing["kind"], missing["first_offset"]) == ("segment_missing", log.base(log.files[2]))
    assert summary["status"] == "damage"


def test_a_missing_segment_alone_is_a_gap(tmp_path: Path) -> None:
    log = sound(tmp_path)
    log.path(log.files[2]).unlink()
    result = run("check", tmp_path)
    assert result.exit_code == 1
    assert lines(result)[-1]["status"] == "gaps"


def test_a_check_of_records_finds_what_no_checksum_shows(tmp_path: Path) -> None:
    folder = tmp_path / "clicks-0"
    folder.mkdir()
    batch = bytearray(encode_record_batch([b"a", b"b"], first_offset=0, timestamp_ms=5))
    batch[61] = 0x7E  # the length of the first record
    from simpleconsumer.codecs import crc32c

    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    (folder / file_name(0)).write_bytes(batch)
    assert run("check", tmp_path).exit_code == 0
    result = run("check", tmp_path, "--records")
    assert result.exit_code == 2
    assert lines(result)[0]["is_undecoded"]


def test_wrong_usage(tmp_path: Path) -> None:
    sound(tmp_path)
    assert "--partition needs --topic" in run("check", tmp_path, "--partition", "0").output
    assert "one of --json, --raw and --format" in run("dump", tmp_path, "--topic", TOPIC, "--raw", "--json").output
    assert "--null has no effect" in run("dump", tmp_path, "--topic", TOPIC, "--null", "x").output
    assert "Invalid value for --format" in run("dump", tmp_path, "--topic", TOPIC, "-f", "%!").output
    missing = run("dump", tmp_path, "--topic", "orders")
    assert (missing.exit_code, "there is no log of topic 'orders'" in missing.stderr) == (1, True)


# -- dump --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forms", [("07",), ("0",), ("1",), ("2",), ("0", "1", "2")])
def test_a_dump_holds_every_byte(tmp_path: Path, forms: tuple[str, ...]) -> None:
    log = sound(tmp_path, *forms)
    result = run("dump", tmp_path, "--topic", TOPIC)
    assert result.exit_code == 0, result.output

    def decoded(row: dict[str, Any], name: str) -> bytes | None:
        text = row[name]
        return None if text is None else base64.b64decode(text) if f"{name}_encoding" in row else text.encode()

    found = lines(result)
    every = list(all_messages(log.rows))
    assert [(decoded(row, "key"), decoded(row, "value")) for row in found] == [(row[1], row[2]) for row in every]
    if forms == ("07",):
        assert {row["partition_node"] for row in found} == {"0-0"}
    else:
        assert [row["offset"] for row in found] == [row[0] for row in every]
    assert result.stderr == f"Printed {len(every)} messages\n"


def test_dumps_of_a_range_in_every_form(tmp_path: Path) -> None:
    log = sound(tmp_path)
    rows = [row for row in all_messages(log.rows) if 3 <= row[0] < 6]
    given = ("dump", tmp_path, "--topic", TOPIC, "--from", "3", "--to", "6")
    assert [row["offset"] for row in lines(run(*given, "--json"))] == [3, 4, 5]
    null = b"null"
    assert run(*given, "--raw").stdout_bytes == b"".join((null if row[2] is None else row[2]) + b"\n" for row in rows)
    assert run(*given, "-f", r"%t/%p/%o\n").stdout == "clicks/0/3\nclicks/0/4\nclicks/0/5\n"
    assert len(lines(run(*given, "--max-messages", "2"))) == 2


def test_a_dump_goes_on_behind_damage_and_says_so(tmp_path: Path) -> None:
    log = sound(tmp_path)
    flip(log)
    log.path(log.files[2]).unlink()
    result = run("dump", tmp_path, "--topic", TOPIC)
    assert result.exit_code == 1
    kept = [row for row in log.rows if row is not log.rows[1] and row.file != log.files[2]]
    assert [row["offset"] for row in lines(result)] == [row[0] for row in all_messages(kept)]
    row = log.rows[1]
    assert f"{row.file}, bytes {row.start} to {row.end}: " in result.stderr
    assert f"offsets {row.first} to {row.last} are lost" in result.stderr
    assert f"before {log.files[3]} are missing (segment_missing)" in result.stderr


def test_headers_are_dumped_in_their_order(tmp_path: Path) -> None:
    folder = tmp_path / "clicks-0"
    folder.mkdir()
    message = HeaderMessage("clicks", 0, 0, 1, b"k", b"v", 5, (("a", b"1"), ("a", None), ("b", b"\xff")))
    (folder / file_name(0)).write_bytes(encode_record_batch([message], first_offset=0))
    [row] = lines(run("dump", tmp_path, "--topic", "clicks"))
    assert row["headers"] == [{"key": "a", "value": "1"}, {"key": "a", "value": None},
                              {"key": "b", "value": "/w==", "value_encoding": "base64"}]  # fmt: skip


# -- groups ------------------------------------------------------------------------------------------------------------


def group_records() -> list[tuple[bytes | None, bytes | None]]:
    """Offsets in each version, a tombstone, a group, a group of Kafka 4, and records that cannot be read."""
    rows: list[tuple[bytes | None, bytes | None]] = []
    for version in range(5):
        key = OffsetKey("billing", f"version-{version}", version)
        for offset in (5, 10 + version):
            stored = StoredOffset(offset, f"note {version}", 3 if version > 2 else -1, 1_700_000_000_000)
            rows.append((encode_offset_key(key), encode_offset(stored, version, bytes(16))))
    gone = encode_offset_key(OffsetKey("billing", "gone", 0))
    rows += [(gone, encode_offset(StoredOffset(1), 1)), (gone, None)]
    rows.append((b"\0\0" + encode_offset_key(OffsetKey("old", "clicks", 0))[2:], encode_offset(StoredOffset(7), 0)))
    rows.append((encode_group_key("billing"), encode_group(GroupRecord("consumer", 3, None, None), 3)))
    rows += [(b"\0\3\0\1g", b"\0\0"), (b"\0\10", None), (b"\0\1\0\x7fx", b""), (None, b"x"),
             (encode_offset_key(OffsetKey("new", "t", 0)), b"\0\x63" + bytes(20))]  # fmt: skip
    return rows


def test_positions_of_groups_in_every_version(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-7"
    folder.mkdir()
    (folder / file_name(0)).write_bytes(b"".join(
        encode_record_batch([row], first_offset=offset, timestamp_ms=5) for offset, row in enumerate(group_records())
    ))  # fmt: skip
    result = run("groups", tmp_path, "--json")
    assert result.exit_code == 1  # of three records nothing can be made
    assert "3 records of __consumer_offsets cannot be read" in result.stderr
    found = json.loads(result.stdout)["offsets"]
    assert [(row["group"], row["topic"], row["offset"]) for row in found] == [
        *(("billing", f"version-{version}", 10 + version) for version in range(5)), ("old", "clicks", 7),
    ]  # fmt: skip
    assert found[4]["leader_epoch"] == 3
    assert found[4]["metadata"] == "note 4"
    assert {row["commit_ms"] for row in found[:5]} == {1_700_000_000_000}
    table = run("groups", tmp_path, "--group", "old").stdout
    assert "clicks" in table
    assert "billing" not in table


def test_groups_without_their_topic(tmp_path: Path) -> None:
    sound(tmp_path)
    result = run("groups", tmp_path)
    assert (result.exit_code, "offsets may be in ZooKeeper" in result.stderr) == (1, True)
