"""Shared by the tests of the connection: numbered requests, scripts that echo them, and waiting for a condition."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

from scripted_broker import DEADLINE_S, Peer, ScriptedBroker

from simpleconsumer.connection import Connection


def request(number: int) -> bytes:
    body = struct.pack(">hhi", 3, 0, number) + b"body"
    return struct.pack(">i", len(body)) + body


def call(connection: Connection, number: int, resend: bool = False) -> bytes:
    return bytes(connection.call(request(number), correlation_id=number, resend=resend))


def echo(count: int) -> Callable[[Peer], None]:
    """Return a script that answers that many requests with their own bytes."""

    def script(peer: Peer) -> None:
        for _ in range(count):
            received = peer.request()
            peer.answer(received, received)
        peer.wait_until_closed()

    return script


def connect(broker: ScriptedBroker, timeout_s: float = DEADLINE_S, **settings: Any) -> Connection:
    return Connection(broker.host, broker.port, timeout_s, **settings)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition(), "the condition did not come true"


def dies(peer: Peer) -> None:
    peer.request()


def never_reads(peer: Peer) -> None:
    peer.wait_for_the_end()
