"""Access lists at embedded brokers that fail: what is changed, and what is said of it."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread

import pytest

import zkconsumer.admin.acl_calls as acl_calls
from simpleconsumer.calls.broker_client import BrokerClient
from simpleconsumer.dialect import KAFKA011
from zkconsumer.admin import (
    Acl,
    AclFilter,
    AclOperation,
    AclsNotAuthorized,
    AclsRefused,
    AclsUnfinished,
    BrokerAdmin,
    PatternType,
    ResourceType,
)
from zkconsumer.admin.acl_plans import parse_acls
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault

NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED, POLICY_VIOLATION = 41, 31, 44
RULES = [Acl(ResourceType.TOPIC, f"clicks-{number}", "User:alice", AclOperation.READ) for number in range(5)]
RULE = RULES[0]
UNHEARD_OF = 99
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x46"
"""How a broker answers that has TLS on its port: the client ends with `AuthenticationFailed`."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"authorizer.class.name": "embedded"}
    with EmbeddedCluster(2, generation="4.3", zookeeper=False, settings=settings) as running:
        yield running


@pytest.fixture
def admin(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerAdmin]:
    """Administration with short waits; no fault and no rule is left afterwards."""
    monkeypatch.setattr(acl_calls, "_DEADLINE_S", 0.5)
    with BrokerAdmin(cluster.broker_list) as found:
        yield found
        cluster.restore()
        found.delete_acls(AclFilter())


@pytest.mark.parametrize("fault", [Fault.close("create_acls"), Fault.error(NOT_CONTROLLER, "create_acls")])
def test_a_request_that_is_lost_or_comes_too_early_is_sent_again(
    fault: Fault, cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    cluster.faults.add(fault, 2)
    assert admin.create_acls(RULE).acls_created == (RULE,)
    assert cluster.faults.used(fault) == 2
    assert admin.acls().acls == (RULE,)


def test_a_deletion_whose_answer_is_lost_counts_as_done_when_the_rule_is_gone(
    cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    admin.create_acls(*RULES)
    cluster.faults.add(Fault.close("delete_acls"), 1)
    assert admin.delete_acls(AclFilter.of(RULE)).acls_deleted == (RULE,)
    assert admin.acls().acls == tuple(RULES[1:])


def test_one_broker_that_is_away_is_not_waited_for(cluster: EmbeddedCluster, admin: BrokerAdmin) -> None:
    cluster.stop(1)
    assert admin.create_acls(RULE).done


def test_when_no_broker_answers_nobody_knows_what_is_changed(cluster: EmbeddedCluster, admin: BrokerAdmin) -> None:
    cluster.faults.add(Fault.close("create_acls"), None)
    with pytest.raises(AclsUnfinished, match=r"nobody knows whether the rule .* is created") as error:
        admin.create_acls(RULE)
    change = error.value.change
    assert (change.acls_created, change.written, change.done, len(change.problems)) == ((), True, False, 1)
    cluster.faults.add(Fault.close("describe_acls"), None)
    with pytest.raises(ClusterSilent, match=r"no broker has answered about the access lists .* within 0\.5 s"):
        admin.acls()


def test_rules_of_later_requests_are_not_tried_when_no_broker_answers(
    cluster: EmbeddedCluster, admin: BrokerAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_calls, "_MOST_OF_A_REQUEST", 2)
    cluster.faults.add(Fault.close("create_acls"), None)
    with pytest.raises(AclsUnfinished, match=r"5 of 5 rules .* are not changed") as error:
        admin.create_acls(*RULES)
    asked = ["no broker was asked any more" in problem for problem in error.value.change.problems]
    assert asked == [False, False, True, True, True]


def test_many_rules_go_in_several_requests(
    cluster: EmbeddedCluster, admin: BrokerAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_calls, "_MOST_OF_A_REQUEST", 2)
    assert admin.create_acls(*RULES).acls_created == tuple(RULES)
    assert admin.delete_acls(AclFilter()).acls_deleted == tuple(RULES)


def test_what_a_broker_refuses_stands_at_the_filter_that_means_it(cluster: EmbeddedCluster, admin: BrokerAdmin) -> None:
    admin.create_acls(*RULES)
    cluster.faults.add(Fault.error(POLICY_VIOLATION, "delete_acls"), None)
    first, none = AclFilter.of(RULE), AclFilter(principal="User:bob")
    with pytest.raises(AclsUnfinished, match=r"1 of 1 rule .* are not changed: the rule .*PolicyViolation") as error:
        admin.delete_acls(first, none)
    change = error.value.change
    assert change.acls_deleted == ()
    assert [(row.filter, row.acls_deleted, len(row.problems)) for row in change.filters] == [
        (first, (), 1),
        (none, (), 0),
    ]
    assert "PolicyViolation" in change.filters[0].problems[0]


def test_a_missing_right_ends_a_change_before_it_begins_and_is_a_problem_afterwards(
    cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    admin.create_acls(RULES[1])
    planned = admin.plan_acls([RULE])
    cluster.faults.add(Fault.error(CLUSTER_AUTHORIZATION_FAILED, "delete_acls"), None)
    with pytest.raises(AclsUnfinished, match=r"the rule .* is not deleted") as error:
        admin.apply_acls(planned, delete=True)
    assert (error.value.change.acls_created, error.value.change.acls_deleted) == ((RULE,), ())
    with pytest.raises(AclsNotAuthorized):
        admin.apply_acls(planned, delete=True)


def test_nothing_is_deleted_when_a_rule_that_may_replace_it_is_not_created(
    cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    admin.create_acls(RULES[1])
    planned = admin.plan_acls([RULE])
    cluster.faults.add(Fault.error(POLICY_VIOLATION, "create_acls"))
    with pytest.raises(AclsUnfinished, match=r"2 of 2 rules .*is not deleted: not all others are created"):
        admin.apply_acls(planned, delete=True)
    assert admin.acls().acls == (RULES[1],)


@contextmanager
def before_the_change(cluster: EmbeddedCluster, fault: Fault, api: str = "describe_acls") -> Iterator[None]:
    """Add a fault while a broker takes its time for a request."""
    slow = cluster.faults.add(Fault.delay(0.5, api))

    def add() -> None:
        cluster.faults.wait_used(slow)
        cluster.faults.add(fault, None)

    adding = Thread(target=add)
    adding.start()
    yield
    adding.join()


def test_a_change_of_which_no_broker_says_that_it_knows_is_not_done(
    cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    with (
        before_the_change(cluster, Fault.close("describe_acls"), "create_acls"),
        pytest.raises(AclsUnfinished, match=r"are changed, but no broker has said whether it knows of it: ") as error,
    ):
        admin.create_acls(RULE, wait_s=0.5)
    change = error.value.change
    assert (change.acls_created, change.written, change.done) == ((RULE,), True, False)
    [problem] = change.problems
    assert problem.startswith("the rules are changed, but no broker has said whether it knows of it: ")


def test_brokers_that_refuse_the_credentials_are_not_asked_again_what_they_know(
    cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    closed = Fault.garbage(TLS_ALERT, "api_versions")
    started_at = time.monotonic()
    with (
        before_the_change(cluster, closed, "create_acls"),
        pytest.raises(AclsUnfinished, match=r"no broker has said whether it knows of it: .*security\.protocol"),
    ):
        admin.create_acls(RULE, wait_s=30)
    assert time.monotonic() - started_at < 15
    assert 1 <= cluster.faults.used(closed) <= 4


def test_a_change_that_is_never_sent_as_the_credentials_are_refused_is_not_made(
    cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    with (
        before_the_change(cluster, Fault.garbage(TLS_ALERT, "api_versions")),
        pytest.raises(AclsUnfinished, match=r": the rule .* is not created: .*security\.protocol") as error,
    ):
        admin.create_acls(RULE)
    assert "nobody knows" not in str(error.value)
    assert error.value.change.problems[0].startswith(f"the rule {RULE} is not created: ")


def test_a_change_that_was_lost_before_the_credentials_are_refused_may_be_made(
    cluster: EmbeddedCluster, admin: BrokerAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acl_calls, "_DEADLINE_S", 5.0)
    lost = cluster.faults.add(Fault.close("create_acls"), None)

    def refuse() -> None:
        cluster.faults.wait_used(lost)
        cluster.faults.add(Fault.garbage(TLS_ALERT, "api_versions"), None)

    refusing = Thread(target=refuse)
    refusing.start()
    with pytest.raises(AclsUnfinished, match=r"nobody knows whether the rule .* is created: .*security\.protocol"):
        admin.create_acls(RULE)
    refusing.join()


def test_one_broker_that_refuses_the_credentials_is_in_nobodys_way(
    cluster: EmbeddedCluster, admin: BrokerAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when brokers are asked what they look at, nor when they are asked what they know."""
    calls = admin._acl_calls
    brokers = calls._brokers()
    monkeypatch.setattr(calls, "_brokers", lambda: brokers)  # which needs no connection
    closed = cluster.faults.add(Fault.garbage(TLS_ALERT, "api_versions").only(broker=0), None)
    calls.require([replace(RULE, pattern_type=PatternType.PREFIXED)])
    assert cluster.faults.used(closed) == 1
    refusing: set[int] = set()
    assert calls.doubt([], [RULE], refusing) == ""
    assert "broker 1 does not" in calls.doubt([RULE], [], refusing)
    assert (refusing, cluster.faults.used(closed)) == ({0}, 2)


def test_a_broker_that_does_not_know_of_the_change_in_time_is_said(
    cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    """Broker 1 says that there are no rules, in an answer to the first request of a connection."""
    body = struct.pack(">i", 1) + b"\0" + struct.pack(">ih", 0, 0) + b"\0\1\0"
    cluster.faults.add(Fault.garbage(struct.pack(">i", len(body)) + body, "describe_acls").only(broker=1), None)
    with pytest.raises(
        AclsUnfinished, match=r"are changed, but not every .*: broker 1 does not, after 0\.5 s"
    ) as error:
        admin.create_acls(RULE, wait_s=0.5)
    assert (error.value.change.acls_created, error.value.change.done) == ((RULE,), False)
    unwaited = admin.delete_acls(AclFilter(), wait_s=0)
    assert (unwaited.acls_deleted, unwaited.written, unwaited.done) == ((RULE,), True, False)


def test_rules_that_exist_are_compared_as_they_are_and_missing_ones_are_checked(
    cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    """Brokers hold rules that they never look at: `create_acls` would not create them, and a plan takes them."""
    odd = [replace(RULE, host="web1.example.org"), replace(RULE, principal="user:bob")]
    with BrokerClient("127.0.0.1", cluster.port(0), 5.0, "test", dialect=KAFKA011) as client:
        assert [verdict.error_code for verdict in client.ask(KAFKA011.create_acls(odd))] == [0, 0]
    planned = admin.plan_acls([*odd, RULE])
    assert (set(planned.unchanged), planned.to_create, planned.to_delete) == (set(odd), (RULE,), ())
    assert admin.apply_acls(planned, delete=True).acls_created == (RULE,)
    with pytest.raises(AclsRefused, match=r"the host 'web1\.example\.org' is no address"):
        admin.create_acls(odd[0])
    admin.delete_acls(AclFilter())
    with pytest.raises(AclsRefused, match=r"2 of them are refused: .*'web1\.example\.org'.*'user:bob'"):
        admin.plan_acls([*odd, RULE])
    assert admin.acls().acls == ()


def test_a_rule_that_is_newer_than_this_client_is_not_deleted_with_others(
    cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    """A filter without the unknown value would mean other rules, too."""
    body = b"\0" + struct.pack(">ih", 0, 0) + b"\0\2\2\7clicks\3\2\7User:x\2*" + bytes([UNHEARD_OF, 3]) + b"\0\0\0"
    frame = struct.pack(">i", 2) + body
    cluster.faults.add(Fault.garbage(struct.pack(">i", len(frame)) + frame, "describe_acls"), None)
    with pytest.raises(Exception, match="a rule that is newer than this client: ALLOW User:x UNKNOWN on TOPIC"):
        admin.delete_acls(AclFilter())
    [newer] = admin.acls().acls
    again = admin.plan_acls(parse_acls(admin.acls().to_dict()))
    assert (again.unchanged, again.is_empty) == ((newer,), True)
    with pytest.raises(AclsRefused, match="no operation UNKNOWN of TOPIC"):
        admin.plan_acls([newer, replace(newer, principal="User:bob")])
    with pytest.raises(
        AclsRefused, match=r"no rule is deleted: .*newer than this client: ALLOW User:x UNKNOWN on TOPIC"
    ):
        admin.apply_acls(admin.plan_acls([]), delete=True)
    with pytest.raises(ValueError, match="at least one filter"):
        admin.delete_acls()
    with pytest.raises(ValueError, match="at least one rule"):
        admin.create_acls()
