"""The methods of `Admin` and `BrokerAdmin` for access lists: Kafka 0.11 and later, with ZooKeeper or without.

Rules, and which failure each prevents:
- Before the first rule is changed, these are checked: whether this user may see the rules, the rules that are missing,
  and whether each broker that answers looks at them. Rules that exist are never in the way.
- A rule that exists is not created again, and rules are deleted one by one, as they were listed: what somebody else
  creates meanwhile stays.
- A change is done when each broker that answers knows of it: until then, one of them still decides by the old rules.
  If none answers, it is not done.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (4.3), kafka.security.authorizer.AclAuthorizer (2.8).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

from simpleconsumer.access_lists import Acl, AclFilter
from simpleconsumer.errors import AuthenticationFailed
from zkconsumer.admin.acl_calls import AclCalls
from zkconsumer.admin.acl_plans import (
    AclChange,
    AclPlan,
    AclReport,
    AclsUnfinished,
    FilteredAcls,
    check_new,
    in_order,
    plan,
)
from zkconsumer.admin.topics.topic_changes import poll
from zkconsumer.admin.values import AclsRefused, count_of
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer_error import first_few

_EVERY: Final = AclFilter()


class AclAdministration:
    """Lists, compares, creates and deletes rules of access lists; a part of `Admin` and of `BrokerAdmin`.

    Every method raises `AclsRefused` where the brokers have no access lists: they are older than Kafka 0.11, or have no
    authorizer. It raises `AclsNotAuthorized` if they do not let this user see or change the rules, `ClusterSilent` if
    none of them answers, and `AuthenticationFailed` if they refuse the credentials.
    """

    _acl_calls: AclCalls

    def acls(self, within: AclFilter = _EVERY) -> AclReport:
        """Return the rules of the access lists, by type and name of the resource.

        Args:
            within: Which rules; all without it.
        """
        return AclReport(in_order(self._acl_calls.read(within)))

    def plan_acls(self, rules: Iterable[Acl], within: AclFilter = _EVERY) -> AclPlan:
        """Return how the rules that you want differ from those that there are. Changes nothing; `apply_acls` does.

        Args:
            rules: All rules that you want.
            within: Which of the existing rules are compared: others are in nobody's way.

        Raises:
            AclsRefused: A rule is not among those that `within` means, or is missing and has no effect, or is missing
                and one that a broker does not look at. Rules that exist are not checked.
        """
        found = plan(list(dict.fromkeys(rules)), self._acl_calls.read(_EVERY), within)
        self._check_missing(found.to_create)
        return found

    def apply_acls(self, planned: AclPlan, *, delete: bool = False, wait_s: float = 30.0) -> AclChange:
        """Create the rules that a plan misses; delete those that it has too much only if told to.

        What was changed since the plan was made stays: a rule that exists by now is not created, and one that is not in
        the plan is not deleted. Rules are created first, so that nobody loses a right that both lists give.

        Args:
            planned: Of `plan_acls`.
            delete: Delete the rules of `to_delete`.
            wait_s: Longest wait until each broker knows of the change, in seconds; 0 does not wait.

        Raises:
            AclsRefused: A rule has no effect, a broker does not look at it, or one that is to be deleted is newer than
                this client; nothing was changed.
            AclsUnfinished: Not all rules are changed, or not all brokers know of it in time; `change` says which.
        """
        if delete:
            _check_known(planned.to_delete)
        there = set(self._acl_calls.read(_EVERY))
        self._check_missing([acl for acl in planned.to_create if acl not in there])
        gone = tuple(acl for acl in planned.to_delete if acl in there) if delete else ()
        return self._changed(planned.to_create, there, gone, wait_s, kept=planned.unchanged)

    def create_acls(self, *acls: Acl, dry_run: bool = False, wait_s: float = 30.0) -> AclChange:
        """Create rules, and wait until each broker knows of them. A rule that exists stays as it is.

        Args:
            acls: The rules, at least one.
            dry_run: Check everything, and create nothing.
            wait_s: As for `apply_acls`.

        Raises:
            ValueError: No rule is given.
            AclsRefused, AclsUnfinished: As for `apply_acls`.
        """
        if not acls:
            raise ValueError("give at least one rule")
        check_new(acls)
        there = set(self._acl_calls.read(_EVERY))
        self._check_missing([acl for acl in acls if acl not in there])
        if dry_run:
            found = plan(acls, there, _EVERY)
            return AclChange(found.to_create, found.unchanged)
        return self._changed(acls, there, (), wait_s)

    def delete_acls(self, *filters: AclFilter, dry_run: bool = False, wait_s: float = 30.0) -> AclChange:
        """Delete the rules that filters mean, and wait until no broker knows of them any more.

        The rules are listed first, and each is deleted by itself: one that somebody else creates meanwhile stays.

        Args:
            filters: At least one. `AclFilter()` means all rules, `AclFilter.of(acl)` one of them.
            dry_run: Say which rules that would be, and delete nothing.
            wait_s: As for `apply_acls`.

        Returns:
            The change; `filters` has the result of each filter. A rule that two filters mean stands at both.

        Raises:
            ValueError: No filter is given.
            AclsRefused, AclsUnfinished: As for `apply_acls`.
        """
        if not filters:
            raise ValueError("give at least one filter; AclFilter() means all rules")
        there = self._acl_calls.read(filters[0] if len(filters) == 1 else _EVERY)
        by_filter = {each: in_order(filter(each.matches, there)) for each in filters}
        doomed = in_order(itertools.chain.from_iterable(by_filter.values()))
        _check_known(doomed)
        if dry_run:
            rows = tuple(FilteredAcls(each, acls) for each, acls in by_filter.items())
            return AclChange(acls_deleted=doomed, filters=rows)
        return self._changed((), there, doomed, wait_s, by_filter)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _check_missing(self, acls: Sequence[Acl]) -> None:
        """Raise if rules that are missing cannot be created so that brokers look at them."""
        check_new(acls)
        self._acl_calls.require(acls)

    def _changed(
        self,
        wanted: Sequence[Acl],
        there: Iterable[Acl],
        doomed: Sequence[Acl],
        wait_s: float,
        by_filter: dict[AclFilter, tuple[Acl, ...]] | None = None,
        kept: Sequence[Acl] = (),
    ) -> AclChange:
        """Create and delete rules, and return what has become of them.

        Args:
            wanted: Rules that are created unless they are there.
            there: The rules that there are.
            doomed: Rules of them that are deleted.
            by_filter: These by the filters that mean them.
            kept: Rules that are wanted, and not created: one that is gone by now stays so.
        """
        existing = set(there)
        to_create = in_order(set(wanted) - existing)
        not_created = self._acl_calls.create(to_create)
        if not_created:  # a rule that is deleted may be one that another replaces
            not_deleted = {acl: f"the rule {acl} is not deleted: not all others are created" for acl in doomed}
        else:
            not_deleted = self._acl_calls.delete(doomed, is_begun=bool(to_create))
        rows = tuple(
            FilteredAcls(
                each, tuple(acl for acl in acls if acl not in not_deleted),
                tuple(not_deleted[acl] for acl in acls if acl in not_deleted),
            )
            for each, acls in (by_filter or {}).items()
        )  # fmt: skip
        created = tuple(acl for acl in to_create if acl not in not_created)
        deleted = tuple(acl for acl in doomed if acl not in not_deleted)
        problems = (*not_created.values(), *not_deleted.values())
        doubt = "" if problems or wait_s <= 0 else self._doubt(created, deleted, wait_s)
        is_known = bool(not problems and not doubt and (wait_s > 0 or not (created or deleted)))
        change = AclChange(
            created, in_order({*wanted, *kept} & existing), deleted, rows,
            (*problems, *([f"the rules are changed, but {doubt}"] if doubt else [])),
            bool(to_create or doomed), is_known,
        )  # fmt: skip
        if problems:
            raise AclsUnfinished(
                f"{len(problems)} of {count_of(len(to_create) + len(doomed), 'rule')} of the access lists "
                f"{self._acl_calls.where} are not changed: {first_few(*problems, most=3, between='; ')}", change,
                "see what there is with `zkconsumer acls list`, and try again: a second change does what is missing",
            )  # fmt: skip
        if doubt:
            raise AclsUnfinished(
                f"the access lists {self._acl_calls.where} are changed, but {doubt}", change,
                "check again with `zkconsumer acls list`; each broker reads the change by itself",
            )  # fmt: skip
        return change

    def _doubt(self, created: Sequence[Acl], deleted: Sequence[Acl], wait_s: float) -> str:
        """Return why it is not sure, after the wait, that each broker knows of a change; empty if it is."""
        doubt = ""
        refusing: set[int] = set()

        def is_known() -> bool:
            nonlocal doubt
            doubt = self._acl_calls.doubt(created, deleted, refusing)
            return not doubt

        try:
            if (not created and not deleted) or poll(is_known, wait_s):
                return ""
        except (ClusterSilent, AuthenticationFailed) as error:  # the change is made all the same
            return f"no broker has said whether it knows of it: {error}"
        return f"{doubt}, after {wait_s:g} s"


def _check_known(acls: Sequence[Acl]) -> None:
    """Raise for a rule that only a newer version of this package can name: a filter would mean more than that rule."""
    for acl in acls:
        kinds = (acl.resource_type, acl.pattern_type, acl.operation, acl.permission)
        if any(kind.name == "UNKNOWN" for kind in kinds):
            raise AclsRefused(f"no rule is deleted: the brokers have a rule that is newer than this client: {acl}",
                              "leave it out by a narrower filter, or use kafka-acls.sh of their version")  # fmt: skip
