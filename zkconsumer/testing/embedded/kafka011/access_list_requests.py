"""The requests about access lists: DescribeAcls, CreateAcls and DeleteAcls.

A fault (`Fault.error(31, api="create_acls")`) has brokers refuse a client. Messages are those of Kafka's brokers, so
far as a client can tell anything by them.

Source: kafka.server.KafkaApis, kafka.security.auth.SimpleAclAuthorizer (1.1), AclApis, AclAuthorizer (2.8),
org.apache.kafka.controller.AclControlManager (4.3); the frames in tests/golden/apis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from zkconsumer.testing.embedded.access_rules import ANY, LITERAL, AccessLists, Rule
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.config_requests import Said, as_it_is
from zkconsumer_error import ErrorCode

_CLUSTER: Final = 4
_CLUSTER_NAME: Final = "kafka-cluster"
_OPERATIONS: Final = range(2, 16)
"""ALL to TWO_PHASE_COMMIT."""


def _refusal(asked: Asked[Any], words: str) -> Said | None:
    """Return why a whole request is refused: a fault wants it, or there is no authorizer."""
    code = asked.errors.get(("", -1), 0)
    if code:
        return Said(code)
    return None if asked.host.cluster.access_lists is not None else Said(ErrorCode.SECURITY_DISABLED, words)


def _no_authorizer(asked: Asked[Any]) -> str:
    return f"No Authorizer is configured{'' if asked.host.habits.is_since_3 else ' on the broker'}."


def _lists(asked: Asked[Any]) -> AccessLists:
    found = asked.host.cluster.access_lists
    assert found is not None
    return found


# -- DescribeAcls ------------------------------------------------------------------------------------------------------


def _answer_described(asked: Asked[Values]) -> Values:
    said = _refusal(asked, "No Authorizer is configured on the broker")
    rules = [] if said is not None else _lists(asked).found(asked.body)
    code, message = said or Said(0, None if asked.host.habits.is_before_2 else "")
    return {"error_code": code, "error_message": message, "resources": list(_by_resource(rules))}


def _by_resource(rules: Iterable[Rule]) -> Iterable[Values]:
    resources: dict[tuple[int, str, int], list[Values]] = {}
    for rule in rules:
        rows = resources.setdefault((rule.resource_type, rule.resource_name, rule.pattern_type), [])
        rows.append(rule._asdict())
    for (kind, name, pattern), rows in resources.items():
        yield {"resource_type": kind, "resource_name": name, "pattern_type": pattern, "acls": [
            {key: row[key] for key in ("principal", "host", "operation", "permission_type")} for row in rows
        ]}  # fmt: skip


DESCRIBE_ACLS: Final = ServedApi(apis.DESCRIBE_ACLS, "describe_acls", range(4), as_it_is, _answer_described)


# -- CreateAcls --------------------------------------------------------------------------------------------------------


def _answer_created(asked: Asked[Values]) -> Values:
    whole = _refusal(asked, _no_authorizer(asked))
    said = [whole or _created(asked, row) for row in asked.body["creations"]]
    return {"results": [{"error_code": each.code, "error_message": each.message} for each in said]}


def _created(asked: Asked[Values], row: Values) -> Said:
    rule = Rule(
        row["resource_type"], row["resource_name"], row.get("resource_pattern_type", LITERAL), row["principal"],
        row["host"], row["operation"], row["permission_type"],
    )  # fmt: skip
    if rule.resource_type == _CLUSTER and rule.resource_name != _CLUSTER_NAME:
        return Said(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {_CLUSTER_NAME}")
    if not rule.resource_name:
        return Said(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    for check in (_refused_principal, _refused_operation):
        said = check(asked, rule)
        if said is not None:
            return said
    _lists(asked).add(rule)
    return Said(0, None if asked.host.habits.is_before_2 else "")


def _refused_principal(asked: Asked[Values], rule: Rule) -> Said | None:
    if ":" in rule.principal:
        return None
    if asked.host.habits.is_before_2:
        words = f"expected a string in format principalType:principalName but got {rule.principal}"
        return Said(ErrorCode.INVALID_REQUEST, words)
    if not asked.host.habits.forwards_changes:
        return Said(ErrorCode.UNKNOWN_SERVER_ERROR)
    return Said(ErrorCode.INVALID_REQUEST, f"Could not parse principal from `{rule.principal}` (no colon is present "
                                           "separating the principal type from the principal name)")  # fmt: skip


def _refused_operation(asked: Asked[Values], rule: Rule) -> Said | None:
    if rule.operation in _OPERATIONS:
        return None
    name = "ANY" if rule.operation == ANY else "UNKNOWN"
    if asked.host.habits.is_before_2:
        return Said(
            ErrorCode.INVALID_REQUEST,
            f"{name} not a valid operation name. The valid names are Read,Write,Create,Delete,Alter,Describe,"
            "ClusterAction,AlterConfigs,DescribeConfigs,IdempotentWrite,All",
        )
    is_new = asked.host.habits.forwards_changes
    return Said(ErrorCode.INVALID_REQUEST, f"Invalid operation {name}" if is_new else "Failed to create ACL")


CREATE_ACLS: Final = ServedApi(apis.CREATE_ACLS, "create_acls", range(4), as_it_is, _answer_created)


# -- DeleteAcls --------------------------------------------------------------------------------------------------------


def _answer_deleted(asked: Asked[Values]) -> Values:
    whole = _refusal(asked, _no_authorizer(asked))
    take: Callable[[Values], list[Rule]] = (lambda wanted: []) if whole else lambda wanted: _lists(asked).take(wanted)
    code, message = whole or Said(0)
    return {"filter_results": [
        {"error_code": code, "error_message": message, "matching_acls": [
            {"error_code": 0, "error_message": None, **rule._asdict()} for rule in take(wanted)
        ]} for wanted in asked.body["filters"]
    ]}  # fmt: skip


DELETE_ACLS: Final = ServedApi(apis.DELETE_ACLS, "delete_acls", range(4), as_it_is, _answer_deleted)
