"""What becomes of each line of `zkconsumer produce`: nulls, bad lines, settings, signals, terminals, memory."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simpleconsumer.consumer import SimpleConsumer
from tests.cli.command_line import TIMEOUT_S, command, run
from zkconsumer.testing import EmbeddedCluster, Fault
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.real
NOT_LEADER = 6


@pytest.fixture
def cluster(embedded_clusters: Callable[[int], EmbeddedCluster]) -> EmbeddedCluster:
    return embedded_clusters(2)


@pytest.fixture
def topic(cluster: EmbeddedCluster, fresh_topic: Callable[[], str]) -> str:
    name = fresh_topic()
    cluster.create_topic(name, 2)
    return name


def stored(cluster: EmbeddedCluster, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values, partition after partition."""
    found: list[tuple[bytes | None, bytes | None]] = []
    for partition in cluster.partitions(topic):
        leader = cluster.leader(topic, partition)
        assert leader is not None
        at = 0
        with SimpleConsumer("127.0.0.1", cluster.port(leader)) as consumer:
            while messages := consumer.fetch(topic, partition, at, 8_000_000):
                found += [(each.key, each.value) for each in messages]
                at = messages[-1].next_offset
    return found


def values(cluster: EmbeddedCluster, topic: str) -> list[bytes | None]:
    return sorted((value for _, value in stored(cluster, topic)), key=repr)


def produce(cluster: EmbeddedCluster, topic: str, stdin: bytes, *options: str) -> tuple[int, list[str]]:
    """Status, and the lines of stderr."""
    done = run("produce", "--brokers", cluster.broker_list, "--topic", topic, *options, stdin=stdin)
    return done.returncode, done.stderr.decode().splitlines()


@contextmanager
def running(cluster: EmbeddedCluster, topic: str, *options: str, stdin: object = subprocess.PIPE,
            stderr: object = subprocess.PIPE) -> Iterator[subprocess.Popen[bytes]]:  # fmt: skip
    arguments = ["produce", "--zookeeper", cluster.zookeeper_connect, "--topic", topic, *options]
    with subprocess.Popen(command(arguments), stdin=stdin, stderr=stderr, stdout=subprocess.DEVNULL,  # type: ignore[call-overload]
                          start_new_session=True) as process:  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(data)
    process.stdin.flush()


def ended(process: subprocess.Popen[bytes]) -> tuple[int, list[str]]:
    """Status, and the lines of stderr."""
    assert process.stderr is not None
    said = process.stderr.read().decode().splitlines()
    return process.wait(TIMEOUT_S), said


# -- lines -------------------------------------------------------------------------------------------------------------


def test_every_byte_of_a_line_but_its_end_is_sent(cluster: EmbeddedCluster, topic: str) -> None:
    assert produce(cluster, topic, b"\n\r\n\xff\xfe\x00\nlast") == (0, ["Produced 4 messages"])
    assert values(cluster, topic) == sorted([b"", b"\r", b"\xff\xfe\x00", b"last"], key=repr)


def test_lines_that_fail_are_named_and_all_others_are_sent(cluster: EmbeddedCluster, topic: str) -> None:
    lines = [b"k:%d" % number for number in range(1, 21)]
    lines[2] = b"nothing"
    lines[6] = b"k:" + b"x" * 1_000_000
    lines[8] = b"k:" + b"x" * 1_500_000
    status, said = produce(cluster, topic, b"\n".join(lines), "--key-separator", ":", "--batch-size", "4")
    assert status == 1
    assert said == [
        "Produced 17 messages",
        "zkconsumer: 3 of 20 lines were not sent",
        "  line 3: it has no key separator ':': 'nothing'",
        "  line 7: it has 1000002 bytes, more than message.max.bytes = 1000000",
        "  line 9: it has 1500002 bytes, more than message.max.bytes = 1000000",
    ]
    good = [line[2:] for number, line in enumerate(lines) if number not in (2, 6, 8)]
    assert [value for key, value in stored(cluster, topic) if key == b"k"] == good


def test_the_first_ten_of_many_failures_are_named(cluster: EmbeddedCluster, topic: str) -> None:
    status, said = produce(cluster, topic, b"bad\nk:v\n" * 30, "--key-separator", ":")
    assert (status, said[0], said[1]) == (1, "Produced 30 messages", "zkconsumer: 30 of 60 lines were not sent")
    assert [re.findall(r"line (\d+)", line) for line in said[2:]] == [[str(number)] for number in range(1, 20, 2)]


def test_after_a_thousand_failures_in_a_row_the_rest_is_not_read(cluster: EmbeddedCluster, topic: str) -> None:
    status, said = produce(cluster, topic, b"k:v\n" + b"bad\n" * 200_000, "--key-separator", ":")
    assert (status, said[0]) == (1, "Produced 1 message")
    assert said[1].startswith("zkconsumer: 1000 or more lines failed in a row; the last line that was read")
    assert said[1].endswith("; later lines were not sent")
    assert len(said) == 13


def test_a_line_whose_retries_are_used_up_fails_alone(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.faults.add(Fault.error(NOT_LEADER, api="produce", topic=topic, partition=0), times=None)
    options = ("--partition", "0", "--retries", "1", "--property", "retry.backoff.ms=10")
    status, said = produce(cluster, topic, b"lost\n", *options)
    assert (status, said[0]) == (1, "Produced 0 messages")
    assert re.fullmatch(rf"zkconsumer: line 1 was not sent: a message for {topic}/0 was not acknowledged in 2 "
                        r"attempts: "
                        r".*NotLeaderForPartition.*", said[1])  # fmt: skip
    assert produce(cluster, topic, b"kept\n", "--partition", "1") == (0, ["Produced 1 message"])


def test_what_may_be_stored_twice_is_counted_or_refused(cluster: EmbeddedCluster, topic: str) -> None:
    cluster.faults.add(Fault.wrong_correlation_id(api="produce", topic=topic), times=1)
    said = "Produced 2 messages; 2 were sent again after a lost connection and may be stored twice"
    assert produce(cluster, topic, b"a\nb\n", "--partition", "0") == (0, [said])
    cluster.faults.add(Fault.wrong_correlation_id(api="produce", topic=topic), times=1)
    status, lines = produce(cluster, topic, b"c\n", "--property", "retry.unanswered.batches=false")
    assert (status, lines[0]) == (1, "Produced 0 messages")
    assert lines[1].endswith("it may be stored nevertheless")


# -- nulls and formats -------------------------------------------------------------------------------------------------

ANYTHING = [(b"k", b"v"), (b"k", None), (None, b"v"), (None, None), (b"\xff\n", b"\x00:\n"), (b"", b"")]


def test_what_consume_prints_as_json_is_sent_again(
    cluster: EmbeddedCluster, topic: str, fresh_topic: Callable[[], str]
) -> None:
    cluster.produce(topic, ANYTHING, partition=0)
    printed = run("consume", "--zookeeper", cluster.zookeeper_connect, "--topic", topic, "--until-end", "--json")
    assert printed.returncode == 0, printed.stderr
    copy = fresh_topic()
    cluster.create_topic(copy, 1)
    assert produce(cluster, copy, printed.stdout + b"{}\n", "--from-json")[0] == 1
    assert stored(cluster, copy) == ANYTHING


@pytest.mark.parametrize(
    "options",
    [
        ["--key-separator", "|", "--null", "NIL"],
        ["--property", "parse.key=true", "--property", "key.separator=|", "--property", "null.marker=NIL"],
    ],
)
def test_what_consume_prints_with_a_marker_for_null_is_sent_again(
    cluster: EmbeddedCluster, topic: str, fresh_topic: Callable[[], str], options: list[str]
) -> None:
    plain = [pair for pair in ANYTHING if b"\n" not in (pair[0] or b"")]
    cluster.produce(topic, plain, partition=0)
    printed = run("consume", "--zookeeper", cluster.zookeeper_connect, "--topic", topic, "--until-end", "--key",
                  "--key-separator", "|", "--null", "NIL")  # fmt: skip
    copy = fresh_topic()
    cluster.create_topic(copy, 1)
    assert produce(cluster, copy, printed.stdout, *options) == (0, [f"Produced {len(plain)} messages"])
    assert stored(cluster, copy) == plain


# -- settings ----------------------------------------------------------------------------------------------------------


def test_a_file_is_a_producers_or_a_consumers_and_options_count_before_it(
    cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "producer.properties"
    file.write_text(f"broker.list={cluster.broker_list}\nmax.message.size=5\n"
                    "serializer.class=kafka.serializer.StringEncoder\n"
                    "producer.type=sync\nqueue.enqueueTimeout.ms=0\ngroup.id=of-a-consumer\n"
                    "no.such.setting=1\n")  # fmt: skip

    def call(*options: str) -> tuple[int, str]:
        done = run("produce", "--config", str(file), "--topic", topic, *options, stdin=b"123456\n")
        return done.returncode, done.stderr.decode()

    status, said = call()
    assert status == 1
    assert said.startswith("warning: unknown setting 'no.such.setting' is ignored\nProduced 0 messages\n")
    assert said.endswith("it has 6 bytes, more than message.max.bytes = 5\n")
    assert "group.id" not in said
    assert call("--property", "message.max.bytes=6")[0] == 0
    assert call("--property", "max.message.size=6", "--zookeeper", cluster.zookeeper_connect)[0] == 0
    refused = run("produce", "--config", str(file), "--topic", topic, "--property", "no.such=1", stdin=b"x\n")
    assert (refused.returncode, b"no.such" in refused.stderr) == (1, True)


def test_keys_are_not_left_out_for_a_misspelt_true(cluster: EmbeddedCluster, topic: str) -> None:
    done = run("produce", "--brokers", f"127.0.0.1:{cluster.port(0)}", "--topic", topic, "--property", "parse.key=yes",
               stdin=b"ann\t1\n")  # fmt: skip
    assert (done.returncode, stored(cluster, topic)) == (2, [])
    assert b"parse.key is 'yes'; it must be true or false" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["key.separator=:"], "key.separator has no effect without parse.key=true, so whole lines would be values"),
        (["headers.separator=;"], "headers.separator has no effect without parse.headers=true"),
        (["parse.headers=true", "headers.delimiter=,"], "headers.delimiter and headers.separator are both ','"),
        (["parse.headers=true", "headers.separator=:"], "headers.separator and headers.key.separator are both ':'"),
        (["parse.key=true", "key.separator="], "key.separator is empty"),
        (["parse.key=true", "key.separator=NIL", "null.marker=NIL"], "key.separator and null.marker are both 'NIL'"),
        (["parse.headers=1"], "parse.headers is '1'; it must be true or false"),
    ],
)
def test_properties_of_the_line_reader_that_mean_nothing_are_refused(
    cluster: EmbeddedCluster, topic: str, options: list[str], said: str
) -> None:
    given = [part for option in options for part in ("--property", option)]
    status, lines = produce(cluster, topic, b"ann:1\n", *given)
    assert (status, stored(cluster, topic)) == (2, [])
    assert said in " ".join(line.strip(" │|") for line in lines)


def test_keys_that_are_not_to_be_parsed_need_no_separator(cluster: EmbeddedCluster, topic: str) -> None:
    given = ["--property", "parse.key=false", "--property", "key.separator=:"]
    assert produce(cluster, topic, b"ann:1\n", *given)[0] == 0
    assert stored(cluster, topic) == [(None, b"ann:1")]


def test_json_says_what_properties_of_the_line_reader_would(cluster: EmbeddedCluster, topic: str) -> None:
    status, lines = produce(cluster, topic, b'{"value": "v"}\n', "--from-json", "--property", "parse.headers=true")
    assert (status, stored(cluster, topic)) == (2, [])
    assert "parse.headers has no effect with --from-json" in " ".join(lines)


def test_a_value_that_is_not_allowed_is_named_with_its_line(
    cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "producer.properties"
    file.write_text(f"metadata.broker.list={cluster.broker_list}\n# number\nqueue.time=soon\n")
    done = run("produce", "--config", str(file), "--topic", topic, stdin=b"x\n")
    assert done.returncode == 1
    assert f"queue.buffering.max.ms is 'soon' ({file}, line 3)" in done.stderr.decode()


def test_acks_codec_and_client_are_those_that_were_asked_for(cluster: EmbeddedCluster, topic: str) -> None:
    options = ("--codec", "gzip", "--acks", "0", "--batch-size", "7", "--property", "client.id=mine")
    status, said = produce(cluster, topic, b"x\n" * 20, *options)
    assert (status, said[1:]) == (0, ["Produced 20 messages"])
    assert "messages that a broker does not accept are lost" in said[0]
    wait_until(lambda: len(stored(cluster, topic)) == 20, TIMEOUT_S, "the messages")


def test_brokers_that_do_not_answer_are_named(topic: str) -> None:
    done = run("produce", "--brokers", "127.0.0.1:1", "--topic", topic, stdin=b"x\n")
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "zkconsumer: none of the 1 known brokers answers (127.0.0.1:1: Connection refused)\n"
    )


# -- signals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_pipe_when_what_was_read_is_sent(cluster: EmbeddedCluster, topic: str, number: int) -> None:
    with running(cluster, topic) as process:
        write(process, b"one\ntwo\n")
        wait_until(lambda: values(cluster, topic) == [b"one", b"two"], TIMEOUT_S, "the lines")
        process.send_signal(number)
        assert ended(process) == (0, [
            "Produced 2 messages", "zkconsumer: interrupted; the last line that was read is 2"
        ])  # fmt: skip
    assert values(cluster, topic) == [b"one", b"two"]


def test_a_line_without_its_end_is_not_sent_after_a_signal(cluster: EmbeddedCluster, topic: str) -> None:
    with running(cluster, topic) as process:
        write(process, b"one\nhalf a li")
        wait_until(lambda: values(cluster, topic) == [b"one"], TIMEOUT_S, "the line")
        process.send_signal(signal.SIGTERM)
        status, said = ended(process)
    assert (status, said[1]) == (
        1, "zkconsumer: interrupted; the last line that was read is 1; later lines were not sent"
    )  # fmt: skip
    assert values(cluster, topic) == [b"one"]


def test_a_file_that_is_left_in_part_is_status_1(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    cluster.faults.add(Fault.delay(0.2, api="produce", topic=topic), times=None)
    file = tmp_path / "lines.txt"
    file.write_bytes(b"".join(b"%0999d\n" % number for number in range(40_000)))
    with file.open("rb") as lines, running(cluster, topic, "--property", "queue.buffering.max.messages=1000",
                                           stdin=lines) as process:  # fmt: skip
        wait_until(lambda: len(stored(cluster, topic)) > 0, TIMEOUT_S, "the first lines")
        process.send_signal(signal.SIGTERM)
        status, said = ended(process)
    assert status == 1
    found = re.fullmatch(r"zkconsumer: interrupted; the last line that was read is (\d+); later lines were not "
                         r"sent", said[1])  # fmt: skip
    assert found is not None, said
    assert said[0] == f"Produced {found[1]} messages"
    assert values(cluster, topic) == [b"%0999d" % number for number in range(int(found[1]))]


@pytest.mark.slow
def test_a_broker_that_never_answers_does_not_hold_up_the_end(cluster: EmbeddedCluster, topic: str) -> None:
    """Ten seconds are what the command gives it."""
    with running(cluster, topic, "--partition", "0") as process:
        write(process, b"one\n")
        wait_until(lambda: values(cluster, topic) == [b"one"], TIMEOUT_S, "the first line")
        cluster.faults.add(Fault.delay(60.0, api="produce", topic=topic), times=None)
        write(process, b"two\nthree\n")
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        status, said = ended(process)
    assert (status, said[0], said[2]) == (1, "Produced 1 message", "zkconsumer: 2 of 3 lines were not sent")
    assert [line.split(":")[0] for line in said[3:]] == ["  line 2", "  line 3"]


# -- terminals and memory ----------------------------------------------------------------------------------------------


def read_until(fd: int, wanted: bytes) -> bytes:
    """What comes from a terminal, until a text is in it."""
    found = b""
    deadline = time.monotonic() + TIMEOUT_S
    while wanted not in found:
        assert time.monotonic() < deadline, found
        found += os.read(fd, 4096)
    return found


def test_a_terminal_sends_each_line_at_once_and_names_one_that_fails(cluster: EmbeddedCluster, topic: str) -> None:
    ours, theirs = pty.openpty()
    try:
        with running(cluster, topic, "--key-separator", ":", stdin=theirs, stderr=theirs) as process:
            for number in range(1, 4):
                os.write(ours, b"k:%d\n" % number)
                wanted = [b"%d" % each for each in range(1, number + 1)]
                wait_until(lambda wanted=wanted: values(cluster, topic) == wanted, TIMEOUT_S, "the line")
            os.write(ours, b"bad\n")
            read_until(ours, b"zkconsumer: line 4 was not sent: it has no key separator ':': 'bad'")
            process.send_signal(signal.SIGINT)
            assert b"sent," not in read_until(ours, b"1 of 4 lines were not sent")
            assert process.wait(TIMEOUT_S) == 1
    finally:
        os.close(ours)
        os.close(theirs)


def test_progress_is_shown_on_a_terminal_alone(cluster: EmbeddedCluster, topic: str) -> None:
    ours, theirs = pty.openpty()
    try:
        with running(cluster, topic, stderr=theirs) as process:
            write(process, b"x\n" * 1234)
            shown = read_until(ours, b"/s")
            assert b"\r1,234 sent, " in shown
            assert process.stdin is not None
            process.stdin.close()
            shown = read_until(ours, b"Produced 1234 messages")
            assert b"\r\x1b[KProduced" in shown
            assert process.wait(TIMEOUT_S) == 0
    finally:
        os.close(ours)
        os.close(theirs)


def resident_mb(process: subprocess.Popen[bytes]) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def test_memory_is_bounded_while_a_broker_stalls(cluster: EmbeddedCluster, topic: str) -> None:
    limit_mb = 8
    with running(cluster, topic, "--property", f"queue.buffering.max.bytes={limit_mb * 1024 * 1024}") as process:
        write(process, b"first\n")
        wait_until(lambda: values(cluster, topic) == [b"first"], TIMEOUT_S, "the first line")
        before = resident_mb(process)
        cluster.faults.add(Fault.delay(60.0, api="produce", topic=topic), times=None)
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        data = b"x" * 9_999 + b"\n"
        sent, quiet_since = 0, time.monotonic()
        while sent < 200 * 1024 * 1024 and time.monotonic() - quiet_since < 1.5:
            try:
                sent += os.write(process.stdin.fileno(), data)
                quiet_since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        assert limit_mb * 1024 * 1024 < sent < 4 * limit_mb * 1024 * 1024
        assert resident_mb(process) - before < 5 * limit_mb


def test_input_that_cannot_be_read_is_named(cluster: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    with (tmp_path / "written").open("wb") as file, running(cluster, topic, stdin=file) as process:
        status, said = ended(process)
    assert (status, said[0]) == (1, "Produced 0 messages")
    assert said[1].startswith("zkconsumer: standard input cannot be read: Bad file descriptor")


def test_headers_are_refused_for_every_line_by_brokers_that_store_none(cluster: EmbeddedCluster, topic: str) -> None:
    status, said = produce(cluster, topic, b"a\nb\n", "--header", "name=a=value", "--header", "empty=")
    assert (status, said[:2]) == (1, ["Produced 0 messages", "zkconsumer: 2 of 2 lines were not sent"])
    assert all("it has headers, which brokers only store from Kafka 0.11 on" in line for line in said[2:4])
    assert stored(cluster, topic) == []
    status, said = produce(cluster, topic, b"a\n", "--header", "=value")
    assert (status, "'=value' is not NAME=VALUE" in said[-1]) == (2, True)
