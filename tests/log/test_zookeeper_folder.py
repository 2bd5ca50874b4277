"""Positions of groups in data folders of ZooKeeper: as a server finds them there, and what damage costs."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import struct
import time
from pathlib import Path
from typing import Any, Final
from zlib import adler32

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.retry import KazooRetry

from tests.log.written_logs import write_log
from zkconsumer.cli.program import program
from zkconsumer.log import zookeeper_files
from zkconsumer.log.zookeeper_files import LogFault, TransactionLog, TreeTransaction
from zkconsumer.log.zookeeper_folder import ZooKeeperPositions, is_zookeeper_folder, read_positions
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

SERVERS: Final = {
    "3.9": (None, ()),
    "3.9 gz": (None, ("-Dzookeeper.snapshot.compression.method=gz",)),
    "3.9 snappy": (None, ("-Dzookeeper.snapshot.compression.method=snappy",)),
    "3.4.14": ("zk-3.4.14", ()),
    "3.3.6": ("zk-3.3.6", ()),
}
CHANGES: Final = 4000
SNAPSHOT_CHANGES: Final = 400
ROOTS: Final = ("", "/kafka")
Found = dict[str, dict[tuple[str, str, int | str], tuple[int, int]]]


def offset_path(draw: random.Random) -> str:
    root, group, topic = draw.choice(ROOTS), draw.randrange(6), draw.randrange(8)
    partition = draw.choice(("0", "1", "7-0", "7-12"))
    return f"{root}/consumers/group é{group}/offsets/topic{topic}/{partition}"


def change(client: KazooClient, draw: random.Random, paths: set[str], *, has_multi: bool) -> list[Any]:
    """Start some changes, most of them of offsets; return what to wait for."""
    path, value, kind = offset_path(draw), b"%d" % draw.randrange(2**40), draw.random()
    if path not in paths:
        paths.add(path)
        return [client.create_async(path, value, makepath=True)]
    if kind < 0.02 and has_multi:
        transaction = client.transaction()
        transaction.set_data(path, value)
        transaction.create(f"/none/{value.decode()}" if kind < 0.01 else f"/other/{draw.random()}")
        return [transaction.commit_async()]
    if kind < 0.05:
        paths.discard(path)
        return [client.delete_async(path)]
    if kind < 0.1:
        return [client.create_async(path, value), client.set_async(path, value, version=1_000_000)]  # both fail
    if kind < 0.15:
        return [client.create_async(f"/other/{draw.random()}", draw.randbytes(2000), ephemeral=kind < 0.12)]
    return [client.set_async(path, value)]


def fill(server: ZooKeeperServer, seed: int, *, has_multi: bool) -> None:
    """Write thousands of changes, and kill the server while more of them are on the way."""
    draw, paths = random.Random(seed), set[str]()
    client = KazooClient(server.connect, timeout=30)
    client.start(timeout=30)
    client.ensure_path("/other")
    for root in ROOTS:
        client.ensure_path(f"{root}/consumers")
    started: list[Any] = []
    for number in range(CHANGES):
        started += change(client, draw, paths, has_multi=has_multi)
        if number % 200 == 199 and number < CHANGES - 500:
            for each in started:
                each.wait(30)
            started = []
    wait_until(lambda: any(each.ready() for each in started[-200:]), 30, "the last changes to begin")
    server.kill()
    client.stop()
    client.close()


def served(server: ZooKeeperServer) -> Found:
    """The positions that a server has, and when they were written."""
    client = KazooClient(server.connect, timeout=30)
    client.start(timeout=30)
    found: Found = {}
    for root in ROOTS:
        for group in client.get_children(f"{root}/consumers"):
            try:
                topics = client.get_children(f"{root}/consumers/{group}/offsets")
            except KazooException:
                continue
            for topic in topics:
                folder = f"{root}/consumers/{group}/offsets/{topic}"
                for name in client.get_children(folder):
                    data, stat = client.get(f"{folder}/{name}")
                    partition = int(name) if name.isdigit() else name
                    found.setdefault(root, {})[group, topic, partition] = int(data), stat.mtime
    client.stop()
    client.close()
    return found


def read(found: ZooKeeperPositions) -> Found:
    return {
        root: {(row.group, row.topic, row.partition): (row.offset, row.commit_ms) for row in rows}
        for root, rows in found.positions.items()
    }


@pytest.mark.real
@pytest.mark.parametrize("name", ["3.9", *(pytest.param(name, marks=pytest.mark.slow) for name in list(SERVERS)[1:])])
def test_a_killed_server_finds_the_same_in_its_folder(tmp_path: Path, name: str) -> None:
    version, flags = SERVERS[name]
    data, log = tmp_path / "data", tmp_path / "log"
    log.mkdir()  # 3.3 makes none
    with ZooKeeperServer(
        version=version, data=data, settings={"dataLogDir": log},
        jvm_flags=(f"-Dzookeeper.snapCount={SNAPSHOT_CHANGES}", "-Dzookeeper.preAllocSize=128", *flags),
    ) as server:  # fmt: skip
        for seed in range(2):  # the second time in the folder of a server that was killed
            fill(server, seed, has_multi=version != "zk-3.3.6")
            copies = [shutil.copytree(folder, tmp_path / f"{folder.name}-{seed}") for folder in (data, log)]
            found = read_positions(copies)
            assert found.faults == []
            assert found.unreadable == {}
            server.start()
            assert read(found) == served(server)
        names = {path.name.partition(".")[2].partition(".")[2] for path in (data / "version-2").glob("snapshot.*")}
        assert names - {""} == set(name.split()[1:])
        assert len(list((data / "version-2").glob("snapshot.*"))) > 3


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("version", [None, "zk-3.4.14", "zk-3.3.6"])
def test_members_of_an_ensemble_whose_leaders_are_killed(version: str | None) -> None:
    """Each leader counts anew, and members that were away get a snapshot of another one, or what they have missed."""
    written: dict[str, int] = {}
    flags = ("-Dzookeeper.snapCount=60", "-Dzookeeper.preAllocSize=128")
    with ZooKeeperEnsemble(version=version, jvm_flags=flags) as ensemble:
        retry = KazooRetry(max_tries=-1, max_delay=0.5, deadline=60)
        client = KazooClient(ensemble.connect, timeout=30, connection_retry=retry, command_retry=retry)
        client.start(timeout=30)
        client.ensure_path("/consumers/billing/offsets/clicks")

        def write() -> None:
            for number in range(100):
                path = node(number % 7)
                client.retry(client.ensure_path, path)
                client.retry(client.set, path, b"%d" % (written.get(path, 0) + 1))
                written[path] = written.get(path, 0) + 1

        for number in range(4):
            write()
            leader = ensemble.leader()
            leader.kill()
            if number % 2 == 0:  # so many that it gets a snapshot, or few
                write()
            if number == 2:
                leader.wipe()
            leader.start()
        write()
        for member in ensemble:
            member.kill()
        client.stop()
        client.close()
        found = [read_positions([member.folder / "data"]) for member in ensemble]
    assert [each.faults for each in found] == [[], [], []]
    assert max(each.zxid >> 32 for each in found) > 4
    rows = [{node(row.partition): row.offset for row in each.positions[""]} for each in found]  # type: ignore[arg-type]
    assert rows.count(written) >= 2  # a leader waits for no more


# -- folders that are written here -------------------------------------------------------------------------------------

FIRST_MS: Final = 1_700_000_000_000


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">i", len(data)) + data


def frame(zxid: int, kind: int, body: bytes, *, checksum: int | None = None) -> bytes:
    data = struct.pack(">qiqqi", 7, 1, zxid, FIRST_MS + zxid, kind) + body
    return struct.pack(">QI", adler32(data) if checksum is None else checksum, len(data)) + data + b"B"


def position(zxid: int, path: str, value: bytes = b"5") -> bytes:
    return frame(zxid, 5, text(path) + text(value) + struct.pack(">i", 1))


def written_log(folder: Path, first: int, *frames: bytes, zeros: int = 1000) -> Path:
    path = folder / "version-2" / f"log.{first:x}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(">4siq", b"ZKLG", 2, 0) + b"".join(frames) + bytes(zeros))
    return path


def written_snapshot(folder: Path, zxid: int, nodes: dict[str, bytes]) -> Path:
    path = folder / "version-2" / f"snapshot.{zxid:x}"
    path.parent.mkdir(parents=True, exist_ok=True)
    stat = struct.pack(">qqqqqiiiqq", -1, 1, 1, 1, FIRST_MS, 0, 0, 0, 0, 1)
    data = struct.pack(">4siqiqi", b"ZKSN", 2, -1, 1, 7, 100)
    data += struct.pack(">iqii", 1, 1, 1, 31) + text("world") + text("anyone")
    data += b"".join(text(name) + text(value) + stat for name, value in {"": b"", **nodes}.items()) + text("/")
    path.write_bytes(data + struct.pack(">q", adler32(data)) + text("/"))
    return path


def node(number: int) -> str:
    return f"/consumers/billing/offsets/clicks/{number}"


def frames(first: int, count: int) -> list[bytes]:
    return [position(zxid, node(zxid), b"%d" % (100 + zxid)) for zxid in range(first, first + count)]


def offsets(folder: Path) -> dict[int | str, int]:
    return {row.partition: row.offset for row in read_positions([folder]).positions.get("", [])}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(program, ["log", "groups", *map(str, arguments)])


def test_a_snapshot_and_what_came_after_it(tmp_path: Path) -> None:
    written_log(tmp_path, 1, *frames(1, 3))
    written_snapshot(tmp_path, 3, {node(1): b"101", node(2): b"102", node(3): b"99", "/consumers/billing": b"x"})
    written_log(tmp_path, 4, position(4, node(2), b"200"), frame(5, 2, text(node(1))))
    found = read_positions([tmp_path])
    assert (found.faults, found.notes, found.zxid, found.time_ms) == ([], [], 5, FIRST_MS + 5)
    assert [(row.partition, row.offset, row.commit_ms) for row in found.positions[""]] == [
        (2, 200, FIRST_MS + 4), (3, 99, FIRST_MS),
    ]  # fmt: skip


def test_all_of_a_multi_or_none(tmp_path: Path) -> None:
    def multi(zxid: int, *parts: tuple[int, bytes]) -> bytes:
        body = struct.pack(">i", len(parts)) + b"".join(struct.pack(">i", kind) + text(data) for kind, data in parts)
        return frame(zxid, 14, body)

    good = (5, text(node(1)) + text("7") + bytes(4))
    written_log(tmp_path, 1, multi(1, good, (13, text("/x") + bytes(4))),
                multi(2, (5, text(node(1)) + text("8") + bytes(4)), (-1, bytes(4))))  # fmt: skip
    assert offsets(tmp_path) == {1: 7}


def test_the_last_transaction_that_was_cut_off_is_a_note(tmp_path: Path) -> None:
    whole = b"".join(frames(1, 5))
    last = len(frames(5, 1)[0])
    for cut in range(1, last):
        for zeros in (0, 500):
            path = written_log(tmp_path / f"{cut}-{zeros}", 1, whole[:-cut], zeros=zeros)
            found = read_positions([tmp_path / f"{cut}-{zeros}"])
            assert found.faults == []
            # Checksums start with four zeros, and zeros are room that the server has reserved.
            assert [str(path) in note for note in found.notes] == [True] * (last - cut > 4)
            assert len(found.positions[""]) == 4


def test_damage_in_a_log_is_named_and_the_rest_is_applied(tmp_path: Path) -> None:
    every = frames(1, 8)
    start = 16 + sum(map(len, every[:3]))
    for at in range(len(every[3])):
        folder = tmp_path / str(at)
        data = bytearray(b"".join(every))
        data[start - 16 + at] ^= 0x40
        written_log(folder, 1, bytes(data))
        found = read_positions([folder])
        assert f"bytes {start} to {start + len(every[3])}" in found.faults[0], at
        assert "transactions 0x4 to 0x4 are missing" in found.faults[1]
        assert len(found.positions[""]) == 7


def test_the_last_transaction_with_a_wrong_checksum_is_damage(tmp_path: Path) -> None:
    written_log(tmp_path, 1, *frames(1, 2), frame(3, 5, text(node(3)) + text("1") + bytes(4), checksum=5))
    found = read_positions([tmp_path])
    assert ("Adler-32" in found.faults[0], found.notes) == (True, [])


def test_an_older_snapshot_counts_if_the_newest_is_damaged(tmp_path: Path) -> None:
    written_snapshot(tmp_path, 2, {node(1): b"101"})
    written_log(tmp_path, 3, *frames(3, 2))
    path = written_snapshot(tmp_path, 4, {node(1): b"101", node(3): b"103", node(4): b"104"})
    whole = path.read_bytes()
    draw = random.Random(1)
    for number in range(60):
        data = bytearray(whole)
        at = draw.randrange(16, len(data) - 5)
        data[at] ^= 1 << draw.randrange(8)
        path.write_bytes(data[: draw.randrange(1, len(data) - 20)] if number % 3 == 0 else data)
        found = read_positions([tmp_path])
        assert ["snapshot.4 is no whole snapshot" in note for note in found.notes] == [True]
        assert found.faults == []
        assert offsets(tmp_path) == {1: 101, 3: 103, 4: 104}
    written_log(tmp_path, 3, *frames(3, 1))
    [fault] = read_positions([tmp_path]).faults
    assert fault == "transactions 0x4 to 0x4 are in no sound file"


def test_a_log_that_is_missing_is_named(tmp_path: Path) -> None:
    written_snapshot(tmp_path, 2, {})
    written_log(tmp_path, 3, *frames(3, 2))
    written_log(tmp_path, 9, *frames(9, 2))
    written_log(tmp_path, 0x100000001, *frames(0x100000001, 2))  # another leader
    found = read_positions([tmp_path])
    assert [fault.partition(": ")[2] for fault in found.faults] == ["transactions 0x5 to 0x8 are missing there"]


def test_a_file_that_is_lost_between_two_leaders_is_named(tmp_path: Path) -> None:
    written_log(tmp_path, 0x100000001, *frames(0x100000001, 9))
    written_snapshot(tmp_path, 0x100000005, {})
    written_log(tmp_path, 0x400000003, *frames(0x400000003, 2))  # leaders 2 and 3 may have changed nothing
    [fault] = read_positions([tmp_path]).faults
    assert "log.400000003: transactions 0x400000001 to 0x400000002 are missing there" in fault
    written_log(tmp_path, 0x400000001, *frames(0x400000001, 2))
    assert read_positions([tmp_path]).faults == []


def test_a_snapshot_alone_is_older_than_the_last_commits(tmp_path: Path) -> None:
    written_snapshot(tmp_path, 0, {})
    assert read_positions([tmp_path]).faults == []  # a server that was never used
    written_snapshot(tmp_path, 5, {node(1): b"1"})
    [fault] = read_positions([tmp_path]).faults
    assert fault.endswith("nothing after snapshot.5 is read: give the dataLogDir of the server, too")
    assert offsets(tmp_path) == {1: 1}


@pytest.mark.parametrize(("epoch", "faults"), [(0, 0), (1, 0), (2, 1)])
def test_logs_alone_have_all_only_of_the_first_leader(tmp_path: Path, epoch: int, faults: int) -> None:
    first = (epoch << 32) + 1
    written_log(tmp_path, first, *frames(first, 2))
    said = read_positions([tmp_path]).faults
    assert [fault.endswith(f"transaction {first:#x}: give the dataDir of the server, too") for fault in said] == [
        True
    ] * faults


def test_a_snapshot_without_its_end_mark_is_not_whole(tmp_path: Path) -> None:
    written_log(tmp_path, 1, *frames(1, 2))
    path = written_snapshot(tmp_path, 2, {node(1): b"101", node(2): b"102"})
    whole = path.read_bytes()
    for data in (whole[:-5], whole[:-1], whole[:-1] + b"x", whole[:-5] + bytes(5)):
        path.write_bytes(data)
        found = read_positions([tmp_path])
        assert ["snapshot.2 is no whole snapshot" in note for note in found.notes] == [True]
        assert offsets(tmp_path) == {1: 101, 2: 102}


def fail_to_read(monkeypatch: pytest.MonkeyPatch, first_page: int, pages: int) -> None:
    """Have the disk fail where these pages of a file are read."""
    pread, start, end = os.pread, first_page * 4096, (first_page + pages) * 4096

    def failing(fd: int, size: int, position: int) -> bytes:
        if position < end and start < position + size:
            raise OSError(errno.EIO, "Input/output error")
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", failing)


@pytest.mark.parametrize("where", ["the last transactions", "the room behind them", "some between"])
def test_pages_of_a_log_that_the_disk_cannot_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    every = frames(1, 100)
    size = 16 + sum(map(len, every))
    page = {"the last transactions": size // 4096, "the room behind them": size // 4096 + 1, "some between": 1}[where]
    path = written_log(tmp_path, 1, *every, zeros=3 * 4096)
    fail_to_read(monkeypatch, page, 2 if where == "the room behind them" else 1)
    found = read_positions([tmp_path])
    assert found.notes == []
    end = page * 4096 + (8192 if where == "the room behind them" else 4096)
    said = f"{path}: the disk cannot read bytes {page * 4096} to {end}; what was there is not in the positions"
    assert said in found.faults
    assert (len(found.positions[""]) == 100) is (where == "the room behind them")


def test_a_page_of_a_snapshot_that_the_disk_cannot_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written_snapshot(tmp_path, 0, {node(1): b"1" * 60, node(2): b"x" * 9000})
    fail_to_read(monkeypatch, 1, 1)
    [note] = read_positions([tmp_path]).notes
    assert note.startswith(f"{path} is no whole snapshot: ")
    assert note.endswith("; the disk cannot read bytes 4096 to 8192; only the logs are read")


class CountedLog(TransactionLog):
    """A log that counts the places at which it looks for a transaction."""

    tried = 0

    def _frame(self, position: int) -> tuple[TreeTransaction, int] | str:
        self.tried += 1
        return super()._frame(position)


def counted(data: bytes) -> tuple[CountedLog, list[TreeTransaction | LogFault]]:
    log = CountedLog(lambda at, count: data[at : at + count], len(data))
    return log, list(log)


HEAD: Final = struct.pack(">4siq", b"ZKLG", 2, 0)


def test_zeros_behind_a_torn_transaction_are_not_tried() -> None:
    sound, torn = HEAD + b"".join(frames(1, 2)), frames(3, 1)[0][:40]
    log, found = counted(sound + torn + bytes(4_000_000))
    assert log.tried < 100
    [fault] = found[2:]
    assert isinstance(fault, LogFault)
    assert (fault.start, fault.end, fault.is_torn) == (len(sound), len(sound) + 40 + 4_000_000, True)


def test_what_looks_like_transactions_ends_the_search_with_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sound transactions behind it were acknowledged."""
    monkeypatch.setattr(zookeeper_files, "_TRIED_BYTES", 0)
    made = (bytes(4) + b"BBBB" + struct.pack(">I", 60_004)) * 20_000  # each has its end mark
    log, found = counted(HEAD + frames(1, 1)[0] + made + b"".join(frames(2, 3)))
    assert log.tried < 1000
    [fault] = found[1:]
    assert isinstance(fault, LogFault)
    assert (fault.is_torn, fault.end) == (False, log._size)
    assert "too much behind it looks like transactions" in fault.reason


def test_each_place_that_is_tried_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_files, "_TRIED_BYTES", 0)
    monkeypatch.setattr(zookeeper_files, "_TRIED_A_BYTE", 4)
    made = (bytes(4) + b"abcd" + struct.pack(">I", 60_000)) * 5_000
    log, found = counted(HEAD + made)
    assert log.tried < 4 * len(made) / 64
    assert [item.is_torn for item in found if isinstance(item, LogFault)] == [False]


def test_a_log_with_much_damage_is_read_once() -> None:
    every = frames(1, 4000)
    data = HEAD + b"".join(bytes([frame[0] ^ 1]) + frame[1:] if at % 2 else frame for at, frame in enumerate(every))
    read: list[int] = []
    found = list(TransactionLog(lambda at, count: read.append(count) or data[at : at + count], len(data)))  # type: ignore[func-returns-value]
    assert [item.zxid for item in found if isinstance(item, TreeTransaction)] == list(range(1, 4001, 2))
    assert sum(read) < 3 * len(data)


@pytest.mark.parametrize("kind", ["heads", "noise", "zeros and noise"])
def test_hostile_logs_take_no_longer(tmp_path: Path, kind: str) -> None:
    draw, size = random.Random(1), 2_000_000
    data = {
        "heads": b"\0\0\0\0abcd" + struct.pack(">I", 60_000),
        "noise": draw.randbytes(size), "zeros and noise": bytes(8) + draw.randbytes(8) + bytes(8),
    }[kind]  # fmt: skip
    path = written_log(tmp_path, 1, *frames(1, 2), (data * (size // len(data) + 1))[:size])
    begin = time.process_time()
    found = list(TransactionLog(lambda at, count: path.read_bytes()[at : at + count], path.stat().st_size))
    assert time.process_time() - begin < 10
    assert [item.zxid for item in found if isinstance(item, TreeTransaction)] == [1, 2]


def test_the_command_prints_the_same_json_for_both_stores(tmp_path: Path) -> None:
    written_log(tmp_path / "zookeeper", 1, position(1, node(0)), position(2, node(0).replace("/0", "/7-3"), b"900"),
                position(3, node(1), b"none"), position(4, "/consumers/other/offsets/clicks/0"))  # fmt: skip
    result = run(tmp_path / "zookeeper", "--json", "--group", "billing")
    assert result.exit_code == 1
    assert "/consumers/billing/offsets/clicks/1 is no offset" in result.stderr
    expected = {"group": "billing", "topic": "clicks", "leader_epoch": -1, "metadata": "", "store": "zookeeper"}
    assert json.loads(result.stdout)["offsets"] == [
        {**expected, "partition": 0, "offset": 5, "commit_ms": FIRST_MS + 1},
        {**expected, "partition": None, "partition_node": "7-3", "offset": 900, "commit_ms": FIRST_MS + 2},
    ]
    table = run("--zookeeper-data", tmp_path / "zookeeper")
    assert "7-3" in table.stdout


def test_paths_of_several_clusters(tmp_path: Path) -> None:
    written_log(tmp_path, 1, position(1, node(0)), position(2, f"/kafka{node(0)}", b"6"))
    both = run("--zookeeper-data", tmp_path)
    assert (both.exit_code, "several paths have offsets of groups: /, /kafka" in both.stderr) == (1, True)
    one = run("--zookeeper-data", tmp_path, "--zookeeper-path", "/kafka/", "--json")
    assert [row["offset"] for row in json.loads(one.stdout)["offsets"]] == [6]
    none = run("--zookeeper-data", tmp_path, "--zookeeper-path", "/x")
    assert (none.exit_code, "paths with offsets: /, /kafka" in none.stderr) == (1, True)


def test_faults_are_said_although_there_is_no_position(tmp_path: Path) -> None:
    path = written_log(tmp_path, 1, position(1, "/a"), position(2, node(0), b"none"), position(4, "/b"))
    result = run(tmp_path)
    assert result.exit_code == 1
    said = result.stderr.splitlines()
    assert said[0] == f"zkconsumer: {path}: transactions 0x3 to 0x3 are missing there"
    assert said[1] == f"zkconsumer: {node(0)} is no offset"
    assert "has no offsets of groups under /" in said[2]
    written_log(tmp_path, 1, position(1, node(0)), position(3, f"/kafka{node(0)}"))
    result = run(tmp_path)
    assert "transactions 0x2 to 0x2 are missing there" in result.stderr
    assert "several paths have offsets" in result.stderr


def test_only_nodes_of_the_chosen_path_are_named(tmp_path: Path) -> None:
    written_log(tmp_path, 1, position(1, node(0)), position(2, f"/kafka{node(1)}", b"none"))
    for options in ((), ("--zookeeper-path", "/")):
        result = run(tmp_path, *options)
        assert (result.exit_code, result.stderr) == (0, "")
    result = run(tmp_path, "--zookeeper-path", "/kafka")
    assert (result.exit_code, f"/kafka{node(1)} is no offset" in result.stderr) == (1, True)


def test_a_store_without_positions_does_not_hide_the_other(tmp_path: Path) -> None:
    kafka, zookeeper = tmp_path / "kafka", tmp_path / "zookeeper"
    write_log(kafka, random.Random(1), ("2",))
    written_log(zookeeper, 1, position(1, node(0)))
    result = run(kafka, zookeeper, "--json")
    assert [row["offset"] for row in json.loads(result.stdout)["offsets"]] == [5]
    assert (result.exit_code, "the folders have no log of __consumer_offsets" in result.stderr) == (0, True)
    written_log(zookeeper, 1, position(1, "/a"))
    result = run(kafka, zookeeper)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "the folders have no log of __consumer_offsets" in result.stderr
    assert "has no offsets of groups under /" in result.stderr


def test_partition_2_of_a_topic_called_version_is_no_data_of_zookeeper(tmp_path: Path) -> None:
    inner = tmp_path / "version-2"
    inner.mkdir()
    (inner / f"{0:020d}.log").touch()
    (inner / f"{0:020d}.snapshot").touch()
    assert (is_zookeeper_folder(tmp_path), is_zookeeper_folder(inner)) == (False, False)
    written_log(tmp_path, 1)
    assert (is_zookeeper_folder(tmp_path), is_zookeeper_folder(inner)) == (True, True)


def test_wrong_usage(tmp_path: Path) -> None:
    write_log(tmp_path, random.Random(1), ("2",))
    assert "Give a log folder of a broker" in run().stderr
    assert "--zookeeper-path needs --zookeeper-data" in run(tmp_path, "--zookeeper-path", "/x").stderr
    result = run("--zookeeper-data", tmp_path)
    assert (result.exit_code, "has no data of ZooKeeper" in result.stderr) == (1, True)
