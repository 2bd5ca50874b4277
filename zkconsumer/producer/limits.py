"""Limits: how a producer gathers messages into batches, and how often it tries to send them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """How messages are gathered and how often they are tried.

    Attributes:
        batch_messages: Most messages of a batch.
        batch_bytes: Most bytes of a batch of several messages.
        request_bytes: Most bytes of a request of several batches.
        linger_s: Longest wait of a message for others of its batch.
        queue_messages: Most messages that wait or are in flight.
        queue_bytes: Most bytes of these.
        retries: How often a batch is tried again.
        backoff_s: Wait before each further try.
        absence_s: How long a topic that brokers do not know may be about to be created.
        repeats: A batch that may be stored is tried again.
        is_compressed: Topic -> whether its batches are compressed.
        acks: -1, 0 or 1; says after which errors a batch may be stored all the same.
        takes_turns: Messages without a key go to another partition with every batch, at random; else they stay with
            one until leaders are looked up again.
    """

    batch_messages: int = 200
    batch_bytes: int = 512 * 1024
    request_bytes: int = 1024 * 1024
    linger_s: float = 5.0
    queue_messages: int = 10_000
    queue_bytes: int = 32 * 1024 * 1024
    retries: int = 3
    backoff_s: float = 0.1
    repeats: bool = True
    is_compressed: Callable[[str], bool] = lambda topic: False
    acks: int = 1
    takes_turns: bool = False
    absence_s: float = 10.0
