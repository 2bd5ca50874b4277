"""The requests about access lists: which rules there are, and rules that are created and deleted.

Any broker answers them, and passes changes on where it has to: Kafka 0.11 and later.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (4.3); org.apache.kafka.common.requests.DescribeAclsRequest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from simpleconsumer.access_lists import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    DeletedAcls,
    PatternType,
    ResourceType,
)
from simpleconsumer.dialect_types import VersionedRequest
from simpleconsumer.errors import DecodeError
from simpleconsumer.kafka011.calls import call, serves
from simpleconsumer.messages import apis
from simpleconsumer.messages.schema import Values
from simpleconsumer.types import TopicVerdict

_FIRST_WITH_PATTERNS: Final = 1
_FIRST_WITH_USERS: Final = 3
_CREATE_DELEGATION_TOKEN: Final = 38
_GROUP_SETTINGS: Final = (apis.DESCRIBE_GROUPS.key, 6, "Kafka 4.0")
_OPERATIONS: Final[Mapping[tuple[ResourceType, AclOperation], tuple[int, int, str]]] = {
    (ResourceType.TOPIC, AclOperation.CREATE): (apis.CREATE_ACLS.key, _FIRST_WITH_PATTERNS, "Kafka 2.0"),
    (ResourceType.TOPIC, AclOperation.ALTER): (apis.CREATE_PARTITIONS.key, 0, "Kafka 1.0"),
    (ResourceType.GROUP, AclOperation.DELETE): (apis.DELETE_GROUPS.key, 0, "Kafka 1.1"),
    (ResourceType.GROUP, AclOperation.DESCRIBE_CONFIGS): _GROUP_SETTINGS,
    (ResourceType.GROUP, AclOperation.ALTER_CONFIGS): _GROUP_SETTINGS,
    (ResourceType.TRANSACTIONAL_ID, AclOperation.TWO_PHASE_COMMIT): (
        apis.INIT_PRODUCER_ID.key, 6, "InitProducerId in version 6"
    ),
}  # fmt: skip
"""Which request in which version shows that a broker looks at an operation, and the words for it.

A broker that has no request for the deletion of groups decides about none, and so on. Two versions stand for a release:
DescribeGroups 6 came in the one that first asks for rights to the settings of groups, CreateAcls 1 in the one that
first asks for the right to create a topic of a name. Kafka 4.3 has InitProducerId 6 only with
`unstable.api.versions.enable`.
"""


class AclRequests:
    """The part of a dialect that makes the requests about access lists. Each of them may be sent twice."""

    def describe_acls(self, wanted: AclFilter) -> VersionedRequest[tuple[TopicVerdict, list[Acl]]]:
        """Return the request for the rules that a filter means.

        Brokers before 2.0 know only literal names: of them all names are asked for where the filter is about the rules
        in force for a resource.
        """

        def result(answer: Values) -> tuple[TopicVerdict, list[Acl]]:
            rules = [_acl(resource, row) for resource in answer["resources"] for row in resource["acls"]]
            verdict = TopicVerdict(answer["error_code"], answer["error_message"])
            return verdict, [acl for acl in rules if wanted.matches(acl)]

        return call(apis.DESCRIBE_ACLS, lambda version: _filter(wanted, version), result, can_resend=True)

    def create_acls(self, acls: Sequence[Acl]) -> VersionedRequest[list[TopicVerdict]]:
        """Return the request that creates rules; the answer has one verdict for each. One that exists stays.

        It is sent only in versions that can hold all of them (`serves_acls`).
        """
        first = max((_first_version(acl) for acl in acls), default=0)
        rows = [
            {
                "resource_type": acl.resource_type.value, "resource_name": acl.resource_name,
                "resource_pattern_type": acl.pattern_type.value, "principal": acl.principal, "host": acl.host,
                "operation": acl.operation.value, "permission_type": acl.permission.value,
            }
            for acl in acls
        ]  # fmt: skip

        def result(answer: Values) -> list[TopicVerdict]:
            return [_verdict(row) for row in _as_many(answer["results"], len(acls), "creates")]

        versions = tuple(version for version in apis.CREATE_ACLS.versions if version >= first)
        return call(apis.CREATE_ACLS, {"creations": rows}, result, versions, can_resend=True)

    def delete_acls(self, filters: Sequence[AclFilter]) -> VersionedRequest[list[DeletedAcls]]:
        """Return the request that deletes the rules which filters mean; the answer has one result for each filter.

        Brokers before 2.0 take no filter about the rules in force for a resource (`PatternType.MATCH`): the request is
        not sent to them.
        """

        def values(version: int) -> Values:
            return {"filters": [_filter(each, version) for each in filters]}

        def result(answer: Values) -> list[DeletedAcls]:
            return [
                DeletedAcls(_verdict(row), tuple((_verdict(each), _acl(each, each)) for each in row["matching_acls"]))
                for row in _as_many(answer["filter_results"], len(filters), "deletes")
            ]

        needs_patterns = any(each.pattern_type in (PatternType.MATCH, PatternType.PREFIXED) for each in filters)
        versions = apis.DELETE_ACLS.versions[int(needs_patterns) :]
        return call(apis.DELETE_ACLS, values, result, versions, can_resend=True)

    def serves_acls(self, served: Mapping[int, range], acls: Sequence[Acl] = ()) -> bool:
        """Return whether a broker that serves these versions has the requests, in versions that can hold such rules."""
        first = max((_first_version(acl) for acl in acls), default=0)
        return all(
            serves(served, api, [version for version in api.versions if version >= first])
            for api in (apis.DESCRIBE_ACLS, apis.CREATE_ACLS, apis.DELETE_ACLS)
        )

    def unseen_of_acl(self, served: Mapping[int, range], acl: Acl) -> str:
        """Return what a broker that serves these versions never looks at in a rule, and what that needs.

        Returns:
            A clause such as `prefixes (that needs Kafka 2.0)`; empty if it looks at the rule, as far as its versions
            show it.
        """
        for what, (key, version, since) in _needs(acl):
            if served.get(key, range(0)).stop <= version:
                return f"{what} (that needs {since})"
        return ""


def _needs(acl: Acl) -> Iterator[tuple[str, tuple[int, int, str]]]:
    """Yield what a broker may be too old for, with the request and the version that show it."""
    if acl.resource_type is ResourceType.USER:
        yield "rules about users", (apis.CREATE_ACLS.key, _FIRST_WITH_USERS, "Kafka 3.3")
    if acl.resource_type is ResourceType.DELEGATION_TOKEN:
        yield "rules about delegation tokens", (_CREATE_DELEGATION_TOKEN, 0, "Kafka 1.1, with KRaft 3.6")
    if acl.pattern_type is PatternType.PREFIXED:
        yield "prefixes", (apis.CREATE_ACLS.key, _FIRST_WITH_PATTERNS, "Kafka 2.0")
    operation = _OPERATIONS.get((acl.resource_type, acl.operation))
    if operation is not None:
        yield f"{acl.operation.name} of a {acl.resource_type.name}", operation


def _first_version(acl: Acl) -> int:
    """Return the first version of the requests that can hold a rule."""
    if acl.resource_type is ResourceType.USER:
        return _FIRST_WITH_USERS
    return _FIRST_WITH_PATTERNS if acl.pattern_type is not PatternType.LITERAL else 0


def _filter(wanted: AclFilter, version: int) -> Values:
    has_patterns = version >= _FIRST_WITH_PATTERNS
    is_whole = has_patterns or wanted.pattern_type is not PatternType.MATCH
    return {
        "resource_type_filter": wanted.resource_type.value,
        "resource_name_filter": wanted.resource_name if is_whole else None,
        "pattern_type_filter": wanted.pattern_type.value, "principal_filter": wanted.principal,
        "host_filter": wanted.host, "operation": wanted.operation.value, "permission_type": wanted.permission.value,
    }  # fmt: skip


def _acl(resource: Values, row: Values) -> Acl:
    return Acl(
        ResourceType(resource["resource_type"]), resource["resource_name"], row["principal"],
        AclOperation(row["operation"]), AclPermission(row["permission_type"]), row["host"],
        PatternType(resource.get("pattern_type", PatternType.LITERAL.value)),
    )  # fmt: skip


def _verdict(row: Values) -> TopicVerdict:
    return TopicVerdict(row["error_code"], row["error_message"])


def _as_many(rows: Sequence[Values], count: int, what: str) -> Sequence[Values]:
    if len(rows) != count:
        raise DecodeError(
            f"an answer to a request that {what} rules has {len(rows)} results, and the request has {count}"
        )
    return rows
