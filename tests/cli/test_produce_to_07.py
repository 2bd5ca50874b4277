"""`zkconsumer produce` to brokers of Kafka 0.7, which acknowledge nothing: what is sent again, what is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kafka_07 import entry

from simpleconsumer.dialect import KAFKA07
from simpleconsumer.types import Message
from tests.admin.broker_07 import MULTIPRODUCE, OFFSETS, PRODUCE, Broker07
from tests.cli.command_line import run

READ = "Kafka 0.7 acknowledges no messages: the brokers have received these\n"
Produce = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def running(fresh_chroot: str) -> Iterator[Broker07]:
    with Broker07(fresh_chroot, 3, {"clicks": 2}) as broker:
        yield broker


@pytest.fixture
def broker(running: Broker07) -> Broker07:
    for log in running.logs.values():
        log.clear()
    running.requests.clear()
    return running


@pytest.fixture
def produce(fresh_chroot: str) -> Produce:
    """Runs the command: status, stderr."""

    def call(*arguments: str, stdin: bytes = b"a\nb\n", topic: str = "clicks") -> tuple[int, str]:
        done = run("produce", "--zookeeper", fresh_chroot, "--topic", topic, *arguments, stdin=stdin)
        return done.returncode, done.stderr.decode()

    return call


def test_messages_go_to_all_partitions_in_turn(broker: Broker07, produce: Produce) -> None:
    assert produce() == (0, f"Produced 2 messages; {READ}")
    assert broker.logs == {("clicks", 0): entry(b"a"), ("clicks", 1): entry(b"b")}
    assert broker.requests[PRODUCE] + broker.requests[MULTIPRODUCE] == broker.requests[OFFSETS] <= 2


def test_a_batch_behind_which_the_connection_was_closed_is_sent_again(broker: Broker07, produce: Produce) -> None:
    broker.closes = 2
    status, said = produce("--partition", "3-1")
    assert status == 0
    assert said == (f"Produced 2 messages; 4 were sent again after a lost connection and may be stored twice; {READ}")
    assert broker.logs["clicks", 1] == entry(b"a") + entry(b"b")
    assert broker.requests[PRODUCE] == 3


def test_with_acks_0_one_answer_is_waited_for_at_the_end_and_nothing_is_known(
    broker: Broker07, produce: Produce
) -> None:
    status, said = produce("--acks", "0")
    assert (status, broker.requests[OFFSETS]) == (0, 1)
    assert said.endswith("Kafka 0.7 acknowledges no messages: it is not known whether the brokers have these\n")


def test_a_compressed_batch_is_one_entry(broker: Broker07, produce: Produce) -> None:
    assert produce("--codec", "gzip", "--partition", "3-0")[0] == 0
    found: list[Message] = list(KAFKA07.decode_messages(bytes(broker.logs["clicks", 0]), "clicks", "3-0", 0))
    assert [(each.value, each.offset, each.index) for each in found] == [(b"a", 0, 0), (b"b", 0, 1)]


def test_messages_that_brokers_may_drop_are_refused_or_reported_once(broker: Broker07, produce: Produce) -> None:
    large = b"x" * 1_000_001
    stdin = b"\n".join([large, b"y", large])
    status, said = produce(stdin=stdin)
    assert status == 1
    assert said.splitlines()[1:] == ["zkconsumer: 2 of 3 lines were not sent"] + [
        f"  line {number}: it has 1000001 bytes, more than message.max.bytes = 1000000" for number in (1, 3)
    ]
    status, said = produce("--property", "max.message.size=2000000", stdin=stdin)
    assert status == 0
    assert said.splitlines()[0] == (
        "warning: brokers of Kafka 0.7 silently drop messages above their max.message.size, by default 1000000 bytes"
    )


def test_a_topic_that_does_not_exist_is_made_by_partition_0_of_each_broker(broker: Broker07, produce: Produce) -> None:
    broker.logs["views", 0] = bytearray()
    status, said = produce(topic="views")
    assert (status, broker.logs.pop(("views", 0))) == (0, entry(b"a") + entry(b"b"))
    assert said.splitlines()[0] == (
        "topic 'views' does not exist; brokers of Kafka 0.7 create it with its first message"
    )


@pytest.mark.parametrize(
    ("arguments", "topic", "sentence"),
    [
        (["--key-separator", ":"], "clicks", "Kafka 0.7 stores no keys; leave --key-separator out"),
        (["--acks", "-1"], "clicks", "Kafka 0.7 has no replicas that could acknowledge a message; leave --acks out"),
        (["--codec", "lz4"], "clicks", "Kafka 0.7 does not support lz4; choose one of none, gzip, snappy"),
        (["--partition", "3-7"], "clicks", "topic 'clicks' has no partition 3-7; it has 3-0, 3-1"),
        (["--no-create"], "clickz", "topic 'clickz' does not exist (did you mean topic 'clicks'?), and "
                                    "--no-create is given; leave that out: brokers of Kafka 0.7 create it"),
    ],
)  # fmt: skip
def test_what_07_does_not_have_is_refused_before_anything_is_sent(
    broker: Broker07, produce: Produce, arguments: list[str], topic: str, sentence: str
) -> None:
    status, said = produce(*arguments, topic=topic)
    assert status == 1
    assert f"zkconsumer: {sentence}" in said
    assert not broker.requests


@pytest.mark.parametrize(("text", "expected"), [("3-0", 0), ("x", 2), ("3-", 2), ("-1", 2), ("3-0-0", 2)])
def test_the_form_of_a_partition(broker: Broker07, produce: Produce, text: str, expected: int) -> None:
    status, said = produce("--partition", text)
    assert status == expected
    assert ("is not a partition" in said) == (expected == 2)
