"""What a new rule of access lists must be like, and how wanted rules differ from existing ones."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import replace

import pytest

from zkconsumer.admin import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclReport,
    AclsRefused,
    PatternType,
    ResourceType,
)
from zkconsumer.admin.acl_plans import OPERATIONS, check_new, java_address, parse_acls, plan

TOPIC, GROUP, CLUSTER, USER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.USER
RULE = Acl(TOPIC, "clicks", "User:alice", AclOperation.READ)
PREFIXED = PatternType.PREFIXED
OF_CLUSTER = Acl(CLUSTER, "kafka-cluster", "User:alice", AclOperation.IDEMPOTENT_WRITE)


@pytest.mark.parametrize("acl", [
    RULE, OF_CLUSTER,
    replace(RULE, resource_name="*"),
    replace(RULE, resource_name="click", pattern_type=PREFIXED),
    replace(RULE, resource_name=".", pattern_type=PREFIXED),
    replace(RULE, resource_type=GROUP, resource_name="any name/at all"),
    replace(RULE, principal="User:*", permission=AclPermission.DENY, operation=AclOperation.ALL),
    replace(RULE, principal="Group:ops"),
    replace(RULE, principal="User:CN=alice,O=a:b"),
    replace(RULE, host="10.0.0.7"),
    replace(RULE, host="2001:db8:0:0:0:0:0:7"),
    Acl(USER, "User:bob", "User:alice", AclOperation.DESCRIBE_TOKENS),
])  # fmt: skip
def test_a_rule_that_brokers_look_at_may_be_created(acl: Acl) -> None:
    check_new([RULE, acl])


@pytest.mark.parametrize(("acl", "said"), [
    (replace(RULE, operation=AclOperation.IDEMPOTENT_WRITE),
     "no operation IDEMPOTENT_WRITE of TOPIC, .*IDEMPOTENT_WRITE is an operation of CLUSTER"),
    (replace(OF_CLUSTER, operation=AclOperation.READ), "no operation READ of CLUSTER.* give one of ALL, CREATE, "),
    (replace(RULE, operation=AclOperation.ANY), "no operation ANY of TOPIC"),
    (replace(RULE, operation=AclOperation.UNKNOWN), "no operation UNKNOWN of TOPIC"),
    (replace(RULE, resource_type=ResourceType.ANY), "the resource type ANY is for filters alone"),
    (replace(RULE, pattern_type=PatternType.MATCH), "the pattern type MATCH is for filters alone"),
    (replace(RULE, permission=AclPermission.ANY), "the permission ANY is for filters alone"),
    (replace(RULE, resource_name=""), "the name of the resource is empty"),
    (replace(OF_CLUSTER, resource_name="prod"), "the cluster is called LITERAL prod, .* only name is LITERAL kafka-"),
    (replace(OF_CLUSTER, pattern_type=PREFIXED), "the cluster is called PREFIXED kafka-cluster"),
    (replace(RULE, resource_name="*", pattern_type=PREFIXED), r"the prefix \* stands for names that start with \*"),
    (replace(RULE, resource_name="cl/icks"), "cl/icks"),
    (replace(RULE, principal="alice"), "the principal 'alice' has no type, .* write User:alice"),
    (replace(RULE, principal=""), "the principal '' has no type"),
    (replace(RULE, principal="User:"), "the principal 'User:' is not TYPE:NAME"),
    (replace(RULE, principal=":alice"), "the principal ':alice' is not TYPE:NAME.*; write User:alice"),
    (replace(RULE, principal="user:alice"), "the principal 'user:alice' is another one than User:alice"),
    (Acl(USER, "bob", "User:alice", AclOperation.DESCRIBE_TOKENS), "the user 'bob' has no type"),
    (replace(RULE, host=""), "the host is empty"),
    (replace(RULE, host="web1.example.org"), "the host 'web1.example.org' is no address"),
    (replace(RULE, host="10.0.0.0/8"), "the host '10.0.0.0/8' is no address"),
    (replace(RULE, host="::1"), "brokers compare texts, .*; write 0:0:0:0:0:0:0:1"),
])  # fmt: skip
def test_a_rule_that_no_broker_would_look_at_is_refused_by_name(acl: Acl, said: str) -> None:
    with pytest.raises(AclsRefused, match=said) as error:
        check_new([RULE, acl])
    assert str(acl) in error.value.sentence
    assert error.value.sentence.startswith("no rule is created: ")


def test_all_rules_that_are_refused_are_named_at_once() -> None:
    named, untyped = replace(RULE, host="web1.example.org"), replace(RULE, principal="alice")
    with pytest.raises(
        AclsRefused, match=r"^no rule is created: 2 of them are refused: the host 'web1.*; the principal"
    ):
        check_new([named, RULE, untyped])


def test_each_type_has_the_operations_that_kafkas_own_tool_takes() -> None:
    """As org.apache.kafka.security.authorizer.AclEntry.supportedOperations (4.3.1) says."""
    found = {kind.name: {each.name for each in operations} - {"ALL"} for kind, operations in OPERATIONS.items()}
    assert found == {
        "TOPIC": {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
        "GROUP": {"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
        "CLUSTER": {"CREATE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
                    "IDEMPOTENT_WRITE"},
        "TRANSACTIONAL_ID": {"WRITE", "DESCRIBE", "TWO_PHASE_COMMIT"},
        "DELEGATION_TOKEN": {"DESCRIBE"},
        "USER": {"CREATE_TOKENS", "DESCRIBE_TOKENS"},
    }  # fmt: skip


@pytest.mark.parametrize(("text", "written"), [
    ("10.0.0.7", "10.0.0.7"), ("::1", "0:0:0:0:0:0:0:1"), ("2001:DB8::00ab", "2001:db8:0:0:0:0:0:ab"),
    ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"), ("::ffff:10.0.0.7", "10.0.0.7"),
])  # fmt: skip
def test_addresses_are_written_as_java_writes_them(text: str, written: str) -> None:
    assert java_address(ipaddress.ip_address(text)) == written


def test_a_plan_says_what_is_missing_and_what_is_too_much() -> None:
    extra, elsewhere = replace(RULE, resource_name="views"), replace(RULE, resource_type=GROUP)
    other_host = replace(RULE, host="10.0.0.7")
    found = plan([RULE, other_host, RULE], [RULE, extra, elsewhere], AclFilter(TOPIC))
    assert (found.to_create, found.to_delete, found.unchanged) == ((other_host,), (extra,), (RULE,))
    assert not found.is_empty
    assert plan([RULE], [RULE, elsewhere], AclFilter(TOPIC)).is_empty
    assert json.loads(found.to_json())["within"]["resource_type"] == "TOPIC"


def test_a_wanted_rule_outside_of_what_is_compared_is_refused() -> None:
    with pytest.raises(AclsRefused, match=r"the rule .* is not among the rules with principal User:bob"):
        plan([RULE], [], AclFilter(principal="User:bob"))


def test_what_is_printed_as_json_is_read_again() -> None:
    rules = (RULE, OF_CLUSTER)
    assert parse_acls(json.loads(AclReport(rules).to_json())) == list(rules)
    assert parse_acls([RULE.to_dict()]) == [RULE]
    for values, said in (
        (None, "neither a list of rules nor an object"), ({"rules": []}, "neither a list"),
        ([RULE.to_dict(), {}], "rule 2 of 2 rules: the field 'resource_type' is missing"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            parse_acls(values)
