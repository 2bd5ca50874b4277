"""Access lists of embedded brokers: every recorded request is answered as real brokers have answered it."""

from __future__ import annotations

import struct

import pytest
from broker_wire import Wire

from simpleconsumer.access_lists import DeletedAcls
from tests.simpleconsumer import golden_apis
from tests.simpleconsumer.golden_acls import BROKERS
from tests.simpleconsumer.golden_apis import Frames
from zkconsumer.admin import (
    AclFilter,
    AclsNotAuthorized,
    AclsRefused,
    BrokerAdmin,
)
from zkconsumer.testing.embedded.cluster import VERSIONS, EmbeddedCluster
from zkconsumer.testing.embedded.faults import Fault

AUTHORIZER = {"authorizer.class.name": "embedded"}
GENERATIONS = ("1.1", "2.8", "3.9", "4.3")
CLUSTER_AUTHORIZATION_FAILED = 31


def recorded(generation: str) -> list[Frames]:
    """The frames of a version in the order in which they were sent."""
    frames = [each for each in golden_apis.of_name(r"\w+Acls-.*") if each.kafka == VERSIONS[generation]]
    return sorted(frames, key=lambda each: struct.unpack_from(">i", each.request, 8)[0])


@pytest.fixture(scope="module", params=GENERATIONS)
def answers(request: pytest.FixtureRequest) -> list[tuple[Frames, bytes]]:
    """Each recorded request with the answer of the embedded broker, to be told apart by what the real one was."""
    found = []
    with (
        EmbeddedCluster(1, generation=request.param, zookeeper=False) as without,
        EmbeddedCluster(1, generation=request.param, zookeeper=False, settings=AUTHORIZER) as guarded,
    ):
        for frames in recorded(request.param):
            if "-denied" in frames.name:
                guarded.faults.add(Fault.error(CLUSTER_AUTHORIZATION_FAILED))
            with Wire((without if "-disabled" in frames.name else guarded).port(0)) as wire:
                found.append((frames, wire.ask(frames.request)[8:]))
    return found


def in_any_order(decoded: object) -> object:
    """What was decoded, with rules in one order, and without the words about a missing right: they name the request."""
    if isinstance(decoded, tuple):
        verdict, acls = decoded
        return (without_words(verdict), sorted(acls, key=str))
    assert isinstance(decoded, list)
    return [
        (without_words(each.verdict), sorted(each.acls, key=str))
        if isinstance(each, DeletedAcls)
        else without_words(each)
        for each in decoded
    ]


def without_words(verdict: object) -> object:
    code, message = verdict  # type: ignore[misc]
    return (code, None if code == CLUSTER_AUTHORIZATION_FAILED else message)


def test_each_answer_is_that_of_a_real_broker(answers: list[tuple[Frames, bytes]]) -> None:
    assert len(answers) > 15
    for frames, answer in answers:
        has_order = not any(word in frames.name for word in ("-all", "-match", "-denied"))
        if has_order:
            assert answer == frames.answer, str(frames)
        else:
            assert in_any_order(frames.asked.decode(memoryview(answer))) == in_any_order(frames.decoded()), str(frames)


@pytest.mark.parametrize("generation", ["0.9", "0.10"])
def test_generations_before_0_11_have_no_requests_for_it(generation: str) -> None:
    with (
        EmbeddedCluster(1, generation=generation, zookeeper=False, settings=AUTHORIZER) as cluster,
        BrokerAdmin(cluster.broker_list) as admin,
        pytest.raises(AclsRefused, match=r"no access lists .*: that needs brokers of Kafka 0\.11"),
    ):
        admin.acls()


def test_all_brokers_have_the_rules_also_when_they_come_back() -> None:
    with EmbeddedCluster(2, generation="2.8", zookeeper=False, settings=AUTHORIZER) as cluster:
        with BrokerAdmin(f"127.0.0.1:{cluster.port(0)}") as first:
            assert first.create_acls(BROKERS).done
        cluster.stop(0)
        with BrokerAdmin(f"127.0.0.1:{cluster.port(1)}") as second:
            assert second.acls().acls == (BROKERS,)
            cluster.faults.add(Fault.error(CLUSTER_AUTHORIZATION_FAILED, "delete_acls"))
            with pytest.raises(AclsNotAuthorized, match="Alter the cluster"):
                second.delete_acls(AclFilter())
            assert second.delete_acls(AclFilter()).acls_deleted == (BROKERS,)
