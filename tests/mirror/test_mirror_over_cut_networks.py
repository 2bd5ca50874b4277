"""Mirrors whose connections are cut, stalled and reset in the middle of requests, on both sides.

Run it: `.venv/bin/pytest -m slow tests/mirror/test_mirror_over_cut_networks.py`. It takes about four minutes; with
`ZKCONSUMER_CUTS_S=600` in the environment it cuts for ten minutes each time.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from contextlib import ExitStack

import pytest
from mirroring import TARGET_SETTINGS, WAIT_S, command, numbered, run_command, send, settings_of, values

from zkconsumer.mirror.mirror_process import Mirror
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.proxy.tcp_proxy import TcpProxy
from zkconsumer.testing.waiting import Deadline

pytestmark = [pytest.mark.real, pytest.mark.slow]

CUTS_S = float(os.environ.get("ZKCONSUMER_CUTS_S", "60"))
COUNT, SIZE_BYTES = 60_000, 200


def proxied(stack: ExitStack, cluster: KafkaCluster) -> list[TcpProxy]:
    """Have clients reach all brokers through proxies."""
    proxies = []
    for number in cluster.brokers:
        proxies.append(stack.enter_context(TcpProxy(("127.0.0.1", cluster.port(number)))))
        cluster.advertise(number, proxies[-1].port)
    for number in list(cluster.brokers):
        cluster.stop(number)
        cluster.start(number)
    return proxies


def do_harm(proxy: TcpProxy, rng: random.Random) -> None:
    kind = rng.choice(["drop", "stall", "lose answers", "stall within", "cut", "slow"])
    if kind == "drop":
        proxy.drop()
    elif kind == "stall":
        proxy.stall()
    elif kind == "lose answers":
        proxy.half("up")
    elif kind == "stall within":
        proxy.stall_after(rng.randrange(1, 100_000), rng.choice(["up", "down"]))
    elif kind == "cut":
        proxy.cut()
    else:
        proxy.throttle(50_000)
    time.sleep(rng.choice([0.1, 1.0, 5.0, 25.0 if CUTS_S >= 120 else 10.0]))  # how long a network is away
    if kind in ("stall", "lose answers", "stall within"):
        proxy.drop()
    proxy.clear()


@pytest.mark.parametrize("pins", [False, True], ids=["numbered", "pinned"])
def test_each_record_is_copied_once_over_networks_that_are_cut(pins: bool) -> None:
    topic = "over-the-net"
    rng = random.Random(9)
    more = ["--pin-producers"] if pins else []
    with ExitStack() as stack:
        source = stack.enter_context(KafkaCluster("0.8.2.2", 1))
        target = stack.enter_context(KafkaCluster("4.3.1", 2, settings=TARGET_SETTINGS))
        source.create_topic(topic)
        expected = numbered(0, COUNT, SIZE_BYTES)
        send(source, topic, expected)
        proxies = [*proxied(stack, source), *proxied(stack, target)]
        settings = settings_of("over-the-net", source, target, topic, pins_producers=pins)
        rate = COUNT * SIZE_BYTES / CUTS_S / 2
        arguments = command(
            settings, "--whitelist", topic, "--rate", str(int(rate)), "--replication-factor", "2", *more
        )
        processes = [subprocess.Popen(arguments, stderr=subprocess.DEVNULL) for _ in range(2)]
        stack.callback(lambda: [process.kill() for process in processes])
        deadline = Deadline(CUTS_S)
        count = 0
        while not deadline.expired:
            time.sleep(rng.uniform(0.2, 2.0))  # the moment of a fault, whichever it is
            do_harm(rng.choice(proxies), rng)
            count += 1
        assert [process.poll() for process in processes] == [None, None]
        for process in processes:
            process.kill()
            process.wait(WAIT_S)
        Mirror(settings_of("over-the-net", source, target, topic, until_end=True, pins_producers=pins)).run()
        assert values(target, topic, has_markers=pins) == expected
        audited = run_command(command(settings, verb="audit"))
        assert (audited.returncode, audited.stderr) == (0, ""), audited.stdout
        print(f"{COUNT} records, each once and in order; {count} faults")
