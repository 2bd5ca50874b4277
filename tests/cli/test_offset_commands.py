"""`zkconsumer offsets` on a real cluster: shown, set, exported, imported; and what is refused."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rebalance.zookeeper.port.kazoo_port import KazooPort
from tests.cli.command_line import TIMEOUT_S, Running, command, run
from zkconsumer.admin.offsets.offset_changes import plan_changes, write_changes
from zkconsumer.admin.values import OffsetsNotSet
from zkconsumer.cli.connection_options import open_zookeeper
from zkconsumer.cli.program import program
from zkconsumer.testing.java import find_java, maven
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.waiting import wait_until

LONG_MS = 10**13  # a retention that keeps even segments dated back


@pytest.fixture
def topic(kafka_0822: KafkaCluster, fresh_topic: Callable[[], str]) -> str:
    """A topic of two partitions with three messages in each."""
    name = fresh_topic()
    kafka_0822.create_topic(name, 2)
    load(kafka_0822, name, 3)
    return name


@pytest.fixture
def offsets(kafka_0822: KafkaCluster) -> Callable[..., Result]:
    """Runs `zkconsumer offsets ...` on the cluster."""

    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        call = ["offsets", *arguments, "--zookeeper", kafka_0822.zookeeper_connect]
        return CliRunner().invoke(program, call, input=stdin, prog_name="zkconsumer")

    return invoke


Offsets = Callable[..., Result]


def store(cluster: KafkaCluster, group: str, topic: str, **values: bytes) -> None:
    for name, data in values.items():
        cluster.client.create(f"/consumers/{group}/offsets/{topic}/{name[1:]}", data, makepath=True)


def stored(cluster: KafkaCluster, group: str, topic: str) -> dict[str, bytes]:
    path = f"/consumers/{group}/offsets/{topic}"
    if cluster.client.exists(path) is None:
        return {}
    return {name: cluster.client.get(f"{path}/{name}")[0] for name in sorted(cluster.client.get_children(path))}


@pytest.fixture
def live_member(kafka_0822: KafkaCluster, fresh_group: str) -> Iterator[str]:
    """The id of a consumer that is registered in the group."""
    name = f"{fresh_group}_ann"
    path = f"/consumers/{fresh_group}/ids/{name}"
    data = b'{"version":1,"subscription":{},"pattern":"static"}'
    kafka_0822.client.create(path, data, ephemeral=True, makepath=True)
    yield name
    kafka_0822.client.delete(path)


# -- get


def test_get_shows_offset_end_lag_and_owner(
    kafka_0822: KafkaCluster, topic: str, fresh_group: str, offsets: Offsets
) -> None:
    store(kafka_0822, fresh_group, topic, p0=b"1", p1=b"3")
    store(kafka_0822, fresh_group, "another", p0=b"7")
    shown = offsets("get", fresh_group, "--topic", topic)
    assert shown.exit_code == 0
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["TOPIC", "PARTITION", "OFFSET", "LOG", "END", "LAG", "OWNER"],
        [topic, "0", "1", "3", "2", "none"],
        [topic, "1", "3", "3", "0", "none"],
    ]
    found: dict[str, Any] = json.loads(offsets("get", fresh_group, "--topic", topic, "--json").stdout)
    assert found["group"] == fresh_group
    shown_of = [[row[key] for key in ("partition", "offset", "log_end", "lag", "owner")] for row in found["partitions"]]
    assert shown_of == [[0, 1, 3, 2, None], [1, 3, 3, 0, None]]


def test_get_marks_what_cannot_be_read(
    kafka_0822: KafkaCluster, topic: str, fresh_group: str, offsets: Offsets
) -> None:
    store(kafka_0822, fresh_group, topic, p0=b"seven", p1=b"9")
    shown = offsets("get", fresh_group)
    path = f"/consumers/{fresh_group}/offsets/{topic}/0"
    assert f"! {topic}-0: offset cannot be read: {path}: not an offset" in shown.stdout
    assert f"! {topic}-1: the stored offset is 6 beyond the end of the log" in shown.stdout


def test_get_of_a_topic_that_the_group_does_not_have_names_those_it_has(
    kafka_0822: KafkaCluster, topic: str, fresh_group: str, offsets: Offsets
) -> None:
    store(kafka_0822, fresh_group, topic, p0=b"1")
    shown = offsets("get", fresh_group, "--topic", "qqq")
    assert shown.exit_code == 1
    assert shown.stderr == (
        f"zkconsumer: group {fresh_group!r} has no offsets for topic 'qqq' and does not subscribe to it; "
        f"existing topics: {topic}\n"
    )


# -- set


@pytest.mark.parametrize(
    ("to", "expected"),
    [("earliest", b"0"), ("latest", b"3"), ("2", b"2"), ("2001-01-01", b"0"), ("2101-01-01T00:00:00Z", b"3")],
)
def test_set_writes_every_partition_and_prints_old_and_new(
    kafka_0822: KafkaCluster, topic: str, fresh_group: str, offsets: Offsets, to: str, expected: bytes
) -> None:
    store(kafka_0822, fresh_group, topic, p0=b"1")
    done = offsets("set", fresh_group, "--topic", topic, "--to", to)
    assert done.exit_code == 0, done.stderr
    assert stored(kafka_0822, fresh_group, topic) == {"0": expected, "1": expected}
    assert done.stdout == (
        f"{fresh_group} {topic}-0: 1 -> {expected.decode()}\n{fresh_group} {topic}-1: none -> {expected.decode()}\n"
    )
    *warnings, last = done.stderr.splitlines()
    assert last == "2 offsets set, 0 unchanged"
    by_segments = f"{topic}/0 and 1 more partition: searched by segments"
    assert [by_segments in line for line in warnings] == ([True] if to.startswith("2") and len(to) > 1 else [])


def test_set_goes_to_the_newest_segment_that_was_written_before_a_time(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str, offsets: Offsets
) -> None:
    topic = fresh_topic()
    kafka_0822.create_topic(topic, config={"segment.bytes": 100, "retention.ms": LONG_MS})
    load(kafka_0822, topic, 9, value=lambda _, number: b"%040d" % number, batch=1)
    files = sorted(kafka_0822.folder.glob(f"broker-*/**/{topic}-0/*.log"))
    assert len(files) >= 3
    for file, month in zip(files[:2], (1, 3), strict=True):
        os.utime(file, (datetime(2014, month, 1, tzinfo=UTC).timestamp(),) * 2)
    done = offsets("set", fresh_group, "--topic", topic, "--to", "2014-06-01", "--json")
    assert json.loads(done.stdout)["changes"][0]["new"] == int(files[1].stem) > 0


def test_set_of_one_partition_leaves_the_others(
    kafka_0822: KafkaCluster, topic: str, fresh_group: str, offsets: Offsets
) -> None:
    store(kafka_0822, fresh_group, topic, p0=b"1", p1=b"1")
    done = offsets("set", fresh_group, "--topic", topic, "--partition", "1", "--to", "latest", "--json")
    assert json.loads(done.stdout) == {
        "changes": [{"group": fresh_group, "topic": topic, "partition": 1, "old": 1, "new": 3, "store": "zookeeper"}],
        "written": True, "notes": [],
    }  # fmt: skip
    assert stored(kafka_0822, fresh_group, topic) == {"0": b"1", "1": b"3"}


def test_a_consumer_starts_where_set_put_the_offset(
    kafka_0822: KafkaCluster, topic: str, fresh_group: str, offsets: Offsets
) -> None:
    assert offsets("set", fresh_group, "--topic", topic, "--to", "2").exit_code == 0
    with Running("consume", "--zookeeper", kafka_0822.zookeeper_connect, "--topic", topic, "--group", fresh_group,
                 "--partition", "--offset", "--max-messages", "2") as consumer:  # fmt: skip
        assert consumer.wait() == 0
        assert sorted(line.split("\t")[:2] for line in consumer.lines()) == [["0", "2"], ["1", "2"]]


def test_a_dry_run_writes_nothing(kafka_0822: KafkaCluster, topic: str, fresh_group: str, offsets: Offsets) -> None:
    done = offsets("set", fresh_group, "--topic", topic, "--to", "latest", "--dry-run")
    assert done.stdout.splitlines()[0] == f"{fresh_group} {topic}-0: none -> 3"
    assert done.stderr == f"group {fresh_group} is new\n2 offsets would be set, 0 unchanged\n"
    assert kafka_0822.client.exists(f"/consumers/{fresh_group}") is None


def test_set_is_refused_while_the_group_has_members_and_names_them(
    kafka_0822: KafkaCluster, topic: str, fresh_group: str, live_member: str, offsets: Offsets
) -> None:
    refused = offsets("set", fresh_group, "--topic", topic, "--to", "earliest")
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"zkconsumer: no offset was set: 1 consumer is in group {fresh_group!r} ({live_member}) and would continue "
        "from their own positions; stop them first, or set the offsets nevertheless: force=True, --force\n"
    )
    assert stored(kafka_0822, fresh_group, topic) == {}
    forced = offsets("set", fresh_group, "--topic", topic, "--to", "earliest", "--force")
    assert forced.exit_code == 0
    assert forced.stderr.startswith(f"warning: 1 consumer is in group {fresh_group!r} ({live_member}); ")
    assert stored(kafka_0822, fresh_group, topic) == {"0": b"0", "1": b"0"}


def test_an_offset_outside_the_log_is_refused_unless_forced(
    kafka_0822: KafkaCluster, topic: str, fresh_group: str, offsets: Offsets
) -> None:
    refused = offsets("set", fresh_group, "--topic", topic, "--to", "4")
    assert refused.exit_code == 1
    assert refused.stderr == (
        f"zkconsumer: no offset was set: 4 cannot be set for {topic}-0: its log has 0 to 3; {topic}-1: its log has 0 "
        "to 3; choose an offset that the log has, or set it nevertheless: force=True, --force\n"
    )
    assert stored(kafka_0822, fresh_group, topic) == {}
    assert offsets("set", fresh_group, "--topic", topic, "--to", "4", "--force").exit_code == 0
    assert stored(kafka_0822, fresh_group, topic) == {"0": b"4", "1": b"4"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--topic", "{topic}x"], "topic '{topic}x' does not exist; did you mean '{topic}'?"),
        (["--topic", "{topic}", "--partition", "5"], "topic '{topic}' has no partition 5; it has 0, 1"),
    ],
)
def test_a_missing_group_or_topic_is_reported_in_one_sentence(
    topic: str, fresh_group: str, offsets: Offsets, options: list[str], said: str
) -> None:
    refused = offsets("set", fresh_group, "--to", "0", *(option.format(topic=topic) for option in options))
    assert (refused.exit_code, refused.stderr) == (1, f"zkconsumer: {said.format(topic=topic)}\n")


@pytest.mark.parametrize("before", [None, b"1"])
def test_a_commit_that_comes_in_between_is_reported_and_not_written_over(
    kafka_0822: KafkaCluster, topic: str, fresh_group: str, before: bytes | None
) -> None:
    names = [(fresh_group, topic, "0"), (fresh_group, topic, "1")]
    if before is not None:
        store(kafka_0822, fresh_group, topic, p1=before)
    with open_zookeeper(kafka_0822.zookeeper_connect) as port:
        changes = plan_changes(port, [(name, 0) for name in names])
        if before is None:
            store(kafka_0822, fresh_group, topic, p1=b"2")
        else:
            kafka_0822.client.set(f"/consumers/{fresh_group}/offsets/{topic}/1", b"2")
        with pytest.raises(OffsetsNotSet) as refused:
            write_changes(port, changes)
    assert str(refused.value) == (
        f"the offset of {topic}-1 in group {fresh_group!r} was changed by another client in the meantime: it was "
        f"{'none' if before is None else 1}, it is 2; 0 of 2 offsets were written; find out which client commits "
        "there, and set the offsets again"
    )
    assert stored(kafka_0822, fresh_group, topic) == {"1": b"2"}


def test_more_offsets_than_fit_in_one_request_are_written(kafka_0822: KafkaCluster, fresh_group: str) -> None:
    wanted = [((fresh_group, "t", str(number)), number) for number in range(450)]
    with open_zookeeper(kafka_0822.zookeeper_connect) as port:
        assert isinstance(port, KazooPort)
        write_changes(port, plan_changes(port, wanted))
        assert all(not change.is_needed for change in plan_changes(port, wanted))


# -- export and import


def test_export_and_import_carry_offsets_over(
    kafka_0822: KafkaCluster, fresh_group: str, offsets: Offsets, tmp_path: Path
) -> None:
    store(kafka_0822, fresh_group, "clicks", p0=b"5", p2=b"6", p10=b"7")
    store(kafka_0822, fresh_group, "views", p0=b"8")
    file = tmp_path / "offsets.txt"
    done = offsets("export", fresh_group, "--output-file", str(file))
    assert (done.exit_code, done.stderr) == (0, "Exported 4 offsets of 1 group\n")
    root = f"/consumers/{fresh_group}/offsets"
    assert file.read_text() == f"{root}/clicks/0:5\n{root}/clicks/2:6\n{root}/clicks/10:7\n{root}/views/0:8\n"
    assert offsets("export", fresh_group).stdout == file.read_text()

    kafka_0822.client.set(f"{root}/clicks/0", b"99")
    kafka_0822.client.delete(f"{root}/views", recursive=True)
    # These topics do not exist.
    shown = offsets("import", "--input-file", str(file), "--dry-run", "--force")
    assert shown.stdout.splitlines() == [
        f"{fresh_group} clicks-0: 99 -> 5", f"{fresh_group} clicks-2: 6 -> 6", f"{fresh_group} clicks-10: 7 -> 7",
        f"{fresh_group} views-0: none -> 8",
    ]  # fmt: skip
    assert shown.stderr == "2 offsets would be set, 2 unchanged\n"
    assert stored(kafka_0822, fresh_group, "clicks")["0"] == b"99"

    done = offsets("import", "--input-file", "-", "--force", stdin=file.read_text())
    assert (done.exit_code, done.stderr) == (0, "2 offsets set, 2 unchanged\n")
    assert offsets("export", fresh_group).stdout == file.read_text()


def java_tool(cluster: KafkaCluster, tool: str, *arguments: str) -> None:
    call = find_java().command(maven.jars("0.8.2.2"), f"kafka.tools.{tool}", arguments)
    ran = subprocess.run(call, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_kafkas_own_tools_read_what_is_exported_and_write_what_is_imported(
    kafka_0822: KafkaCluster, fresh_group: str, offsets: Offsets, tmp_path: Path
) -> None:
    zookeeper = ("--zkconnect", kafka_0822.zookeeper_connect)
    store(kafka_0822, fresh_group, "clicks", p0=b"5", p1=b"9223372036854775807")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert offsets("export", fresh_group, "--output-file", str(ours)).exit_code == 0
    java_tool(kafka_0822, "ExportZkOffsets", *zookeeper, "--group", fresh_group, "--output-file", str(theirs))
    assert sorted(theirs.read_text().splitlines()) == ours.read_text().splitlines()

    kafka_0822.client.delete(f"/consumers/{fresh_group}", recursive=True)
    java_tool(kafka_0822, "ImportZkOffsets", *zookeeper, "--input-file", str(ours))
    assert stored(kafka_0822, fresh_group, "clicks") == {"0": b"5", "1": b"9223372036854775807"}
    kafka_0822.client.delete(f"/consumers/{fresh_group}", recursive=True)
    assert offsets("import", "--input-file", str(theirs), "--force").exit_code == 0
    assert stored(kafka_0822, fresh_group, "clicks") == {"0": b"5", "1": b"9223372036854775807"}


def test_export_without_a_group_takes_all_and_leaves_out_what_it_cannot_read(
    kafka_0822: KafkaCluster, fresh_group: str, offsets: Offsets
) -> None:
    store(kafka_0822, fresh_group, "clicks", p0=b"5", p1=b"x")
    store(kafka_0822, f"{fresh_group}-b", "clicks", p0=b"6")
    try:
        done = offsets("export")
        assert done.exit_code == 1
        lines = [line for line in done.stdout.splitlines() if fresh_group in line]
        root = f"/consumers/{fresh_group}"
        assert lines == [f"{root}/offsets/clicks/0:5", f"{root}-b/offsets/clicks/0:6"]
        assert f"left out: /consumers/{fresh_group}/offsets/clicks/1: not an offset" in done.stderr
    finally:
        kafka_0822.client.delete(f"/consumers/{fresh_group}", recursive=True)


def test_an_export_keeps_the_mode_of_the_file_and_names_the_file_that_it_cannot_write(
    offsets: Offsets, kafka_0822: KafkaCluster, fresh_group: str, topic: str, tmp_path: Path
) -> None:
    kafka_0822.client.create(f"/consumers/{fresh_group}/offsets/{topic}/0", b"1", makepath=True)
    file = tmp_path / "offsets.txt"
    file.write_text("old")
    file.chmod(0o400)
    assert offsets("export", fresh_group, "--output-file", str(file)).exit_code == 0
    assert file.read_text() != "old"
    assert file.stat().st_mode & 0o777 == 0o400
    refused = offsets("export", fresh_group, "--output-file", str(tmp_path / "nowhere" / "x"))
    assert refused.exit_code == 1
    assert f"{tmp_path}/nowhere/x: No such file or directory" in refused.stderr


def test_export_of_an_unknown_group_writes_no_file(
    kafka_0822: KafkaCluster, fresh_group: str, offsets: Offsets, tmp_path: Path
) -> None:
    store(kafka_0822, fresh_group, "clicks", p0=b"5")
    done = offsets("export", f"{fresh_group}x", "--output-file", str(tmp_path / "file"))
    assert done.exit_code == 1
    assert done.stderr.endswith(f"did you mean {fresh_group!r}?\n")
    assert list(tmp_path.iterdir()) == []


def test_import_names_bad_lines_and_writes_nothing(
    kafka_0822: KafkaCluster, fresh_group: str, offsets: Offsets, tmp_path: Path
) -> None:
    file = tmp_path / "offsets.txt"
    file.write_text(f"/consumers/{fresh_group}/offsets/t/0:1\nrubbish\n/consumers/{fresh_group}/offsets/t/1:x\n")
    done = offsets("import", "--input-file", str(file))
    assert done.exit_code == 1
    assert done.stderr == (
        f"zkconsumer: no offset was set: {file} has 2 lines that cannot be used: line 2: 'rubbish': it does not have "
        f"the form of an offset; line 3: '/consumers/{fresh_group}/offsets/t/1:x': the offset 'x' is not a number "
        "from 0 to 9223372036854775807; correct or delete these lines; each must be "
        "/consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET, once\n"
    )
    assert kafka_0822.client.exists(f"/consumers/{fresh_group}") is None


def test_import_is_refused_while_a_group_of_the_file_has_members(
    kafka_0822: KafkaCluster, fresh_group: str, live_member: str, offsets: Offsets
) -> None:
    line = f"/consumers/{fresh_group}/offsets/t/0:1\n"
    refused = offsets("import", "--input-file", "-", stdin=line)
    assert refused.exit_code == 1
    assert f"1 consumer is in group {fresh_group!r} ({live_member})" in refused.stderr
    assert stored(kafka_0822, fresh_group, "t") == {}
    assert offsets("import", "--input-file", "-", "--force", stdin=line).exit_code == 0
    assert stored(kafka_0822, fresh_group, "t") == {"0": b"1"}


def test_import_from_a_closed_stdin_is_one_sentence() -> None:
    words = command(["offsets", "import", "--zookeeper", "zk:2181", "--input-file", "-"])
    call = ["sh", "-c", f"exec {shlex.join(words)} <&-"]
    ran = subprocess.run(call, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (ran.returncode, ran.stderr) == (1, b"zkconsumer: standard input is closed\n")


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_import_of_an_empty_file_is_refused_in_one_sentence(offsets: Offsets, content: str) -> None:
    done = offsets("import", "--input-file", "-", stdin=content)
    assert (done.exit_code, done.stderr) == (1, "zkconsumer: standard input holds no offsets\n")


def test_import_of_a_missing_file_is_refused_in_one_sentence(offsets: Offsets) -> None:
    done = offsets("import", "--input-file", "/no/file")
    assert (done.exit_code, done.stderr) == (1, "zkconsumer: /no/file: No such file or directory\n")


def test_the_offsets_of_a_real_group_are_those_that_it_committed(
    kafka_0822: KafkaCluster, topic: str, fresh_group: str
) -> None:
    zookeeper = ("--zookeeper", kafka_0822.zookeeper_connect)
    with Running("consume", *zookeeper, "--topic", topic, "--group", fresh_group, "--from-beginning") as consumer:
        consumer.wait_lines(6)
        refused = run("offsets", "set", fresh_group, *zookeeper, "--topic", topic, "--to", "earliest")
        assert refused.returncode == 1
        assert b"1 consumer is in group" in refused.stderr
        assert consumer.end() == 0
    wait_until(lambda: kafka_0822.client.get_children(f"/consumers/{fresh_group}/ids") == [], TIMEOUT_S, "the leave")
    got = run("offsets", "get", fresh_group, *zookeeper, "--json")
    rows = [(row["topic"], row["partition"], row["offset"]) for row in json.loads(got.stdout)["partitions"]]
    assert rows == [(topic, 0, 3), (topic, 1, 3)]
