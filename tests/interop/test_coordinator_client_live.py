"""Members of a group by their requests alone, at real brokers: joined, assigned, fenced, left; beside librdkafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer

from rebalance.brokers.assignor import RangeAssignor
from rebalance.brokers.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from simpleconsumer.calls.coordinator_client import GroupsClient
from simpleconsumer.dialect import dialect_of
from simpleconsumer.probe import probed_broker
from simpleconsumer.types import (
    GenerationMember,
    JoinedGroup,
    JoiningMember,
    LeavingMember,
    OffsetAndMetadata,
    TopicPartition,
)
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
VERSIONS = ["4.3.1", *(pytest.param(version, marks=pytest.mark.slow)
                       for version in ("0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.8.2", "3.9.2"))]  # fmt: skip
SESSION_MS, REBALANCE_MS = 10_000, 20_000
SUBSCRIPTION = encode_subscription(Subscription(("clicks",)), 0)
ZERO, ONE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


class Member:
    """A member whose requests the test makes one by one."""

    def __init__(self, cluster: KafkaCluster, group: str) -> None:
        broker = probed_broker("127.0.0.1", cluster.port(0))
        self.client = GroupsClient(broker.host, broker.port, 40.0, "member", dialect=dialect_of(broker))
        self.group = group
        self.id = ""
        self.joined: JoinedGroup | None = None

    def join(self) -> JoinedGroup:
        asked = [("range", SUBSCRIPTION)]
        deadline = time.monotonic() + 30
        while True:
            found = self.client.join_group(JoiningMember(self.group, self.id), asked, SESSION_MS, REBALANCE_MS)
            if found.error_code == 79:
                self.id = found.member_id
            elif found.error_code not in (14, 15, 16) or time.monotonic() > deadline:  # the group's topic is being made
                break
        assert found.error_code == 0
        self.id, self.joined = found.member_id, found
        return found

    @property
    def now(self) -> GenerationMember:
        assert self.joined is not None
        return GenerationMember(self.group, self.joined.generation, self.id)

    def sync(self, count: int = 2) -> list[tuple[str, int]]:
        """The partitions of the member; the leader assigns them."""
        assert self.joined is not None
        subscriptions = {each.member_id: decode_subscription(each.metadata) for each in self.joined.members}
        found = RangeAssignor().assign({"clicks": count}, subscriptions)
        made = {member: encode_assignment(Assignment(tuple(mine))) for member, mine in found.items()}
        code, data = self.client.sync_group(self.now, made)
        assert code == 0
        return list(decode_assignment(data).partitions)

    def leave(self) -> int:
        return self.client.leave_group(self.group, LeavingMember(self.id))


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param) as made:
        made.create_topic("clicks", 2)
        dialect = dialect_of(probed_broker("127.0.0.1", made.port(0)))
        with GroupsClient("127.0.0.1", made.port(0), dialect=dialect) as client:
            wait_until(lambda: client.ask(client.dialect.coordinator("g"))[0] == 0, 60, "a coordinator")
        yield made


def test_two_members_share_a_topic_and_what_is_over_is_refused(
    cluster: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    group = fresh_topic()
    one, two = Member(cluster, group), Member(cluster, group)
    with ThreadPoolExecutor(2) as threads:
        assert one.join().leader == one.id
        assert one.sync() == [("clicks", 0), ("clicks", 1)]
        assert one.client.heartbeat(one.now) == 0
        assert one.client.commit_offsets_as(one.now, {ZERO: OffsetAndMetadata(5, "m")}) == {ZERO: 0}

        joining = threads.submit(two.join)
        wait_until(lambda: one.client.heartbeat(one.now) == 27, 15, "the group to rebalance")
        before = one.now
        assert one.client.commit_offsets_as(one.now, {ONE: OffsetAndMetadata(6)}) == {ONE: 0}  # still its own
        one.join()
        joining.result(30)
        assert before.generation != one.now.generation == two.now.generation
        follower = threads.submit(two.sync)
        assert sorted(one.sync() + follower.result(30)) == [("clicks", 0), ("clicks", 1)]

        assert one.client.commit_offsets_as(before, {ZERO: OffsetAndMetadata(1)}) == {ZERO: 22}
        assert one.client.heartbeat(before) == 22
        stored = two.client.fetch_offsets(group, [ZERO, ONE])
        assert {name: (code, each.offset) for name, (code, each) in stored.items()} == {ZERO: (0, 5), ONE: (0, 6)}

        assert two.leave() == 0
        wait_until(lambda: one.client.heartbeat(one.now) == 27, 15, "the rest to be assigned anew")
        one.join()
        assert one.sync() == [("clicks", 0), ("clicks", 1)]
        assert one.leave() == 0
        assert one.client.heartbeat(one.now) in (16, 25)  # before 0.10.1 the group is gone with its last member


def test_a_member_by_requests_and_one_of_librdkafka_share_a_topic(
    cluster: KafkaCluster, fresh_topic: Callable[[], str]
) -> None:
    """Whoever leads reads what the other one wrote."""
    if cluster.version == "0.9.0.1":
        pytest.skip("librdkafka asks brokers for their versions, which those of 0.9 never answer")
    group = fresh_topic()
    ours = Member(cluster, group)
    assert ours.join().leader == ours.id
    ours.sync()
    theirs = Consumer({
        "bootstrap.servers": f"127.0.0.1:{cluster.port(0)}", "group.id": group, "session.timeout.ms": SESSION_MS,
        "partition.assignment.strategy": "range",
    })  # fmt: skip
    try:
        theirs.subscribe(["clicks"])

        def rebalances() -> bool:
            theirs.poll(0.05)
            return ours.client.heartbeat(ours.now) == 27

        wait_until(rebalances, 30, "librdkafka to join")
        ours.join()
        mine = ours.sync()

        def is_shared() -> bool:
            theirs.poll(0.05)
            has = [(each.topic, each.partition) for each in theirs.assignment()]
            return sorted(mine + has) == [("clicks", 0), ("clicks", 1)]

        assert len(mine) == 1
        wait_until(is_shared, 30, "librdkafka to get the other partition")
    finally:
        theirs.close()
        ours.leave()
