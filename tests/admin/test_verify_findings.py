"""What `zkconsumer verify` says about made-up nodes: about sound groups, and about each thing that can be wrong."""

from __future__ import annotations

import dataclasses

import pytest

from rebalance.errors import RefusedNode
from rebalance.zookeeper.port.requests import Fault
from tests.access_lists import unread_cause
from zkconsumer.admin.groups.group_report import STRATEGIES
from zkconsumer.admin.groups.group_state import GroupNodes
from zkconsumer.admin.verify.findings import Finding, Verification
from zkconsumer.admin.verify.offset_findings import LogRange, offset_findings
from zkconsumer.admin.verify.verification import verify_group

ANN, BOB = 0x1A, 0x1B
TOPIC = b'{"version":1,"partitions":{"0":[0],"1":[1],"2":[0],"3":[1]}}'


def static(**topics: int) -> bytes:
    entries = ",".join(f'"{topic}":{streams}' for topic, streams in topics.items())
    return b'{"version":1,"subscription":{%b},"pattern":"static","timestamp":"1"}' % entries.encode()


def filtered(text: str, pattern: str = "white_list") -> bytes:
    return f'{{"version":1,"subscription":{{"{text}":1}},"pattern":"{pattern}","timestamp":"1"}}'.encode()


def owned(*threads: str, topic: str = "clicks") -> dict[tuple[str, str], tuple[bytes | None, int]]:
    """Owner nodes of the partitions from 0 on; an empty name: nobody."""
    return {
        (topic, str(number)): (thread.encode(), ANN if "ann" in thread else BOB)
        for number, thread in enumerate(threads) if thread
    }  # fmt: skip


SOUND = GroupNodes(
    group="g",
    registrations={"g_ann": static(clicks=1), "g_bob": filtered("cl.*")},
    sessions={"g_ann": ANN, "g_bob": BOB},
    owners=owned("g_ann-0", "g_ann-0", "g_bob-0", "g_bob-0"),
    offsets={("clicks", "0"): b"5"},
    known_topics=("clicks", "views"),
    topics={"clicks": TOPIC},
)

NODE = "g_6ba7b810-9dad"
BESIDE_NODE = {
    "registrations": {NODE: static(clicks=1), "g_bob": filtered("cl.*")}, "sessions": {NODE: BOB, "g_bob": BOB},
}  # fmt: skip
"""A member of kafka-node and one of ours."""


def verified(strategies: tuple[str, ...] = STRATEGIES, least_members: int = 1, **changes: object) -> Verification:
    return verify_group(dataclasses.replace(SOUND, **changes), strategies, least_members)  # type: ignore[arg-type]


def only(found: Verification) -> Finding:
    [finding] = found.findings
    return finding


# ---- sound groups


@pytest.mark.catalogue("D5")
def test_a_sound_group_is_fine() -> None:
    found = verified()
    assert found == Verification("g", 2, 4, "range", ())
    assert found.to_dict()["fine"] is True


def test_spare_members_and_topics_that_nobody_asked_for_are_fine() -> None:
    registrations = {f"g_ann{number}": static(clicks=1) for number in range(6)}
    owners = owned("g_ann0-0", "g_ann1-0", "g_ann2-0", "g_ann3-0")
    assert verified(registrations=registrations, sessions={}, owners=owners).findings == ()


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        ("range", "aaabb"),
        ("roundrobin", "ababa"),
        # Java's hashes: `[events,9]` is before `[events,10]`, and `events-10` before `events-9`.
        ("roundrobin-1.0", "abaab"),
    ],
)
def test_a_sound_group_of_each_strategy_is_recognised(strategy: str, shares: str) -> None:
    threads = {"a": (b"g_ann-0", ANN), "b": (b"g_bob-0", BOB)}
    found = verified(
        registrations={"g_ann": static(events=1), "g_bob": static(events=1)},
        known_topics=("events",),
        topics={"events": b'{"partitions":{"7":[0],"8":[0],"9":[0],"10":[0],"11":[0]}}'},
        owners={("events", str(7 + number)): threads[share] for number, share in enumerate(shares)},
        offsets={},
    )
    assert (found.strategy, found.findings) == (strategy, ())


def test_internal_topics_may_be_consumed_by_filter_or_left_out() -> None:
    changes = {
        "registrations": {"g_ann": filtered(".*")}, "sessions": {"g_ann": ANN},
        "known_topics": ("__consumer_offsets", "clicks"),
        "topics": {"clicks": TOPIC, "__consumer_offsets": b'{"partitions":{"0":[0]}}'},
    }  # fmt: skip
    clicks = owned(*["g_ann-0"] * 4)
    assert verified(owners=clicks, **changes).findings == ()
    assert verified(owners=clicks | owned("g_ann-0", topic="__consumer_offsets"), **changes).findings == ()


def test_a_group_in_a_rebalance_is_distinguished_from_a_broken_one() -> None:
    assert verified(owners=owned("g_ann-0", "g_ann-0", "", "g_bob-0")).is_passing
    assert not verified().is_passing


def test_members_whose_owner_nodes_carry_no_thread_number_are_fine() -> None:
    """Members of kafka-node and other clients have one stream each; their ids may have hyphens of their own."""
    owners = owned(NODE, NODE, "g_bob-0", "g_bob-0")
    assert verified(owners=owners, **BESIDE_NODE) == Verification("g", 2, 4, "range", ())


def test_an_owner_without_thread_number_has_the_same_findings_as_any_other() -> None:
    gone = only(verified(owners=owned(NODE, "", "g_bob-0", "g_bob-0"), **BESIDE_NODE))
    assert gone.sentence == f"clicks-1 has no owner, but range assigns it to {NODE}-0"
    wrong = only(verified(owners=owned(NODE, NODE, NODE, "g_bob-0"), **BESIDE_NODE))
    assert wrong.kind == "wrong-owner"
    assert wrong.sentence == f"clicks-2 is owned by {NODE}, but range assigns it to g_bob-0"
    unclear = verified(
        owners=owned(NODE, NODE, "g_bob-0", "g_bob-0"),
        **{**BESIDE_NODE, "registrations": {NODE: b"", "g_bob": filtered("cl.*")}},
    )
    assert [finding.kind for finding in unclear.findings] == ["unreadable-registration"]
    left = verified(owners=owned(NODE, NODE, "g_bob-0", "g_bob-0"), registrations={"g_bob": filtered("cl.*")})
    assert {finding.kind for finding in left.findings} == {"unregistered-owner"}


# ---- members


def test_nobody_and_too_few() -> None:
    empty = only(verified(registrations={}, sessions={}, owners={}))
    assert (empty.kind, empty.path, empty.sentence) == (
        "too-few-members",
        "/consumers/g/ids",
        "the group has no members",
    )
    assert verified(registrations={}, sessions={}, owners={}, least_members=0).findings == ()
    assert only(verified(least_members=3)).sentence == "2 of 3 members are registered"


@pytest.mark.parametrize("data", [b"", b"garbage", b"{}", b'{"clicks":1}', static(clicks=0)])
def test_an_unreadable_registration_is_reported_and_its_owner_nodes_are_not(data: bytes) -> None:
    found = verified(registrations={"g_ann": data, "g_bob": filtered("cl.*")})
    assert [finding.kind for finding in found.findings] == ["unreadable-registration"]
    assert found.findings[0].path == "/consumers/g/ids/g_ann"
    assert not found.findings[0].passing


def test_beside_an_unreadable_registration_no_rebalance_would_help() -> None:
    found = verified(registrations={"g_ann": b"", "g_bob": filtered("cl.*")}, owners={})
    assert {finding.kind for finding in found.findings} == {"unreadable-registration", "unowned"}
    assert {finding.remedy for finding in found.findings[1:]} == {"first fix the registration of g_ann"}
    assert found.wakeable == ()


def test_a_registration_that_only_java_cannot_read_is_a_fault_where_somebody_lacks_something() -> None:
    bare = b'{"version":1,"subscription":{"clicks":1},"pattern":"static","timestamp":1400000000000}'
    registrations = {"g_ann": bare, "g_bob": filtered("cl.*")}
    well = only(verified(registrations=registrations))
    assert (well.kind, well.fault) == ("java-unreadable-registration", False)
    ill = verified(registrations=registrations, owners=owned("g_ann-0", "g_ann-0"))
    assert (ill.findings[0].kind, ill.findings[0].fault) == ("java-unreadable-registration", True)
    assert ill.wakeable == ()


def test_a_filter_that_cannot_be_applied_leaves_open_who_should_own_what() -> None:
    registrations = {"g_ann": static(clicks=1), "g_bob": filtered("[a-z&&[^b]].*")}
    assert only(verified(registrations=registrations)).kind == "unreadable-filter"
    missing = verified(registrations=registrations, owners=owned("g_ann-0", "", "g_bob-7", "g_bob-0"))
    assert [finding.kind for finding in missing.findings] == ["unreadable-filter", "unowned"]


def test_a_persistent_registration_is_a_fault() -> None:
    assert only(verified(sessions={"g_ann": 0, "g_bob": BOB})).kind == "persistent-registration"


def test_what_a_member_waits_for_is_worth_knowing_and_no_fault() -> None:
    registrations = {
        "g_ann": static(clicks=1, later=1), "g_bob": filtered("cl.*"), "g_cat": filtered(r"clicks\\\\.eu"),
    }  # fmt: skip
    topics = {"clicks": TOPIC, "later": None}
    found = verified(registrations=registrations, topics=topics)
    assert [(finding.kind, finding.fault) for finding in found.findings] == [
        ("missing-topic", False), ("idle-filter", False),
    ]  # fmt: skip
    assert found.to_dict()["fine"] is True


# ---- partitions and owners


def test_an_unowned_partition_names_whose_it_is() -> None:
    finding = only(verified(owners=owned("g_ann-0", "g_ann-0", "", "g_bob-0")))
    assert (finding.kind, finding.path, finding.passing) == ("unowned", "/consumers/g/owners/clicks/2", True)
    assert finding.sentence == "clicks-2 has no owner, but range assigns it to g_bob-0"


def test_a_member_that_gave_up_is_named_and_can_be_woken() -> None:
    found = verified(owners=owned("g_ann-0", "g_ann-0"))
    assert [finding.kind for finding in found.findings] == ["unowned", "unowned"]
    assert found.findings[0].sentence.endswith("(g_bob is registered and owns nothing)")
    assert found.findings[0].remedy == (
        "zkconsumer verify g --trigger-rebalance; if that does not help, see the log of g_bob, and restart"
    )
    assert found.wakeable == ("g_bob",)


@pytest.mark.parametrize("session", [0, 0x77])
def test_what_is_in_the_way_comes_first(session: int) -> None:
    owners = owned("g_ann-0", "g_ann-0") | {("clicks", "2"): (b"g_dead-0", session)}
    found = verified(owners=owners)
    foreign, unowned = found.findings
    assert foreign.kind == ("unregistered-owner" if session else "persistent-owner")
    assert foreign.passing is (session != 0)
    assert "zkconsumer release g clicks 2" in foreign.remedy
    assert unowned.remedy == (
        "first remove the obstacle, /consumers/g/owners/clicks/2; then zkconsumer verify g --trigger-rebalance"
    )
    assert found.wakeable == ()


def test_an_invalid_offset_keeps_a_java_member_from_all_partitions() -> None:
    found = verified(owners=owned("g_ann-0", "g_ann-0"), offsets={("clicks", "3"): b"abc"})
    assert found.findings[0].remedy.startswith("first remove the obstacle, /consumers/g/offsets/clicks/3; then ")
    assert found.wakeable == ()


def test_a_thread_beyond_the_streams_of_its_member_is_not_registered() -> None:
    finding = only(verified(owners=owned("g_ann-0", "g_ann-1", "g_bob-0", "g_bob-0")))
    assert finding.kind == "unregistered-owner"
    assert finding.sentence == (
        "clicks-1 is owned by 'g_ann-1' (by session 0x1a), which is not a thread of a registered member"
    )


def test_an_owner_that_its_strategy_does_not_name_is_wrong_and_can_be_woken() -> None:
    found = verified(owners=owned("g_ann-0", "g_ann-0", "g_ann-0", "g_bob-0"))
    finding = only(found)
    assert (finding.kind, finding.passing) == ("wrong-owner", True)
    assert finding.sentence == "clicks-2 is owned by g_ann-0, but range assigns it to g_bob-0"
    assert found.wakeable == ("g_bob",)


def test_a_strategy_that_is_asked_for_is_the_one_that_counts() -> None:
    round_robin = owned("g_ann-0", "g_bob-0", "g_ann-0", "g_bob-0")
    assert verified(owners=round_robin).faults == []
    assert {finding.kind for finding in verified(("range",), owners=round_robin).findings} == {"wrong-owner"}
    assert verified((), owners=round_robin).findings == ()


def test_without_a_strategy_a_member_that_owns_nothing_of_its_topics_can_be_woken() -> None:
    found = verified((), owners=owned("g_ann-0", "g_ann-0"))
    assert [finding.kind for finding in found.findings] == ["unowned", "unowned"]
    assert found.wakeable == ("g_ann", "g_bob")


@pytest.mark.catalogue("B6")
def test_members_of_different_strategies_are_named() -> None:
    # Ann assigns by range and wants 0 to 3; Bob assigns by round robin and wants 1, 3, 5, 7. Each was faster at one of
    # the two partitions that both want.
    eight = b'{"version":1,"partitions":{%s}}' % b",".join(b'"%d":[0]' % number for number in range(8))
    owners = owned("g_ann-0", "g_ann-0", "g_ann-0", "g_bob-0", "", "g_bob-0", "", "g_bob-0")
    found = verified(topics={"clicks": eight}, owners=owners)
    [finding] = [finding for finding in found.findings if finding.kind == "strategies-differ"]
    assert finding.sentence == (
        "members assign by different strategies: g_ann by range; g_bob by roundrobin or roundrobin-1.0"
    )
    assert found.wakeable == ()


def test_a_java_member_that_owns_nothing_beside_members_of_this_client_hints_at_the_order() -> None:
    changes = {
        "registrations": {"g_ann": static(events=1), "g_bob": static(events=1)},
        "known_topics": ("events",), "offsets": {},
        "topics": {"events": b'{"partitions":{"7":[0],"8":[0],"9":[0],"10":[0],"11":[0]}}'},
        "owners": {("events", name): (b"g_ann-0", ANN) for name in ("7", "9", "11")},
    }  # fmt: skip
    found = verified(java_members=frozenset({"g_bob"}), **changes)
    [hint] = [finding for finding in found.findings if finding.kind == "order-of-java"]
    assert hint.sentence == (
        "g_bob owns nothing, and zkconsumer members own what roundrobin assigns to them: Java 0.8.2 to 0.11 assign "
        "by roundrobin, Java 1.0 and 1.1 by roundrobin-1.0"
    )
    for java in ({"g_ann"}, {"g_ann", "g_bob"}, set()):
        kinds = {finding.kind for finding in verified(java_members=frozenset(java), **changes).findings}
        assert kinds == {"unowned"}


def test_members_that_may_agree_are_not_reported_to_differ() -> None:
    found = verified(owners=owned("g_bob-0", "g_ann-0"))  # a rebalance under way
    assert {finding.kind for finding in found.findings} == {"wrong-owner", "unowned"}


def test_an_owner_node_of_another_session_than_the_registration_is_named() -> None:
    owners = SOUND.owners | {("clicks", "0"): (b"g_ann-0", 0x77)}
    finding = only(verified(owners=owners))
    assert (finding.kind, finding.passing) == ("other-session", True)
    assert "session 0x77" in finding.sentence
    assert "0x1a" in finding.sentence


def test_a_persistent_owner_node_under_a_registered_name_asks_for_the_member_to_be_stopped_first() -> None:
    owners = SOUND.owners | {("clicks", "0"): (b"g_ann-0", 0)}
    finding = only(verified(owners=owners))
    assert (finding.kind, finding.passing) == ("persistent-owner", False)
    assert finding.remedy == "stop g_ann, then zkconsumer release g clicks 0"


def test_owner_nodes_of_missing_partitions() -> None:
    extra = {("clicks", "9"): (b"g_ann-0", ANN), ("old", "0"): (b"g_dead-0", 0), ("clicks", "0-3"): (b"x", BOB)}
    found = verified(owners=SOUND.owners | extra)
    assert [(finding.kind, finding.path.rpartition("owners/")[2]) for finding in found.findings] == [
        ("foreign-scheme", "clicks/0-3"), ("no-such-partition", "clicks/9"), ("no-such-partition", "old/0"),
    ]  # fmt: skip
    assert [finding.remedy for finding in found.findings[1:]] == ["restart g_ann", "zkconsumer release g old 0"]


@pytest.mark.parametrize("name", ["00", "+1", "1 ", "²", "9" * 30, ""])
def test_odd_names_are_no_partitions(name: str) -> None:
    found = verified(owners=SOUND.owners | {("clicks", name or " "): (b"g_ann-0", ANN)})
    assert only(found).kind == "foreign-scheme"


def test_a_topic_that_cannot_be_read_is_named() -> None:
    found = verified(topics={"clicks": b"?"})
    assert [finding.kind for finding in found.findings] == ["unreadable-topic"]
    assert found.findings[0].path == "/brokers/topics/clicks"


# ---- offsets


def offsets(logs: dict[tuple[str, str], LogRange] | None = None, **stored: bytes | None) -> list[Finding]:
    names = {tuple(name.rsplit("_", 1)): data for name, data in stored.items()}
    nodes = dataclasses.replace(SOUND, offsets=names)
    return list(offset_findings(nodes, {("clicks", "0"): (3, 9)} if logs is None else logs))


@pytest.mark.parametrize("data", [b"3", b"5", b"9"])
def test_offsets_inside_the_log_are_fine(data: bytes) -> None:
    assert offsets(clicks_0=data) == []


SET_IT = "zkconsumer offsets set g --topic clicks --partition 0 --to earliest --force"
AS_CONFIGURED = f"{SET_IT}, or the next owner starts where auto.offset.reset says"


@pytest.mark.parametrize(
    ("data", "kind", "what", "passing"),
    [
        (b"10", "offset-beyond-log", "10 is 1 beyond the end of its log", False),
        (
            b"2",
            "offset-before-log",
            "2 is 1 before the start of its log: messages were deleted before they were read",
            True,
        ),
        *(
            (data, "unreadable-offset", f"{data or b''!r} is not valid", False)
            for data in (b"-1", b"-77", b"", b"abc", b" 2", b"12\n", None, b"9" * 20)
        ),
    ],
)
def test_offsets_from_which_no_member_can_go_on(data: bytes | None, kind: str, what: str, passing: bool) -> None:
    [finding] = offsets(clicks_0=data)
    fails = kind == "unreadable-offset" and data not in (b"-1", b"-77")
    java = "; Java members fail their rebalance because of it" if fails else ""
    path = "/consumers/g/offsets/clicks/0"
    assert finding == Finding(kind, path, f"clicks-0: its stored offset {what}", f"{AS_CONFIGURED}{java}", passing)


def test_an_offset_that_cannot_be_read_hides_no_other() -> None:
    logs: dict[tuple[str, str], LogRange] = {("clicks", "1"): (3, 9)}
    assert [finding.path.rpartition("/")[2] for finding in offsets(logs, clicks_0=b"?", clicks_1=b"2")] == ["0", "1"]


def test_a_log_that_is_not_known_is_named_and_one_that_was_not_asked_about_is_not() -> None:
    [finding] = offsets({("clicks", "0"): "no broker leads it"}, clicks_0=b"5")
    assert (finding.kind, finding.passing) == ("unknown-log", True)
    assert offsets({}, clicks_0=b"5") == []


def test_offsets_of_missing_partitions_are_no_fault() -> None:
    remedy = "nothing; if the partition is created again, reading starts at that offset"
    assert offsets(clicks_9=b"5", old_0=b"5") == [
        Finding("stale-offset", f"/consumers/g/offsets/{topic}/{number}",
                f"{topic}-{number}: an offset is stored, but the partition does not exist", remedy, fault=False)
        for topic, number in (("clicks", 9), ("old", 0))
    ]  # fmt: skip


# ---- nodes that may not be read


def no(*paths: str) -> dict[str, RefusedNode]:
    return {path: RefusedNode(path, Fault.NO_AUTH) for path in paths}


def test_a_registration_that_may_not_be_read_is_reported_and_no_other_member() -> None:
    path = "/consumers/g/ids/g_shut"
    found = verified(registrations={**SOUND.registrations, "g_shut": None}, refused=no(path))
    finding = only(found)
    assert (finding.kind, finding.path, finding.passing, finding.fault) == ("refused-node", path, False, True)
    assert finding.sentence.startswith(f"{unread_cause(path)}; that member may subscribe to any topic")
    assert "zookeeper.acl" in finding.remedy
    assert (found.members, found.wakeable) == (3, ())


def test_partitions_unowned_because_of_it_are_reported_beside_it() -> None:
    path = "/consumers/g/ids/g_shut"
    found = verified(registrations={**SOUND.registrations, "g_shut": None}, refused=no(path),
                    owners=owned("g_ann-0", "g_ann-0", "", "g_bob-0"))  # fmt: skip
    refused, unowned = found.findings
    assert (refused.kind, unowned.kind) == ("refused-node", "unowned")
    assert unowned.remedy == "first fix the registration of g_shut"
    assert found.wakeable == ()


def test_a_list_of_members_that_may_not_be_read_is_not_an_empty_group() -> None:
    found = verified(registrations={}, sessions={}, refused=no("/consumers/g/ids"))
    assert only(found).kind == "refused-node"


def test_a_topic_that_may_not_be_read_is_no_missing_one() -> None:
    path = "/brokers/topics/clicks"
    nodes = dataclasses.replace(SOUND, topics={"clicks": None}, refused=no(path))
    assert only(verify_group(nodes)).path == path
    assert list(offset_findings(nodes, {})) == []


@pytest.mark.parametrize("path", ["/consumers/g/owners/clicks/2", "/consumers/g/owners/clicks", "/consumers/g/owners"])
def test_an_owner_that_may_not_be_seen_is_not_nobody(path: str) -> None:
    seen = owned("g_ann-0", "g_ann-0", "", "g_bob-0") if path.endswith("2") else {}
    found = verified(owners=seen, refused=no(path))
    assert only(found).path == path
    assert found.wakeable == ()


def test_an_offset_that_may_not_be_read_is_named() -> None:
    path = "/consumers/g/offsets/clicks/1"
    assert only(verified(refused=no(path))).sentence.startswith(unread_cause(path))
