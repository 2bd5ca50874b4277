"""Administration of groups that brokers coordinate while brokers die, groups are stuck, and rights are missing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.client import KazooClient

from rebalance.brokers.consumer_protocol import Assignment, Subscription, encode_assignment, encode_subscription
from simpleconsumer.calls.coordinator_client import CoordinatorClient
from simpleconsumer.dialect import dialect_of
from simpleconsumer.messages.schema import Values
from simpleconsumer.probe import probed_broker
from simpleconsumer.types import GenerationMember, JoiningMember, LeavingMember
from zkconsumer.admin import Admin, BrokerAdmin, CoordinatorUnavailable, GroupNotAuthorized
from zkconsumer.admin.groups import groups_of_brokers
from zkconsumer.testing import EmbeddedCluster, Fault, load
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked
from zkconsumer.testing.embedded.kafka011.member_requests import LIST_GROUPS, ListGroups
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.real
PATIENCE_S = 60.0
SUBSCRIPTION = encode_subscription(Subscription(("clicks",)), 0)
NAMES = [f"group-{number}" for number in range(6)]
"""With more than one partition of `__consumer_offsets`, both brokers coordinate some of them."""


class Member:
    """A member whose requests the test makes one by one, at the broker that coordinates its group."""

    def __init__(self, address: str, group: str) -> None:
        self._host, port = address.split(":")
        broker = probed_broker(self._host, int(port))
        self.client = CoordinatorClient(broker.host, broker.port, 60.0, "member", dialect=dialect_of(broker))
        self._group = group
        self.id = ""
        self._generation = -1

    def join(self) -> None:
        """Join, and wait until all members have."""
        while True:
            asked = JoiningMember(self._group, self.id)
            found = self.client.join_group(asked, [("range", SUBSCRIPTION)], 30_000, 60_000)
            self.id, self._generation = found.member_id, found.generation
            if found.error_code != 79:
                assert found.error_code == 0
                return

    def sync(self, assigned: dict[str, Sequence[tuple[str, int]]] | None = None) -> None:
        """Get the assignment; the leader hands over what each member, by its id, shall have."""
        made = {name: encode_assignment(Assignment(tuple(each))) for name, each in (assigned or {}).items()}
        code, _ = self.client.sync_group(GenerationMember(self._group, self._generation, self.id), made)
        assert code == 0

    def leave(self) -> None:
        self.client.leave_group(self._group, LeavingMember(self.id))
        self.client.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster("2.8.2", brokers=2, settings={"offsets.topic.num.partitions": 4}) as made:
        made.create_topic("clicks", 2)
        yield made


@pytest.fixture
def admin(cluster: KafkaCluster) -> BrokerAdmin:
    return BrokerAdmin(f"127.0.0.1:{cluster.port(0)},127.0.0.1:{cluster.port(1)}")


@pytest.fixture
def group() -> str:
    return f"billing-{uuid.uuid4().hex[:8]}"


def leading_member(cluster: KafkaCluster, admin: BrokerAdmin, group: str) -> Member:
    """The only member of a group, which has joined and assigns."""
    admin.set_offsets(group, "clicks", 0)  # the group has a coordinator then
    one = Member(admin.describe(group).coordinator_address, group)
    one.join()
    return one


def test_a_member_that_does_not_join_again_keeps_its_group_from_work(
    cluster: KafkaCluster, admin: BrokerAdmin, group: str
) -> None:
    one = leading_member(cluster, admin, group)
    one.sync({one.id: [("clicks", 0), ("clicks", 1)]})
    assert admin.verify(group, patience_s=0).faults == []
    two = Member(admin.describe(group).coordinator_address, group)
    with ThreadPoolExecutor(1) as threads:
        joining = threads.submit(two.join)
        wait_until(lambda: admin.describe(group).state == "PreparingRebalance", PATIENCE_S, "the group to rebalance")
        found = admin.verify(group, patience_s=1)
        assert [each.kind for each in found.faults] == ["rebalancing"]
        report = admin.describe(group)
        assert [row.subscribed for row in report.members] == [None] * len(report.members)
        assert {row.owner for row in report.partitions} == {None}
        one.join()
        joining.result(PATIENCE_S)
    one.leave()
    two.leave()


def test_a_leader_that_assigns_badly_is_found_out(cluster: KafkaCluster, admin: BrokerAdmin, group: str) -> None:
    one = leading_member(cluster, admin, group)
    one.sync({one.id: [("clicks", 1), ("clicks", 7)]})
    found = admin.verify(group, patience_s=0)
    assert [(each.kind, each.path) for each in found.faults] == [
        ("unowned", "clicks-0"), ("no-such-partition", "clicks-7"),
    ]  # fmt: skip
    assert [row.partition for row in admin.describe(group).unassigned] == [0]
    one.leave()


def test_groups_of_all_brokers_are_listed_and_one_that_dies_is_named(cluster: KafkaCluster, admin: BrokerAdmin) -> None:
    for name in NAMES:
        admin.set_offsets(name, "clicks", 0)
    rows = {row.group: row for row in admin.groups().groups if row.group in NAMES}
    assert sorted(rows) == NAMES
    assert {row.coordinator for row in rows.values()} == {0, 1}
    assert {row.protocol_type for row in rows.values()} == {""}
    lost = next(name for name in NAMES if rows[name].coordinator == 1)
    with Admin(cluster.zookeeper_connect) as both:
        assert {*NAMES} <= {row.group for row in both.groups().groups if row.coordination == "brokers"}

    assert admin.groups().unlisted == ()
    cluster.kill(1, expire=True)
    wait_until(lambda: admin.groups().unlisted, PATIENCE_S, "the dead broker to be noticed")
    assert lost not in {row.group for row in admin.groups().groups}
    with pytest.raises(CoordinatorUnavailable, match=f"the coordinator of group '{lost}' does not answer within 15 s"):
        admin.describe(lost)
    cluster.start(1)
    # Meanwhile it says that it is not there yet, that another broker is it, and that it reads its groups.
    wait_until(lambda: admin.groups().unlisted == (), PATIENCE_S, "both brokers to list their groups")
    assert {row.offset for row in admin.describe(lost).partitions} == {0}
    assert admin.set_offsets(lost, "clicks", 0).written


def test_a_missing_right_is_named(zookeeper: ZooKeeperServer) -> None:
    """The access list of one group names another user, so everybody else is refused."""
    chroot = f"/acl-{uuid.uuid4().hex[:8]}"
    client = KazooClient(zookeeper.connect)
    client.start()
    acl = b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"All","host":"*"}]}'
    client.create(f"{chroot}/kafka-acl/Group/secret", acl, makepath=True)
    client.stop()
    client.close()
    settings = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "allow.everyone.if.no.acl.found": "true"}  # fmt: skip
    with KafkaCluster("2.8.2", zookeeper=zookeeper.connect, chroot=chroot, settings=settings) as made:
        made.create_topic("clicks", 2)
        admin = BrokerAdmin(f"127.0.0.1:{made.port(0)}")
        admin.set_offsets("open", "clicks", 0)
        said = r"group 'secret': GroupAuthorizationFailed \(code 30\): not allowed on that group; allow this user in"
        for call in (
            lambda: admin.describe("secret"), lambda: admin.set_offsets("secret", "clicks", 0),
            lambda: admin.delete_groups("secret"), lambda: admin.verify("secret", patience_s=0),
        ):  # fmt: skip
            with pytest.raises(GroupNotAuthorized, match=said):
                call()
        assert [row.group for row in admin.groups().groups] == ["open"]


def test_brokers_that_coordinate_no_groups_say_so(kafka_0822: KafkaCluster) -> None:
    with BrokerAdmin(f"127.0.0.1:{kafka_0822.port(0)}") as admin:
        found = admin.groups()
    assert found.groups == ()
    [said] = found.unlisted
    assert said.startswith("no broker is of Kafka 0.9 or later, so groups are in ZooKeeper")


# -- a coordinator that has moved --------------------------------------------------------------------------------------

Shown = tuple[str, str | None, int | None, bool | None, int | None, int]


class Lists:
    """What brokers list although they do not coordinate it, or do not list although they do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_broker: dict[int, list[str]] = {}
        self._served = LIST_GROUPS.answer
        monkeypatch.setitem(vars(LIST_GROUPS), "answer", self._answer)

    def _answer(self, asked: Asked[ListGroups]) -> Values | list[Part] | None:
        at = asked.host.broker_id
        names = self.of_broker.get(at)
        if names is None:
            return self._served(asked)
        rows = [{"group_id": name, "protocol_type": "consumer", "group_state": "Empty", "group_type": "classic"}
                for name in names]  # fmt: skip
        return {"error_code": 0, "groups": rows}


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> Lists:
    return Lists(monkeypatch)


@pytest.fixture(scope="module", params=["0.10", "3.9"])
def moving(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """Two brokers and group `billing`, which has read 4 of 10 messages of each of two partitions."""
    with EmbeddedCluster(2, generation=request.param, zookeeper=False) as made:
        made.create_topic("clicks", 2)
        load(made, "clicks", 10, partitions=[0, 1])
        with BrokerAdmin(made.broker_list) as admin:
            admin.set_offsets("billing", "clicks", 4)
        yield made


@pytest.fixture(params=[0, 1])
def coordinator(request: pytest.FixtureRequest, moving: EmbeddedCluster) -> int:
    """The broker that coordinates the group: answers are put together in the order of the ids."""
    at = int(request.param)
    moving.faults.add(Fault.move_coordinator(at))
    with BrokerAdmin(moving.broker_list) as admin:
        wait_until(lambda: admin.describe("billing").coordinator == at, PATIENCE_S, f"broker {at} to coordinate")
    return at


def shown(cluster: EmbeddedCluster) -> list[Shown]:
    """Each group with state, coordinator, whether it has offsets, lag, and of how many partitions that is not known."""
    with BrokerAdmin(cluster.broker_list) as admin:
        lags = {each.group: (each.lag, each.lag_unknown) for each in admin.lag().groups}
        return [
            (row.group, row.state, row.coordinator, row.offsets_in_kafka, *lags[row.group])
            for row in admin.groups().groups
        ]


def test_of_two_brokers_that_list_a_group_the_one_that_can_describe_it_counts(
    moving: EmbeddedCluster, coordinator: int, lists: Lists
) -> None:
    lists.of_broker = {1 - coordinator: ["billing"]}
    assert shown(moving) == [("billing", "Empty", coordinator, True, 12, 0)]


def test_a_group_that_moves_while_the_lists_are_read_is_read_where_it_has_gone(
    moving: EmbeddedCluster, coordinator: int, lists: Lists
) -> None:
    """The broker that coordinates it now was asked before it did."""
    lists.of_broker = {1 - coordinator: ["billing"], coordinator: []}
    assert shown(moving) == [("billing", "Empty", coordinator, True, 12, 0)]


def test_a_group_that_its_coordinator_does_not_know_is_not_listed(
    moving: EmbeddedCluster, coordinator: int, lists: Lists
) -> None:
    lists.of_broker = {1 - coordinator: ["billing", "deleted"]}
    assert shown(moving) == [("billing", "Empty", coordinator, True, 12, 0)]


def test_a_group_of_which_no_broker_says_anything_is_listed_and_its_lag_is_not_known(
    moving: EmbeddedCluster, coordinator: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not 0 of no partitions, as if all was well."""
    monkeypatch.setattr(groups_of_brokers, "_MOVED_S", 0.5)
    for api in ("describe_groups", "offset_fetch"):
        moving.faults.add(Fault.error(16, api), times=None)
    try:
        [(group, _, at, has_offsets, lag, lag_unknown)] = shown(moving)
    finally:
        moving.faults.clear()
    assert (group, at, has_offsets, lag, lag_unknown) == ("billing", coordinator, None, None, 1)
