"""The recorded frames of tests/golden/apis about access lists: how they are asked for again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simpleconsumer.access_lists import Acl, AclFilter, AclOperation, AclPermission, PatternType, ResourceType
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import AnyRequest

APIS = ("DescribeAcls", "CreateAcls", "DeleteAcls")
TOPIC, GROUP, CLUSTER, USER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.USER
READ = AclOperation.READ
ALICE = Acl(TOPIC, "g-clicks", "User:alice", READ)
MALLORY = Acl(TOPIC, "*", "User:mallory", AclOperation.ALL, AclPermission.DENY, "127.0.0.9")
PREFIX = Acl(GROUP, "g-", "User:alice", READ, pattern_type=PatternType.PREFIXED)
TOKENS = Acl(USER, "User:bob", "User:alice", AclOperation.CREATE_TOKENS)
BROKERS = Acl(CLUSTER, "kafka-cluster", "User:ANONYMOUS", AclOperation.CLUSTER_ACTION)
NOBODY = Acl(TOPIC, "g-none", "User:nobody", READ)
EVERY = AclFilter()


def rules_of(version: int) -> list[Acl]:
    """The rules of which `CreateAcls-several` was asked in a version."""
    return [ALICE, MALLORY, *([PREFIX] if version >= 1 else []), *([TOKENS] if version >= 3 else [])]


class _Unheard:
    """An operation that there is not."""

    value = 99


_CREATED: dict[str, Callable[[int], list[Acl]]] = {
    "": lambda version: [ALICE],
    "-disabled": lambda version: [ALICE],
    "-several": rules_of,
    "-cluster": lambda version: [Acl(CLUSTER, "g-none", "User:alice", AclOperation.ALTER), ALICE],
    "-unnamed": lambda version: [Acl(TOPIC, "", "User:alice", READ)],
    "-principal": lambda version: [Acl(TOPIC, "g-none", "alice", READ)],
    "-operation": lambda version: [Acl(TOPIC, "g-none", "User:alice", _Unheard)],  # type: ignore[arg-type]
    "-last": lambda version: [BROKERS],
    "-denied": lambda version: [NOBODY, ALICE],
}
_DESCRIBED = {
    "-match": AclFilter(TOPIC, "g-clicks", pattern_type=PatternType.MATCH),
    "-prefixed": AclFilter(resource_name="g-", pattern_type=PatternType.PREFIXED),
    "-principal": AclFilter(principal="User:mallory", permission=AclPermission.DENY),
}


def question(stem: str, version: int) -> AnyRequest[Any]:
    """Return what was asked."""
    variant = stem.removeprefix(next(api for api in APIS if stem.startswith(api)))
    if stem.startswith("CreateAcls"):
        return KAFKA011.create_acls(_CREATED[variant](version))
    if stem.startswith("DescribeAcls"):
        return KAFKA011.describe_acls(_DESCRIBED.get(variant, EVERY))
    return KAFKA011.delete_acls([EVERY] if variant else [AclFilter.of(ALICE), AclFilter.of(NOBODY)])
