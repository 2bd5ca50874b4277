"""A connector in a forked child: its calls raise, it ends nothing of the parent's, and delivers nothing."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.loads import load
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.waiting import wait_until

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()")

PROGRAM = textwrap.dedent("""
    import os, sys, threading
    from zkconsumer import ConsumerConfig, ConsumerConnector, ForkedConnector

    def refused(call):
        try:
            call()
        except ForkedConnector as error:
            assert str(os.getpid()) in str(error) and str(os.getppid()) in str(error), error
            return True
        return False

    def child(connector, stream):
        calls = [lambda: next(stream), connector.commit_offsets, connector.status, lambda: next(stream)]
        results = [refused(call) for call in calls]
        connector.shutdown()
        return all(results)

    def forked(connector, stream):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                status = 0 if child(connector, stream) else 2
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    zookeeper, topic, group = sys.argv[1:]
    config = ConsumerConfig(zookeeper, group, auto_offset_reset="smallest", auto_commit_interval_ms=200)
    with ConsumerConnector(config) as connector:
        [stream] = connector.create_message_streams({topic: 1})[topic]
        seen = [next(stream).value for _ in range(5)]
        print("in hand", forked(connector, stream), flush=True)
        seen += [next(stream).value for _ in range(15)]
        # A reader that waits inside next() while another thread forks.
        reader = threading.Thread(target=lambda: seen.extend(message.value for message in stream))
        reader.start()
        print("reading", forked(connector, stream), flush=True)
        print("members", len(connector.status().owned), flush=True)
        for line in sys.stdin:
            break
    reader.join(20)
    print("seen", len(seen), len(set(seen)), flush=True)
""")


@pytest.mark.catalogue("A12")
def test_a_forked_child_is_refused_and_the_parent_goes_on(
    kafka_0822: KafkaCluster, fresh_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = fresh_topic()
    group = f"fork-{topic}"
    kafka_0822.create_topic(topic, partitions=2)
    load(kafka_0822, topic, 10)
    program, output, log = tmp_path / "program.py", tmp_path / "output", tmp_path / "log"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), kafka_0822.zookeeper_connect, topic, group]
    child = ChildProcess("program", command, log, output_path=output, stdin=True)
    try:

        def lines() -> list[str]:
            return output.read_text().splitlines()

        wait_until(lambda: len(lines()) >= 3, 40, "both forks", state=lambda: (lines(), log.read_text()))
        assert lines()[:3] == ["in hand 0", "reading 0", "members 2"], log.read_text()
        load(kafka_0822, topic, 10, first=10)
        stored = [f"/consumers/{group}/offsets/{topic}/{partition}" for partition in (0, 1)]
        wait_until(
            lambda: [kafka_0822.client.get(path)[0] for path in stored] == [b"20", b"20"], 20, "the parent to go on",
            state=lambda: log.read_text(),
        )  # fmt: skip
        child.close_stdin()
        assert child.wait(30) == 0, log.read_text()
        assert lines()[3] == "seen 40 40"
    finally:
        child.signal(signal.SIGKILL)
