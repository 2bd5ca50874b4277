"""SimpleConsumer: fetch messages, offsets and metadata from one Kafka broker (0.7 or later).

It knows one broker and no group. The caller finds the leader of a partition, handles error codes, and decides where to
continue.

Source: kafka.javaapi.consumer.SimpleConsumer (0.8.2.2).
"""

from __future__ import annotations

from simpleconsumer.calls.fetch_calls import FetchCalls
from simpleconsumer.calls.offset_calls import EARLIEST, LATEST, GroupOffsetCalls, LogOffsetCalls, ProduceCalls

__all__ = ["EARLIEST", "LATEST", "SimpleConsumer"]


class SimpleConsumer(FetchCalls, LogOffsetCalls, GroupOffsetCalls, ProduceCalls):
    """One broker, one connection, made when first needed.

    Every call has one deadline, `timeout_s`, over connecting, sending and receiving. A fault or time-out closes the
    connection (`ConnectionFailed`, `DecodeError`) and the next call makes a new one. Requests that only read are sent
    a second time if an idle connection turns out to be closed; produce and commit never are.

    `version` arguments: 0 is what every broker serves; see `simpleconsumer.kafka08.requests` for which broker has more.
    With `dialect=KAFKA011`, for Kafka 0.10.0 and later, they are not looked at: each connection asks the broker what it
    serves, and requests are sent in the newest version that both have. Offsets of groups are those in Kafka.

    A broker of Kafka 0.7 needs `dialect=KAFKA07`. Its offsets are byte positions, a partition is named by the text
    `broker-partition` or by its number on the broker, fetches are answered at once, and produce requests never.
    Requests that it does not have raise NoSuchRequest, which says what to do instead.

    Threads: One at a time. `close()` from any thread makes a blocked call end at once with ConnectionFailed.

    Attributes:
        client_id: Its name in the logs of the broker.
        dialect: The generation of Kafka that the broker speaks.
    """
