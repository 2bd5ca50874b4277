"""Sends the message sets of one lane to brokers before Kafka 0.11, which have no sequence numbers to refuse a repeat.

Rules, and which failure each prevents:
- One request is under way at a time: more than one that is not answered could not be told apart by the end of the log.
- A request goes to the end of the log alone, which was read from the leader, or follows from an answer, within seconds:
  a process that was frozen does not go on with what it knew.
- Replicas must have all that the leader has appended: after a lost connection that is often the request of this lane.
- After a request without an answer the end has to stay the same for some seconds, and so it has at the start, as a
  former process may have been killed: what was sent before has arrived by then.
- Where a request was stored is compared with where it belongs. The position is then the end of the log, and the caller
  compares the last records with the source: one request that is there twice is found there, and named.
- Brokers of Kafka 0.8.0 and 0.8.1 answer wrong offsets: the end of the log counts, not the answer.

Source: kafka.server.KafkaApis.handleOffsetRequest, handleProducerRequest (0.8.2.2), kafka.network.SocketServer (one
request of a connection at a time, 0.8 to 0.10).

Threads: one at a time; `close` from any thread.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from simpleconsumer.closing import Closing
from simpleconsumer.consumer import LATEST, SimpleConsumer
from simpleconsumer.dialect import KAFKA08, RECORD_BATCH
from simpleconsumer.errors import BrokerError, SimpleConsumerError, Throttled
from simpleconsumer.types import Broker, Buffer, TopicPartition
from zkconsumer.backoff import Backoff
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.mirror.errors import BatchRefused, LaneClosed, LaneStopped, LaneStuck, MirrorRefused
from zkconsumer.mirror.lanes.lane_sender import Leaders
from zkconsumer.mirror.lanes.plain_lane import QUIET_S, LogEndWatch
from zkconsumer_error import ErrorCode

FRESH_S: Final = 5.0
"""How long an answer says where the log ends: less than a session with ZooKeeper lasts."""
_ALL_REPLICAS: Final = -1
_DEBUGGING: Final = struct.pack(">i", -2)
"""As the id of a replica: whoever looks at logs as they are, with what replicas do not have yet."""
_AGAIN_S: Final = 0.1
_BACKOFF: Final = Backoff(0.05, 2.0)
_MOST_DOUBTFUL: Final = 3
_MOVED: Final = frozenset((
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
))  # fmt: skip
_PASSING: Final = frozenset((
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
))  # fmt: skip
_UNKNOWN_FAULT: Final = -1
_DOUBTFUL: Final = frozenset((_UNKNOWN_FAULT, ErrorCode.CORRUPT_MESSAGE))


class _Sent(NamedTuple):
    """A request that is under way."""

    offset: int
    records: int
    sent_at: float


class PlainSender(Closing):
    """Writes message sets at the end of a partition, one request at a time.

    You offer the set that belongs at `position`. What was not stored is not sent again without you: the position says
    where to go on.

    Args:
        name: The partition; it has to exist.
        leaders: Finds the leader, and creates no topic.
        connect: Returns a new connection to a broker, for this lane alone.
        timeout_ms: Longest wait of the leader for its replicas.
        quiet_s: How long the end has to stay the same while a request may be on its way.

    Attributes:
        is_guarded: False: no broker refuses a repeat.
        takes_zstd: False.

    After an error that a call raises, whatever it is (LaneStopped and LaneClosed apart), the next call goes on.

    Threads: One at a time. `close()` from any thread ends a blocked call with LaneClosed.
    """

    is_guarded: Final = False
    takes_zstd: Final = False

    def __init__(
        self,
        name: TopicPartition,
        leaders: Leaders,
        connect: Callable[[Broker], SimpleConsumer],
        *,
        timeout_ms: int = 10_000,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._name = name
        self._leaders = leaders
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._watch = LogEndWatch(quiet_s)
        self._client: SimpleConsumer | None = None
        self._leader: Broker | None = None
        self._denied: int | None = None
        self._magic = 0
        self._end: int | None = None
        self._stored: int | None = None
        self._known_at = 0.0
        self._sent: _Sent | None = None
        self._failures = self._doubtful = 0
        self._error: LaneStopped | None = None
        self._reason = "nothing was tried yet"
        self._close_called = threading.Event()

    # -- for the mirror ------------------------------------------------------------------------------------------------

    @property
    def stored(self) -> int | None:
        """The end of what all in-sync replicas are known to have; None before the end of the log was read."""
        return self._stored

    @property
    def is_settled(self) -> bool:
        """Whether all that was taken is stored, or known not to be."""
        return self._sent is None and self._end is not None

    @property
    def magic(self) -> int:
        """The format of the leader's messages, 0 or 1; 0 before there was a connection."""
        return self._magic

    def position(self, timeout_s: float) -> int:
        """Return the offset for which a message set may be offered now; a request that is under way is waited for.

        Args:
            timeout_s: Longest wait, in seconds.

        Raises:
            LaneStopped: The lane sends nothing more.
            LaneStuck: That takes too long.
            MirrorRefused: The leader is of Kafka 0.11 or later by now.
            AuthenticationFailed: Broker and client refuse each other.
            RebalanceError: The leader may not be looked up.
            LaneClosed: `close` was called.
        """
        self._advance(timeout_s)
        assert self._end is not None
        return self._end

    def send(self, data: Buffer, records: int, position: int, timeout_s: float) -> bool:
        """Send a message set, and return True without waiting for the answer; False if the lane goes on elsewhere.

        Args:
            data: The message set, in the format of `magic`.
            records: How many messages it has.
            position: Where it belongs; what `position` has returned.
            timeout_s: As for `position`; so are the errors.
        """
        while True:
            if self.position(timeout_s) != position:
                return False
            if _now_s() - self._known_at > FRESH_S:
                self._end = None
                continue
            break
        client = self._client
        assert client is not None
        self._sent, self._end = _Sent(position, records, _now_s()), None
        try:
            client.send_sets({self._name: bytes(data)}, acks=_ALL_REPLICAS, timeout_ms=self._timeout_ms)
        except Throttled as error:  # nothing was sent
            self._sent, self._end, self._reason = None, position, str(error)
            return False
        except SimpleConsumerError as error:
            self._lose(str(error))
        except BaseException as error:
            self._lose(str(error) or type(error).__name__)
            raise
        return True

    def flush(self, timeout_s: float) -> int:
        """Return the end of what is stored, once nothing is under way.

        Args:
            timeout_s: As for `position`; so are the errors.
        """
        return self.position(timeout_s)

    def close(self) -> None:
        """Close the connection. What was sent and not answered may be stored."""
        self._close_called.set()
        if self._client is not None:
            self._client.close()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _advance(self, timeout_s: float) -> None:
        """Go on until the end of the log is known, and nothing is under way."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self._error is not None:
                raise self._error
            if self._close_called.is_set():
                raise LaneClosed(self._name)
            if self.is_settled:
                return
            if time.monotonic() > deadline:
                raise LaneStuck(self._name, timeout_s, self._reason)
            self._step()

    def _step(self) -> None:
        """Receive the answer, or connect, or read the end of the log."""
        try:
            if self._sent is not None:
                self._receive(self._sent)
            elif self._client is None:
                self._open()
            else:
                self._read_end(self._client)
        except Throttled as error:
            self._reason = str(error)
            self._close_called.wait(_AGAIN_S)
        except (SimpleConsumerError, ClusterSilent) as error:
            self._lose(str(error))
        except BaseException as error:
            self._lose(str(error) or type(error).__name__)
            raise

    def _open(self) -> None:
        if self._failures and self._close_called.wait(_BACKOFF.wait_s(self._failures - 1)):
            return
        self._leader = self._leaders({self._name: self._denied}).get(self._name)
        if self._leader is None:
            self._denied = None
            self._lose("no broker leads the partition")
            return
        self._client = client = self._connect(self._leader)
        if self._close_called.is_set():  # `close` has not seen this one
            client.close()
        magic = client.dialect.newest_magic(client.served_versions()) or 0
        if magic == RECORD_BATCH:
            raise MirrorRefused(
                f"{self._name.topic}/{self._name.partition} of the target is led by a broker of Kafka 0.11 or later",
                "name the target by its brokers (--to-brokers) when all of them were upgraded",
            )
        self._magic = magic

    def _lose(self, reason: str) -> None:
        """Note that the connection is lost; a request that was under way may still arrive."""
        if self._sent is not None:
            self._watch.doubt()
        self._sent = self._end = None
        self._reason = reason
        self._failures += 1
        if self._client is not None:
            self._client.close()
            self._client = None

    def _receive(self, sent: _Sent) -> None:
        assert self._client is not None
        [produced] = self._client.next_produced(self._timeout_ms)
        self._sent = None
        code = produced.error_code
        if not code:
            self._failures = self._doubtful = 0
            if produced.base_offset == sent.offset:
                self._know(sent.offset + sent.records, sent.sent_at)
            else:  # a wrong answer, or another one has written: the end says it
                self._reason = f"the broker has answered offset {produced.base_offset} instead of {sent.offset}"
            return
        self._reason = f"the broker answers with code {code}"
        if code in _DOUBTFUL:
            self._doubtful += 1
        if code in _MOVED:
            self._deny()
        elif code in _PASSING or (code in _DOUBTFUL and self._doubtful < _MOST_DOUBTFUL):
            self._failures += 1
            self._close_called.wait(_BACKOFF.wait_s(self._failures - 1))
        else:
            self._error = BatchRefused(self._name, code, sent.offset)

    def _deny(self) -> None:
        """Look for another leader, as this broker says that it does not lead."""
        self._denied = None if self._leader is None else self._leader.id
        self._lose(self._reason)

    def _know(self, end: int, asked_at: float) -> None:
        self._end = self._stored = end
        self._known_at = asked_at  # not that of the answer, which may have waited for a process that was frozen

    def _read_end(self, client: SimpleConsumer) -> None:
        asked_at = _now_s()
        [request] = KAFKA08.offsets([self._name], LATEST, 1)
        [(code, ends)] = client.ask(request)
        if not code:
            # The first bytes of the request say who asks. A leader tells clients of what all replicas have alone.
            [(code, appended)] = client.ask(request._replace(body=_DEBUGGING + request.body[len(_DEBUGGING) :]))
        if code:
            self._reason = str(BrokerError(code, *self._name))
            self._deny()
            return
        self._failures = 0
        self._denied = None
        found = self._watch.see(ends[0], appended[0], time.monotonic())
        if found is None:
            self._reason = self._watch.reason
            self._close_called.wait(_AGAIN_S)
            return
        self._know(found, asked_at)


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
