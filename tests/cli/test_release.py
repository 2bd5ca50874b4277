"""`zkconsumer release` on real ZooKeepers: what is dead goes, what lives or has changed stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient

from rebalance.zookeeper.znodes_07 import GENERATION_08
from tests.cli.command_line import run
from tests.cli.given_up import EACH, REGISTRATION, WAIT_S, given_up_member, owners
from zkconsumer.admin.groups.release import client_of, delete_claim, leader_knows, read_claim, trigger_rebalance
from zkconsumer.admin.values import ClaimNotReleased
from zkconsumer.cli.connection_options import open_zookeeper
from zkconsumer.cli.groups import release as release_command
from zkconsumer.config.zookeeper_settings import parse_zookeeper_address
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until
from zkconsumer.testing.zookeeper import ZooKeeperEnsemble, ZooKeeperServer


@pytest.fixture
def client(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client with a session of its own."""
    found = KazooClient(zookeeper.connect)
    found.start()
    found.ensure_path("/brokers/topics/clicks")
    yield found
    found.stop()
    found.close()


@pytest.fixture
def release(zookeeper: ZooKeeperServer, fresh_group: str) -> Callable[..., tuple[int, str]]:
    """Status, and what was said."""

    def call(*options: str, partition: str = "0") -> tuple[int, str]:
        arguments = [fresh_group, "clicks", partition, "--zookeeper", zookeeper.connect, *options]
        got = CliRunner().invoke(release_command, arguments)
        return got.exit_code, str(got.exception or got.stdout)

    return call


Release = Callable[..., tuple[int, str]]


def test_a_persistent_node_of_nobody_is_released_and_a_dry_run_changes_nothing(
    client: KazooClient, release: Release, fresh_group: str
) -> None:
    path, ids = f"/consumers/{fresh_group}/owners/clicks/0", f"/consumers/{fresh_group}/ids"
    client.create(path, b"g_dead-0", makepath=True)
    client.create(f"{ids}/{fresh_group}_ann", (REGISTRATION % "clicks").encode(), ephemeral=True, makepath=True)
    proof = "it is persistent, and 'g_dead-0', the owner in it, is not registered\n"
    cversion = client.exists(ids).cversion
    assert release("--dry-run") == (0, f"{path} would be released: {proof}")
    assert (client.get(path)[0], client.exists(ids).cversion) == (b"g_dead-0", cversion)
    heard: list[object] = []
    client.get_children(ids, watch=heard.append)
    assert release() == (0, f"{path} is released: {proof}")
    assert client.exists(path) is None
    wait_until(lambda: heard, WAIT_S, "the members to be woken")
    assert client.get_children(ids) == [f"{fresh_group}_ann"]
    assert release() == (0, f"{path}: the partition has no owner\n")


@pytest.mark.parametrize("data", [b"", b"0-0/x", b"\xff\xfe", b"..", "dead \u0001".encode(), b"-0", b"x" * 300])
def test_a_node_that_holds_no_name_is_released_too(
    client: KazooClient, release: Release, fresh_group: str, data: bytes
) -> None:
    path = f"/consumers/{fresh_group}/owners/clicks/0-3"
    client.create(path, data, makepath=True)
    client.ensure_path(f"/consumers/{fresh_group}/ids")
    assert release(partition="0-3")[0] == 0
    assert client.exists(path) is None


def test_a_group_without_registrations_ever_can_be_released(
    client: KazooClient, release: Release, fresh_group: str
) -> None:
    client.create(f"/consumers/{fresh_group}/owners/clicks/0", b"g_dead-0", makepath=True)
    assert release()[0] == 0
    assert client.get_children(f"/consumers/{fresh_group}") == ["owners"]


@pytest.mark.parametrize("ephemeral", [True, False])
def test_the_claim_of_a_registered_consumer_is_never_released(
    client: KazooClient, release: Release, fresh_group: str, ephemeral: bool
) -> None:
    path, ann = f"/consumers/{fresh_group}/owners/clicks/0", f"{fresh_group}_ann"
    client.create(f"/consumers/{fresh_group}/ids/{ann}", b"anything", makepath=True)
    client.create(path, f"{ann}-0".encode(), ephemeral=ephemeral, makepath=True)
    claim = f"{client.exists(path).czxid:#x}"
    for options in ([], ["--claim", claim]):
        status, said = release(*options)
        assert status == 1
        assert f"{path} is not released: its owner '{ann}-0' belongs to {ann}, which is registered" in said
    assert client.exists(path) is not None


def test_a_living_session_is_named_and_its_claim_released_only_with_its_number(
    client: KazooClient, release: Release, fresh_group: str
) -> None:
    path = f"/consumers/{fresh_group}/owners/clicks/0"
    client.create(path, b"g_dead-0", ephemeral=True, makepath=True)
    session, claim = client.client_id[0], client.exists(path).czxid
    host, port = client._connection._socket.getsockname()
    status, said = release()
    assert status == 1
    assert f"but session 0x{session:x} lives, a client at {host}:{port}" in said
    assert f"--claim {claim:#x}" in said
    assert release("--claim", hex(claim + 1))[0] == 1
    assert client.exists(path) is not None
    assert release("--claim", hex(claim))[0] == 0
    assert client.exists(path) is None


def test_a_claim_that_changed_since_it_was_examined_is_kept(
    zookeeper: ZooKeeperServer, client: KazooClient, fresh_group: str
) -> None:
    path, ids = f"/consumers/{fresh_group}/owners/clicks/0", f"/consumers/{fresh_group}/ids"
    client.ensure_path(ids)
    client.create(path, b"g_ann-0", makepath=True)
    with open_zookeeper(zookeeper.connect) as port:
        claim = read_claim(port, path)
        assert claim is not None
        # Its owner registers between the look and the deletion: the transaction itself finds out.
        client.create(f"{ids}/g_ann", ephemeral=True)
        with pytest.raises(ClaimNotReleased, match=r"not released: .*/ids/g_ann has been registered in the meantime"):
            delete_claim(port, GENERATION_08, fresh_group, claim)
        client.delete(f"{ids}/g_ann")
        # Another owner with the same name and version.
        client.delete(path)
        client.create(path, b"g_ann-0", ephemeral=True)
        with pytest.raises(ClaimNotReleased, match="another client has changed it"):
            delete_claim(port, GENERATION_08, fresh_group, claim)
        client.delete(path)
        with pytest.raises(ClaimNotReleased, match="another client has changed it"):
            delete_claim(port, GENERATION_08, fresh_group, claim)
    assert client.get_children(ids) == []


def test_the_leader_reports_whether_a_session_lives_and_is_doubted_without_a_witness(
    zookeeper: ZooKeeperServer, client: KazooClient
) -> None:
    servers = parse_zookeeper_address(zookeeper.connect).hosts
    other = KazooClient(zookeeper.connect)
    other.start()
    session, own = other.client_id[0], client.client_id[0]
    assert leader_knows(servers, session, own) is True
    assert client_of(servers, session) is not None
    other.stop()
    other.close()
    wait_until(lambda: leader_knows(servers, session, own) is False, WAIT_S, "the leader to forget the session")
    assert client_of(servers, session) is None
    assert leader_knows(servers, own, session) is None  # a server that has not heard of a living session
    assert leader_knows([("127.0.0.1", 1)], session, own) is None


@pytest.mark.slow
@pytest.mark.parametrize("version", [None, "zk-3.4.14"])
def test_of_an_ensemble_the_leader_is_believed(version: str | None) -> None:
    with ZooKeeperEnsemble(version=version) as ensemble:
        clients = [KazooClient(server.connect) for server in ensemble]
        try:
            for client in clients:
                client.start()
            servers = parse_zookeeper_address(ensemble.connect).hosts
            gone, own = clients[0].client_id[0], clients[-1].client_id[0]
            assert leader_knows(servers, gone, own) is True
            assert sum(leader_knows([server], gone, own) is None for server in servers) == 2, "followers are not asked"
            clients[0].stop()
            wait_until(lambda: leader_knows(servers, gone, own) is False, WAIT_S, "the leader to forget the session")

            # Every server reports the change.
            clients[1].ensure_path("/consumers/g/ids")
            heard: list[object] = []
            for client in clients[1:]:
                client.sync("/consumers/g/ids")
                client.get_children("/consumers/g/ids", watch=heard.append)
            with open_zookeeper(ensemble.connect) as port:
                trigger_rebalance(port, "g", GENERATION_08)
            wait_until(lambda: len(heard) == 2, WAIT_S, "both watches")
            assert clients[2].get_children("/consumers/g/ids") == []
        finally:
            for client in clients:
                client.stop()
                client.close()


def test_a_server_that_answers_no_questions_about_sessions_leaves_it_open() -> None:
    with ZooKeeperServer(settings={"4lw.commands.whitelist": "srvr"}) as server:
        client = KazooClient(server.connect)
        client.start()
        try:
            client.create("/consumers/g/owners/clicks/0", b"g_dead-0", ephemeral=True, makepath=True)
            got = run("release", "g", "clicks", "0", "--zookeeper", server.connect)
            assert (got.returncode, got.stdout) == (1, b"")
            assert got.stderr.startswith(b"zkconsumer: /consumers/g/owners/clicks/0 is not released: ")
            assert f"but session 0x{client.client_id[0]:x} may live; end that process" in got.stderr.decode()
        finally:
            client.stop()
            client.close()


def test_names_that_do_not_exist_are_refused(client: KazooClient, release: Release, fresh_group: str) -> None:
    assert release()[1].startswith(f"group {fresh_group!r} does not exist; ")
    client.ensure_path(f"/consumers/{fresh_group}/ids")
    assert release()[0] == 0
    status, said = release(partition="a/b")
    assert status == 1
    assert "'a/b'" in said


def test_a_release_lets_a_java_member_have_its_partitions(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], fresh_group: str
) -> None:
    """On ZooKeeper 3.4.6: the transaction that releases also wakes the member that gave up."""
    topic = fresh_topic()
    with given_up_member(kafka_0822, fresh_group, topic) as ann:
        got = run("release", fresh_group, topic, "1", "--zookeeper", kafka_0822.zookeeper_connect)
        assert got.returncode == 0, got.stderr
        both = {"0": f"{ann.id}-0", "1": f"{ann.id}-0"}
        wait_until(lambda: owners(kafka_0822, fresh_group, topic) == both, WAIT_S, "both partitions")
        assert {message.partition for message in ann.wait_messages(2 * EACH)} == {0, 1}
        assert kafka_0822.client.get_children(f"/consumers/{fresh_group}/ids") == [ann.id]
