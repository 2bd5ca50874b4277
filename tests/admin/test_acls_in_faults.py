"""Access lists at embedded brokers that fail: what is changed, and what is said of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

import zkconsumer.admin.acl_calls as acl_calls
from zkconsumer.admin import (
    Acl,
    AclFilter,
    AclOperation,
    AclsNotAuthorized,
    AclsUnfinished,
    BrokerAdmin,
    ResourceType,
)
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.testing.embedded.cluster import EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault

NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED, POLICY_VIOLATION = 41, 31, 44
RULES = [Acl(ResourceType.TOPIC, f"clicks-{number}", "User:alice", AclOperation.READ) for number in range(5)]
RULE = RULES[0]
UNHEARD_OF = 99


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
    assert [(row.filter, row.acls, len(row.problems)) for row in change.filters] == [(first, (), 1), (none, (), 0)]
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


def test_a_broker_that_does_not_know_of_the_change_in_time_is_said(
    cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    """Broker 1 says that there are no rules, in an answer to the first request of a connection."""
    body = struct.pack(">i", 1) + b"\0" + struct.pack(">ih", 0, 0) + b"\0\1\0"
    cluster.faults.add(Fault.garbage(struct.pack(">i", len(body)) + body, "describe_acls").only(broker=1), None)
    with pytest.raises(AclsUnfinished, match=r"are changed, but not every broker knows of it after 0\.5 s") as error:
        admin.create_acls(RULE, wait_s=0.5)
    assert (error.value.change.acls_created, error.value.change.done) == ((RULE,), False)
    unwaited = admin.delete_acls(AclFilter(), wait_s=0)
    assert (unwaited.acls_deleted, unwaited.written, unwaited.done) == ((RULE,), True, False)


def test_a_rule_that_is_newer_than_this_client_is_not_deleted_with_others(
    cluster: EmbeddedCluster, admin: BrokerAdmin
) -> None:
    """A filter without the unknown value would mean other rules, too."""
    body = b"\0" + struct.pack(">ih", 0, 0) + b"\0\2\2\7clicks\3\2\7User:x\2*" + bytes([UNHEARD_OF, 3]) + b"\0\0\0"
    frame = struct.pack(">i", 2) + body
    cluster.faults.add(Fault.garbage(struct.pack(">i", len(frame)) + frame, "describe_acls"), None)
    with pytest.raises(Exception, match="a rule that is newer than this client: ALLOW User:x UNKNOWN on TOPIC"):
        admin.delete_acls(AclFilter())
    with pytest.raises(ValueError, match="at least one filter"):
        admin.delete_acls()
    with pytest.raises(ValueError, match="at least one rule"):
        admin.create_acls()
