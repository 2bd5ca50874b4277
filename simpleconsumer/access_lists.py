"""The values of access lists: who may, or may not, do what to which resource. Pure.

A rule of an access list is what Kafka calls an ACL. The names and numbers are Kafka's own. Brokers take more than makes
sense: what a rule has to be like is said in `zkconsumer.admin.acl_plans`.

Source: org.apache.kafka.common.acl.AclOperation, AclPermissionType, AccessControlEntryFilter,
org.apache.kafka.common.resource.ResourceType, PatternType, ResourcePatternFilter (4.3).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from simpleconsumer.types import TopicVerdict

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of the type CLUSTER."""
WILDCARD: Final = "*"
"""As the name of a literal pattern: all resources of the type. As a host: all hosts."""


class _Numbered(enum.Enum):
    """A name of Kafka with its number in requests."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        return cls(0) if isinstance(value, int) and value else None

    @classmethod
    def of_name(cls, text: str) -> Self:
        """Return the value of a name, which may be written as `IDEMPOTENT_WRITE`, `IdempotentWrite` or in lower case.

        Raises:
            ValueError: There is no such name; names those that there are.
        """
        wanted = _folded(text)
        for each in cls:
            if _folded(each.name) == wanted and each.value:
                return each
        names = ", ".join(each.name for each in cls if each.value)
        raise ValueError(f"{text!r} is none of {names}")


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").upper()


class ResourceType(_Numbered):
    """What kind of resource a rule is about; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Numbered):
    """How the name of a rule is compared with that of a resource; ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Numbered):
    """What a rule allows or denies; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(_Numbered):
    """Whether a rule allows or denies; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


@dataclass(frozen=True)
class Acl:
    """One rule of the access lists.

    Attributes:
        resource_type: What kind of resource it is about.
        resource_name: The name of the resource, or the start of its name with `PatternType.PREFIXED`.
        principal: Whom it is about, such as `User:alice`; `User:*` is everybody.
        operation: What is allowed or denied.
        permission: Whether it allows or denies.
        host: The address from which the principal comes, as Java writes it; `*` is every address.
        pattern_type: How the name is compared.
    """

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = WILDCARD
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        """Return a clause, such as `ALLOW User:alice READ on TOPIC LITERAL clicks from *`."""
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} on {self.resource_type.name} "
            f"{self.pattern_type.name} {self.resource_name} from {self.host}"
        )

    def to_dict(self) -> dict[str, str]:
        """Return the fields by name, as texts, in the form of `zkconsumer acls --json`."""
        return _texts_of(self)

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """Return the rule of such fields; `pattern_type`, `host` and `permission` may be left out.

        UNKNOWN is read as it was written: for a value that is newer than the client which listed the rule.

        Raises:
            ValueError: A field is missing, unknown, no text, or has a value that there is not.
        """
        if not isinstance(values, dict):
            raise ValueError(f"{values!r:.80} is no object with the fields of a rule")
        if unknown := sorted(map(str, values.keys() - _FIELDS)):
            raise ValueError(f"the field {unknown[0]!r} is none of {', '.join(_FIELDS)}")
        if missing := [name for name in _FIELDS if name not in values and name not in _MAY_LACK]:
            raise ValueError(f"the field {missing[0]!r} is missing")
        found: dict[str, Any] = {}
        for name, value in values.items():
            if not isinstance(value, str):
                raise ValueError(f"the field {name!r} is {value!r:.80}, which is no text")
            kind = _KINDS.get(name)
            try:
                found[name] = value if kind is None else kind(0) if value == _UNKNOWN else kind.of_name(value)
            except ValueError as error:
                raise ValueError(f"the field {name!r}: {error}") from None
        return cls(**found)


_FIELDS: Final = (
    "resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission",
)  # fmt: skip
_UNKNOWN: Final = "UNKNOWN"
_MAY_LACK: Final = {"pattern_type", "host", "permission"}
_KINDS: Final[dict[str, type[_Numbered]]] = {
    "resource_type": ResourceType, "pattern_type": PatternType, "operation": AclOperation, "permission": AclPermission,
}  # fmt: skip


def _texts_of(rule: Acl | AclFilter) -> dict[str, Any]:
    values = ((name, getattr(rule, name)) for name in _FIELDS)
    return {name: value.name if isinstance(value, _Numbered) else value for name, value in values}


@dataclass(frozen=True)
class AclFilter:
    """Which rules are meant: those that are alike in each field. ANY and None stand for every value.

    Attributes:
        resource_name: The name in the rule. With `PatternType.MATCH` the name of a resource: those rules are meant that
            are in force for it, also by a prefix or by `*`.
        operation: As it stands in the rule: READ does not mean rules about ALL.
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY

    @classmethod
    def of(cls, acl: Acl) -> Self:
        """Return the filter that means one rule alone."""
        return cls(
            acl.resource_type, acl.resource_name, acl.principal, acl.operation, acl.permission, acl.host,
            acl.pattern_type,
        )  # fmt: skip

    def __str__(self) -> str:
        """Return a clause, such as `rules with resource type TOPIC, principal User:alice`."""
        parts = [f"{name.replace('_', ' ')} {value}" for name, value in self.to_dict().items()
                 if value not in (None, "ANY")]  # fmt: skip
        return f"rules with {', '.join(parts)}" if parts else "all rules"

    def to_dict(self) -> dict[str, str | None]:
        """Return the fields by name, as texts; None for every value."""
        return _texts_of(self)

    def matches(self, acl: Acl) -> bool:
        """Return whether a rule is meant."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        wanted, found = self.resource_name, acl.resource_name
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if wanted is None or wanted == found:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return wanted.startswith(found)
        return acl.pattern_type is PatternType.LITERAL and found == WILDCARD


class DeletedAcls(NamedTuple):
    """What a broker answers to one filter of rules that are to be deleted.

    Attributes:
        verdict: About the filter.
        acls: The rules that it meant, with a verdict about each.
    """

    verdict: TopicVerdict
    acls: tuple[tuple[TopicVerdict, Acl], ...]
