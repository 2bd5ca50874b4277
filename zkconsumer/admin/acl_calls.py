"""Asks the brokers of a cluster about access lists: any of them answers, and passes a change on where it has to.

Rules, and which failure each prevents:
- Each request may be sent again, to another broker, too: the second one changes nothing.
- Rules go to clusters alone of which each broker that answers looks at them, as far as its versions of requests show.
- A request that may have arrived may have been carried out. One that was never sent was not: it is said which it was.
- The words of a broker about a missing right are its internals: the request as Java prints it. They are left out.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (4.3), kafka.security.authorizer.AclAuthorizer (2.8).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from simpleconsumer.access_lists import Acl, AclFilter
from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import (
    AuthenticationFailed,
    SimpleConsumerError,
    Throttled,
    VersionNotServed,
    broker_error,
)
from simpleconsumer.types import Broker, TopicVerdict
from zkconsumer.admin.acl_plans import AclFault, refuse
from zkconsumer.admin.topics.controller_calls import ControllerCalls
from zkconsumer.admin.values import AclsNotAuthorized, AclsRefused
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer_error import ErrorCode

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
_MAYBE: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION)
_AGAIN: Final = (*_MAYBE, ErrorCode.NOT_CONTROLLER)
_SETTING: Final = (
    "set authorizer.class.name in the settings of all brokers (with KRaft also of all controllers), and restart them"
)
_OLDER: Final = "kafka-acls.sh of such a version writes access lists to ZooKeeper"


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
        """Raise unless each broker that answers looks at some rules, as far as its versions of requests show it.

        Raises:
            AclsRefused: Names each rule that one does not look at, with the broker.
        """
        needed = [acl for acl in acls if KAFKA011.unseen_of_acl({}, acl)]
        faults: dict[Acl, AclFault] = {}
        for broker in self._brokers() if needed else ():
            with suppress(SimpleConsumerError, AuthenticationFailed), self._calls.client(broker) as client:
                served = client.served_versions()
                if not KAFKA011.serves_acls(served):
                    continue
                for acl in needed:
                    if unseen := KAFKA011.unseen_of_acl(served, acl):
                        why = f"broker {broker.id} never looks at {unseen}"
                        faults.setdefault(acl, AclFault(acl, why, "upgrade it, or leave the rule out"))
        refuse(list(faults.values()))

    def create(self, acls: Sequence[Acl]) -> dict[Acl, str]:
        """Create rules, and return which of them are not created, or may not be, with a sentence about each.

        Raises:
            AclsRefused, AclsNotAuthorized: As for `read`; nothing was changed.
        """

        def ask(client: BrokerClient, part: Sequence[Acl]) -> list[TopicVerdict]:
            return client.ask(KAFKA011.create_acls(part))

        return self._change(acls, "created", ask, is_begun=False)

    def delete(self, acls: Sequence[Acl], *, is_begun: bool = False) -> dict[Acl, str]:
        """The same for rules that are deleted; one that is gone already counts as deleted.

        Args:
            is_begun: The change has begun, so that its refusal is a problem of these rules, and no error.
        """

        def ask(client: BrokerClient, part: Sequence[Acl]) -> list[TopicVerdict]:
            answers = client.ask(KAFKA011.delete_acls([AclFilter.of(acl) for acl in part]))
            return [next((each for each, _ in found.acls if each.error_code), found.verdict) for found in answers]

        return self._change(acls, "deleted", ask, is_begun=is_begun)

    def doubt(self, created: Sequence[Acl], deleted: Sequence[Acl], refusing: set[int]) -> str:
        """Return why it is not sure that each broker knows of a change, a clause.

        Args:
            created, deleted: The change.
            refusing: The ids of brokers that have refused the credentials: they are not asked, and further ones are
                added. Many refusals may have the user locked out.

        Returns:
            Empty if each broker that answers, and lets this user see the rules, knows of it. At least one has to.

        Raises:
            AuthenticationFailed: All brokers refuse the credentials.
        """
        both = (*created, *deleted)
        within = AclFilter.of(both[0]) if len(both) == 1 else _EVERY
        is_known, reason = False, "none is there"
        brokers = self._brokers()
        for broker in brokers:
            if broker.id in refusing:
                continue
            try:
                with self._calls.client(broker) as client:
                    verdict, found = client.ask(KAFKA011.describe_acls(within))
            except AuthenticationFailed:
                refusing.add(broker.id)
                if len(refusing) == len(brokers):
                    raise
                continue
            except SimpleConsumerError as error:
                reason = str(error)
                continue
            if verdict.error_code:
                reason = _said(verdict)
            elif not set(created) <= set(found) or set(deleted) & set(found):
                return f"not every broker knows of it: broker {broker.id} does not"
            else:
                is_known = True
        return "" if is_known else f"no broker has said whether it knows of it: {reason}"

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _change(
        self, acls: Sequence[Acl], done: str, ask: Callable[[BrokerClient, Sequence[Acl]], list[TopicVerdict]],
        *, is_begun: bool,
    ) -> dict[Acl, str]:  # fmt: skip
        problems: dict[Acl, str] = {}
        for start in range(0, len(acls), _MOST_OF_A_REQUEST):
            part = acls[start : start + _MOST_OF_A_REQUEST]
            tries = _Tries(ask, part)
            try:
                verdicts = self._at_any(tries.ask, lambda answer: answer, _CHANGE_S)
            except (ClusterSilent, AuthenticationFailed) as error:
                for acl in part:
                    may_be = f"nobody knows whether the rule {acl} is {done}"
                    problems[acl] = f"{may_be if tries.is_open else f'the rule {acl} is not {done}'}: {error}"
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
                unusable = self._calls.cluster.reader.left_out
                reasons += [f"broker {number} cannot be used: {why}" for number, why in sorted(unusable.items())]
                reasons = reasons or ["no broker is registered"]
            if not reasons:
                raise AclsRefused(
                    f"there are no access lists {self.where}: that needs brokers of Kafka 0.11 or later",
                    _OLDER,
                )
            if time.monotonic() + _BACKOFF_S >= deadline:
                raise ClusterSilent(
                    f"no broker has answered about the access lists {self.where} within {_DEADLINE_S:g} s: "
                    f"{reasons[-1]}"
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


class _Tries:
    """The tries of one part of a change.

    Attributes:
        is_open: A try may have been carried out, and nobody knows whether it was.
    """

    def __init__(
        self, change: Callable[[BrokerClient, Sequence[Acl]], list[TopicVerdict]], part: Sequence[Acl]
    ) -> None:
        self._change = change
        self._part = part
        self.is_open = False

    def ask(self, client: BrokerClient) -> list[TopicVerdict]:
        """Return what a broker answers to the change."""
        before, self.is_open = self.is_open, True
        try:
            verdicts = self._change(client, self._part)
        except (Throttled, VersionNotServed):  # nothing was sent
            self.is_open = before
            raise
        self.is_open = before or any(verdict.error_code in _MAYBE for verdict in verdicts)
        return verdicts


def _said(verdict: TopicVerdict) -> str:
    row = broker_error(verdict.error_code)
    words = "" if verdict.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else verdict.message
    return f"{(words or row.meaning).rstrip('.')} ({row.name}, code {row.code})"
