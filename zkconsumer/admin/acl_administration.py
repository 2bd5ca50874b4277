"""The methods of `Admin` and `BrokerAdmin` for access lists: Kafka 0.11 and later, with ZooKeeper or without.

Rules, and which failure each prevents:
- Everything that can be known is checked before the first rule is changed: the rules themselves, whether each broker
  that answers can hold them, whether there is an authorizer, and whether this user may see the rules.
- A rule that exists is not created again, and rules are deleted one by one, as they were listed: what somebody else
  creates meanwhile stays.
- Each request may be sent again, to another broker, too: the second one changes nothing.
- A change is done when each broker that answers knows of it: until then, one of them still decides by the old rules.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (4.3), kafka.security.authorizer.AclAuthorizer (2.8).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from simpleconsumer.access_lists import Acl, AclFilter, ResourceType
from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import AuthenticationFailed, SimpleConsumerError, broker_error
from simpleconsumer.types import Broker, TopicVerdict
from zkconsumer.admin.acl_plans import (
    AclChange,
    AclList,
    AclPlan,
    AclsUnfinished,
    FilteredAcls,
    check_new,
    in_order,
    plan,
    refused,
)
from zkconsumer.admin.topics.controller_calls import ControllerCalls
from zkconsumer.admin.topics.topic_changes import poll
from zkconsumer.admin.values import AclsNotAuthorized, AclsRefused, count_of
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer_error import ErrorCode, first_few

T = TypeVar("T")
_EVERY: Final = AclFilter()
_DEADLINE_S: Final = 15.0
"""Longest wait for a broker that answers."""
_BACKOFF_S: Final = 0.2
_CHANGE_S: Final = 30.0
"""How long a broker may take for one request: with ZooKeeper it writes a node for each rule."""
_MOST_OF_A_REQUEST: Final = 200
"""Rules in one request. A controller of KRaft refuses more than some thousands."""
_OF_ALL: Final = (ErrorCode.SECURITY_DISABLED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""Codes that a broker answers to a whole request, in each of its rows."""
_AGAIN: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER)
_SETTING: Final = (
    "set authorizer.class.name in the settings of all brokers (with KRaft also of all controllers), and restart them"
)
_OLDER: Final = "kafka-acls.sh of such a version writes access lists to ZooKeeper"


class AclAdministration:
    """Lists, compares, creates and deletes rules of access lists; a part of `Admin` and of `BrokerAdmin`.

    Every method raises `AclsRefused` where the brokers have no access lists: they are older than Kafka 0.11, or have no
    authorizer. It raises `AclsNotAuthorized` if they do not let this user see or change the rules, `ClusterSilent` if
    none of them answers, and `AuthenticationFailed` if they refuse the credentials.
    """

    _acl_calls: AclCalls

    def acls(self, within: AclFilter = _EVERY) -> AclList:
        """Return the rules of the access lists, by type and name of the resource.

        Args:
            within: Which rules; all without it.
        """
        return AclList(in_order(self._acl_calls.read(within)))

    def plan_acls(self, wanted: Iterable[Acl], within: AclFilter = _EVERY) -> AclPlan:
        """Return how wanted rules differ from those that there are. Changes nothing; `apply_acls` does.

        Args:
            wanted: All rules that there shall be.
            within: Which of the existing rules are compared: others are in nobody's way.

        Raises:
            AclsRefused: A wanted rule has no effect, is not among those that `within` means, or is one that a broker
                cannot hold.
        """
        rules = list(dict.fromkeys(wanted))
        check_new(rules)
        found = plan(rules, (), within)
        self._acl_calls.require(found.to_create)
        return plan(rules, self._acl_calls.read(_EVERY), within)

    def apply_acls(self, planned: AclPlan, *, delete: bool = False, wait_s: float = 30.0) -> AclChange:
        """Create the rules that a plan misses; delete those that it has too much only if told to.

        What was changed since the plan was made stays: a rule that exists by now is not created, and one that is not in
        the plan is not deleted. Rules are created first, so that nobody loses a right that both lists give.

        Args:
            planned: Of `plan_acls`.
            delete: Delete the rules of `to_delete`.
            wait_s: Longest wait until each broker knows of the change, in seconds; 0 does not wait.

        Raises:
            AclsRefused: A rule has no effect, or a broker cannot hold it; nothing was changed.
            AclsUnfinished: Not all rules are changed, or not all brokers know of it in time; `change` says which.
        """
        there = self._checked(planned.to_create, planned.to_delete if delete else ())
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
        there = self._checked(acls, ())
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

    def _checked(self, created: Sequence[Acl], deleted: Sequence[Acl]) -> set[Acl]:
        """Return the existing rules, after everything is checked that can be known before a change."""
        check_new(created)
        _check_known(deleted)
        self._acl_calls.require(created)
        return set(self._acl_calls.read(_EVERY))

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
        is_begun = len(not_created) < len(to_create)
        not_deleted = self._acl_calls.delete(doomed, is_begun=is_begun)
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
        done = not problems and self._is_seen(created, deleted, wait_s)
        change = AclChange(
            created, in_order({*wanted, *kept} & existing), deleted, rows, problems, bool(to_create or doomed), done
        )
        if problems:
            raise AclsUnfinished(
                f"{len(problems)} of {count_of(len(to_create) + len(doomed), 'rule')} of the access lists "
                f"{self._acl_calls.where} are not changed: {first_few(*problems, most=3, between='; ')}", change,
                "see what there is with `zkconsumer acls list`, and try again: a second change does what is missing",
            )  # fmt: skip
        if not done and wait_s > 0:
            raise AclsUnfinished(
                f"the access lists {self._acl_calls.where} are changed, but not every broker knows of it after "
                f"{wait_s:g} s", change,
                "check again with `zkconsumer acls list`; each broker reads the change by itself",
            )  # fmt: skip
        return change

    def _is_seen(self, created: Sequence[Acl], deleted: Sequence[Acl], wait_s: float) -> bool:
        if not created and not deleted:
            return True
        return wait_s > 0 and poll(lambda: self._acl_calls.all_know(created, deleted), wait_s)


def _check_known(acls: Sequence[Acl]) -> None:
    """Raise for a rule that only a newer version of this package can name: a filter would mean more than that rule."""
    for acl in acls:
        kinds = (acl.resource_type, acl.pattern_type, acl.operation, acl.permission)
        if any(kind.name == "UNKNOWN" for kind in kinds):
            raise AclsRefused(f"no rule is deleted: the brokers have a rule that is newer than this client: {acl}",
                              "leave it out by a narrower filter, or use kafka-acls.sh of their version")  # fmt: skip


class AclCalls:
    """The brokers of one cluster, asked about access lists.

    Args:
        calls: To the brokers.

    Threads: One at a time.
    """

    def __init__(self, calls: ControllerCalls) -> None:
        self._calls = calls
        self._rng = random.Random()
        self.where = calls.where

    def read(self, within: AclFilter) -> list[Acl]:
        """Return the rules that a filter means, as one broker knows them.

        Raises:
            AclsRefused: The brokers are too old, or have no authorizer.
            AclsNotAuthorized: They do not let this user see the rules.
            ClusterSilent: None of them answers.
        """
        verdict, found = self._at_any(
            lambda client: client.ask(KAFKA011.describe_acls(within)), lambda answer: [answer[0]]
        )
        if verdict.error_code:
            raise self._refusal(verdict, "listed", "Describe")
        return found

    def require(self, acls: Sequence[Acl]) -> None:
        """Raise unless each broker that answers can hold some rules: one that cannot would not look at them.

        Raises:
            AclsRefused: Names the rule and the broker.
        """
        needed = [acl for acl in acls if not KAFKA011.serves_acls(_OLDEST_VERSIONS, [acl])]
        for broker in self._brokers() if needed else ():
            with suppress(SimpleConsumerError), self._calls.client(broker) as client:
                served = client.served_versions()
                for acl in needed:
                    if KAFKA011.serves_acls(served) and not KAFKA011.serves_acls(served, [acl]):
                        what, since = _NEEDS[acl.resource_type is ResourceType.USER]
                        raise refused(acl, f"broker {broker.id} is older than Kafka {since}, and has no "
                                           f"rules {what}", "upgrade it, or leave the rule out")  # fmt: skip

    def create(self, acls: Sequence[Acl]) -> dict[Acl, str]:
        """Create rules, and return which of them are not created, or may not be, with a sentence about each.

        Raises:
            AclsRefused, AclsNotAuthorized: As for `read`; nothing was changed.
        """

        def ask(client: BrokerClient, part: Sequence[Acl]) -> list[TopicVerdict]:
            return client.ask(KAFKA011.create_acls(part))

        return self._change(acls, "created", ask, is_begun=False)

    def delete(self, acls: Sequence[Acl], *, is_begun: bool) -> dict[Acl, str]:
        """The same for rules that are deleted; one that is gone already counts as deleted.

        Args:
            is_begun: The change has begun, so that its refusal is a problem of these rules, and no error.
        """

        def ask(client: BrokerClient, part: Sequence[Acl]) -> list[TopicVerdict]:
            answers = client.ask(KAFKA011.delete_acls([AclFilter.of(acl) for acl in part]))
            return [next((each for each, _ in found.acls if each.error_code), found.verdict) for found in answers]

        return self._change(acls, "deleted", ask, is_begun=is_begun)

    def all_know(self, created: Sequence[Acl], deleted: Sequence[Acl]) -> bool:
        """Return whether each broker that answers, and lets this user see the rules, knows of a change."""
        both = (*created, *deleted)
        within = AclFilter.of(both[0]) if len(both) == 1 else _EVERY
        for broker in self._brokers():
            with suppress(SimpleConsumerError), self._calls.client(broker) as client:
                verdict, found = client.ask(KAFKA011.describe_acls(within))
                if verdict.error_code == 0 and (not set(created) <= set(found) or set(deleted) & set(found)):
                    return False
        return True

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _change(
        self, acls: Sequence[Acl], done: str, ask: Callable[[BrokerClient, Sequence[Acl]], list[TopicVerdict]],
        *, is_begun: bool,
    ) -> dict[Acl, str]:  # fmt: skip
        problems: dict[Acl, str] = {}
        for start in range(0, len(acls), _MOST_OF_A_REQUEST):
            part = acls[start : start + _MOST_OF_A_REQUEST]
            try:
                verdicts = self._at_any(lambda client: ask(client, part), lambda answer: answer, _CHANGE_S)  # noqa: B023
            except (ClusterSilent, AuthenticationFailed) as error:
                problems.update({acl: f"nobody knows whether the rule {acl} is {done}: {error}" for acl in part})
                later = acls[start + _MOST_OF_A_REQUEST :]
                problems.update({acl: f"the rule {acl} is not {done}: no broker was asked any more" for acl in later})
                break
            whole = [verdict for verdict in verdicts if verdict.error_code in _OF_ALL]
            if whole and not is_begun:
                raise self._refusal(whole[0], "changed", "Alter")
            is_begun = True
            for acl, verdict in zip(part, verdicts, strict=True):
                if verdict.error_code:
                    problems[acl] = f"the rule {acl} is not {done}: {_said(verdict)}"
        return problems

    def _brokers(self) -> list[Broker]:
        """Return the brokers that may have requests for access lists: those of Kafka 0.10.0 and later."""
        found = [broker for broker in self._calls.cluster.brokers() if broker.generation == KAFKA011.name]
        self._rng.shuffle(found)
        return found

    def _at_any(
        self, ask: Callable[[BrokerClient], T], verdicts: Callable[[T], Iterable[TopicVerdict]], change_s: float = 0.0
    ) -> T:
        """Return what the first broker answers that has the requests.

        Raises:
            AclsRefused: All brokers are too old.
            ClusterSilent: None has answered in time.
        """
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            reasons: list[str] = []
            for broker in self._brokers():
                try:
                    with self._calls.client(broker, change_s) as client:
                        if not KAFKA011.serves_acls(client.served_versions()):
                            continue
                        answer = ask(client)
                except SimpleConsumerError as error:
                    reasons.append(str(error))
                    continue
                again = [each for each in verdicts(answer) if each.error_code in _AGAIN]
                if not again:
                    return answer
                reasons.append(_said(again[0]))
            if not reasons and not self._calls.cluster.brokers():
                reasons.append("no broker is registered")
            if not reasons:
                raise AclsRefused(
                    f"there are no access lists {self.where}: that needs brokers of Kafka 0.11 or later",
                    _OLDER,
                )
            if time.monotonic() + _BACKOFF_S >= deadline:
                raise ClusterSilent(
                    f"no broker has answered about the access lists {self.where} within {_DEADLINE_S:g} s: {reasons[-1]}"
                )
            time.sleep(_BACKOFF_S)

    def _refusal(self, verdict: TopicVerdict, done: str, right: str) -> AclsRefused | AclsNotAuthorized:
        row = broker_error(verdict.error_code)
        if verdict.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return AclsNotAuthorized(
                f"the access lists {self.where} are not {done}: this user may not do that ({row.name}, code "
                f"{row.code})",
                f"have the access lists of the brokers allow this user to {right} the cluster",
            )
        if verdict.error_code == ErrorCode.SECURITY_DISABLED:
            return AclsRefused(
                f"there are no access lists {self.where}: the brokers have no authorizer ({row.name}, code {row.code})",
                _SETTING,
            )
        return AclsRefused(f"the access lists {self.where} are not {done}: {_said(verdict)}")


_OLDEST_VERSIONS: Final = {key: range(1) for key in (29, 30, 31)}
_NEEDS: Final = {False: ("with prefixes", "2.0"), True: ("about users", "3.3")}


def _said(verdict: TopicVerdict) -> str:
    row = broker_error(verdict.error_code)
    # The words of a broker about a missing right are its internals: the request as Java prints it.
    words = "" if verdict.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else verdict.message
    return f"{(words or row.meaning).rstrip('.')} ({row.name}, code {row.code})"
