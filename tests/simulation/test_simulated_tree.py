"""The tree of the simulated ZooKeeper: versions, faults, multis, and its replication."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.zookeeper.port.requests import Check, Create, Delete, Fault, Multi, SetData, Stat
from tests.simulator.tree import Change, ChangeKind, Operation, SetAccess, Tree, parent_of

SESSION = 77


@pytest.fixture
def tree() -> Tree:
    made = Tree()
    for zxid, path in enumerate(("/a", "/a/b"), 1):
        assert made.execute(Create(path, b"data"), 0, zxid).fault is None
    return made


def do(tree: Tree, operation: Operation | Multi, session: int = SESSION) -> Any:
    return tree.execute(operation, session, tree.zxid + 1)


def image(tree: Tree) -> dict[str, Any]:
    return {path: (node.data, node.stat(), sorted(node.children)) for path, node in tree.nodes.items()}


def test_an_empty_tree_has_what_every_server_has() -> None:
    tree = Tree()
    assert sorted(tree.nodes) == ["/", "/zookeeper", "/zookeeper/quota"]
    assert tree.nodes["/"].stat() == Stat(0, -1, 0, 0, 0, 0)
    assert do(tree, Delete("/zookeeper")).fault is Fault.OTHER
    assert do(tree, Create("/")).fault is Fault.NODE_EXISTS


def test_what_a_create_a_set_and_a_delete_do_to_the_stats(tree: Tree) -> None:
    assert tree.nodes["/a"].stat() == Stat(version=0, cversion=1, ephemeral_owner=0, czxid=1, pzxid=2, mzxid=1)
    do(tree, Create("/a/mine", ephemeral=True))
    assert tree.nodes["/a/mine"].stat() == Stat(0, 0, SESSION, 3, 3, 3)
    assert tree.nodes["/a"].stat() == Stat(0, 2, 0, 1, 3, 1)
    changed = do(tree, SetData("/a", b"new", 0))
    assert changed.value == tree.nodes["/a"].stat() == Stat(1, 2, 0, 1, 3, 4)
    do(tree, Delete("/a/mine"))
    assert tree.nodes["/a"].stat() == Stat(1, 3, 0, 1, 5, 4)
    do(tree, Create("/a/mine"))
    assert tree.nodes["/a/mine"].stat() == Stat(0, 0, 0, 6, 6, 6), "another node, counted from 0"


@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        (Create("/a"), Fault.NODE_EXISTS),
        (Create("/x/y"), Fault.NO_NODE),
        (Create("/e/y"), Fault.NO_CHILDREN_FOR_EPHEMERALS),
        (SetData("/x", b""), Fault.NO_NODE),
        (SetData("/a", b"", 1), Fault.BAD_VERSION),
        (Delete("/x"), Fault.NO_NODE),
        (Delete("/a", 1), Fault.BAD_VERSION),
        (Delete("/a", 0), Fault.NOT_EMPTY),
        (Check("/x", -1), Fault.NO_NODE),
        (Check("/a", 1), Fault.BAD_VERSION),
    ],
)
def test_what_is_refused_changes_nothing_and_takes_a_zxid(tree: Tree, operation: Operation, fault: Fault) -> None:
    do(tree, Create("/e", ephemeral=True))
    before, zxid = image(tree), tree.zxid
    outcome = do(tree, operation)
    assert (outcome.value, outcome.fault, outcome.changes) == (None, fault, ())
    assert (image(tree), tree.zxid) == (before, zxid + 1)


def test_operations_of_a_multi_see_what_those_before_them_did(tree: Tree) -> None:
    outcome = do(
        tree,
        Multi(
            (
                Delete("/a/b"),
                Create("/a/b", b"1", ephemeral=True),
                SetData("/a/b", b"2", 0),
                Check("/a/b", 1),
                Create("/a/c"),
                Delete("/a/c"),
            )
        ),
    )
    assert outcome.value == [True, "/a/b", Stat(1, 0, SESSION, 3, 3, 3), True, "/a/c", True]
    assert tree.nodes["/a"].stat() == Stat(0, 5, 0, 1, 3, 1), "all at one zxid"
    assert tree.ephemerals(SESSION) == ["/a/b"]
    assert [change.kind for change in outcome.changes] == [
        ChangeKind.DELETED,
        ChangeKind.CREATED,
        ChangeKind.CHANGED,
        ChangeKind.CREATED,
        ChangeKind.DELETED,
    ]


def test_a_multi_that_fails_names_the_first_fault_and_does_nothing(tree: Tree) -> None:
    do(tree, Create("/e", ephemeral=True))
    before = image(tree)
    outcome = do(
        tree,
        Multi(
            (
                SetData("/a", b"new"),
                Delete("/a/b"),
                Delete("/e"),
                Create("/a/b", ephemeral=True),
                Create("/a"),
                Create("/never"),
                Check("/none", 0),
            )
        ),
    )
    assert outcome == ([*[Fault.ROLLED_BACK] * 4, Fault.NODE_EXISTS, *[Fault.ROLLED_BACK] * 2], None, ())
    assert image(tree) == before
    assert tree.ephemerals(SESSION) == ["/e"]


def test_a_closed_node_is_hidden_from_all_but_the_session_that_owns_it_and_on_every_server(tree: Tree) -> None:
    copy = tree.copy()
    for operation in (Create("/a/mine", ephemeral=True), SetAccess("/a/mine", True), SetAccess("/a/b", True)):
        before = tree.nodes["/a"].stat()
        outcome = do(tree, operation)
        copy.replay(outcome.changes, tree.zxid)
        if isinstance(operation, SetAccess):
            assert tree.nodes["/a"].stat() == before
    for each in (tree, copy, tree.copy()):
        assert not each.nodes["/a/mine"].hides_from(SESSION)
        assert each.nodes["/a/mine"].hides_from(SESSION + 1)
        assert each.nodes["/a/b"].hides_from(SESSION)
    assert do(tree, Check("/a/mine", 0)).fault is None
    assert do(tree, Check("/a/b", 0)).fault is Fault.NO_AUTH
    failed = do(tree, Multi((SetAccess("/a/b", False), Delete("/x"))))  # type: ignore[arg-type]
    assert failed.value == [Fault.ROLLED_BACK, Fault.NO_NODE]
    assert tree.nodes["/a/b"].hides_from(SESSION)
    assert [change.kind for change in do(tree, SetAccess("/a/b", False)).changes] == [ChangeKind.OPENED]
    assert not tree.nodes["/a/b"].hides_from(SESSION)


def test_an_empty_multi_succeeds(tree: Tree) -> None:
    assert do(tree, Multi(())) == ([], None, ())


def test_changes_tell_all_that_a_copy_needs(tree: Tree) -> None:
    outcome = do(tree, Create("/a/mine", b"x", ephemeral=True))
    assert outcome.changes == (Change(ChangeKind.CREATED, "/a/mine", b"x", SESSION),)
    assert parent_of("/a/mine") == "/a"
    assert parent_of("/a") == parent_of("/") == "/"


def test_a_copy_shares_nothing(tree: Tree) -> None:
    do(tree, Create("/e", ephemeral=True))
    twin, before = tree.copy(), image(tree)
    do(twin, Multi((SetData("/a", b"x"), Delete("/e"), Create("/a/c"))))
    assert (image(tree), tree.ephemerals(SESSION), twin.ephemerals(SESSION)) == (before, ["/e"], [])


PATHS = st.sampled_from(["/", "/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/z"])
VERSIONS = st.sampled_from([-1, 0, 1, 2])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=2), st.booleans()),
    st.builds(SetData, PATHS, st.binary(max_size=2), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
REQUESTS = st.one_of(OPERATIONS, st.builds(Multi, st.lists(OPERATIONS, max_size=5).map(tuple)))


@given(st.lists(st.tuples(REQUESTS, st.sampled_from([1, 2])), max_size=30))
def test_a_copy_that_replays_the_changes_is_equal(requests: list[tuple[Operation | Multi, int]]) -> None:
    leader, follower = Tree(), Tree()
    for zxid, (request, session) in enumerate(requests, 1):
        before = image(leader)
        outcome = leader.execute(request, session, zxid)
        follower.replay(outcome.changes, zxid)
        if not outcome.changes:
            assert image(leader) == before
        assert image(follower) == image(leader)
        for owner in (1, 2):
            assert (
                sorted(follower.ephemerals(owner))
                == sorted(leader.ephemerals(owner))
                == sorted(path for path, node in leader.nodes.items() if node.owner == owner)
            )


@given(st.lists(REQUESTS, max_size=30))
def test_children_and_their_counts_fit_the_nodes(requests: list[Operation | Multi]) -> None:
    tree, came_and_went = Tree(), dict.fromkeys(Tree().nodes, -1)
    came_and_went["/zookeeper/quota"] = 0
    for zxid, request in enumerate(requests, 1):
        for kind, path, *_ in tree.execute(request, 1, zxid).changes:
            if kind is ChangeKind.CREATED:
                came_and_went[path] = 0
            if kind is not ChangeKind.CHANGED:
                came_and_went[parent_of(path)] += 1
    for path, node in tree.nodes.items():
        assert node.cversion == came_and_went[path]
        assert sorted(node.children) == sorted(
            other.rpartition("/")[2] for other in tree.nodes if other != "/" and parent_of(other) == path
        )
