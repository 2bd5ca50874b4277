"""Rules of access lists: their names, which rules a filter means, and what real brokers have answered about them."""

from __future__ import annotations

import pytest
from golden_acls import ALICE, EVERY, MALLORY, PREFIX, TOKENS, TOPIC, rules_of
from golden_apis import frame, of_name

from simpleconsumer.access_lists import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import DecodeError
from simpleconsumer.messages import apis

READ, ALL = AclOperation.READ, AclOperation.ALL
MATCH, PREFIXED = PatternType.MATCH, PatternType.PREFIXED
OLDEST = {api.key: range(1) for api in (apis.DESCRIBE_ACLS, apis.CREATE_ACLS, apis.DELETE_ACLS)}


@pytest.mark.parametrize("text", ["IDEMPOTENT_WRITE", "IdempotentWrite", "idempotent-write"])
def test_a_name_may_be_written_in_several_ways(text: str) -> None:
    assert AclOperation.of_name(text) is AclOperation.IDEMPOTENT_WRITE


@pytest.mark.parametrize("text", ["", "reed", "UNKNOWN", "3"])
def test_a_name_that_there_is_not_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"is none of ANY, ALL, READ, WRITE, .*TWO_PHASE_COMMIT"):
        AclOperation.of_name(text)


def test_a_number_that_is_newer_than_this_client_is_unknown() -> None:
    assert (ResourceType(99), AclOperation(-1)) == (ResourceType.UNKNOWN, AclOperation.UNKNOWN)
    with pytest.raises(ValueError, match="TOPIC"):
        ResourceType("TOPIC")


@pytest.mark.parametrize(("wanted", "found"), [
    (AclFilter(), [ALICE, MALLORY, PREFIX, TOKENS]),
    (AclFilter(TOPIC), [ALICE, MALLORY]),
    (AclFilter(resource_name="*"), [MALLORY]),
    (AclFilter(TOPIC, "g-clicks"), [ALICE]),
    (AclFilter(TOPIC, "g-clicks", pattern_type=MATCH), [ALICE, MALLORY]),
    (AclFilter(ResourceType.GROUP, "g-billing", pattern_type=MATCH), [PREFIX]),
    (AclFilter(ResourceType.GROUP, "g", pattern_type=MATCH), []),
    (AclFilter(ResourceType.GROUP, "g-", pattern_type=MATCH), [PREFIX]),
    (AclFilter(resource_name="g-billing", pattern_type=PREFIXED), []),
    (AclFilter(pattern_type=PREFIXED), [PREFIX]),
    (AclFilter(operation=ALL), [MALLORY]),
    (AclFilter(permission=AclPermission.DENY, host="127.0.0.9"), [MALLORY]),
    (AclFilter(host="*", principal="User:alice", operation=READ), [ALICE, PREFIX]),
    (AclFilter.of(ALICE), [ALICE]),
])  # fmt: skip
def test_a_filter_means_the_rules_that_are_alike_in_each_field(wanted: AclFilter, found: list[Acl]) -> None:
    assert [acl for acl in (ALICE, MALLORY, PREFIX, TOKENS) if wanted.matches(acl)] == found


def test_a_rule_and_a_filter_are_a_clause() -> None:
    assert str(MALLORY) == "DENY User:mallory ALL on TOPIC LITERAL * from 127.0.0.9"
    assert str(AclFilter(TOPIC, "clicks")) == "rules with resource type TOPIC, resource name clicks"
    assert str(EVERY) == "all rules"


def test_a_rule_is_read_from_its_fields_of_which_some_may_be_left_out() -> None:
    assert Acl.from_dict(PREFIX.to_dict()) == PREFIX
    short = {"resource_type": "topic", "resource_name": "g-clicks", "principal": "User:alice", "operation": "Read"}
    assert Acl.from_dict(short) == ALICE
    for values, said in (
        ([], r"\[\] is no object"),
        ({**short, "topic": "x"}, "the field 'topic' is none of resource_type, "),
        ({"resource_type": "TOPIC"}, "the field 'resource_name' is missing"),
        ({**short, "host": None}, "the field 'host' is None, which is no text"),
        ({**short, "operation": "reed"}, "the field 'operation': 'reed' is none of"),
        ({**short, "operation": "unknown"}, "the field 'operation': 'unknown' is none of"),
    ):
        with pytest.raises(ValueError, match=said):
            Acl.from_dict(values)


def test_a_rule_that_was_listed_is_read_again_also_if_it_was_newer_than_the_client() -> None:
    listed = Acl(ResourceType(99), "g", "User:alice", AclOperation(99), AclPermission(99), "*", PatternType(99))
    assert listed.to_dict()["operation"] == "UNKNOWN"
    assert Acl.from_dict(listed.to_dict()) == listed


@pytest.mark.parametrize("each", of_name(r"DescribeAcls-all-v\d"), ids=str)
def test_all_rules_come_back_as_they_were_created(each: object) -> None:
    verdict, acls = each.decoded()  # type: ignore[attr-defined]
    assert verdict.error_code == 0
    assert sorted(acls, key=str) == sorted(rules_of(each.version), key=str)  # type: ignore[attr-defined]


@pytest.mark.parametrize("each", of_name(r"DeleteAcls-v\d"), ids=str)
def test_what_is_deleted_stands_at_its_filter(each: object) -> None:
    found, nothing = each.decoded()  # type: ignore[attr-defined]
    assert (found.verdict.error_code, [acl for _, acl in found.acls]) == (0, [ALICE])
    assert (nothing.verdict.error_code, nothing.acls) == (0, ())


@pytest.mark.parametrize(("variant", "code"), [("disabled", 54), ("denied", 31)])
def test_brokers_refuse_each_request_by_its_code(variant: str, code: int) -> None:
    frames = of_name(rf"\w+Acls-{variant}-v\d")
    assert {(each.kafka, each.name.partition("-")[0]) for each in frames} == {
        (kafka, api)
        for kafka in ("1.1.1", "2.8.2", "3.9.2", "4.3.1")
        for api in ("DescribeAcls", "CreateAcls", "DeleteAcls")
    }
    for each in frames:
        found = each.decoded()
        if each.name.startswith("DescribeAcls"):
            codes = [found[0].error_code]
        else:
            codes = [getattr(row, "verdict", row).error_code for row in found]
        assert set(codes) == {code}, str(each)


def test_a_rule_is_sent_in_versions_that_can_hold_it_alone() -> None:
    assert KAFKA011.create_acls([ALICE]).versions == (0, 1, 2, 3)
    assert KAFKA011.create_acls([ALICE, PREFIX]).versions == (1, 2, 3)
    assert KAFKA011.create_acls([TOKENS, PREFIX]).versions == (3,)
    assert KAFKA011.delete_acls([AclFilter.of(ALICE), AclFilter(pattern_type=MATCH)]).versions == (1, 2, 3)
    assert [KAFKA011.serves_acls(OLDEST, acls) for acls in ([], [ALICE], [PREFIX], [TOKENS])] == [
        True,
        True,
        False,
        False,
    ]
    assert not KAFKA011.serves_acls({apis.DESCRIBE_ACLS.key: range(4)})


@pytest.mark.parametrize(("kafka", "unseen"), [
    ("1.1.1", {"TOPIC CREATE", "GROUP DESCRIBE_CONFIGS", "GROUP ALTER_CONFIGS", "TRANSACTIONAL_ID TWO_PHASE_COMMIT",
               "USER ALL", "TOPIC PREFIXED"}),
    ("2.8.2", {"GROUP DESCRIBE_CONFIGS", "GROUP ALTER_CONFIGS", "TRANSACTIONAL_ID TWO_PHASE_COMMIT", "USER ALL"}),
    ("3.9.2", {"GROUP DESCRIBE_CONFIGS", "GROUP ALTER_CONFIGS", "TRANSACTIONAL_ID TWO_PHASE_COMMIT"}),
    ("4.3.1", {"TRANSACTIONAL_ID TWO_PHASE_COMMIT"}),
])  # fmt: skip
def test_what_a_broker_looks_at_is_seen_by_its_versions_of_requests(kafka: str, unseen: set[str]) -> None:
    """The operations are those that kafka.admin.AclCommand and AclEntry of these versions take.

    But for two: Kafka 1.1.1 asks for Alter of a topic that is to grow, and 4.3.1 has two-phase commits switched off.
    """
    answer = memoryview(frame(kafka, "hand-ApiVersions-v0-response"))[8:]
    served = KAFKA011.api_versions().decode(answer)[1]
    rules = {
        f"{kind.name} {operation.name}": Acl(kind, "g", "User:alice", operation)
        for kind in (TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
        for operation in AclOperation
    }
    rules["USER ALL"] = Acl(ResourceType.USER, "User:bob", "User:alice", ALL)
    rules["DELEGATION_TOKEN ALL"] = Acl(ResourceType.DELEGATION_TOKEN, "g", "User:alice", ALL)
    rules["TOPIC PREFIXED"] = Acl(TOPIC, "g", "User:alice", READ, pattern_type=PREFIXED)
    assert {name for name, acl in rules.items() if KAFKA011.unseen_of_acl(served, acl)} == unseen


def test_a_broker_of_0_11_has_no_tokens_and_deletes_no_groups() -> None:
    tokens = Acl(ResourceType.DELEGATION_TOKEN, "g", "User:alice", AclOperation.DESCRIBE)
    assert (
        KAFKA011.unseen_of_acl(OLDEST, tokens) == "rules about delegation tokens (that needs Kafka 1.1, with KRaft 3.6)"
    )
    deleter = Acl(ResourceType.GROUP, "g", "User:alice", AclOperation.DELETE)
    assert KAFKA011.unseen_of_acl(OLDEST, deleter) == "DELETE of a GROUP (that needs Kafka 1.1)"
    assert KAFKA011.unseen_of_acl(OLDEST, PREFIX) == "prefixes (that needs Kafka 2.0)"
    assert KAFKA011.unseen_of_acl(OLDEST, ALICE) == ""


def test_brokers_before_2_0_are_asked_for_all_names_where_patterns_count() -> None:
    asked = KAFKA011.describe_acls(AclFilter(TOPIC, "g-clicks", pattern_type=MATCH)).at(0)
    assert asked.body == b"\x02\xff\xff\xff\xff\xff\xff\x01\x01"
    [frames] = [each for each in of_name(r"DescribeAcls-all-v0") if each.kafka == "1.1.1"]
    assert set(asked.decode(memoryview(frames.answer))[1]) == {ALICE, MALLORY}
    none = KAFKA011.describe_acls(AclFilter(pattern_type=PREFIXED)).at(0)
    assert none.decode(memoryview(frames.answer))[1] == []


def test_an_answer_with_another_number_of_results_does_not_decode() -> None:
    [frames] = [each for each in of_name(r"CreateAcls-several-v3") if each.kafka == "4.3.1"]
    with pytest.raises(DecodeError, match="a request that creates rules has 4 results, and the request has 1"):
        KAFKA011.create_acls([ALICE]).at(3).decode(memoryview(frames.answer))
