"""Sends the batches of one lane to the leader of its partition: the sockets and clocks of the machine in `lane.py`.

Each request has one batch of one partition, as brokers refuse several. The leader is asked for the end of its log and
for its last batch on each connection, and from Kafka 2.8 on for the producer, before anything is sent there.

Threads: one at a time; `close` from any thread.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from simpleconsumer.closing import Closing
from simpleconsumer.consumer import SimpleConsumer
from simpleconsumer.dialect import (
    KAFKA011,
    NO_ID,
    RECORD_BATCH,
    BatchProducer,
    WholeBatch,
    head_with,
    newest_ms,
    restamped,
    takes_zstd,
)
from simpleconsumer.errors import SimpleConsumerError, Throttled
from simpleconsumer.types import ActiveProducer, Broker, Buffer, FetchRequest, ProducerId, TopicPartition
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.mirror.errors import LaneClosed, LaneStopped, LaneStuck
from zkconsumer.mirror.lanes.lane import FORGOTTEN_AFTER_MS, LaneMachine
from zkconsumer.mirror.lanes.lane_events import (
    Action,
    Answered,
    Connect,
    Connected,
    EndRead,
    Event,
    GoOn,
    Lost,
    Moment,
    Offered,
    PutOff,
    ReadEnd,
    ReadRefused,
    Run,
    Send,
    Stop,
    Stored,
    Tail,
)
from zkconsumer_error import ErrorCode

_ALL_REPLICAS: Final = -1
_WHOLE_FIRST_BYTES: Final = 1
"""Of a fetch: its first batch comes whole all the same."""
_NO_FAULT: Final = "the last batch was stored without a fault, and others take longer"

Leaders = Callable[[Mapping[TopicPartition, int | None]], Mapping[TopicPartition, Broker]]
"""Finds the leaders of partitions, each with the broker that has just denied leading it: `Cluster.leaders`."""


class LaneSender(Closing):
    """Writes the batches of a run into a partition.

    You offer the batch that belongs at `position`, again and again. The position may move back, where an election has
    cut off the log, and forward with `follows_others`. Batches that were sent are kept until they are stored, five at
    most; those that were not stored are sent again without you.

    Args:
        name: The partition; it has to exist.
        run: What is written; it was made durable before.
        leaders: Finds the leader, and creates no topic.
        connect: Returns a new connection to a broker, for this lane alone.
        timeout_ms: Longest wait of the leader for its replicas.
        transactional_id: Of the transaction that the batches belong to; None for none.
        follows_others: As for `LaneMachine`.
        forgotten_after_ms: As for `LaneMachine`.
        leased_until: Returns until when no other process can have the lane, in seconds of CLOCK_BOOTTIME.

    After an error that a call raises, whatever it is (LaneStopped and LaneClosed apart), the next call goes on.

    Threads: One at a time. `close()` from any thread ends a blocked call with LaneClosed.
    """

    def __init__(
        self,
        name: TopicPartition,
        run: Run,
        leaders: Leaders,
        connect: Callable[[Broker], SimpleConsumer],
        *,
        timeout_ms: int = 10_000,
        transactional_id: str | None = None,
        follows_others: bool = False,
        forgotten_after_ms: int = FORGOTTEN_AFTER_MS,
        leased_until: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._leased_until = leased_until
        self._name = name
        self._run = run
        self._leaders = leaders
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._transactional_id = transactional_id
        self._machine = LaneMachine(
            name, run, follows_others=follows_others, forgotten_after_ms=forgotten_after_ms
        )  # fmt: skip
        self._actions: deque[Action] = deque(self._machine.start())
        self._data: dict[int, bytes] = {}
        self._client: SimpleConsumer | None = None
        self._leader: Broker | None = None
        self._denied: int | None = None
        self._takes_zstd = False
        self._error: LaneStopped | None = None
        self._reason = "nothing was tried yet"
        self._close_called = threading.Event()

    # -- for the mirror ------------------------------------------------------------------------------------------------

    @property
    def stored(self) -> int | None:
        """The end of what all in-sync replicas are known to have; None before the end of the log was read."""
        return self._machine.stored

    @property
    def is_guarded(self) -> bool:
        """Whether leaders still know the producer, by the times of its last records (`LaneMachine.is_guarded`)."""
        return self._machine.is_guarded

    @property
    def is_settled(self) -> bool:
        """Whether all that was taken is stored."""
        return self._machine.is_settled

    @property
    def takes_zstd(self) -> bool:
        """Whether the leader takes zstd; False before there was a connection."""
        return self._takes_zstd

    @property
    def magic(self) -> int:
        """The format of what is sent: record batches."""
        return RECORD_BATCH

    def position(self, timeout_s: float) -> int:
        """Return the offset for which a batch may be offered now.

        Args:
            timeout_s: Longest wait, in seconds; a request that is under way is waited for.

        Raises:
            LaneStopped: The lane sends nothing more.
            LaneStuck: That takes too long.
            AuthenticationFailed: Broker and client refuse each other.
            RebalanceError: The leader may not be looked up, or has no address of the wanted protocol.
            LaneClosed: `close` was called.
        """
        self._advance(lambda: self._machine.is_ready, timeout_s)
        position = self._machine.position
        assert position is not None
        return position

    def send(self, data: Buffer, read_from: TopicPartition, position: int, timeout_s: float) -> bool:
        """Take a batch, and return True; False if the lane goes on at another position.

        It is sent at once, or by a later call if other batches have to be answered before, or the broker throttles.

        Args:
            data: One whole record batch, as it was fetched.
            read_from: Where it was read, for errors.
            position: Where it belongs; what `position` has returned.
            timeout_s: As for `position`; so are the errors.

        Raises:
            BatchNotWhole: It cannot be copied whole.
        """
        if self.position(timeout_s) != position:
            return False
        self._rest_for_authentication()
        if not self._machine.is_ready or self._machine.position != position:
            return False
        whole = self._restamped(data, read_from, position)
        self._data[position] = whole.data
        self._take(Offered(whole.records, whole.newest_ms))
        while self._actions and isinstance(self._actions[0], Send | Stored | GoOn) and not self._throttled_s():
            self._step()  # at once, as what is known gets old
        return True

    def flush(self, timeout_s: float) -> int:
        """Return the end of what is stored, once that is all that was taken, or the lane goes on elsewhere.

        Args:
            timeout_s: As for `position`; so are the errors.
        """
        self._advance(lambda: self._machine.is_settled and self._machine.is_ready, timeout_s)
        assert self._machine.stored is not None
        return self._machine.stored

    def held_data(self, offset: int) -> bytes | None:
        """Return the batch for an offset of the partition, while it is not known to be stored."""
        return self._data.get(offset)

    def close(self) -> None:
        """Close the connection. What was sent and not answered may be stored."""
        self._close_called.set()
        if self._client is not None:
            self._client.close()

    # -- events and actions --------------------------------------------------------------------------------------------

    def _advance(self, is_done: Callable[[], bool], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            if self._error is not None:
                raise self._error
            if self._close_called.is_set():
                raise LaneClosed(self._name)
            if not self._actions and is_done():
                return
            if time.monotonic() > deadline:
                raise LaneStuck(self._name, timeout_s, self._reason)
            throttled_s = self._throttled_s()
            if throttled_s:
                self._reason = f"the broker throttles this client, for {throttled_s:.1f} s more"
                self._close_called.wait(min(throttled_s, max(deadline - time.monotonic(), 0.0)))
                self._put_off(self._actions.popleft())  # what is known of the log has got older
            else:
                self._step()

    def _throttled_s(self) -> float:
        """Return for how long the next action has to wait, as the broker would not read its request."""
        needs_broker = self._actions and isinstance(self._actions[0], Send | ReadEnd)
        return self._client.throttled_s if needs_broker and self._client is not None else 0.0

    def _step(self) -> None:
        """Do the next action, or receive the next answer.

        After any error, that of a signal included, nobody knows what of it was done: the connection counts as lost.
        """
        action = self._actions.popleft() if self._actions else None
        try:
            if action is None:
                self._receive()
            else:
                self._perform(action)
        except (SimpleConsumerError, ClusterSilent) as error:
            if isinstance(error, Throttled) and isinstance(action, Send | ReadEnd):  # not sent, and not lost
                self._reason = str(error)
                self._put_off(action)
            else:
                self._take(Lost(str(error)))
        except BaseException as error:
            if self._error is None:
                self._take(Lost(str(error) or type(error).__name__))
            raise

    def _now(self) -> Moment:
        until_s = self._leased_until()  # first: what comes later is later
        return Moment(time.clock_gettime(time.CLOCK_BOOTTIME), int(time.time() * 1000), until_s)

    def _put_off(self, action: Action) -> None:
        self._actions = deque(each for each in self._actions if not isinstance(each, Send))  # they come after it
        self._take(PutOff(action.offset if isinstance(action, Send) else None))

    def _take(self, event: Event) -> None:
        if isinstance(event, Lost):
            self._reason = event.reason
            self._actions.clear()  # they were for the connection
        elif isinstance(event, Answered | ReadRefused):
            self._reason = f"the broker answers with code {event.code}" if event.code else _NO_FAULT
        actions = self._machine.take(event, self._now())
        lags = [action.lag for action in actions if isinstance(action, ReadEnd) and action.lag]
        self._reason = lags[0] if lags else self._reason
        self._actions.extend(actions)

    def _perform(self, action: Action) -> None:
        if isinstance(action, Send):
            if self._machine.may_send(self._now()):
                self._send(action.offset)
            else:
                self._put_off(action)
        elif isinstance(action, Stored):
            self._forget(lambda offset: offset < action.end)
        elif isinstance(action, GoOn):
            self._forget(lambda offset: True)
        elif isinstance(action, Stop):
            self._error = action.error
            self._disconnect()
        elif isinstance(action, ReadEnd):
            self._close_called.wait(action.after_s)
            self._read_end()
        else:
            self._open(action)

    def _forget(self, is_over: Callable[[int], bool]) -> None:
        self._data = {offset: data for offset, data in self._data.items() if not is_over(offset)}

    def _restamped(self, data: Buffer, read_from: TopicPartition, position: int) -> WholeBatch:
        id_, epoch = self._run.producer
        producer = BatchProducer(id_, epoch, self._run.sequence_at(position), self._transactional_id is not None)
        return restamped(data, read_from, producer, takes_zstd=self._takes_zstd)

    # -- the connection ------------------------------------------------------------------------------------------------

    def _open(self, action: Connect) -> None:
        if action.is_denied and self._leader is not None:
            self._denied = self._leader.id
        self._disconnect()
        if self._close_called.wait(action.after_s):
            return
        self._leader = self._leaders({self._name: self._denied}).get(self._name)
        if self._leader is None:
            self._denied = None
            self._take(Lost("no broker leads the partition"))
            return
        self._client = self._connect(self._leader)
        if self._close_called.is_set():  # `close` has not seen this one
            self._client.close()
        self._takes_zstd = takes_zstd(self._client.served_versions())
        self._take(Connected())

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send(self, offset: int) -> None:
        assert self._client is not None
        self._client.send_sets(
            {self._name: self._data[offset]}, acks=_ALL_REPLICAS, timeout_ms=self._timeout_ms,
            transactional_id=self._transactional_id,
        )  # fmt: skip

    def _receive(self) -> None:
        assert self._client is not None
        [produced] = self._client.next_produced(self._timeout_ms)
        self._take(Answered(produced.error_code, produced.base_offset))

    def _rest_for_authentication(self) -> None:
        """Receive all answers if the next request has to authenticate again."""
        while self._client is not None and self._client.must_pause and self._client.ahead and not self._throttled_s():
            self._step()

    # -- the end of the log --------------------------------------------------------------------------------------------

    def _read_end(self) -> None:
        client = self._client
        if client is None or self._close_called.is_set():
            return
        [end] = client.log_ends([self._name])
        connects = client.connects
        if end.error_code:
            self._take(ReadRefused(end.error_code))
            return
        [appended] = client.ask(KAFKA011.appended_ends({self._name: end.leader_epoch}))
        code, tail = (appended.error_code, None) if appended.error_code else self._read_tail(client, end.offset)
        known = None
        if not code:
            code, known = self._read_known(client)
        if client.connects != connects:  # the end was read on another connection than the next request would take
            self._take(Lost("the connection was lost while the end of the log was read"))
        elif code:
            self._take(ReadRefused(code))
        else:
            self._denied = None
            self._take(EndRead(end.offset, appended.offset, tail, known))

    def _read_tail(self, client: SimpleConsumer, end: int) -> tuple[int, Tail | None]:
        """Return error code and last batch."""
        if end <= self._run.first_offset:
            return 0, None
        asked = FetchRequest(self._name.topic, self._name.partition, end - 1, _WHOLE_FIRST_BYTES)
        [fetched] = client.multifetch([asked], 0, 1)
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # all was deleted
            return 0, None
        data = fetched.message_set
        if fetched.error_code or not data:
            return fetched.error_code or ErrorCode.OFFSET_NOT_AVAILABLE, None
        head = head_with(data, end - 1)
        if head is None:
            return 0, Tail(NO_ID, -1, end - 1, -1)
        producer = ProducerId(head.producer_id, head.producer_epoch)
        last_sequence = _last_sequence(head.base_sequence, head.last_delta)
        return 0, Tail(producer, last_sequence, head.last_offset, newest_ms(head))

    def _read_known(self, client: SimpleConsumer) -> tuple[int, ActiveProducer | None]:
        """Return error code and what the leader knows of the producer."""
        if not KAFKA011.serves_topic_changes(client.served_versions(), "producers"):
            return 0, None
        [(verdict, producers)] = client.ask(KAFKA011.active_producers([self._name]))
        if verdict.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return 0, None
        id_ = self._run.producer.producer_id
        return verdict.error_code, next((each for each in producers if each.producer_id == id_), None)


def _last_sequence(first: int, last_delta: int) -> int:
    """Return the number of the last record of a batch; -1 without numbers."""
    return first if first < 0 else Run(NO_ID, 0, first).sequence_at(last_delta)
