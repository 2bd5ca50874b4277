"""Every `--json` output has one type for a key, whichever command prints it; and a closed pipe ends each with 0."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import pytest
from kazoo.client import KazooClient

from simpleconsumer.kafka011.record_encode import encode_record_batch
from tests.admin.broker_states import ONE, ZERO, classic, member, newest, state
from tests.cli.command_line import TIMEOUT_S, run
from tests.cli.forked_commands import commands
from tests.log.written_logs import file_name, write_log
from zkconsumer.admin import Acl, AclOperation, BrokerAdmin, BrokerOffsets, ResourceType
from zkconsumer.admin.groups.broker_group_report import broker_group_report
from zkconsumer.admin.verify.broker_group_findings import verify_broker_group
from zkconsumer.cli.program import program
from zkconsumer.producer import Producer, ProducerConfig
from zkconsumer.testing import EmbeddedCluster, load
from zkconsumer.testing.embedded.kafka011.group_records import (
    OffsetKey,
    StoredOffset,
    encode_offset,
    encode_offset_key,
)

NUMBER, TEXT, FLAG, LIST, OBJECT, NULL = "number", "text", "flag", "list", "object", "null"

_WORDS: Final[Sequence[tuple[set[str], str]]] = (
    ({TEXT}, "group topic consumer_id sentence remedy path kind severity status name version brokers needs folder "
             "partition_node old_text store lag_unit program coordination coordinator_address member_id value_encoding "
             "metadata resource_type pattern_type operation permission target_topic cluster_id cause action "
             "target_hash way"),
    ({NUMBER, NULL}, "partition offset log_end lag old new leader earliest latest line offset_in_zookeeper "
                     "offset_in_kafka consumed_per_s produced_per_s catch_up_s timestamp_ms run compaction coordinator "
                     "epoch assignment_epoch log_start new_earliest last_sequence last_timestamp_ms "
                     "transaction_start first_ms last_ms first_offset next_offset high_watermark commit_ms "
                     "leader_epoch target_latest target_offset lag_ms start_ms"),
    ({NUMBER}, "lag_unknown member_count partition_count owned unowned nodes read_at duration_s known files seconds "
               "left producer_id offset_count_in_zookeeper offset_count_in_kafka start end messages bytes bad missing "
               "files_before entry_index bytes_before files_after bytes_after segments size_bytes target_partition "
               "run_count equal different deleted_at_source deleted_on_target to_be_copied target_partition_count "
               "replication equal_by_leaf not_proved target_messages"),
    ({FLAG}, "passing fault fine written done deleted expires is_released good is_default offsets_in_zookeeper "
             "members_known owners_known"),
    ({FLAG, NULL}, "stored offsets_in_kafka guarded"),
    ({LIST}, "members partitions problems groups topics topics_lag replicas findings wakeable nudged changes notes "
             "offsets warnings producers lines values versions lost silent unread "
             "assigned formats headers acls to_create to_delete unchanged acls_created acls_deleted filters holes "
             "differences leaves failed ranges hours"),
    ({LIST, NULL}, "isr subscribed target"),
    ({OBJECT}, "subscription config within filter"),
    ({TEXT, NULL}, "pattern problem owner storage strategy setting spelling value unit key reason state protocol_type "
                   "old_value new_value resource_name principal "
                   "group_type assignor client_id host instance_id rack regex hash"),
)  # fmt: skip
TYPES: Final[Mapping[str, set[str]]] = {key: kinds for kinds, keys in _WORDS for key in keys.split()}
"""Key -> its types, in every output. A key that is new stands here once, and then means the same everywhere."""

NAMED_BY_USERS: Final = {"subscription", "config"}
"""Objects whose keys are names of users: topics and settings."""


def type_of(value: Any) -> str:
    if value is None:
        return NULL
    kinds = ((bool, FLAG), (int, NUMBER), (float, NUMBER), (str, TEXT), (list, LIST), (dict, OBJECT))
    return next(kind for known, kind in kinds if isinstance(value, known))


def wrong_keys(value: Any, place: str = "") -> Iterator[str]:
    """Sentences about keys whose type is not that of the table."""
    if isinstance(value, dict):
        for key, each in value.items():
            if place.rpartition(".")[2] in NAMED_BY_USERS:
                continue
            if key not in TYPES:
                yield f"{place}.{key} is not in the table"
            elif type_of(each) not in TYPES[key]:
                yield f"{place}.{key} is {each!r}; it must be {' or '.join(sorted(TYPES[key]))}"
            yield from wrong_keys(each, f"{place}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from wrong_keys(each, place)


def leaves(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, found in group.commands.items():
        if isinstance(found, click.Group):
            yield from leaves(found, (*path, name))
        else:
            yield " ".join((*path, name)), found


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """A topic with messages; a group with a member, with wrong nodes, and with one of the form of Kafka 0.7."""
    with EmbeddedCluster(1) as running:
        running.create_topic("clicks", 3)
        load(running, "clicks", 5)
        client = KazooClient(running.zookeeper_connect)
        client.start()
        text = b'{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":"1"}'
        client.create("/consumers/live/ids/live_a", text, ephemeral=True, makepath=True)
        client.create("/consumers/live/ids/live_b", b"nonsense", ephemeral=True, makepath=True)
        client.create("/consumers/live/owners/clicks/0", b"live_a-0", ephemeral=True, makepath=True)
        for group, partition, data in (
            ("live", "0", b"3"), ("live", "0-1", b"2"), ("live", "9", b"2"), ("done", "0", b"1"),
            ("done", "1", b"soon"), ("done", "0-1", b"7"), ("gone", "0", b"1"),
        ):  # fmt: skip
            client.create(f"/consumers/{group}/offsets/clicks/{partition}", data, makepath=True)
        client.create("/consumers/gone/owners/clicks/0", b"gone_x-0", makepath=True)
        yield running
        client.stop()
        client.close()


def log_folder(folder: Path) -> Path:
    """Log folders as a broker leaves them: a topic, and the offsets of a group."""
    made = folder / "logs"
    if not made.exists():
        made.mkdir()
        write_log(made, random.Random(3), ("2",))
        offsets = made / "__consumer_offsets-7"
        offsets.mkdir()
        row = (encode_offset_key(OffsetKey("billing", "clicks", 0)), encode_offset(StoredOffset(5, "", -1, 7), 1))
        (offsets / file_name(0)).write_bytes(encode_record_batch([row], timestamp_ms=5))
    return made


def calls(folder: Path) -> dict[str, list[Sequence[str]]]:
    """Command -> calls of it that print every kind of row."""
    properties = folder / "consumer.properties"
    properties.write_text("group.id=g\nzookeeper.connect=localhost:1\nretries=3\nfetch.size=7\n")
    offsets = folder / "offsets"
    offsets.write_text("/consumers/done/offsets/clicks/0:2\n/consumers/done/offsets/clicks/1:2\n")
    logs = str(log_folder(folder))
    rules = folder / "rules.json"
    rule = {"resource_type": "TOPIC", "resource_name": "clicks", "principal": "User:alice", "operation": "READ"}
    rules.write_text(json.dumps({"acls": [rule]}))
    new_rule = ["--resource", "topic:views", "--principal", "User:alice", "--operation", "read"]
    return {
        "acls list": [[]],
        "acls create": [[*new_rule, "--dry-run"]],
        "acls delete": [["--principal", "User:bob", "--dry-run"], ["--all", "--dry-run"]],
        "acls plan": [[str(rules)], [str(rules), "--principal", "User:alice", "--apply"]],
        "mirror plan": [["--whitelist", "clicks"]],
        "mirror run": [["--whitelist", "clicks", "--prefix", "copy.", "--until-end"]],
        "mirror status": [[]],
        "mirror audit": [[], ["--hours"], ["--target-only"]],
        "log list": [[logs]],
        "log dump": [[logs, "--topic", "clicks"]],
        "log groups": [[logs]],
        "consume": [["--topic", "clicks", "--from-beginning", "--max-messages", "3"]],
        "describe": [["live"], ["done"]],
        "verify": [["live", "--patience", "0"], ["gone", "--patience", "0"]],
        "release": [["gone", "clicks", "0", "--dry-run"], ["done", "clicks", "1"]],
        "groups list": [[]],
        "groups delete": [["done", "--dry-run"]],
        "lag": [["--all"]],
        "offsets get": [["done"], ["live"]],
        "offsets set": [["done", "--topic", "clicks", "--to", "2", "--dry-run"]],
        "offsets delete": [["done", "--topic", "clicks", "--dry-run"]],
        "offsets export": [[], ["done"]],
        "offsets import": [["--input-file", str(offsets), "--dry-run"]],
        "topics list": [[]],
        "topics create": [["new", "--dry-run", "--topic-config", "retention.ms=1"]],
        "topics grow": [["clicks", "--partitions", "4", "--dry-run"]],
        "topics delete": [["clicks", "--dry-run"]],
        "topics set": [["clicks", "--topic-config", "flush.ms=5", "--dry-run"]],
        "topics cut": [["clicks", "--before", "1", "--dry-run"]],
        "topics producers": [["clicks"]],
        "cluster versions": [[]],
        "check-config": [[str(properties)]],
    }


SPARK: Final = {"load", "compact-files"}
"""Commands that need Spark; `test_reports_of_spark` has their values."""
OFFLINE: Final = {"cluster versions", "check-config", "log list", "log dump", "log groups", "log check"}
OF_NEWER_BROKERS: Final = {"topics cut", "topics producers", "acls list", "acls create", "acls delete", "acls plan"}
"""Commands that brokers of Kafka 0.8 do not serve."""


def test_every_command_with_json_is_called(tmp_path: Path) -> None:
    names = {name for name, found in leaves(program) if any("--json" in each.opts for each in found.params)}
    assert names == calls(tmp_path).keys() | SPARK


@pytest.fixture(scope="module")
def newer() -> Iterator[EmbeddedCluster]:
    """A topic with messages of a producer with an id, and a rule of access lists."""
    settings = {"authorizer.class.name": "embedded"}
    with EmbeddedCluster(1, generation="4.3", zookeeper=False, settings=settings) as running:
        with BrokerAdmin(running.broker_list) as admin:
            admin.create_acls(Acl(ResourceType.TOPIC, "views", "User:bob", AclOperation.READ))
        running.create_topic("clicks")
        config = ProducerConfig(metadata_broker_list=running.broker_list, enable_idempotence=True)
        with Producer(config) as producer:
            producer.send("clicks", b"a").result(10)
        yield running


def place_of(name: str, cluster: EmbeddedCluster, newer: EmbeddedCluster) -> list[str]:
    """The option that says where the cluster of a command is."""
    if name.startswith("mirror "):
        return ["--from-zookeeper", cluster.zookeeper_connect, "--to-brokers", newer.broker_list]
    if name in OF_NEWER_BROKERS:
        return ["--bootstrap-server", newer.broker_list]
    return [] if name in OFFLINE | {"completion"} else ["--zookeeper", cluster.zookeeper_connect]


def test_a_key_has_one_type_in_every_output(cluster: EmbeddedCluster, newer: EmbeddedCluster, tmp_path: Path) -> None:
    wrong: list[str] = []
    for name, each in calls(tmp_path).items():
        for arguments in each:
            where = place_of(name, cluster, newer)
            done = run(*name.split(), *arguments, *where, "--json")
            lines = done.stdout.decode().splitlines()
            assert lines, (name, done.stderr)
            for line in lines:
                wrong += wrong_keys(json.loads(line), name)
    assert wrong == []


def test_reports_of_spark() -> None:
    from dataclasses import asdict

    from zkconsumer.spark.load.compact import CompactionReport
    from zkconsumer.spark.load.manifest import LoadedPartition

    partition = asdict(LoadedPartition("clicks", 0, 0, 5, 5, 100))
    assert list(wrong_keys({"partitions": [partition], **asdict(CompactionReport("f", None, 1, 10))}, "load")) == []


def test_reports_of_groups_that_brokers_coordinate() -> None:
    for group in (classic(member("a", has=[ZERO])), classic(state="Empty"), newest([ZERO], [ZERO])):
        found = state(group, {ONE: 7})
        report = broker_group_report(found)
        assert list(wrong_keys(report.to_dict(), "describe")) == []
        assert list(wrong_keys(verify_broker_group(found, 1).to_dict(), "verify")) == []
        assert list(wrong_keys(BrokerOffsets("g", "Empty", report.partitions).to_dict(), "offsets get")) == []


def test_a_partition_that_is_no_number_is_null_and_named(cluster: EmbeddedCluster) -> None:
    where = ["--zookeeper", cluster.zookeeper_connect, "--json"]
    rows = json.loads(run("offsets", "get", "done", *where).stdout)["partitions"]
    assert [(row["partition"], row.get("partition_node")) for row in rows] == [
        (0, None), (1, None), (2, None), (None, "0-1"),
    ]  # fmt: skip
    changes = json.loads(run("offsets", "set", "done", "--topic", "clicks", "--to", "2", "--dry-run", *where).stdout)
    old = {row["partition"]: (row["old"], row.get("old_text")) for row in changes["changes"]}
    assert old[0] == (1, None)
    assert old[1] == (None, "unreadable b'soon'")
    assert old[2] == (None, None)


MORE: Final[Mapping[str, list[str]]] = {
    "produce": ["--topic", "clicks"],
    "consume": ["--topic", "clicks", "--from-beginning", "--max-messages", "3"],
    "completion": ["bash"],
    "offsets import": ["--input-file", "-", "--dry-run"],
}
"""Calls of the commands without `--json`, and of some that read standard input."""
SAID: Final = {
    "consume": b"Consumed ",
    "produce": b"Produced 1 message",
    "mirror run": b" copied, ",
    "topics grow": b"messages with keys go to other",
    "topics delete": b"2 groups read it now",
}
"""What commands say on standard error in any case."""
SERVERS: Final = {"demo", "cluster up", "load", "compact-files", "spark-zip", "exporter"}
"""Commands that start servers or Spark, with tests of their own (`test_cluster_up`, `test_demo`), or print one line."""


def without_reader(arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """A command whose standard output is a pipe that nobody reads."""
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    try:
        return commands().run(
            arguments, stdin=b"/consumers/done/offsets/clicks/0:2\n", timeout_s=2 * TIMEOUT_S, output=write_fd
        )
    finally:
        os.close(write_fd)


def test_a_closed_pipe_ends_every_command_quietly(
    cluster: EmbeddedCluster, newer: EmbeddedCluster, tmp_path: Path
) -> None:
    found = {**calls(tmp_path), "log check": [[str(log_folder(tmp_path))]]}
    names = [name for name, _ in leaves(program) if name not in SERVERS]
    assert set(names) <= found.keys() | MORE.keys()
    ends: dict[str, tuple[int, bytes]] = {}
    for name in names:
        arguments = MORE.get(name) or found[name][0]
        where = place_of(name, cluster, newer)
        done = without_reader([*name.split(), *arguments, *where])
        ends[name] = (done.returncode, done.stderr)
    for name, said in SAID.items():
        assert said in ends[name][1], ends[name]
        ends[name] = (ends[name][0], b"")
    assert {name: end for name, end in ends.items() if end != (0, b"")} == {}


@pytest.mark.parametrize("path", [[], ["topics"], ["describe"], ["cluster", "up"]])
def test_a_closed_pipe_ends_a_help_page_quietly(path: list[str]) -> None:
    done = without_reader([*path, "--help"])
    assert (done.returncode, done.stderr) == (0, b"")
