"""Access lists of real brokers, listed, compared, created and deleted: with ZooKeeper and with KRaft."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import run
from zkconsumer.admin import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclsNotAuthorized,
    AclsRefused,
    Admin,
    BrokerAdmin,
    PatternType,
    ResourceType,
)
from zkconsumer.admin.acl_plans import OPERATIONS
from zkconsumer.errors import ZkConsumerError
from zkconsumer.testing import KafkaCluster
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka.security import BrokerSecurity
from zkconsumer.topic_reader.topic_reader import read_topic

pytestmark = pytest.mark.real
AUTHORIZERS = {
    "1.1.1": "kafka.security.auth.SimpleAclAuthorizer",
    "2.8.2": "kafka.security.authorizer.AclAuthorizer",
    "3.9.2": "kafka.security.authorizer.AclAuthorizer",
    "4.3.1": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
VERSIONS = ["1.1.1", "2.8.2", pytest.param("3.9.2", marks=pytest.mark.slow), "4.3.1"]
SINCE_2 = VERSIONS[1:]
ALICE = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice",
         "sasl.password": "secret-of-alice"}  # fmt: skip
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, DESCRIBE, ALTER = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALTER
Clusters = Callable[[str], KafkaCluster]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Clusters]:
    """Gives a broker of a version that lets in `alice`, who may do nothing, and everybody else, who may do everything.

    All tests share it: each leaves no rule.
    """
    running: dict[str, KafkaCluster] = {}
    with contextlib.ExitStack() as stack:

        def cluster(version: str) -> KafkaCluster:
            if version not in running:
                settings = {"authorizer.class.name": AUTHORIZERS[version], "super.users": "User:ANONYMOUS"}
                security = BrokerSecurity(protocols=["SASL_PLAINTEXT"], mechanisms=["PLAIN"])
                running[version] = stack.enter_context(KafkaCluster(version, settings=settings, security=security))
            return running[version]

        yield cluster


@pytest.fixture
def admin(guarded: Clusters, request: pytest.FixtureRequest) -> Iterator[BrokerAdmin]:
    """Administration by somebody who may do everything; no rule is left afterwards."""
    version = request.node.callspec.params["version"]
    with BrokerAdmin(guarded(version).addresses()) as found:
        yield found
        found.delete_acls(AclFilter())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_whole_life_of_rules(version: str, admin: BrokerAdmin) -> None:
    reader = Acl(TOPIC, "clicks", "User:alice", READ)
    denied = Acl(TOPIC, "*", "User:mallory", AclOperation.ALL, AclPermission.DENY, "127.0.0.9")
    assert admin.acls().acls == ()
    planned = admin.create_acls(reader, denied, dry_run=True)
    assert (planned.acls_created, planned.written, planned.done) == ((denied, reader), False, False)
    assert admin.acls().acls == ()
    made = admin.create_acls(reader)
    assert (made.acls_created, made.unchanged, made.written, made.done) == ((reader,), (), True, True)
    again = admin.create_acls(reader, denied)
    assert (again.acls_created, again.unchanged, again.done) == ((denied,), (reader,), True)
    assert admin.acls().acls == (denied, reader)
    assert admin.acls(AclFilter(principal="User:alice")).acls == (reader,)
    assert admin.acls(AclFilter(permission=AclPermission.DENY, host="127.0.0.9")).acls == (denied,)
    assert admin.acls(AclFilter(operation=READ, resource_type=GROUP)).acls == ()
    in_force = AclFilter(TOPIC, "clicks", pattern_type=PatternType.MATCH)
    assert admin.acls(in_force).acls == (denied, reader)
    assert admin.delete_acls(in_force, dry_run=True).acls_deleted == (denied, reader)
    assert admin.acls().acls == (denied, reader)
    nobody = AclFilter(principal="User:nobody")
    gone = admin.delete_acls(AclFilter.of(reader), nobody)
    assert (gone.acls_deleted, gone.written, gone.done) == ((reader,), True, True)
    assert [(row.filter, row.acls_deleted, row.problems) for row in gone.filters] == [
        (AclFilter.of(reader), (reader,), ()), (nobody, (), ())
    ]  # fmt: skip
    assert admin.delete_acls(in_force).acls_deleted == (denied,)
    assert admin.acls().acls == ()


@pytest.mark.parametrize("version", SINCE_2)
def test_prefixes_are_in_force_for_the_names_that_start_so(version: str, admin: BrokerAdmin) -> None:
    prefixed = Acl(TOPIC, "click", "User:alice", READ, pattern_type=PatternType.PREFIXED)
    literal = Acl(TOPIC, "click", "User:alice", READ)
    assert admin.create_acls(prefixed, literal).done
    assert admin.acls(AclFilter(pattern_type=PatternType.PREFIXED)).acls == (prefixed,)
    assert admin.acls(AclFilter(TOPIC, "clicks", pattern_type=PatternType.MATCH)).acls == (prefixed,)
    assert admin.acls(AclFilter(TOPIC, "clicks")).acls == ()
    assert admin.delete_acls(AclFilter.of(prefixed)).acls_deleted == (prefixed,)
    assert admin.acls().acls == (literal,)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_plan_is_applied_and_deletes_nothing_unless_told(version: str, admin: BrokerAdmin) -> None:
    kept, missing, extra = (Acl(TOPIC, name, "User:alice", READ) for name in ("kept", "missing", "extra"))
    elsewhere = Acl(GROUP, "billing", "User:alice", READ)
    admin.create_acls(kept, extra, elsewhere)
    topics = AclFilter(TOPIC)
    planned = admin.plan_acls([kept, missing, missing], topics)
    assert (planned.to_create, planned.to_delete, planned.unchanged) == ((missing,), (extra,), (kept,))
    assert admin.acls(topics).acls == (extra, kept)
    later = Acl(TOPIC, "later", "User:alice", READ)
    admin.create_acls(later)
    applied = admin.apply_acls(planned)
    assert (applied.acls_created, applied.acls_deleted, applied.done) == ((missing,), (), True)
    assert admin.acls(topics).acls == (extra, kept, later, missing)
    applied = admin.apply_acls(planned, delete=True)
    assert (applied.acls_created, applied.acls_deleted, applied.done) == ((), (extra,), True)
    assert admin.acls().acls == (elsewhere, kept, later, missing)
    assert admin.plan_acls([kept, missing, later], topics).is_empty


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_take_each_type_of_resource_and_the_newest_each_operation(version: str, admin: BrokerAdmin) -> None:
    is_newest = version == "4.3.1"
    unheard = Acl(ResourceType.TRANSACTIONAL_ID, "a", "User:alice", AclOperation.TWO_PHASE_COMMIT)
    rules = {
        Acl(kind, {CLUSTER: "kafka-cluster", ResourceType.USER: "User:bob"}.get(kind, "a"), "User:alice", operation)
        for kind, operations in OPERATIONS.items()
        if kind is not ResourceType.USER or version_tuple(version) >= (3, 3)
        for operation in operations
        if is_newest or operation is DESCRIBE or kind is ResourceType.USER
    } - {unheard}
    with pytest.raises(
        AclsRefused, match=r"TWO_PHASE_COMMIT of a TRANSACTIONAL_ID \(that needs InitProducerId in vers"
    ):
        admin.create_acls(*rules, unheard)
    assert admin.acls().acls == ()
    assert len(rules) > (30 if is_newest else 4)
    assert set(admin.create_acls(*rules).acls_created) == rules
    assert set(admin.acls().acls) == rules


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_decide_by_the_rules(
    version: str, admin: BrokerAdmin, guarded: Clusters, fresh_topic: Callable[[], str]
) -> None:
    cluster, topic = guarded(version), fresh_topic()
    cluster.create_topic(topic)
    cluster.produce(topic, [b"one"])
    given = ALICE | {"bootstrap.servers": cluster.addresses("SASL_PLAINTEXT")}

    def read() -> list[bytes | None]:
        with read_topic(None, topic, properties=given, stall_timeout_s=5) as reader:
            return [message.value for message in reader]

    with pytest.raises(ZkConsumerError):
        read()
    rule = Acl(TOPIC, topic, "User:alice", READ, host="127.0.0.1")
    admin.create_acls(rule)
    assert read() == [b"one"]
    admin.create_acls(Acl(TOPIC, "*", "User:*", READ, AclPermission.DENY))
    with pytest.raises(ZkConsumerError):
        read()


@pytest.mark.parametrize("version", VERSIONS)
def test_who_may_not_see_or_change_rules_is_told_the_right(version: str, admin: BrokerAdmin, guarded: Clusters) -> None:
    rule = Acl(TOPIC, "clicks", "User:bob", READ)
    with BrokerAdmin(guarded(version).addresses("SASL_PLAINTEXT"), properties=ALICE) as alice:
        for call in (alice.acls, lambda: alice.create_acls(rule), lambda: alice.delete_acls(AclFilter())):
            with pytest.raises(AclsNotAuthorized, match=r"code 31\); have .* allow this user to Describe the cluster"):
                call()
        admin.create_acls(Acl(CLUSTER, "kafka-cluster", "User:alice", DESCRIBE))
        assert len(alice.acls().acls) == 1
        for change in (lambda: alice.create_acls(rule), lambda: alice.delete_acls(AclFilter())):
            with pytest.raises(AclsNotAuthorized, match="allow this user to Alter the cluster") as error:
                change()
            assert "processor" not in str(error.value), "the internals of the broker"
        assert len(admin.acls().acls) == 1
        admin.create_acls(Acl(CLUSTER, "kafka-cluster", "User:alice", ALTER))
        assert alice.create_acls(rule).done


def test_brokers_before_2_0_have_no_prefixes(guarded: Clusters) -> None:
    prefixed = Acl(TOPIC, "click", "User:alice", READ, pattern_type=PatternType.PREFIXED)
    literal = Acl(TOPIC, "clicks", "User:alice", READ)
    with BrokerAdmin(guarded("1.1.1").addresses()) as admin:
        for call in (lambda: admin.create_acls(literal, prefixed), lambda: admin.plan_acls([literal, prefixed])):
            with pytest.raises(AclsRefused, match=r"broker 0 never looks at prefixes \(that needs Kafka 2\.0\)"):
                call()
        assert admin.acls().acls == ()
        assert admin.acls(AclFilter(pattern_type=PatternType.PREFIXED)).acls == ()


@pytest.mark.parametrize("version", ["2.8.2", "4.3.1"])
def test_rules_about_users_need_kafka_3_3(version: str, admin: BrokerAdmin) -> None:
    rule = Acl(ResourceType.USER, "User:bob", "User:alice", AclOperation.CREATE_TOKENS)
    if version_tuple(version) >= (3, 3):
        assert admin.create_acls(rule).done
        assert admin.acls().acls == (rule,)
        return
    with pytest.raises(AclsRefused, match=r"never looks at rules about users \(that needs Kafka 3\.3\)"):
        admin.create_acls(rule)
    assert admin.acls().acls == ()


@pytest.mark.parametrize(("version", "said"), [
    ("0.10.2.2", r"no access lists .*: that needs brokers of Kafka 0\.11 or later"),
    ("2.8.2", r"no access lists .*: the brokers have no authorizer \(SecurityDisabled, code 54\)"),
    ("4.3.1", r"no access lists .*: the brokers have no authorizer \(SecurityDisabled, code 54\)"),
])  # fmt: skip
def test_brokers_without_access_lists_say_so(
    version: str, said: str, kafka_clusters: Callable[[str, int], KafkaCluster]
) -> None:
    rule = Acl(TOPIC, "clicks", "User:alice", READ)
    with BrokerAdmin(kafka_clusters(version, 1).addresses()) as admin:
        for call in (admin.acls, lambda: admin.create_acls(rule), lambda: admin.delete_acls(AclFilter()),
                     lambda: admin.plan_acls([rule])):  # fmt: skip
            with pytest.raises(AclsRefused, match=said):
                call()


@pytest.mark.parametrize("version", ["2.8.2", "4.3.1"])
def test_the_command_line_plans_what_another_cluster_has(
    version: str, admin: BrokerAdmin, guarded: Clusters, tmp_path: Path
) -> None:
    where = ["--bootstrap-server", guarded(version).addresses()]
    rule = ["--resource", "topic:click", "--pattern-type", "prefixed", "--principal", "User:alice"]
    made = run("acls", "create", *rule, "--operation", "read", "--operation", "describe", *where)
    assert made.stdout.startswith(b"2 rules created\n"), made.stderr
    listed = run("acls", "--json", *where)
    assert [Acl.from_dict(row) for row in json.loads(listed.stdout)["acls"]] == list(admin.acls().acls)
    deleted = run("acls", "delete", "--operation", "read", *where)
    assert deleted.stdout.startswith(b"1 rule deleted\n"), deleted.stderr
    planned = run("acls", "plan", "-", "--check", *where, stdin=listed.stdout)
    assert (planned.returncode, planned.stdout.split(b"\n")[0]) == (1, b"1 rule to create, 0 to delete, 1 unchanged")
    applied = run("acls", "plan", "-", "--apply", *where, stdin=listed.stdout)
    assert applied.stdout.startswith(b"1 rule created, 1 unchanged\n"), applied.stderr
    file = tmp_path / "alice.properties"
    file.touch(0o600)
    file.write_text("".join(f"{name}={value}\n" for name, value in ALICE.items()))
    failed = run("acls", "--bootstrap-server", guarded(version).addresses("SASL_PLAINTEXT"), "--config", str(file))
    assert (failed.returncode, b"allow this user to Describe the cluster" in failed.stderr) == (1, True)


@pytest.mark.parametrize("version", ["2.8.2"])
def test_administration_by_zookeeper_asks_the_brokers(version: str, admin: BrokerAdmin, guarded: Clusters) -> None:
    rule = Acl(TOPIC, "clicks", "User:alice", READ)
    with Admin(guarded(version).zookeeper_connect) as by_zookeeper:
        assert by_zookeeper.create_acls(rule).done
    assert admin.acls().acls == (rule,)
