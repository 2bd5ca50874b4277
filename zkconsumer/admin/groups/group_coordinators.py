"""Asks the brokers that coordinate groups about one of them, and changes it.

Rules, and which failure each prevents:
- A coordinator that is loading its groups, is not known yet or has moved (codes 14, 15, 16) is looked up and asked
  again until a deadline: each of these is normal for seconds after a broker has started.
- Without the topic `__consumer_offsets` no coordinator is looked up to read: the question would create the topic.
- A refusal for want of rights (29, 30, 31) is an error of its own: nothing is missing then, it is not shown.

Source: org.apache.kafka.clients.admin.KafkaAdminClient (4.3).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from rebalance.subscription import OFFSETS_TOPIC
from simpleconsumer.calls.coordinator_client import GroupsClient
from simpleconsumer.dialect import coordinates_groups, dialect_of
from simpleconsumer.errors import BrokerError, SimpleConsumerError
from simpleconsumer.types import Broker, DescribedGroup, OffsetAndMetadata, TopicPartition
from zkconsumer.admin.groups.broker_group_report import DEAD, CoordinatedGroup, of_classic_protocol, of_newest_protocol
from zkconsumer.admin.values import AdminError, CoordinatorUnavailable, GroupNotAuthorized
from zkconsumer.cluster.cluster import Cluster
from zkconsumer_error import ErrorCode

T = TypeVar("T")
Row = tuple[int, OffsetAndMetadata]

ANSWER_S: Final = 5.0
"""Longest wait for one answer of a broker."""
DEADLINE_S: Final = 15.0
"""Longest wait until a coordinator is known and answers: one that has just started reads its groups first."""
BACKOFF_S: Final = 0.2
"""Wait before a coordinator is looked up and asked again."""
_PARTITIONS_A_REQUEST: Final = 1000
ASK_AGAIN: Final = (14, 15, 16)
"""Codes of a coordinator that reads its groups, is not known yet, or has moved."""
NOT_AUTHORIZED: Final = (29, 30, 31)
"""Codes of a refusal for want of rights: on a topic, a group, the cluster."""


def check_code(code: int, group: str) -> None:
    """Raise if a broker has answered a question about a group with an error.

    Raises:
        GroupNotAuthorized: For want of rights.
        AdminError: For another reason.
    """
    if not code:
        return
    sentence = f"group {group!r}: {BrokerError(code, None, None)}"
    if code in NOT_AUTHORIZED:
        raise GroupNotAuthorized(
            sentence, "allow this user in the brokers' ACLs to Describe the group and its topics, and for changes to "
                      "Read or Delete the group"
        )  # fmt: skip
    raise AdminError(sentence)


class GroupCoordinators:
    """The coordinators of the groups of one cluster.

    Args:
        cluster: Whose brokers are asked.
        client_id: The name under which brokers log and count the requests.

    Threads: One at a time.
    """

    def __init__(self, cluster: Cluster, client_id: str) -> None:
        self.cluster = cluster
        self._client_id = client_id
        self._rng = random.Random()

    def brokers(self) -> list[Broker]:
        """Return the brokers that may coordinate groups, which those of Kafka 0.9 and later do."""
        return [broker for broker in self.cluster.brokers() if coordinates_groups(broker)]

    def exist(self) -> bool:
        """Return whether groups can be coordinated at all: the topic of their offsets is there."""
        # All topics are asked for: brokers of 1.1 create this one if it is named, also where none shall be created.
        return OFFSETS_TOPIC in self.cluster.topics()

    # -- one group -----------------------------------------------------------------------------------------------------

    def describe(self, group: str, deadline_s: float = DEADLINE_S) -> CoordinatedGroup:
        """Return a group with its members; its state is Dead if the coordinator does not know it.

        Args:
            deadline_s: Longest wait for a coordinator that answers.

        Raises:
            CoordinatorUnavailable: No broker coordinates the group, or it does not answer in time.
            GroupNotAuthorized: The brokers do not show the group.
        """

        def ask(client: GroupsClient, broker: Broker) -> tuple[int, CoordinatedGroup]:
            [classic] = client.describe_groups([group])
            is_known = classic.error_code != ErrorCode.GROUP_ID_NOT_FOUND and classic.state != DEAD
            if classic.error_code not in (0, ErrorCode.GROUP_ID_NOT_FOUND) or is_known:
                return classic.error_code, of_classic_protocol(classic, broker)
            # That protocol has no group without a name, and the question is refused (24).
            if group and client.dialect.chooses_versions and client.serves_describe_consumer_groups():
                [newest] = client.describe_consumer_groups([group])
                if newest.error_code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                    return newest.error_code, of_newest_protocol(newest, broker)
            return 0, of_classic_protocol(_dead(classic), broker)

        code, found = self.at_coordinator(group, ask, lambda answer: answer[0], deadline_s)
        check_code(code, group)
        return found

    def fetch_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets that a group has stored; errors are those of `describe`."""
        partitions: list[TopicPartition] = []

        def ask(client: GroupsClient, broker: Broker) -> tuple[int, dict[TopicPartition, Row]]:
            if not partitions and not self.serves_fetch_all_offsets(client):
                partitions.extend(self.all_partitions())
            return self.fetch_rows(client, group, partitions)

        def code_of(answer: tuple[int, dict[TopicPartition, Row]]) -> int:
            return answer[0] or _first(code for code, _ in answer[1].values())

        answer = self.at_coordinator(group, ask, code_of)
        check_code(code_of(answer), group)
        rows = answer[1]
        return {name: row for name, (code, row) in rows.items() if not code and row.offset >= 0}

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Store offsets for a group without members; return the error code of each partition, 25 if it has members.

        Raises:
            CoordinatorUnavailable: No broker coordinates the group, or it does not answer in time.
        """
        wanted = {name: OffsetAndMetadata(offset) for name, offset in offsets.items()}
        return self._in_parts(group, list(wanted), lambda client, part: client.commit_offsets(
            group, {name: wanted[name] for name in part}))  # fmt: skip

    def delete_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> tuple[bool, dict[TopicPartition, int]]:
        """Delete offsets; return whether they are gone, and the error code of each partition.

        Brokers before Kafka 2.4 have no request for it, and later ones refuse it for a group whose name is empty (24):
        -1 is stored, which every member takes for no offset.
        """
        gone: list[bool] = []

        def ask(client: GroupsClient, part: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
            gone[:] = [bool(group) and client.dialect.chooses_versions and client.serves_delete_offsets()]
            if gone[0]:
                return client.delete_offsets(group, part)
            return client.commit_offsets(group, dict.fromkeys(part, OffsetAndMetadata(-1)))

        codes = self._in_parts(group, partitions, ask)
        return gone == [True], codes

    def delete_group(self, group: str) -> int | None:
        """Delete a group with its offsets; return the error code, None if the broker has no way to do it.

        Brokers before Kafka 1.1 have none, and some later ones none for a group whose name is empty.
        """

        def ask(client: GroupsClient, broker: Broker) -> int | None:
            if not (client.dialect.chooses_versions and client.serves_delete_groups()):
                return None
            code = client.delete_group(group)
            return None if code == ErrorCode.INVALID_GROUP_ID and not group else code

        def code_of(answer: int | None) -> int:
            return answer or 0

        return self.at_coordinator(group, ask, code_of)

    # -- steps ---------------------------------------------------------------------------------------------------------

    def at_coordinator(
        self,
        group: str,
        ask: Callable[[GroupsClient, Broker], T],
        code_of: Callable[[T], int],
        deadline_s: float = DEADLINE_S,
    ) -> T:
        """Return what the coordinator of a group answers, which is looked up and asked again until a deadline.

        Args:
            ask: Asks it, over a connection of its own.
            code_of: Returns the error code of an answer.
            deadline_s: Longest wait for it.

        Raises:
            CoordinatorUnavailable: It is not known, or does not answer in time.
            AuthenticationFailed: It refuses the credentials.
        """
        deadline = time.monotonic() + deadline_s
        while True:
            try:
                broker = self.find(group)
                with self.client(broker) as client:
                    answer = ask(client, broker)
                code = code_of(answer)
                if code not in ASK_AGAIN:
                    return answer
                reason = f"broker {broker.id}: {BrokerError(code, None, None)}"
            except SimpleConsumerError as error:
                reason = str(error)
            if time.monotonic() + BACKOFF_S >= deadline:
                raise CoordinatorUnavailable(
                    f"the coordinator of group {group!r} does not answer within {deadline_s:g} s: {reason}",
                    "check that all brokers run, and that the partitions of __consumer_offsets have leaders",
                )
            time.sleep(BACKOFF_S)

    def find(self, group: str) -> Broker:
        """Return the coordinator of a group.

        Raises:
            SimpleConsumerError: No broker names one; ask again.
            CoordinatorUnavailable: No broker coordinates groups.
            GroupNotAuthorized: The brokers do not show the group.
        """
        brokers = self.brokers()
        if not brokers:
            raise CoordinatorUnavailable(
                f"no broker coordinates group {group!r}: no broker of the cluster is of Kafka 0.9 or later",
                "groups of older brokers are in ZooKeeper: give --zookeeper",
            )
        self._rng.shuffle(brokers)
        failure: SimpleConsumerError | None = None
        for broker in brokers:
            try:
                with self.client(broker) as client:
                    code, named = client.coordinator(group)
            except SimpleConsumerError as error:
                failure = error
                continue
            check_code(code if code in NOT_AUTHORIZED else 0, group)
            if code:
                raise BrokerError(code, None, None)
            return next((each for each in brokers if each.id == named.id), named)
        assert failure is not None
        raise failure

    def client(self, broker: Broker) -> GroupsClient:
        """Return a connection to a broker, which the caller closes."""
        return GroupsClient(
            broker.host, broker.port, ANSWER_S, self._client_id, dialect=dialect_of(broker),
            security=self.cluster.security,
        )  # fmt: skip

    def serves_fetch_all_offsets(self, client: GroupsClient) -> bool:
        """Return whether a broker says of which partitions a group has offsets: from Kafka 0.10.2 on."""
        return client.dialect.chooses_versions and client.serves_fetch_all_offsets()

    def fetch_rows(
        self, client: GroupsClient, group: str, partitions: Sequence[TopicPartition]
    ) -> tuple[int, dict[TopicPartition, Row]]:
        """Return the error code of a group, and code and offset of each partition.

        Args:
            partitions: Of all topics, for brokers that do not say of which a group has offsets.
        """
        if self.serves_fetch_all_offsets(client):
            return client.fetch_all_offsets(group)
        rows: dict[TopicPartition, Row] = {}
        for first in range(0, len(partitions), _PARTITIONS_A_REQUEST):
            rows |= client.fetch_offsets(group, partitions[first : first + _PARTITIONS_A_REQUEST])
        return 0, rows

    def all_partitions(self) -> list[TopicPartition]:
        """Return all partitions that a group could have offsets of."""
        topics = [topic for topic in self.cluster.topics() if topic != OFFSETS_TOPIC]
        found = self.cluster.partitions(topics)
        return [TopicPartition(topic, number) for topic, numbers in found.items() for number in numbers]

    def _in_parts(
        self,
        group: str,
        partitions: Sequence[TopicPartition],
        ask: Callable[[GroupsClient, Sequence[TopicPartition]], dict[TopicPartition, int]],
    ) -> dict[TopicPartition, int]:
        """Return the error code of each partition; a part with an error is the last one that is asked."""
        codes: dict[TopicPartition, int] = {}
        for first in range(0, len(partitions), _PARTITIONS_A_REQUEST):
            part = partitions[first : first + _PARTITIONS_A_REQUEST]

            def ask_part(
                client: GroupsClient, broker: Broker, part: Sequence[TopicPartition] = part
            ) -> dict[TopicPartition, int]:
                return ask(client, part)

            found = self.at_coordinator(group, ask_part, lambda answer: _first(answer.values()))
            codes |= found
            if any(found.values()):
                break
        return codes


def _first(codes: Iterable[int]) -> int:
    """Return the first code that says to ask again, else that of a refusal, else 0."""
    listed = list(codes)
    return next((code for code in listed if code in ASK_AGAIN), next(
        (code for code in listed if code in NOT_AUTHORIZED), 0))  # fmt: skip


def _dead(found: DescribedGroup) -> DescribedGroup:
    return found._replace(error_code=0, state=DEAD)
