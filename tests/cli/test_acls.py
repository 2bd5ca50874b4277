"""`zkconsumer acls` at embedded brokers: what it prints, what it changes, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.command_line import run as run_process
from zkconsumer.cli.program import program
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault

READ_CLICKS = ["--resource", "topic:clicks", "--principal", "User:alice", "--operation", "read"]
POLICY_VIOLATION = 44


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"authorizer.class.name": "embedded"}
    with EmbeddedCluster(1, generation="2.8", zookeeper=False, settings=settings) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_rules(cluster: EmbeddedCluster) -> Iterator[None]:
    yield
    cluster.restore()
    assert acls(cluster, "delete", "--all").exit_code == 0


def acls(cluster: EmbeddedCluster, *arguments: str, text: str = "") -> Result:
    call = ["acls", *arguments, "--bootstrap-server", cluster.broker_list]
    return CliRunner().invoke(program, call, input=text, prog_name="zkconsumer")


def rules(cluster: EmbeddedCluster, *options: str) -> list[dict[str, Any]]:
    found = json.loads(acls(cluster, "list", *options, "--json").stdout)["acls"]
    assert isinstance(found, list)
    return found


def test_rules_are_created_listed_and_deleted(cluster: EmbeddedCluster) -> None:
    more = ["--operation", "Describe", "--host", "10.0.0.7", "--permission", "DENY"]
    planned = acls(cluster, "create", *READ_CLICKS, *more, "--dry-run")
    assert planned.stdout.startswith("2 rules would be created\n\n   RESOURCE  NAME    PATTERN  PRINCIPAL ")
    assert rules(cluster) == []
    assert acls(cluster, "create", *READ_CLICKS).stdout == (
        "1 rule created\n\n"
        "   RESOURCE  NAME    PATTERN  PRINCIPAL   HOST  OPERATION  PERMISSION\n"
        "+  TOPIC     clicks  LITERAL  User:alice  *     READ       ALLOW\n"
    )
    acls(cluster, "create", *READ_CLICKS, *more)
    assert acls(cluster, "create", *READ_CLICKS).stdout == "1 unchanged\n"
    assert acls(cluster).stdout == (
        "3 rules\n\n"
        "RESOURCE  NAME    PATTERN  PRINCIPAL   HOST      OPERATION  PERMISSION\n"
        "TOPIC     clicks  LITERAL  User:alice  10.0.0.7  DESCRIBE   DENY\n"
        "TOPIC     clicks  LITERAL  User:alice  *         READ       ALLOW\n"
        "TOPIC     clicks  LITERAL  User:alice  10.0.0.7  READ       DENY\n"
    )
    assert acls(cluster, "delete", "--permission", "deny", "--dry-run").stdout.startswith("2 rules would be deleted\n")
    assert acls(cluster, "delete", "--permission", "deny").stdout.startswith("2 rules deleted\n")
    assert [rule["permission"] for rule in rules(cluster)] == ["ALLOW"]
    assert acls(cluster, "delete", "--principal", "User:bob").stdout == "0 rules changed\n"


def test_rules_in_force_for_a_resource_are_shown(cluster: EmbeddedCluster) -> None:
    who = ["--principal", "User:alice", "--operation", "read"]
    acls(cluster, "create", "--resource", "topic:*", *who)
    acls(cluster, "create", "--resource", "topic:click", "--pattern-type", "prefixed", *who)
    acls(cluster, "create", "--resource", "group:clicks", *who)
    acls(cluster, "create", "--resource", "cluster", "--principal", "User:alice", "--operation", "idempotent-write")
    names = [(rule["resource_type"], rule["resource_name"]) for rule in rules(cluster)]
    assert names == [("CLUSTER", "kafka-cluster"), ("GROUP", "clicks"), ("TOPIC", "*"), ("TOPIC", "click")]
    match = ["--resource", "topic:clicks", "--pattern-type", "match"]
    assert [rule["resource_name"] for rule in rules(cluster, *match)] == ["*", "click"]
    assert [rule["resource_type"] for rule in rules(cluster, "--resource", "group")] == ["GROUP"]


def test_a_plan_of_one_cluster_is_applied_to_another(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    acls(cluster, "create", *READ_CLICKS)
    file = tmp_path / "rules.json"
    file.write_text(acls(cluster, "list", "--json").stdout)
    same = acls(cluster, "plan", str(file), "--check")
    assert (same.exit_code, same.stdout) == (0, "0 rules to create, 0 to delete, 1 unchanged\n")
    acls(cluster, "delete", "--all")
    acls(cluster, "create", "--resource", "topic:views", "--principal", "User:bob", "--operation", "all")
    differs = acls(cluster, "plan", str(file), "--check")
    assert differs.exit_code == 1
    assert differs.stdout.startswith("1 rule to create, 1 to delete, 0 unchanged\n")
    assert [line.split()[:3] for line in differs.stdout.splitlines()[3:]] == [
        ["+", "TOPIC", "clicks"], ["-", "TOPIC", "views"]
    ]  # fmt: skip
    assert len(rules(cluster)) == 1
    narrow = acls(cluster, "plan", str(file), "--principal", "User:alice", "--json")
    assert json.loads(narrow.stdout)["to_delete"] == []
    for refused in (["--apply", "--delete"], ["--apply", "--delete", "--all", "--principal", "User:alice"]):
        unbounded = acls(cluster, "plan", str(file), *refused)
        assert unbounded.exit_code == 2
        assert "Give options that say which rules are deleted, or --all." in unbounded.stderr
    assert len(rules(cluster)) == 1
    applied = acls(cluster, "plan", "-", "--apply", text=file.read_text())
    assert applied.stdout.startswith("1 rule created\n")
    assert len(rules(cluster)) == 2
    whole = acls(cluster, "plan", str(file), "--apply", "--delete", "--all")
    assert whole.stdout.startswith("1 rule deleted, 1 unchanged\n")
    assert [rule["resource_name"] for rule in rules(cluster)] == ["clicks"]


def test_a_file_without_a_rule_deletes_nothing_unless_all_are_meant(cluster: EmbeddedCluster) -> None:
    acls(cluster, "create", *READ_CLICKS)
    empty = acls(cluster, "plan", "-", "--apply", "--delete", "--principal", "User:alice", text="[]")
    assert (empty.exit_code, len(rules(cluster))) == (2, 1)
    assert "has no rules. Delete what the options mean with `zkconsumer acls delete`" in empty.stderr
    assert acls(cluster, "plan", "-", "--apply", text="[]").stdout == "0 rules changed\n"
    everything = acls(cluster, "plan", "-", "--apply", "--delete", "--all", text="[]")
    assert everything.stdout.startswith("1 rule deleted\n")


def test_with_a_name_literal_rules_are_deleted_and_others_only_if_told(cluster: EmbeddedCluster) -> None:
    who = ["--principal", "User:alice", "--operation", "read"]
    for pattern in ("literal", "prefixed"):
        acls(cluster, "create", "--resource", "topic:clicks", "--pattern-type", pattern, *who)
    assert len(rules(cluster, "--resource", "topic:clicks")) == 2
    named = acls(cluster, "delete", "--resource", "topic:clicks")
    assert named.stdout.startswith("1 rule deleted\n")
    assert [rule["pattern_type"] for rule in rules(cluster)] == ["PREFIXED"]
    told = acls(cluster, "delete", "--resource", "topic:clicks", "--pattern-type", "any", "--dry-run")
    assert told.stdout.startswith("1 rule would be deleted\n")
    assert acls(cluster, "delete", "--resource", "topic").stdout.startswith("1 rule deleted\n")
    said = " ".join(acls(cluster, "delete", "--help").stdout.split())
    assert "[literal with a name, otherwise any]" in said
    assert "the resource; [any]" in " ".join(acls(cluster, "list", "--help").stdout.split())


def test_what_could_not_be_changed_is_printed_with_status_1(cluster: EmbeddedCluster) -> None:
    cluster.faults.add(Fault.error(POLICY_VIOLATION, "create_acls"))
    failed = acls(cluster, "create", *READ_CLICKS, "--json")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["problems"][0].endswith("(PolicyViolation, code 44)")
    assert failed.stderr.startswith("zkconsumer: 1 of 1 rule of the access lists at the brokers 127.0.0.1:")


@pytest.mark.parametrize(("arguments", "status", "said"), [
    (["create", "--resource", "topic:clicks", "--principal", "alice", "--operation", "read"], 1,
     "no rule is created: the principal 'alice' has no type, in ALLOW alice READ on TOPIC LITERAL clicks from *; "
     "write User:alice"),
    (["create", *READ_CLICKS, "--host", ""], 1, "the host is empty"),
    (["create", *READ_CLICKS, "--operation", "idempotent-write"], 1, "there is no operation IDEMPOTENT_WRITE of TOPIC"),
    (["create", "--resource", "topic", *READ_CLICKS], 2, "--resource topic has no name: give topic:NAME"),
    (["create", *READ_CLICKS, "--operation", "reed"], 2, "'reed' is none of ANY, ALL, READ,"),
    (["create", "--resource", "topics:clicks", *READ_CLICKS], 2, "'topics' is none of ANY, TOPIC, GROUP,"),
    (["create", "--allow-principal", "User:a"], 2, "it is called --principal NAME --permission allow here"),
    (["list", "--topic", "clicks"], 2, "it is called --resource topic:NAME here"),
    (["list", "--pattern-type", "match"], 2, "--pattern-type match needs the name of a resource"),
    (["delete"], 2, "Give options that say which rules are deleted, or --all."),
    (["delete", "--all", "--principal", "User:a"], 2, "Give options that say which rules are deleted, or --all."),
    (["plan", "-", "--delete"], 2, "--delete is for --apply"),
    (["plan", "-", "--all"], 2, "--all is for --delete"),
    (["plan", "-", "--apply", "--delete"], 2, "Give options that say which rules are deleted, or --all."),
    (["plan", "-", "--apply", "--check"], 2, "--check and --apply exclude each other"),
    (["plan", "/nowhere/rules.json"], 2, "/nowhere/rules.json"),
    (["plan", "-"], 1, "has no rules of access lists: Expecting value"),
])  # fmt: skip
def test_wrong_calls_end_with_a_sentence(
    arguments: list[str], status: int, said: str, cluster: EmbeddedCluster
) -> None:
    ended = acls(cluster, *arguments)
    assert ended.exit_code == status
    assert said in ended.stderr, ended.stderr
    assert rules(cluster) == []


@pytest.mark.parametrize(("text", "said"), [
    ('{"acls": [{"resource_type": "TOPIC"}]}', "rule 1 of 1 rule: the field 'resource_name' is missing"),
    ("7", "it is neither a list of rules nor an object"),
    ("[" * 100_000, "has no rules of access lists"),
    ("\xff", "has no rules of access lists"),
])  # fmt: skip
def test_a_file_without_rules_is_named(text: str, said: str, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_bytes(text.encode("latin-1"))
    ended = acls(cluster, "plan", str(file))
    assert (ended.exit_code, said in ended.stderr, str(file) in ended.stderr) == (1, True, True), ended.stderr


def test_the_command_works_as_a_process(cluster: EmbeddedCluster) -> None:
    where = ["--bootstrap-server", cluster.broker_list]
    made = run_process("acls", "create", *READ_CLICKS, *where)
    assert (made.returncode, made.stderr) == (0, b"")
    listed = run_process("acls", "--json", *where)
    planned = run_process("acls", "plan", "-", "--check", *where, stdin=listed.stdout)
    assert (planned.returncode, planned.stdout) == (0, b"0 rules to create, 0 to delete, 1 unchanged\n")
