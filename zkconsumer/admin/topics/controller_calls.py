"""Asks the brokers of a cluster to change topics: the controller, which Metadata names, and the leaders of partitions.

Rules, and which failure each prevents:
- What a broker serves is read before anything is asked, over the same connection. A broker that is too old is refused
  by name, and a lost connection says whether the request can have arrived.
- A controller that has moved (41), or that nobody names, is looked up and asked again until a deadline: an election
  takes seconds.
- A change is sent once. If the answer is lost, nobody knows whether it was made, and the error says so.
- Refusals keep the broker's own words: they name the value and its limit.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (4.3).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import AnyRequest
from simpleconsumer.errors import (
    AuthenticationFailed,
    BrokerError,
    SimpleConsumerError,
    Throttled,
    VersionNotServed,
    broker_error,
)
from simpleconsumer.types import Broker, TopicMetadata, TopicVerdict
from zkconsumer.admin.topics.topic_plans import nearest_setting
from zkconsumer.admin.values import (
    AdminError,
    ControllerUnavailable,
    NotFound,
    TopicNotAuthorized,
    TopicRefused,
    TopicUnfinished,
)
from zkconsumer.cluster.cluster import Cluster
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer_error import ErrorCode

T = TypeVar("T")
_Replicas = Mapping[int, tuple[int, ...]]

_ANSWER_S: Final = 5.0
"""Longest wait for one answer of a broker, besides the time that it may take for the change itself."""
_DEADLINE_S: Final = 15.0
"""Longest wait until there is a controller that answers."""
_LOOK_S: Final = 3.0
"""The same where topics can be changed without one, in ZooKeeper."""
_BACKOFF_S: Final = 0.2
_LEAST_CHANGE_S: Final = 5.0
_LONGEST_CHANGE_S: Final = 30.0
_SINCE: Final = {"create": "0.10.1", "grow": "1.0", "delete": "0.10.1", "set": "0.11", "cut": "0.11",
          "producers": "2.8"}  # fmt: skip
_NOT_AUTHORIZED: Final = (29, 30, 31)
_REMEDIES: Final = {
    ErrorCode.INVALID_REPLICATION_FACTOR: "ask for fewer replicas, or start more brokers",
    ErrorCode.POLICY_VIOLATION: "the brokers have a policy for this (create.topic.policy.class.name, "
                                "alter.config.policy.class.name): ask their operators",
    ErrorCode.TOPIC_DELETION_DISABLED: "set delete.topic.enable=true on the brokers, and restart them",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "wait until the reassignment is done",
}  # fmt: skip


def refusal(verdict: TopicVerdict, topic: str, done: str, where: str) -> AdminError:
    """Return the error for a change that a broker refuses.

    Args:
        verdict: Its answer.
        topic: The topic.
        done: The change that was asked for: `created`, `grown`, `deleted`, `set`, `cut` or `described`.
        where: The name of the cluster in error texts, such as `at localhost:9092`.
    """
    row = broker_error(verdict.error_code)
    said = (verdict.message or row.meaning).rstrip(".")
    sentence = f"topic {topic!r} is not {done} {where}: {said} ({row.name}, code {row.code})"
    if verdict.error_code in _NOT_AUTHORIZED:
        return TopicNotAuthorized(sentence, _right(done, topic))
    if verdict.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return NotFound(f"topic {topic!r} does not exist {where}")
    if verdict.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return TopicRefused(f"topic {topic!r} exists already {where}", f"`zkconsumer topics {topic}` shows it")
    if done == "deleted" and verdict.error_code == ErrorCode.INVALID_REQUEST:  # as brokers before 2.1 say it
        return TopicRefused(sentence, _REMEDIES[ErrorCode.TOPIC_DELETION_DISABLED])
    return TopicRefused(sentence, _REMEDIES.get(verdict.error_code, ""))  # type: ignore[call-overload]


def _right(done: str, topic: str) -> str:
    right = {
        "created": f"Create the cluster, or topics like {topic}", "grown": f"Alter topic {topic}",
        "set": f"AlterConfigs and DescribeConfigs of topic {topic}",
    }  # fmt: skip
    return f"have the access lists of the brokers allow this user to {right.get(done, f'Delete topic {topic}')}"


class ControllerCalls:
    """The brokers of one cluster, asked to change topics.

    Args:
        cluster: The cluster.
        client_id: The name under which brokers log and count the requests.
        where: The name of the cluster in error texts, such as `at localhost:9092`.

    Threads: One at a time.
    """

    def __init__(self, cluster: Cluster, client_id: str, where: str) -> None:
        self.cluster = cluster
        self.where = where
        self._client_id = client_id
        self._rng = random.Random()

    # -- the controller ------------------------------------------------------------------------------------------------

    def serves(self, what: str, deadline_s: float = _LOOK_S) -> bool:
        """Return whether the controller has a request; False also if none answers, or refuses the credentials.

        Args:
            what: As for `KAFKA011.serves_topic_changes`.
            deadline_s: Longest wait for a controller that answers.
        """
        try:
            return self._at_controller(
                lambda client: KAFKA011.serves_topic_changes(client.served_versions(), what), deadline_s
            )
        except (ControllerUnavailable, ClusterSilent, AuthenticationFailed):
            return False

    def require(self, what: str, topic: str, done: str, instead: str = "") -> None:
        """Raise unless the controller has a request.

        Args:
            what: As for `serves`.
            topic, done: As for `refusal`.
            instead: The advice for older brokers, a clause.

        Raises:
            TopicRefused: The brokers are too old.
            ControllerUnavailable: No controller answers in time.
            AuthenticationFailed: A broker refuses the credentials.
        """
        if not self._brokers() or not self._at_controller(
            lambda client: KAFKA011.serves_topic_changes(client.served_versions(), what), _DEADLINE_S
        ):
            raise TopicRefused(
                f"topic {topic!r} is not {done} {self.where}: that needs brokers of Kafka {_SINCE[what]} or later, and "
                "the controller is older", instead
            )  # fmt: skip

    def change(
        self, request: Callable[[int], AnyRequest[TopicVerdict]], topic: str, done: str, wait_s: float = 0.0
    ) -> None:
        """Have the controller change a topic. A change that it has begun and not finished in time counts as made.

        Args:
            request: Returns the request, for the milliseconds that the controller may take.
            topic, done: As for `refusal`.
            wait_s: How long the caller wants to wait.

        Raises:
            TopicRefused, TopicNotAuthorized, NotFound: The controller refuses it; nothing was changed.
            TopicUnfinished: The answer was lost: it may be changed.
            ControllerUnavailable: No controller answers in time.
            AuthenticationFailed: A broker refuses the credentials.
        """
        change_s = min(max(wait_s, _LEAST_CHANGE_S), _LONGEST_CHANGE_S)

        def ask(client: BrokerClient) -> TopicVerdict:
            client.served_versions()  # connects: a request lost from now on may have been sent
            try:
                return client.ask(request(round(change_s * 1000)))
            except (Throttled, VersionNotServed):  # nothing was sent
                raise
            except SimpleConsumerError as error:
                raise TopicUnfinished(
                    f"the controller {self.where} did not confirm that topic {topic!r} is {done}: {error}",
                    f"check with `zkconsumer topics {topic}`, and try again",
                ) from error

        verdict = self._at_controller(ask, _DEADLINE_S, change_s)
        if verdict.error_code not in (0, ErrorCode.REQUEST_TIMED_OUT):
            raise refusal(verdict, topic, done, self.where)

    def ask(self, request: Callable[[BrokerClient], T]) -> T:
        """Return what the controller answers to a question, which may be asked again; errors are those of `change`."""
        return self._at_controller(request, _DEADLINE_S)

    def _at_controller(self, ask: Callable[[BrokerClient], T], deadline_s: float, change_s: float = 0.0) -> T:
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                with self.client(self._find(), change_s) as client:
                    answer = ask(client)
                code = answer.error_code if isinstance(answer, TopicVerdict) else 0
                if code != ErrorCode.NOT_CONTROLLER:
                    return answer
                reason = f"{client.host}:{client.port}: {BrokerError(code, None, None)}"
            except VersionNotServed:
                raise
            except SimpleConsumerError as error:
                reason = str(error)
            if time.monotonic() + _BACKOFF_S >= deadline:
                raise ControllerUnavailable(
                    f"the controller of the cluster {self.where} does not answer within {deadline_s:g} s: {reason}",
                    "check that all brokers run; the log of one of them (controller.log) says which was elected",
                )
            time.sleep(_BACKOFF_S)

    def _brokers(self) -> list[Broker]:
        """Return the brokers that may have requests for topics: those of Kafka 0.10.0 and later."""
        return [broker for broker in self.cluster.brokers() if broker.generation == KAFKA011.name]

    def _find(self) -> Broker:
        """Return the controller.

        Raises:
            SimpleConsumerError: Nobody names one now; ask again.
            ControllerUnavailable: All brokers are too old to name one.
        """
        brokers = self._brokers()
        if not brokers:
            raise ControllerUnavailable(
                f"the brokers {self.where} cannot change topics: that needs Kafka 0.10.1 or later",
                "topics of older brokers are changed in ZooKeeper: give --zookeeper, or use Admin",
            )
        self._rng.shuffle(brokers)
        failure: SimpleConsumerError | None = None
        for broker in brokers:
            try:
                with self.client(broker) as client:
                    found = client.ask(KAFKA011.cluster_metadata(()))
            except SimpleConsumerError as error:
                failure = error
                continue
            if found.controller_id is not None and found.controller_id in found.brokers:
                return found.brokers[found.controller_id]
            failure = BrokerError(ErrorCode.NOT_CONTROLLER, None, None)
        assert failure is not None
        raise failure

    # -- any broker ----------------------------------------------------------------------------------------------------

    def views(self, topic: str) -> list[TopicMetadata]:
        """Return what each broker that answers knows of a topic; error code 3 stands for a topic that does not exist.

        Raises:
            ClusterSilent: No broker names the others.
        """
        found = []
        for broker in self.cluster.brokers():
            with suppress(SimpleConsumerError), self.client(broker) as client:
                found.append(client.ask(KAFKA011.cluster_metadata([topic])).topics[topic])
        return found

    @contextmanager
    def client(self, broker: Broker, change_s: float = 0.0) -> Iterator[BrokerClient]:
        """Yield a connection to a broker.

        Args:
            change_s: How long the broker may take for a change, in seconds.
        """
        with BrokerClient(
            broker.host, broker.port, _ANSWER_S + change_s, self._client_id, dialect=KAFKA011,
            connect_timeout_s=_ANSWER_S, security=self.cluster.security,
        ) as client:  # fmt: skip
            yield client


# -- what the nodes in ZooKeeper are for older brokers -----------------------------------------------------------------


def create_by_brokers(
    calls: ControllerCalls, topic: str, partitions: _Replicas | int, replication: int, settings: Mapping[str, str],
    wait_s: float, validate_only: bool,
) -> None:  # fmt: skip
    """Have the controller create a topic.

    Args:
        partitions: Their replicas, or how many there shall be.
        replication: How many replicas the controller shall choose for each.

    Raises:
        TopicRefused, TopicNotAuthorized: The controller refuses it; nothing was created.
        TopicUnfinished: The answer was lost.
    """
    count, assignment = (partitions, None) if isinstance(partitions, int) else (len(partitions), partitions)
    try:
        calls.change(
            lambda timeout_ms: KAFKA011.create_topic(
                topic, count, replication, assignment, settings, timeout_ms, validate_only=validate_only
            ), topic, "created", wait_s,
        )  # fmt: skip
    except TopicRefused as error:
        hint = next((near for name in settings if name in str(error) and (near := nearest_setting(name))), "")
        if hint and not error.remedy:
            raise TopicRefused(error.sentence, hint) from error
        raise


def grow_by_brokers(
    calls: ControllerCalls, topic: str, partitions: int, added: _Replicas | None, wait_s: float, validate_only: bool
) -> None:
    """Have the controller add partitions to a topic; errors are those of `create_by_brokers`.

    Args:
        partitions: How many the topic shall have.
        added: The replicas of the new ones; None: the controller chooses them.
    """
    ids = None if added is None else [added[number] for number in sorted(added)]
    calls.change(
        lambda timeout_ms: KAFKA011.grow_topic(topic, partitions, ids, timeout_ms, validate_only=validate_only),
        topic, "grown", wait_s,
    )  # fmt: skip


def delete_by_brokers(calls: ControllerCalls, topic: str, wait_s: float) -> None:
    """Have the controller delete a topic; errors are those of `create_by_brokers`."""
    calls.change(lambda timeout_ms: KAFKA011.delete_topic(topic, timeout_ms), topic, "deleted", wait_s)
