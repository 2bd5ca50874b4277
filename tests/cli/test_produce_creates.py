"""What `zkconsumer produce` reports about a topic that does not exist, on brokers that create topics or do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.command_line import run
from zkconsumer.testing.kafka import KafkaCluster

pytestmark = pytest.mark.real


OTHERS = ("0.8.0", "0.8.1.1", "0.10.2.2", "3.9.2")


@pytest.fixture(scope="module", params=["0.8.2.2", *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)])
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A broker that creates topics with three partitions."""
    settings = {"auto.create.topics.enable": True, "num.partitions": 3}
    with KafkaCluster(request.param, brokers=1, settings=settings) as cluster:
        cluster.create_topic("clicks")
        yield cluster


def produce(cluster: KafkaCluster, topic: str, *options: str) -> tuple[int, str]:
    done = run("produce", "--zookeeper", cluster.zookeeper_connect, "--topic", topic, *options, stdin=b"a\nb\n")
    return done.returncode, done.stderr.decode()


def test_a_creation_is_reported_once_and_before_the_messages(cluster: KafkaCluster) -> None:
    status, said = produce(cluster, "views")
    assert status == 0
    assert said.splitlines() == [
        "topic 'views' did not exist; the brokers created it with 3 partitions", "Produced 2 messages"
    ]  # fmt: skip
    assert produce(cluster, "views") == (0, "Produced 2 messages\n")


def test_a_name_that_is_nearly_that_of_a_topic_is_named(cluster: KafkaCluster) -> None:
    _, said = produce(cluster, "clickz")
    assert said.startswith("topic 'clickz' did not exist (did you mean topic 'clicks'?); the brokers")


def test_brokers_that_are_listed_create_topics_and_say_which_there_are(cluster: KafkaCluster) -> None:
    def call(topic: str, *options: str) -> tuple[int, list[str]]:
        done = run("produce", "--brokers", cluster.broker_list, "--topic", topic, *options, stdin=b"a\nb\n")
        return done.returncode, done.stderr.decode().splitlines()

    assert call("listed") == (
        0, ["topic 'listed' did not exist; the brokers created it with 3 partitions", "Produced 2 messages"]
    )  # fmt: skip
    assert call("listed", "--no-create", "--partition", "2") == (0, ["Produced 2 messages"])
    status, said = call("listde", "--no-create")
    assert (status, len(said)) == (1, 1)
    assert said[0].startswith("zkconsumer: topic 'listde' does not exist (did you mean 'listed'?), and --no-create")
    assert cluster.client.exists("/brokers/topics/listde") is None
    assert call("listed", "--partition", "3") == (1, ["zkconsumer: topic 'listed' has no partition 3; it has 0, 1, 2"])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_what_is_sent_is_read_back(cluster: KafkaCluster, codec: str) -> None:
    topic = f"codec-{codec}"
    cluster.create_topic(topic, 2)
    lines = [b"key-%d:value \xff%d" % (number % 7, number) for number in range(1000)]
    done = run("produce", "--zookeeper", cluster.zookeeper_connect, "--topic", topic, "--codec", codec,
               "--key-separator", ":", "--acks", "-1", stdin=b"\n".join(lines))  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"Produced 1000 messages\n")
    got = run("consume", "--zookeeper", cluster.zookeeper_connect, "--topic", topic, "--until-end", "--key",
              "--key-separator", ":")  # fmt: skip
    assert sorted(got.stdout.splitlines()) == sorted(lines)


def test_no_create_leaves_the_cluster_as_it_is(cluster: KafkaCluster) -> None:
    status, said = produce(cluster, "clikcs", "--no-create")
    assert status == 1
    assert said == (
        "zkconsumer: topic 'clikcs' does not exist (did you mean 'clicks'?), and --no-create is given; create it with "
        "`zkconsumer topics create clikcs --partitions N`\n"
    )
    assert cluster.client.exists("/brokers/topics/clikcs") is None
    assert produce(cluster, "clicks", "--no-create") == (0, "Produced 2 messages\n")


def test_brokers_that_create_no_topics_are_named_with_the_remedy() -> None:
    with KafkaCluster("0.8.2.2", brokers=1, settings={"auto.create.topics.enable": False}) as cluster:
        status, said = produce(cluster, "views")
        assert (status, said) == (
            1,
            "zkconsumer: topic 'views' does not exist, and the brokers do not create it (auto.create.topics.enable is "
            "off); create it with `zkconsumer topics create views --partitions N`\n",
        )
        assert cluster.client.exists("/brokers/topics/views") is None
        listed = run("produce", "--brokers", cluster.broker_list, "--topic", "views", stdin=b"a\n")
        assert (listed.returncode, listed.stderr.decode()) == (status, said)
        made = run("topics", "create", "views", "--zookeeper", cluster.zookeeper_connect, "--partitions", "2")
        assert made.returncode == 0, made.stderr
        assert produce(cluster, "views") == (0, "Produced 2 messages\n")
