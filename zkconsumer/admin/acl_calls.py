"""Asks the brokers of a cluster about access lists: any of them answers, and passes a change on where it has to.

Rules, and which failure each prevents:
- Each request may be sent again, to another broker, too: the second one changes nothing.
- A broker that cannot hold a rule would not look at it, so rules go to clusters alone of which each broker that answers
  can hold them.
- The words of a broker about a missing right are its internals: the request as Java prints it. They are left out.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (4.3), kafka.security.authorizer.AclAuthorizer (2.8).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from simpleconsumer.access_lists import Acl, AclFilter, ResourceType
from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.errors import AuthenticationFailed, SimpleConsumerError, broker_error
from simpleconsumer.messages.apis import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from simpleconsumer.types import Broker, TopicVerdict
from zkconsumer.admin.acl_plans import refused
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
_AGAIN: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_CONTROLLER)
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

    def delete(self, acls: Sequence[Acl], *, is_begun: bool = False) -> dict[Acl, str]:
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
            with suppress(SimpleConsumerError, AuthenticationFailed), self._calls.client(broker) as client:
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


_OLDEST_VERSIONS: Final = {api.key: range(1) for api in (DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS)}
_NEEDS: Final = {False: ("with prefixes", "2.0"), True: ("about users", "3.3")}


def _said(verdict: TopicVerdict) -> str:
    row = broker_error(verdict.error_code)
    words = "" if verdict.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else verdict.message
    return f"{(words or row.meaning).rstrip('.')} ({row.name}, code {row.code})"
