"""Offset nodes of a real ZooKeeper: loaded after the claim, committed behind the fence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

from rebalance.lease import lease_clock
from rebalance.loop import Loop
from rebalance.subscription import Partition
from rebalance.zookeeper import znodes
from rebalance.zookeeper.claims import Fence
from rebalance.zookeeper.port.kazoo_port import KazooPort, call
from rebalance.zookeeper.port.requests import Create, Fault, GetData, Multi, Reply, Request, SessionChange
from zkconsumer.offsets.commit_batch import MAX_OPERATIONS
from zkconsumer.offsets.zookeeper_offsets import ZooKeeperOffsets
from zkconsumer.testing.proxy import TcpProxy
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperServer

TOPIC = "t"


class Store:
    """An offset store with a session, a registration and a loop of its own."""

    def __init__(self, connect: str, group: str, session_s: float = 10.0) -> None:
        self.group = group
        self.loop = Loop(lease_clock)
        self.port = KazooPort(connect, session_s)
        self.sent: list[Request] = []
        self.before_send: Callable[[Request], None] = lambda request: None
        self.loses_answer: Callable[[Request], bool] = lambda request: False
        self.offsets = ZooKeeperOffsets(self._ask, self.loop, group)
        self.changes: list[SessionChange] = []
        self._thread = threading.Thread(target=self.loop.run, daemon=True)
        self._thread.start()
        self.port.start(self.changes.append)
        wait_until(lambda: self.changes, 10.0, "a session")
        self.register()

    def _ask(self, request: Request, handle: Callable[[Reply], None]) -> None:
        self.before_send(request)
        self.sent.append(request)
        is_lost = self.loses_answer(request)
        self.port.send(request, lambda reply: self.loop.post(handle, _lost(reply) if is_lost else reply))

    def register(self) -> None:
        path = znodes.registration_path(self.group, "me")
        for parent in (znodes.CONSUMERS, znodes.group_path(self.group), znodes.ids_path(self.group)):
            call(self.port, Create(parent), 5.0)
        reply = call(self.port, Create(path, b"{}", ephemeral=True), 5.0)
        assert reply.fault is None, reply
        self.fence = Fence(path, 0, self.changes[-1].session_id)
        self.loop.post(self.offsets.session_opened, self.fence)

    def begin(self, positions: Mapping[Partition, int], explicit: bool = False) -> Callable[[], dict[Partition, str]]:
        """Start a commit; the returned call waits for its outcome."""
        failed: list[Mapping[Partition, str]] = []
        done = threading.Event()

        def told(result: Mapping[Partition, str]) -> None:
            assert not failed, "told twice"
            failed.append(result)
            done.set()

        def outcome() -> dict[Partition, str]:
            assert done.wait(20.0), "no word about the commit"
            return dict(failed[0])

        self.loop.post(self.offsets.commit, self.fence, positions, told, explicit)
        return outcome

    def commit(self, positions: Mapping[Partition, int], explicit: bool = False) -> dict[Partition, str]:
        return self.begin(positions, explicit)()

    def commit_start(self, partition: Partition, offset: int) -> dict[Partition, str]:
        failed: list[Mapping[Partition, str]] = []
        self.loop.post(self.offsets.commit_start, self.fence, partition, offset, failed.append)
        wait_until(lambda: failed, 20.0, "word about the start")
        return dict(failed[0])

    def load(self, partition: Partition, created_zxid: int = 0) -> int | None:
        found: list[int | None] = []
        done = threading.Event()

        def told(offset: int | None) -> None:
            found.append(offset)
            done.set()

        self.offsets._incarnations[partition[0]] = created_zxid
        self.loop.post(self.offsets.load, self.fence, partition, told)
        assert done.wait(10.0), "no offset"
        return found[0]

    def on_loop(self, call: Callable[[], Any]) -> None:
        done = threading.Event()
        self.loop.post(lambda: (call(), done.set()))
        assert done.wait(10.0)

    def close(self) -> None:
        self.port.close(5.0)
        self.loop.post(self.loop.stop)
        self._thread.join(5.0)


def _lost(reply: Reply) -> Reply:
    return Reply(None, Fault.CONNECTION_LOSS, reply.sent_at)


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    made = KazooClient(zookeeper.connect)
    made.start()
    yield made
    made.stop()
    made.close()


@pytest.fixture
def store(zookeeper: ZooKeeperServer, fresh_group: str) -> Iterator[Store]:
    made = Store(zookeeper.connect, fresh_group)
    yield made
    made.close()


def node(store: Store, partition: int) -> str:
    return znodes.offset_path(store.group, TOPIC, partition)


def stored(client: KazooClient, store: Store, partition: int = 0) -> tuple[bytes, int]:
    data, stat = client.get(node(store, partition))
    return data, stat.version


# -- load --------------------------------------------------------------------------------------------------------------


def test_an_absent_node_is_no_offset(store: Store) -> None:
    assert store.load((TOPIC, 0)) is None


@pytest.mark.parametrize("data", [b"0", b"1", b"2147483648", b"9223372036854775807"])
def test_a_stored_offset_is_read_to_the_last_digit(client: KazooClient, store: Store, data: bytes) -> None:
    client.create(node(store, 0), data, makepath=True)
    assert store.load((TOPIC, 0)) == int(data)


@pytest.mark.parametrize("data", [b"", b"-1", b"abc", b"12x", b"9" * 20, b"\xff\xfe", b"1.5"])
def test_garbage_counts_as_absent_and_is_written_over(client: KazooClient, store: Store, data: bytes) -> None:
    client.create(node(store, 0), data, makepath=True)
    assert store.load((TOPIC, 0)) is None
    assert store.commit({(TOPIC, 0): 7}) == {}
    assert stored(client, store) == (b"7", 1)


def test_an_offset_that_may_not_be_read_is_asked_for_ever_more_rarely(client: KazooClient, store: Store) -> None:
    client.ensure_path(znodes.offsets_path(store.group, TOPIC))
    client.create(node(store, 0), b"5", acl=[make_acl("digest", "nobody:x", all=True)])
    answers: list[int | None] = []
    store.loop.post(store.offsets.load, store.fence, (TOPIC, 0), answers.append)
    wait_until(lambda: len(store.sent) >= 4, 10.0, "some tries")
    assert answers == []
    started = lease_clock()
    wait_until(lambda: len(store.sent) >= 5, 10.0, "one more")
    assert lease_clock() - started >= 0.5


# -- commit ------------------------------------------------------------------------------------------------------------


def test_a_first_commit_creates_the_node_and_its_parents(client: KazooClient, store: Store) -> None:
    assert store.commit({(TOPIC, 0): 5, (TOPIC, 1): 0}) == {}
    assert stored(client, store, 0) == (b"5", 0)
    assert stored(client, store, 1) == (b"0", 0)
    assert client.exists(node(store, 0)).ephemeralOwner == 0


@pytest.mark.catalogue("E10")
def test_a_later_commit_moves_it_on_and_the_same_value_writes_nothing(client: KazooClient, store: Store) -> None:
    store.commit({(TOPIC, 0): 5})
    store.commit({(TOPIC, 0): 6})
    assert stored(client, store) == (b"6", 1)
    sent = len(store.sent)
    assert store.commit({(TOPIC, 0): 6}) == {}
    assert len(store.sent) == sent
    assert store.offsets.committed() == {(TOPIC, 0): 6}


@pytest.mark.catalogue("E10")
def test_every_write_begins_with_the_check_and_is_at_most_two_hundred_operations(
    client: KazooClient, store: Store
) -> None:
    positions: dict[Partition, int] = {(TOPIC, number): number + 1 for number in range(450)}
    assert store.commit(positions) == {}
    multis = [request for request in store.sent if isinstance(request, Multi)]
    assert all(multi.operations[0] == store.fence.check() for multi in multis)
    assert [len(multi.operations) - 1 for multi in multis] == [MAX_OPERATIONS - 1, MAX_OPERATIONS - 1, 52]
    assert len(client.get_children(znodes.offsets_path(store.group, TOPIC))) == 450
    assert stored(client, store, 449) == (b"450", 0)


def test_commits_go_one_after_the_other_and_an_empty_one_waits_for_those_before(
    client: KazooClient, store: Store
) -> None:
    order: list[str] = []

    def ask() -> None:
        store.offsets.commit(store.fence, {(TOPIC, 0): 1}, lambda failed: order.append("first"))
        store.offsets.commit(store.fence, {(TOPIC, 0): 2}, lambda failed: order.append("second"))
        store.offsets.commit(store.fence, {}, lambda failed: order.append("empty"))

    store.on_loop(ask)
    wait_until(lambda: len(order) == 3, 10.0, "all answers")
    assert order == ["first", "second", "empty"]
    assert stored(client, store) == (b"2", 1)


def test_calls_that_wait_for_their_turn_are_written_together(client: KazooClient, store: Store) -> None:
    told: list[int] = []

    def ask() -> None:
        for number in range(300):
            store.offsets.commit(
                store.fence, {(TOPIC, number): number}, lambda failed, number=number: told.append(number)
            )  # type: ignore[misc]

    store.on_loop(ask)
    wait_until(lambda: len(told) == 300, 10.0, "all answers")
    assert told == list(range(300))
    assert len(client.get_children(znodes.offsets_path(store.group, TOPIC))) == 300
    multis = [request for request in store.sent if isinstance(request, Multi)]
    assert [len(multi.operations) - 1 for multi in multis] == [1, MAX_OPERATIONS - 1, 299 - (MAX_OPERATIONS - 1)]


def test_of_calls_that_are_written_together_each_hears_of_its_own_partitions(client: KazooClient, store: Store) -> None:
    client.ensure_path(znodes.offsets_path(store.group, TOPIC))
    client.create(node(store, 1), b"1", acl=[make_acl("world", "anyone", read=True)])
    told: list[set[Partition]] = []

    def ask() -> None:
        for numbers in ([0], [1, 2], [3], []):
            positions = {(TOPIC, number): 7 for number in numbers}
            store.offsets.commit(store.fence, positions, lambda failed: told.append(set(failed)))

    store.on_loop(ask)
    wait_until(lambda: len(told) == 4, 10.0, "all answers")
    assert told == [set(), {(TOPIC, 1)}, set(), set()]
    assert [stored(client, store, number)[0] for number in (0, 2, 3)] == [b"7"] * 3


def test_a_position_that_goes_back_does_not_take_the_place_of_one_that_waits(client: KazooClient, store: Store) -> None:
    told: list[int] = []

    def ask() -> None:
        for at in (5, 20, 15):  # a final position, and one that another thread had looked at before
            store.offsets.commit(store.fence, {(TOPIC, 0): at}, lambda failed, at=at: told.append(at))  # type: ignore[misc]

    store.on_loop(ask)
    wait_until(lambda: told == [5, 20, 15], 10.0, "all answers")
    assert stored(client, store)[0] == b"20"


def test_a_commit_does_not_hear_what_befell_one_that_waits_before_it(client: KazooClient, store: Store) -> None:
    told: list[dict[Partition, str]] = []

    def ask() -> None:
        store.offsets.commit(store.fence, {("other", 0): 5}, lambda failed: told.append(dict(failed)))
        store.offsets.commit(store.fence, {(TOPIC, 0): 100}, lambda failed: told.append(dict(failed)))
        store.offsets.forget_topic(TOPIC, 0)
        store.offsets.commit(store.fence, {(TOPIC, 0): 3}, lambda failed: told.append(dict(failed)))

    store.on_loop(ask)
    wait_until(lambda: len(told) == 3, 10.0, "all answers")
    assert told == [{}, {(TOPIC, 0): "the topic was created again"}, {}]
    assert stored(client, store)[0] == b"3"


def test_an_explicit_commit_is_not_written_together_with_others(client: KazooClient, store: Store) -> None:
    told: list[int] = []

    def ask() -> None:
        for at, explicit in ((5, False), (20, False), (10, True), (12, False)):
            store.offsets.commit(store.fence, {(TOPIC, 0): at}, lambda failed, at=at: told.append(at), explicit)  # type: ignore[misc]

    store.on_loop(ask)
    wait_until(lambda: told == [5, 20, 10, 12], 10.0, "all answers")
    assert stored(client, store) == (b"12", 3)


def test_one_bad_node_holds_up_nobody(client: KazooClient, store: Store) -> None:
    forbidden = [make_acl("world", "anyone", read=True)]
    bad = {3, 50, 51, 120, 121, 122, 123, 124, 125, 126, 199}
    client.ensure_path(znodes.offsets_path(store.group, TOPIC))
    for number in bad:
        client.create(node(store, number), b"1", acl=forbidden)
    failed = store.commit({(TOPIC, number): 10 for number in range(220)})
    assert set(failed) == {(TOPIC, number) for number in bad}
    assert all("NoAuth" in reason for reason in failed.values())
    assert [stored(client, store, number)[0] for number in (0, 52, 127, 219)] == [b"10"] * 4
    assert [stored(client, store, number)[0] for number in bad] == [b"1"] * len(bad)


@pytest.mark.parametrize("position", [-1, 5 - 2**63, 2**63])
def test_a_position_that_no_node_can_hold_fails_alone(client: KazooClient, store: Store, position: int) -> None:
    failed = store.commit({(TOPIC, 0): 7, (TOPIC, 1): position, (TOPIC, 2): 9})
    assert failed == {(TOPIC, 1): f"offset {position} is not an integer from 0 to 2^63-1"}
    assert [stored(client, store, number)[0] for number in (0, 2)] == [b"7", b"9"]
    assert store.commit({(TOPIC, 1): 8}) == {}


def test_a_node_lowered_by_hand_under_a_live_owner_is_written_again(client: KazooClient, store: Store) -> None:
    store.commit({(TOPIC, 0): 50})
    client.set(node(store, 0), b"20")
    assert store.commit({(TOPIC, 0): 60}) == {}
    assert stored(client, store) == (b"60", 2)


def test_a_node_raised_by_hand_is_left_alone_until_it_is_passed(client: KazooClient, store: Store) -> None:
    store.commit({(TOPIC, 0): 50})
    client.set(node(store, 0), b"100")
    assert store.commit({(TOPIC, 0): 60, (TOPIC, 1): 5}) == {}
    assert stored(client, store) == (b"100", 1)
    assert stored(client, store, 1) == (b"5", 0), "the others are written"
    assert store.commit({(TOPIC, 0): 99}) == {}
    assert store.commit({(TOPIC, 0): 101}) == {}
    assert stored(client, store) == (b"101", 2)


def test_an_explicit_commit_may_lower_what_it_knows_but_not_what_was_raised_meanwhile(
    client: KazooClient, store: Store
) -> None:
    store.commit({(TOPIC, 0): 50})
    assert store.commit({(TOPIC, 0): 20}, explicit=True) == {}
    assert stored(client, store) == (b"20", 1)
    client.set(node(store, 0), b"100")
    failed = store.commit({(TOPIC, 0): 10}, explicit=True)
    assert "has stored 100, which is higher than 10" in failed[TOPIC, 0]
    assert stored(client, store) == (b"100", 2)


@pytest.mark.parametrize(
    ("before", "meanwhile", "expected"),
    [
        pytest.param(b"50", b"100", b"100", id="raised"),
        pytest.param(b"50", b"50", b"10", id="written again as it was"),
        pytest.param(b"50", b"30", b"10", id="lowered"),
        pytest.param(b"garbage", b"100", b"100", id="made readable"),
        pytest.param(None, b"100", b"100", id="created"),
    ],
)
def test_of_what_somebody_wrote_meanwhile_an_explicit_commit_lowers_only_what_it_would_have_lowered_before(
    client: KazooClient, store: Store, before: bytes | None, meanwhile: bytes, expected: bytes
) -> None:
    client.ensure_path(znodes.offsets_path(store.group, TOPIC))
    if before is not None:
        client.create(node(store, 0), before)
    store.load((TOPIC, 0))
    if before is None:
        client.create(node(store, 0), meanwhile)
    else:
        client.set(node(store, 0), meanwhile)
    failed = store.commit({(TOPIC, 0): 10}, explicit=True)
    assert stored(client, store)[0] == expected
    assert ((TOPIC, 0) in failed) == (expected == meanwhile)


def test_without_leave_an_older_position_is_not_written_over_a_newer_one(client: KazooClient, store: Store) -> None:
    store.commit({(TOPIC, 0): 50})
    assert store.commit({(TOPIC, 0): 40}) == {}
    assert stored(client, store) == (b"50", 0)


def test_a_deleted_node_and_its_deleted_parents_are_made_again(client: KazooClient, store: Store) -> None:
    store.commit({(TOPIC, 0): 5, (TOPIC, 1): 5})
    client.delete(znodes.offsets_path(store.group, TOPIC), recursive=True)
    assert store.commit({(TOPIC, 0): 6, (TOPIC, 1): 6}) == {}
    assert stored(client, store, 0) == (b"6", 0)
    assert stored(client, store, 1) == (b"6", 0)
    client.delete(f"{znodes.group_path(store.group)}/offsets", recursive=True)
    assert store.commit({(TOPIC, 0): 7}) == {}
    assert stored(client, store, 0) == (b"7", 0)


def test_a_node_turned_into_garbage_under_a_live_owner_is_written_again(client: KazooClient, store: Store) -> None:
    store.commit({(TOPIC, 0): 5})
    client.set(node(store, 0), b"oops")
    assert store.commit({(TOPIC, 0): 6}) == {}
    assert stored(client, store) == (b"6", 2)


def test_a_node_that_somebody_created_first_is_compared_not_overwritten(client: KazooClient, store: Store) -> None:
    assert store.load((TOPIC, 0)) is None
    client.create(node(store, 0), b"90", makepath=True)
    assert store.commit({(TOPIC, 0): 6}) == {}
    assert stored(client, store) == (b"90", 0)


# -- where reading begins ----------------------------------------------------------------------------------------------


def test_a_start_is_stored_where_there_is_none(client: KazooClient, store: Store) -> None:
    client.create(node(store, 1), b"garbage", makepath=True)
    for number in range(2):
        assert store.load((TOPIC, number)) is None
        assert store.commit_start((TOPIC, number), 100) == {}
        assert stored(client, store, number) == (b"100", number)
    assert store.commit({(TOPIC, 0): 101}) == {}
    assert stored(client, store) == (b"101", 1)


@pytest.mark.parametrize("other", [b"50", b"500"])
def test_a_start_is_not_written_over_one_that_somebody_has_stored_since(
    client: KazooClient, store: Store, other: bytes
) -> None:
    assert store.load((TOPIC, 0)) is None
    client.create(node(store, 0), other, makepath=True)
    failed = store.commit_start((TOPIC, 0), 100)
    assert failed == {(TOPIC, 0): f"another client has stored {other.decode()} in the meantime"}
    assert stored(client, store) == (other, 0)


def test_a_start_whose_fate_is_unknown_is_not_written_over_a_lower_one_of_the_next_owner(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str
) -> None:
    """An operator has deleted the owner node meanwhile, and the next owner reads what lies between."""
    with TcpProxy(zookeeper.connect) as proxy:
        store = Store(proxy.address, fresh_group)
        assert store.load((TOPIC, 0)) is None
        assert store.load((TOPIC, 1)) is None
        assert store.commit_start((TOPIC, 9), 0) == {}, "the parents"
        proxy.stall("up")
        sent = len(store.sent)
        outcomes: list[Mapping[Partition, str]] = []
        for number in range(2):  # one under way, one that waits for its turn
            store.loop.post(store.offsets.commit_start, store.fence, (TOPIC, number), 100, outcomes.append)
        wait_until(lambda: len(store.sent) > sent, 10.0, "the first to be on its way")
        for number in range(2):
            client.create(node(store, number), b"50")
        proxy.drop()
        proxy.clear()
        wait_until(lambda: len(outcomes) == 2, 20.0, "both outcomes")
        assert [set(failed) for failed in outcomes] == [{(TOPIC, 0)}, {(TOPIC, 1)}]
        assert [stored(client, store, number) for number in range(2)] == [(b"50", 0)] * 2
        store.close()


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
def test_a_start_whose_answer_was_lost_is_found_out_by_reading(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str, landed: bool
) -> None:
    with TcpProxy(zookeeper.connect) as proxy:
        store = Store(proxy.address, fresh_group)
        assert store.load((TOPIC, 0)) is None
        assert store.commit_start((TOPIC, 9), 0) == {}, "the parents"
        sent = len(store.sent)
        proxy.stall("down" if landed else "up")
        outcomes: list[Mapping[Partition, str]] = []
        store.loop.post(store.offsets.commit_start, store.fence, (TOPIC, 0), 100, outcomes.append)
        wait_until(lambda: len(store.sent) > sent, 10.0, "it to be on its way")
        if landed:
            wait_until(lambda: client.exists(node(store, 0)), 10.0, "the write to land")
        proxy.drop()
        proxy.clear()
        wait_until(lambda: outcomes, 20.0, "the outcome")
        assert outcomes == [{}]
        assert stored(client, store) == (b"100", 0), "written exactly once"
        store.close()


def test_a_position_that_was_reached_takes_the_place_of_a_start_that_waits(client: KazooClient, store: Store) -> None:
    told: list[tuple[str, dict[Partition, str]]] = []

    def ask() -> None:
        store.offsets.commit(store.fence, {("other", 0): 1}, lambda failed: None)
        store.offsets.commit_start(store.fence, (TOPIC, 0), 100, lambda failed: told.append(("start", dict(failed))))
        store.offsets.commit(store.fence, {(TOPIC, 0): 120}, lambda failed: told.append(("position", dict(failed))))

    client.create(node(store, 0), b"50", makepath=True)
    store.on_loop(ask)
    wait_until(lambda: len(told) == 2, 10.0, "both answers")
    assert told == [("start", {}), ("position", {})]
    assert stored(client, store)[0] == b"120"


# -- the fence ---------------------------------------------------------------------------------------------------------


def test_commits_for_a_topic_that_was_created_anew_do_not_count_for_its_new_life(
    client: KazooClient, store: Store
) -> None:
    created_zxid = client.exists(f"/consumers/{store.group}").czxid
    assert store.commit({(TOPIC, 0): 7, (TOPIC, 1): 7}) == {}
    outcome = store.begin({(TOPIC, 0): 9, (TOPIC, 2): 9, ("other", 0): 9})
    store.on_loop(lambda: store.offsets.forget_topic(TOPIC, 0))
    assert outcome().keys() == {(TOPIC, 0), (TOPIC, 2)}
    assert [store.load((TOPIC, number), created_zxid) for number in range(3)] == [None, None, None]
    assert store.load(("other", 0)) == 9
    assert store.commit({(TOPIC, 0): 0}) == {}, "the beginning is written over it"
    assert store.load((TOPIC, 0), created_zxid) == 0


def test_without_the_registration_nothing_is_written(client: KazooClient, store: Store) -> None:
    store.commit({(TOPIC, 0): 5})
    client.delete(store.fence.path)
    failed = store.commit({(TOPIC, 0): 6, (TOPIC, 1): 6})
    assert set(failed) == {(TOPIC, 0), (TOPIC, 1)}
    assert stored(client, store) == (b"5", 0)
    assert client.exists(node(store, 1)) is None


def test_a_registration_of_another_version_is_not_mine(client: KazooClient, store: Store) -> None:
    store.commit({(TOPIC, 0): 5})
    client.set(store.fence.path, b"{}")
    assert "no longer has the registration" in store.commit({(TOPIC, 0): 6})[TOPIC, 0]
    assert stored(client, store) == (b"5", 0)


def test_a_commit_under_way_fails_with_its_session_and_a_late_answer_changes_nothing(
    client: KazooClient, store: Store
) -> None:
    store.commit({(TOPIC, 0): 5})
    outcomes: list[Mapping[Partition, str]] = []

    def end_in_the_middle() -> None:
        store.offsets.commit(store.fence, {(TOPIC, 0): 6}, outcomes.append)
        store.offsets.commit(store.fence, {(TOPIC, 0): 7}, outcomes.append)
        store.offsets.session_over()

    store.on_loop(end_in_the_middle)
    assert [dict(outcome) for outcome in outcomes] == [{(TOPIC, 0): "the ZooKeeper session is over"}] * 2
    assert "session is over" in store.commit({(TOPIC, 0): 8})[TOPIC, 0]


def test_loading_survives_a_registration_made_anew_under_the_same_session(client: KazooClient, store: Store) -> None:
    client.create(node(store, 0), b"5", makepath=True)
    found: list[int | None] = []

    def register_in_the_middle() -> None:
        store.offsets.load(store.fence, (TOPIC, 0), found.append)
        store.offsets.session_opened(Fence(store.fence.path, store.fence.version + 1, store.fence.session_id))

    store.on_loop(register_in_the_middle)
    wait_until(lambda: found == [5], 5.0, "the offset")


def test_loading_falls_silent_with_its_session(client: KazooClient, store: Store) -> None:
    found: list[int | None] = []

    def end_in_the_middle() -> None:
        store.offsets.load(store.fence, (TOPIC, 0), found.append)
        store.offsets.session_over()

    store.on_loop(end_in_the_middle)
    store.fence = Fence(store.fence.path, 1, store.fence.session_id + 1)
    store.on_loop(lambda: store.offsets.session_opened(store.fence))
    assert store.load((TOPIC, 1)) is None
    assert found == []


# -- connection lost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
def test_a_lost_reply_is_found_out_by_reading(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str, landed: bool
) -> None:
    with TcpProxy(zookeeper.connect) as proxy:
        store = Store(proxy.address, fresh_group)
        store.commit({(TOPIC, 0): 5, (TOPIC, 1): 5})
        proxy.stall("down" if landed else "up")
        outcome = store.begin({(TOPIC, 0): 6, (TOPIC, 1): 7, (TOPIC, 2): 8})
        if landed:
            # The third is read first, which the stall holds up as well: let that one pass.
            proxy.clear()
            assert outcome() == {}
            proxy.stall("down")
            outcome = store.begin({(TOPIC, 0): 16, (TOPIC, 1): 17, (TOPIC, 2): 18})
            wait_until(lambda: client.get(node(store, 2))[0] == b"18", 10.0, "the write to land")
        proxy.drop()
        proxy.clear()
        assert outcome() == {}
        expected = [(b"16", 2), (b"17", 2), (b"18", 1)] if landed else [(b"6", 1), (b"7", 1), (b"8", 0)]
        assert [stored(client, store, number) for number in range(3)] == expected, "written exactly once"
        assert store.offsets.committed()[TOPIC, 2] == int(expected[2][0])
        assert store.commit({(TOPIC, 0): 26}) == {}
        store.close()


def test_nothing_is_written_over_a_node_before_the_look_at_it_is_answered(client: KazooClient, store: Store) -> None:
    """One of two looks is lost: what its node holds is not known yet, and an explicit commit may lower it."""
    client.ensure_path(znodes.offsets_path(store.group, TOPIC))
    client.create(node(store, 0), b"90")
    looks: list[Request] = []

    def is_first_look_at_it(request: Request) -> bool:
        if request == GetData(node(store, 0)):
            looks.append(request)
        return looks == [request]

    store.loses_answer = is_first_look_at_it
    assert store.commit({(TOPIC, 0): 6, (TOPIC, 1): 7}, explicit=True) == {}
    assert [stored(client, store, number) for number in range(2)] == [(b"6", 1), (b"7", 0)]
    first_write = next(number for number, request in enumerate(store.sent) if isinstance(request, Multi))
    assert sum(request == looks[0] for request in store.sent[:first_write]) == 2


def test_a_connection_that_breaks_at_every_step_only_delays(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str
) -> None:
    with TcpProxy(zookeeper.connect) as proxy:
        store = Store(proxy.address, fresh_group)
        for number in range(1, 12):
            before = proxy.moved_bytes("up")
            outcome = store.begin({(TOPIC, partition): number for partition in range(30)})
            wait_until(lambda: proxy.moved_bytes("up") > before + 37 * number, 10.0, "requests")  # noqa: B023
            proxy.drop()
            assert outcome() == {}
            assert {client.get(node(store, partition))[0] for partition in range(30)} == {str(number).encode()}
        assert all(client.exists(node(store, partition)).version == 10 for partition in range(30))
        store.close()


# -- where a later claim goes on ---------------------------------------------------------------------------------------


def test_own_work_counts_at_the_next_claim_unless_the_node_was_lowered_by_hand(
    client: KazooClient, store: Store
) -> None:
    store.commit({(TOPIC, 0): 50, (TOPIC, 1): 50, (TOPIC, 2): 50})
    for number in range(3):
        store.on_loop(lambda: store.offsets.remember((TOPIC, number), 57))  # noqa: B023
    client.set(node(store, 1), b"10")
    client.set(node(store, 2), b"80")
    assert [store.load((TOPIC, number)) for number in range(3)] == [57, 10, 80]
