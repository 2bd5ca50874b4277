"""Access lists of brokers: what a new rule must be like, what is missing or too much, and what a change has done. Pure.

Rules, and which failure each prevents:
- Brokers take rules that have no effect: a host by its name, an operation that the resource does not have, a prefix
  `*`. Whoever relies on such a rule is not protected, or cannot work. New ones are refused by name, all at once. Those
  that exist are compared like any others, so that what one cluster lists can be wanted of it.
- A rule is what its fields say, all of them: one with another host is another rule.

Source: kafka.security.authorizer.AclEntry, kafka.server.AclApis, kafka.admin.AclCommand (2.8);
org.apache.kafka.metadata.authorizer.StandardAuthorizerData, org.apache.kafka.controller.AclControlManager (4.3).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rebalance.subscription import check_topic
from simpleconsumer.access_lists import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from zkconsumer.admin.values import AclsRefused, AdminError, JsonValue, count_of
from zkconsumer_error import ZkConsumerError, first_few

OPERATIONS: Final[Mapping[ResourceType, frozenset[AclOperation]]] = {
    kind: frozenset(AclOperation[name] for name in ("ALL", *names.split()))
    for kind, names in {
        ResourceType.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
        ResourceType.GROUP: "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
        ResourceType.CLUSTER: "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
        ResourceType.TRANSACTIONAL_ID: "WRITE DESCRIBE TWO_PHASE_COMMIT",
        ResourceType.DELEGATION_TOKEN: "DESCRIBE",
        ResourceType.USER: "CREATE_TOKENS DESCRIBE_TOKENS",
    }.items()
}
"""The operations of each type of resource in Kafka 4.3. Which of them older brokers look at: `unseen_of_acl`."""
_MOST_NAMED: Final = 50
"""Refused rules that one error names."""


@dataclass(frozen=True)
class AclReport(JsonValue):
    """The rules of the access lists.

    Attributes:
        acls: By type and name of the resource.
    """

    acls: tuple[Acl, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, in the form that `parse_acls` reads."""
        return {"acls": dicts_of(self.acls)}


@dataclass(frozen=True)
class AclPlan(JsonValue):
    """How wanted rules differ from those that there are. Nothing is changed by it.

    Attributes:
        to_create: Rules that are wanted, and missing.
        to_delete: Rules that there are, and that are not wanted; of those that `within` means.
        unchanged: Rules that are wanted, and exist.
        within: Which of the existing rules were compared.
    """

    to_create: tuple[Acl, ...]
    to_delete: tuple[Acl, ...]
    unchanged: tuple[Acl, ...]
    within: AclFilter

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to create, and nothing to delete."""
        return not self.to_create and not self.to_delete

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, under the names of the fields."""
        return {
            "to_create": dicts_of(self.to_create), "to_delete": dicts_of(self.to_delete),
            "unchanged": dicts_of(self.unchanged), "within": self.within.to_dict(),
        }  # fmt: skip


@dataclass(frozen=True)
class FilteredAcls:
    """What has become of the rules that one filter means.

    Attributes:
        filter: The filter.
        acls_deleted: The rules that it means, and that are deleted, or would be.
        problems: Rules that are not deleted, or of which that is not known, a sentence each.
    """

    filter: AclFilter
    acls_deleted: tuple[Acl, ...]
    problems: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, under the names of the fields."""
        return {
            "filter": self.filter.to_dict(), "acls_deleted": dicts_of(self.acls_deleted),
            "problems": list(self.problems),
        }  # fmt: skip


@dataclass(frozen=True)
class AclChange(JsonValue):
    """What a change of the access lists has done, or would do.

    Attributes:
        acls_created: Rules that there were not.
        unchanged: Rules that were to be created, and existed.
        acls_deleted: Rules that are gone.
        filters: The same by filter, for a deletion by filters.
        problems: Rules that are not changed, or of which that is not known, a sentence each. If all are changed: why
            `done` is False after the wait.
        written: Brokers were asked for the change; False with `dry_run`, and where there was nothing to do.
        done: Each broker that answers knows of the change, and at least one has answered.
    """

    acls_created: tuple[Acl, ...] = ()
    unchanged: tuple[Acl, ...] = ()
    acls_deleted: tuple[Acl, ...] = ()
    filters: tuple[FilteredAcls, ...] = ()
    problems: tuple[str, ...] = ()
    written: bool = False
    done: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, under the names of the fields."""
        return {
            "acls_created": dicts_of(self.acls_created), "unchanged": dicts_of(self.unchanged),
            "acls_deleted": dicts_of(self.acls_deleted), "filters": [each.to_dict() for each in self.filters],
            "problems": list(self.problems), "written": self.written, "done": self.done,
        }  # fmt: skip


class AclsUnfinished(AdminError):  # noqa: N818 - like its siblings, it says what happened
    """Not all rules of access lists are changed, or not every broker knows of the change in time.

    Attributes:
        change: What is changed, with the problems.
    """

    def __init__(self, message: str, change: AclChange, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.change = change


def dicts_of(acls: Iterable[Acl]) -> list[dict[str, str]]:
    """Return rules as plain dicts."""
    return [acl.to_dict() for acl in acls]


def in_order(acls: Iterable[Acl]) -> tuple[Acl, ...]:
    """Return each of some rules once, by type and name of the resource, then by principal."""
    return tuple(sorted(set(acls), key=lambda acl: (
        acl.resource_type.name, acl.resource_name, acl.pattern_type.name, acl.principal, acl.operation.name,
        acl.permission.name, acl.host,
    )))  # fmt: skip


def plan(wanted: Sequence[Acl], existing: Iterable[Acl], within: AclFilter) -> AclPlan:
    """Return how wanted rules differ from existing ones.

    Raises:
        AclsRefused: A wanted rule is not among those that `within` means: it would be deleted by no plan.
    """
    outside = [acl for acl in wanted if not within.matches(acl)]
    if outside:
        raise AclsRefused(
            f"nothing is compared: the rule {outside[0]} is not among the {within}", "leave it out, or compare more"
        )
    there = set(existing)
    return AclPlan(
        in_order(set(wanted) - there), in_order(acl for acl in there - set(wanted) if within.matches(acl)),
        in_order(set(wanted) & there), within,
    )  # fmt: skip


# -- what a new rule must be like --------------------------------------------------------------------------------------


class AclFault(NamedTuple):
    """Why a rule is not created.

    Attributes:
        acl: The rule.
        why: A clause.
        remedy: What to do about it, a clause.
    """

    acl: Acl
    why: str
    remedy: str = ""


def check_new(acls: Sequence[Acl]) -> None:
    """Raise if some rules have no effect, or are none.

    Raises:
        AclsRefused: Names each such rule, the value, and what it has to be.
    """
    refuse([fault for acl in acls if (fault := _fault_of(acl)) is not None])


def refuse(faults: Sequence[AclFault]) -> None:
    """Raise the error for rules that are not created, unless there is none."""
    if not faults:
        return
    if len(faults) == 1:
        acl, why, remedy = faults[0]
        raise AclsRefused(f"no rule is created: {why}, in {acl}", remedy)
    said = [f"{why}, in {acl}{f' ({remedy})' if remedy else ''}" for acl, why, remedy in faults]
    raise AclsRefused(
        f"no rule is created: {len(said)} of them are refused: {first_few(*said, most=_MOST_NAMED, between='; ')}"
    )


def _fault_of(acl: Acl) -> AclFault | None:
    for check in (_check_kinds, _check_name, _check_principal, _check_host):
        fault = check(acl)
        if fault is not None:
            return fault
    return None


def _check_kinds(acl: Acl) -> AclFault | None:
    operations = OPERATIONS.get(acl.resource_type)
    if operations is None:
        return AclFault(acl, f"the resource type {acl.resource_type.name} is for filters alone",
                        f"give one of {', '.join(each.name for each in OPERATIONS)}")  # fmt: skip
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return AclFault(
            acl, f"the pattern type {acl.pattern_type.name} is for filters alone", "give LITERAL or PREFIXED"
        )
    if acl.permission not in (AclPermission.ALLOW, AclPermission.DENY):
        return AclFault(acl, f"the permission {acl.permission.name} is for filters alone", "give ALLOW or DENY")
    if acl.operation not in operations:
        names = ", ".join(each.name for each in AclOperation if each in operations)
        owners = [kind.name for kind, known in OPERATIONS.items() if acl.operation in known]
        hint = f"; {acl.operation.name} is an operation of {first_few(*owners)}" if owners else ""
        return AclFault(acl, f"there is no operation {acl.operation.name} of {acl.resource_type.name}",
                        f"give one of {names}{hint}")  # fmt: skip
    return None


def _check_name(acl: Acl) -> AclFault | None:
    kind, name = acl.resource_type, acl.resource_name
    if not name:
        return AclFault(acl, "the name of the resource is empty", f"give a name, or {WILDCARD} for every {kind.name}")
    if kind is ResourceType.CLUSTER:
        if name != CLUSTER_NAME or acl.pattern_type is not PatternType.LITERAL:
            return AclFault(acl, f"the cluster is called {acl.pattern_type.name} {name}",
                            f"its only name is LITERAL {CLUSTER_NAME}")  # fmt: skip
        return None
    if name == WILDCARD:
        if acl.pattern_type is PatternType.PREFIXED:
            return AclFault(
                acl, f"the prefix {WILDCARD} stands for names that start with {WILDCARD}, and not for all",
                f"give the pattern type LITERAL, with which {WILDCARD} means every {kind.name}",
            )  # fmt: skip
        return None
    if kind is ResourceType.TOPIC:
        try:
            check_topic(name if acl.pattern_type is PatternType.LITERAL else f"{name}x")  # the start of a name
        except ZkConsumerError as error:
            return AclFault(acl, str(error))
    if kind is ResourceType.USER and acl.pattern_type is PatternType.LITERAL:
        return _check_typed(acl, name, "the user")
    return None


def _check_principal(acl: Acl) -> AclFault | None:
    return _check_typed(acl, acl.principal, "the principal")


def _check_typed(acl: Acl, principal: str, what: str) -> AclFault | None:
    kind, colon, name = principal.partition(":")
    if not colon:
        return AclFault(acl, f"{what} {principal!r} has no type", f"write User:{principal or 'NAME'}")
    if not kind or not name:
        return AclFault(acl, f"{what} {principal!r} is not TYPE:NAME", f"write User:{name or 'NAME'}")
    if kind != "User" and kind.lower() == "user":
        return AclFault(acl, f"{what} {principal!r} is another one than User:{name}", f"write User:{name}")
    return None


def _check_host(acl: Acl) -> AclFault | None:
    if acl.host == WILDCARD:
        return None
    if not acl.host:
        return AclFault(acl, "the host is empty", f"give an address, or {WILDCARD} for every host")
    try:
        address = ipaddress.ip_address(acl.host)
    except ValueError:
        return AclFault(acl, f"the host {acl.host!r} is no address, and brokers compare addresses alone",
                        f"give an address, or {WILDCARD} for every host")  # fmt: skip
    written = java_address(address)
    if written != acl.host:
        return AclFault(acl, f"brokers compare texts, and never see the address {acl.host} so", f"write {written}")
    return None


def java_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return an address as Java writes it.

    >>> java_address(ipaddress.ip_address("::1"))
    '0:0:0:0:0:0:0:1'
    """
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    groups = ":".join(f"{int(address) >> shift & 0xFFFF:x}" for shift in range(112, -1, -16))
    return f"{groups}%{address.scope_id}" if address.scope_id else groups


# -- rules as text -----------------------------------------------------------------------------------------------------


def parse_acls(values: object) -> list[Acl]:
    """Return the rules of an object such as `AclReport.to_dict()`, or of a list of rules.

    Raises:
        ValueError: It is neither; or says which rule has which fault.
    """
    rows = values.get("acls") if isinstance(values, dict) else values
    if not isinstance(rows, list):
        raise ValueError('it is neither a list of rules nor an object such as {"acls": [...]}')
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(Acl.from_dict(row))
        except ValueError as error:
            raise ValueError(f"rule {number} of {count_of(len(rows), 'rule')}: {error}") from None
    return found
