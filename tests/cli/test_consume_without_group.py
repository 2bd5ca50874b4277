"""`zkconsumer consume` without a group: as a process on a real broker, with pipes and signals; and its usage."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence

import pytest
from click.testing import CliRunner

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.kafka08.message_encode import Encodable
from tests.cli.command_line import TIMEOUT_S, Running, command, run
from zkconsumer.cli.program import program
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.waiting import wait_until

COUNT = 20
PLACES = ("-f", r"%p:%o\n")


def produce(cluster: KafkaCluster, topic: str, messages: Sequence[Encodable], partition: int = 0) -> None:
    leader = cluster.wait_leaders(topic, [partition])[partition]
    with SimpleConsumer("127.0.0.1", cluster.port(leader)) as producer:
        producer.produce(topic, partition, messages)


@pytest.fixture(scope="module")
def topic(kafka_0822: KafkaCluster) -> str:
    """Three partitions with twenty messages each: `key-<n>` and `<partition>:<n>`; the last value is null."""
    name = f"cli-{uuid.uuid4().hex[:10]}"
    kafka_0822.create_topic(name, 3)
    for partition in range(3):
        messages = [(b"key-%d" % n, b"%d:%d" % (partition, n)) for n in range(COUNT - 1)]
        produce(kafka_0822, name, [*messages, (b"\xff", None)], partition)
    return name


@pytest.fixture
def consume(kafka_0822: KafkaCluster, topic: str) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs the command on the topic."""
    return lambda *options: run("consume", "--zookeeper", kafka_0822.zookeeper_connect, "--topic", topic, *options)


Consume = Callable[..., subprocess.CompletedProcess[bytes]]


def places(lines: bytes) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for line in lines.split():
        partition, offset = line.split(b":")
        found.setdefault(int(partition), []).append(int(offset))
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--until-end"], {0: [*range(COUNT)], 1: [*range(COUNT)], 2: [*range(COUNT)]}),
        (["--offset", "-2", "--until-end"], {0: [18, 19], 1: [18, 19], 2: [18, 19]}),
        (["--partition", "1", "--offset=18", "--until-end"], {1: [18, 19]}),
        (["--partition", "1", "--partition", "2", "--offset", "19", "--until-end"], {1: [19], 2: [19]}),
        (["--partition", "2", "--from-beginning", "--count", "3"], {2: [0, 1, 2]}),
        (["--partition", "0", "--offset", "beginning", "--max-messages", "1"], {0: [0]}),
        (["--offset", "end", "--until-end"], {}),
        (["--offset", "@0", "--until-end", "--partition", "0"], {0: [*range(COUNT)]}),
        (["--offset", "@2044-01-01T00:00:00Z", "--until-end"], {}),
        (["--partition", "1", "--timeout-ms", "300"], {}),
    ],
)
def test_what_is_read(consume: Consume, options: list[str], expected: dict[int, list[int]]) -> None:
    done = consume(*options, *PLACES)
    assert done.returncode == 0, done.stderr
    assert places(done.stdout) == expected
    count = sum(map(len, expected.values()))
    assert done.stderr.decode().splitlines()[-1] == f"Consumed {count} message{'' if count == 1 else 's'}"


def test_bare_options_print_the_field_beside_their_other_form(consume: Consume) -> None:
    done = consume("--partition", "1", "--partition", "--offset", "-2", "--offset", "--key", "--until-end")
    assert done.stdout == b"1\t18\tkey-18\t1:18\n1\t19\t\xff\tnull\n"
    assert done.returncode == 0


def test_json_is_the_same_as_in_a_group(consume: Consume, topic: str) -> None:
    done = consume("--partition", "1", "--offset", "-2", "--until-end", "--json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"topic": topic, "partition": 1, "offset": 18, "key": "key-18", "value": "1:18", "timestamp_ms": None},
        {"topic": topic, "partition": 1, "offset": 19, "key": "/w==", "key_encoding": "base64", "value": None,
         "timestamp_ms": None},
    ]  # fmt: skip
    in_a_group = consume("--from-beginning", "--count", "60", "--json")
    everything = consume("--until-end", "--json")
    assert sorted(in_a_group.stdout.splitlines()) == sorted(everything.stdout.splitlines())


def test_a_format_tells_null_from_empty_in_both_modes(consume: Consume, topic: str) -> None:
    form = ("-f", r"%t %p %o %k %v %K %S %T\n")
    line = topic.encode() + b" 1 19 \xff %b 1 -1 -1\n"
    assert consume("--partition", "1", "--offset", "19", "--until-end", *form).stdout == line % b""
    assert consume("--partition", "1", "--offset", "19", "--until-end", *form, "--null", "NIL").stdout == line % b"NIL"
    assert line % b"NIL" in consume("--from-beginning", "--count", "60", *form, "--null", "NIL").stdout


def test_no_group_is_left_behind(kafka_0822: KafkaCluster, consume: Consume) -> None:
    def groups() -> list[str]:
        return kafka_0822.client.get_children("/consumers") if kafka_0822.client.exists("/consumers") else []

    before = groups()
    consume("--until-end")
    assert groups() == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--partition", "3"], "has no partition 3; it has partitions 0 to 2"),
        (["--offset", "21"], "/0: offset 21 is not in the log, which has 0 to 20; start at earliest"),
    ],
)
def test_what_is_not_there_is_one_sentence_and_status_1(consume: Consume, options: list[str], said: str) -> None:
    done = consume(*options)
    assert done.returncode == 1
    assert done.stdout == b""
    [sentence] = done.stderr.decode().splitlines()
    assert said in sentence


def test_a_missing_topic_is_not_created(kafka_0822: KafkaCluster, topic: str) -> None:
    done = run("consume", "--zookeeper", kafka_0822.zookeeper_connect, "--topic", f"{topic}x", "--until-end")
    assert done.returncode == 1
    assert f"did you mean '{topic}'?" in done.stderr.decode()
    assert kafka_0822.client.exists(f"/brokers/topics/{topic}x") is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly(kafka_0822: KafkaCluster, topic: str, number: int) -> None:
    options = ("--zookeeper", kafka_0822.zookeeper_connect, "--topic", topic, "--offset", "-1")
    with Running("consume", *options) as running:
        running.wait_lines(3)
        started_at = time.monotonic()
        assert running.end(number) == 0
        assert time.monotonic() - started_at < 5
        assert running.errors() == "Consumed 3 messages\n"


def test_a_pipe_whose_reader_goes_ends_it_quietly(kafka_0822: KafkaCluster, topic: str) -> None:
    options = ["--zookeeper", kafka_0822.zookeeper_connect, "--topic", topic, "--offset", "earliest", *PLACES]
    first = f'{" ".join(command(["consume"]))} "$@" | head -1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", first, "bash", *options], capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert b"Traceback" not in done.stderr
    with subprocess.Popen(
        [*command(["consume"]), *options[:4], "--offset", "latest"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as idle:
        time.sleep(1.5)
        assert idle.stdout is not None
        idle.stdout.close()  # it prints nothing, and notices all the same
        assert idle.wait(TIMEOUT_S) == 0


def test_a_bad_message_is_named_and_the_status_is_1(kafka_0822: KafkaCluster) -> None:
    name = f"cli-{uuid.uuid4().hex[:10]}"
    kafka_0822.create_topic(name)
    produce(kafka_0822, name, [b"small", b"x" * 3000, b"behind"])
    small = ("--property", "fetch.message.max.bytes=1000", "--property", "queued.max.bytes=2000")
    done = run("consume", "--zookeeper", kafka_0822.zookeeper_connect, "--topic", name, "--until-end", *small)
    assert done.returncode == 1
    assert done.stdout == b"small\nbehind\n"
    first, last = done.stderr.decode().splitlines()
    assert f"{name}/0 at 1: " in first
    assert last == "Consumed 2 messages, 1 unreadable"


def test_a_topic_that_is_deleted_while_it_is_read_is_named(kafka_clusters: Callable[[str, int], KafkaCluster]) -> None:
    cluster, name = kafka_clusters("0.8.2.2", 1), f"gone-{uuid.uuid4().hex[:10]}"
    cluster.create_topic(name)
    produce(cluster, name, [b"a"])
    options = ("--zookeeper", cluster.zookeeper_connect, "--topic", name, "--offset", "earliest")
    with Running("consume", *options) as running:
        running.wait_lines(1)
        cluster.delete_topic(name)
        assert running.wait() == 1
        assert f"{name}/0 at 1: stopped: topic '{name}' was deleted" in running.errors()


def test_lines_that_come_slowly_are_printed_at_once(kafka_0822: KafkaCluster, topic: str) -> None:
    name = f"cli-{uuid.uuid4().hex[:10]}"
    kafka_0822.create_topic(name)
    options = ("--zookeeper", kafka_0822.zookeeper_connect, "--topic", name, "--partition", "0")
    with Running("consume", *options) as running:

        def is_read() -> bool:
            produce(kafka_0822, name, [b"now"])
            return bool(running.lines())

        wait_until(is_read, TIMEOUT_S, "the first line")
        assert running.end() == 0


# -- usage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--group", "g"], "--partition reads without a group, and --group is for reading in a group"),
        (["--property", "group.id=g"], "--property group.id is for reading in a group"),
        (["--delete-offsets"], "--delete-offsets is for reading in a group"),
        (["--streams", "2"], "--streams is for reading in a group"),
        (["--topic", "u"], "--partition reads one topic; 2 are given"),
        (["--offset", "1", "--from-beginning"], "--offset and --from-beginning both say where to start"),
        (["--offset", "soon"], "'soon' is not earliest, latest, an offset"),
        (["--offset", "-5x"], "'-5x' is not earliest, latest, an offset"),
        (["--offset", "@2014-03-01"], "'@2014-03-01' has no time zone"),
        (["--count", "0"], "0 is not in the range x>=1"),
        (["--partition", "x"], "'x' is not a partition: a number such as 3"),
        (["-f", "%q"], "'%q' at character 1 is not a field"),
        (["-f", "%v", "--json"], "--format decides what is printed, so --json has no effect"),
        (["-f", "%v", "--partition"], "--format decides what is printed, so --print-partition has no effect"),
        (["-f", "%v", "--key-separator", ":"], "--key-separator has no effect"),
        (["--json", "--null", "x"], "--null has no effect with --json"),
        (["--stall-timeout", "0"], "0.0 is not in the range 0<x<=31536000"),
    ],
)
def test_options_that_contradict_each_other_are_status_2(options: list[str], said: str) -> None:
    arguments = ["consume", "--zookeeper", "zk:2181", "--topic", "t", "--partition", "0", *options]
    result = CliRunner().invoke(program, arguments, prog_name="zkconsumer")
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--whitelist", "t", "--until-end"], "--until-end reads without a group, and --whitelist is"),
        (["--topic", "t", "--stall-timeout", "5"], "--stall-timeout is for reading without a group"),
        (["--topic", "t", "--until-end"], "Missing option '--zookeeper'"),
    ],
)
def test_more_wrong_usage(options: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZKCONSUMER_ZOOKEEPER", raising=False)
    zookeeper = [] if "Missing" in said else ["--zookeeper", "zk:2181"]
    result = CliRunner().invoke(program, ["consume", *zookeeper, *options], prog_name="zkconsumer")
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.stderr.split())


def test_a_value_of_another_option_is_left_alone() -> None:
    """`--key-separator --offset` was a separator before `--offset` took a value."""
    shown = subprocess.run(
        [sys.executable, "-c",
         "from zkconsumer.cli.consume import consume\n"
         "import click\n"
         "context = click.Context(consume)\n"
         "parser = consume.make_parser(context)\n"
         "print(parser.parse_args(['--key-separator', '--offset', '--partition', '--offset', '-3'])[0])"],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    assert "'key_separator': '--offset'" in shown.stdout
    assert "'with_partition': True" in shown.stdout
    assert "'start': '-3'" in shown.stdout
