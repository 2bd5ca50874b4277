"""Keeps connections to brokers between tasks: one worker process of Spark reads many ranges from the same brokers.

Rule: a connection is kept only while it is idle, and only after an answer that was read completely.

Threads: any.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import coordinates_groups, dialect_of
from simpleconsumer.security.security import Security
from simpleconsumer.throttling import HELD_S, Throttle
from simpleconsumer.types import Broker
from zkconsumer.config import READ_COMMITTED, ConsumerConfig
from zkconsumer.spark.settings_files import security_here

__all__ = ["MOST_KEPT", "close_all", "give_back", "take"]

MOST_KEPT: Final = 32
"""Most idle connections of one process; the one that was idle longest is closed first."""

_Key = tuple[str, int, str, int, int, Security, bool]
_lock = threading.Lock()
_idle: OrderedDict[tuple[_Key, int], SimpleConsumer] = OrderedDict()
_numbers = itertools.count()


def _nobody(throttle: Throttle) -> None:
    """Report a throttle to nobody; the log has it."""


def take(
    broker: Broker, config: ConsumerConfig, on_throttle: Callable[[Throttle], None] = _nobody
) -> SimpleConsumer:
    """Return a connection that belongs to the caller until `give_back`, or until the caller closes it.

    Args:
        on_throttle: Called when the broker throttles this client, on the thread of the call.
    """
    key = _key(broker.host, broker.port, config)
    with _lock:
        for found in reversed(_idle):
            if found[0] == key:
                kept = _idle.pop(found)
                kept.report_throttles(on_throttle)
                return kept
    return SimpleConsumer(
        broker.host, broker.port, config.socket_timeout_ms / 1000, config.client_id, config.socket_receive_buffer_bytes,
        dialect=dialect_of(broker), security=security_here(config),
        read_committed=config.isolation_level == READ_COMMITTED,
        held_s=HELD_S if coordinates_groups(broker) else 0.0, on_throttle=on_throttle,
    )  # fmt: skip


def give_back(consumer: SimpleConsumer, config: ConsumerConfig) -> None:
    """Keep a connection on which no request is pending."""
    consumer.report_throttles(_nobody)
    key = _key(consumer.host, consumer.port, config)
    surplus = None
    with _lock:
        _idle[key, next(_numbers)] = consumer
        if len(_idle) > MOST_KEPT:
            surplus = _idle.popitem(last=False)[1]
    if surplus is not None:
        surplus.close()


def close_all() -> None:
    """Close all idle connections."""
    with _lock:
        idle = list(_idle.values())
        _idle.clear()
    for consumer in idle:
        consumer.close()


def _key(host: str, port: int, config: ConsumerConfig) -> _Key:
    waits = config.socket_timeout_ms, config.socket_receive_buffer_bytes
    is_committed = config.isolation_level == READ_COMMITTED
    return host.strip("[]"), port, config.client_id, *waits, config.security, is_committed
