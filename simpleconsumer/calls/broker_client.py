"""BrokerClient: one broker and one connection to it, with what every broker can be asked: versions and metadata.

Requests to one broker over one connection, each in a version that the broker serves.

A dialect that chooses versions asks each new connection first which ones there are: a broker that has been upgraded, or
replaced by an older one, at the same address gets the versions that it serves now.

Remembers the last fetch of a connection, so that a repeated fetch is neither encoded nor decoded again.

A consumer that gets no messages repeats one request and receives the same answer. With 2,000 partitions each of them
has some 60 kB.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from simpleconsumer.closing import Closing
from simpleconsumer.connection import Connection
from simpleconsumer.dialect import KAFKA08, Dialect
from simpleconsumer.dialect_types import AnyRequest, Request
from simpleconsumer.errors import AuthenticationFailed, BrokerError, DecodeError, SimpleConsumerError
from simpleconsumer.messages.api import chosen_request
from simpleconsumer.primitives import MAX_FRAME_BYTES
from simpleconsumer.probe import Probe
from simpleconsumer.security.authentication import Exchange
from simpleconsumer.security.security import Security
from simpleconsumer.throttling import THROTTLE_LOG, FetchPace, Patience, Throttle
from simpleconsumer.types import ClusterMetadata, FetchedPartition, FetchRequest

T = TypeVar("T")
_MAX_CORRELATION_ID = 0x7FFFFFFF


class BrokerCalls:
    """Sends the requests of a dialect, and decodes their answers.

    Args:
        connection: To the broker; nobody else uses it, but to close it.
        dialect: The dialect that the broker speaks.
        client_id: Name under which the broker logs and counts requests.

    Attributes:
        on_throttle: Called with each answer that says that the broker throttles this client, on the thread of the call.
        throttle: The throttle time in the last answer; None if it had none.

    Threads: One at a time.
    """

    def __init__(self, connection: Connection, dialect: Dialect, client_id: str) -> None:
        self._connection = connection
        self._dialect = dialect
        self._client_id = client_id
        self._correlation_id = 0
        self._served: Mapping[int, range] = {}
        self._ahead: deque[tuple[int, Request[Any]]] = deque()
        self.on_throttle: Callable[[Throttle], None] = lambda throttle: None
        self.throttle: Throttle | None = None
        if dialect.chooses_versions:
            connection.opening = self._learn_versions

    def served(self) -> Mapping[int, range]:
        """Return the versions that the broker serves, by API key; connects if there is no connection.

        Empty for a dialect that does not choose versions.

        Raises:
            ConnectionFailed, DecodeError, BrokerError: As for `ask`.
        """
        if self._dialect.chooses_versions:
            self._connection.call(b"", has_answer=False)
        return self._served

    def ask(
        self,
        asked: AnyRequest[T],
        meanwhile: Callable[[], None] | None = None,
        *,
        patience: Patience | None = None,
    ) -> T:
        """Return the decoded answer; the connection is closed if it cannot be decoded.

        If the answer says that the broker throttles this client, and reads no request until then, the next one waits.

        Args:
            asked: The request.
            meanwhile: As for `Connection.call`.
            patience: Waits longer than the deadline of a call for an answer that is held back.

        Raises:
            ConnectionFailed: The connection could not be made, was lost or timed out.
            Throttled: The broker throttles this client for longer than the call may take.
            DecodeError: The answer makes no sense.
            VersionNotServed: The broker serves no version of the request that is spoken here.
            BrokerError: The broker refused to say which versions it serves.
        """
        correlation_id = self._next_id()
        sent: list[Request[T]] = []

        def frame() -> list[bytes]:
            sent[:] = [chosen_request(asked, self._served, self._connection.host, self._connection.port)]
            return [self._dialect.frame(sent[0], correlation_id, self._client_id), *sent[0].tail]

        answer = self._connection.call(
            frame if self._dialect.chooses_versions else frame(),
            correlation_id=correlation_id if self._dialect.has_correlation_ids else None,
            resend=asked.can_resend,
            meanwhile=meanwhile,
            patience=patience,
        )
        return self._decoded(sent[0], answer)

    def send_ahead(self, asked: AnyRequest[Any]) -> None:
        """Send a request over the connection that stands, while earlier ones may wait for their answers.

        Raises:
            ConnectionFailed, Throttled, AuthenticationFailed: As for `Connection.send_ahead`.
            VersionNotServed: The broker serves no version of the request that is spoken here.
        """
        if not self._connection.ahead:
            self._ahead.clear()  # a fault has ended those before
        correlation_id = self._next_id()
        sent: list[Request[Any]] = []

        def frame() -> list[bytes]:
            sent.append(chosen_request(asked, self._served, self._connection.host, self._connection.port))
            return [self._dialect.frame(sent[0], correlation_id, self._client_id), *sent[0].tail]

        self._connection.send_ahead(frame)
        self._ahead.append((correlation_id, sent[0]))

    def next_answer(self, patience: Patience | None = None) -> Any:
        """Return the decoded answer to the earliest request that was sent ahead; errors are those of `ask`."""
        correlation_id, chosen = self._ahead.popleft()
        return self._decoded(chosen, self._connection.receive_next(correlation_id, patience))

    def _decoded(self, sent: Request[T], answer: memoryview) -> T:
        self._note_throttle(sent, answer)
        try:
            return sent.decode(answer)
        except DecodeError as error:
            self._connection.reset()
            error.add_note(f"in an answer of {len(answer)} bytes from {self._connection.host}:{self._connection.port}")
            raise

    @property
    def known(self) -> Mapping[int, range]:
        """The versions that the broker served last, by API key; empty before the first connection."""
        return self._served

    @property
    def mutes(self) -> bool:
        """Whether the broker answers clients that it throttles at once, and reads nothing of them for the time."""
        return self._dialect.mutes(self._served)

    def _note_throttle(self, sent: Request[T], answer: memoryview) -> None:
        api, throttle_ms = self._dialect.throttle(sent, answer)
        self.throttle = None
        if not throttle_ms:
            return
        self.throttle = Throttle(self._connection.host, self._connection.port, api, throttle_ms, not self.mutes)
        if self.mutes:
            self._connection.mute(throttle_ms / 1000)
        self.report(self.throttle)

    def report(self, throttle: Throttle) -> None:
        """Log that the broker throttles, and pass it on."""
        THROTTLE_LOG.note(throttle, self._client_id)
        self.on_throttle(throttle)

    def tell(self, asked: AnyRequest[T]) -> None:
        """Send a request that no broker answers; errors are those of `ask`."""
        correlation_id = self._next_id()

        def frame() -> list[bytes]:
            chosen = chosen_request(asked, self._served, self._connection.host, self._connection.port)
            return [self._dialect.frame(chosen, correlation_id, self._client_id), *chosen.tail]

        self._connection.call(frame if self._dialect.chooses_versions else frame(), has_answer=False)

    def _learn_versions(self, exchange: Exchange) -> None:
        request, correlation_id = self._dialect.api_versions(), self._next_id()
        answer = exchange(self._dialect.frame(request, correlation_id, self._client_id), correlation_id)
        code, served = request.decode(answer)
        if code:
            raise BrokerError(code, None, None)
        self._served = served

    def _next_id(self) -> int:
        self._correlation_id = self._correlation_id % _MAX_CORRELATION_ID + 1
        return self._correlation_id


_Fetch = AnyRequest[list[FetchedPartition]]


class FetchMemory:
    """The last fetch request of a connection.

    Threads: That of the connection.
    """

    def __init__(self) -> None:
        self._wanted: list[FetchRequest] = []
        self._how: Hashable = None
        self._request: _Fetch | None = None

    def request(
        self, wanted: Sequence[FetchRequest], how: Hashable, make: Callable[[list[FetchRequest]], _Fetch]
    ) -> _Fetch:
        """Return the last request if it asked for the same; otherwise call `make` for a new one.

        The request decodes an answer without messages to the same list as the answer before, if both have equal bytes.

        Args:
            how: Everything that `make` depends on except its argument.
            make: Called with a copy of `wanted`.
        """
        if self._request is None or how != self._how or wanted != self._wanted:
            self._request = None
            # Plain tuples will do. Equal objects are compared faster if they are the same.
            self._wanted = [each if isinstance(each, FetchRequest) else FetchRequest(*each) for each in wanted]
            self._how = how
            self._request = _remembering(make(self._wanted))
        return self._request


def _remembering(request: _Fetch) -> _Fetch:
    if isinstance(request, Request):
        return request._replace(decode=_Decoder(request.decode))
    made: dict[int, Request[list[FetchedPartition]]] = {}
    at = request.at

    def once_at(version: int) -> Request[list[FetchedPartition]]:
        if version not in made:
            chosen = at(version)
            made[version] = chosen._replace(decode=_Decoder(chosen.decode))
        return made[version]

    return request._replace(at=once_at)


class _Decoder:
    """Decodes the answers to one request."""

    def __init__(self, decode: Callable[[memoryview], list[FetchedPartition]]) -> None:
        self._decode = decode
        self._answer: bytes | None = None
        self._decoded: list[FetchedPartition] = []

    def __call__(self, answer: memoryview) -> list[FetchedPartition]:
        if self._answer is not None and len(answer) == len(self._answer) and bytes(answer) == self._answer:
            return self._decoded
        decoded = self._decode(answer)
        self._answer = None
        if decoded and not any(len(each.message_set) for each in decoded):
            nothing = memoryview(b"")  # views would point into memory that the next answer overwrites
            decoded = self._decoded = [each._replace(message_set=nothing) for each in decoded]
            self._answer = bytes(answer)
        return decoded


_LATE_S: Final = 3.0
"""How late an answer is, in seconds, when the broker is first asked something else."""
_PROBE_S: Final = 5.0


class BrokerClient(Closing):
    """The common part of the requests of `SimpleConsumer`, whose docstring says how calls behave.

    Attributes:
        client_id: Its name in the logs of the broker.
        dialect: The generation of Kafka that the broker speaks.
        pace: How large a fetch may be now, as the broker throttles this client.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeout_s: float = 30.0,
        client_id: str = "zkconsumer",
        receive_buffer_bytes: int = 0,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        reuse_answers: bool = False,
        dialect: Dialect = KAFKA08,
        send_buffer_bytes: int = 0,
        connect_timeout_s: float | None = None,
        read_committed: bool = False,
        rack: str = "",
        security: Security | None = None,
        held_s: float = 0.0,
        on_throttle: Callable[[Throttle], None] | None = None,
    ) -> None:
        """
        Args:
            timeout_s: Deadline of each call; the wait that a fetch asks of the broker must be shorter.
            client_id: Name under which the broker logs and counts requests.
            receive_buffer_bytes: Socket receive buffer; 0 or less leaves it to the system.
            max_frame_bytes: Largest answer that is accepted (256 MiB); a larger one is refused before it is read.
            reuse_answers: The message sets of `multifetch` are valid until the next call only; saves memory and time.
            dialect: The dialect that the broker speaks (`simpleconsumer.dialect.dialect_of`).
            send_buffer_bytes: Socket send buffer; 0 leaves it to the system.
            connect_timeout_s: Longest part of `timeout_s` for connecting; None: all of it.
            read_committed: Fetches stop at the first open transaction and list the aborted ones, and logs end
                there; needs KAFKA011 and Kafka 0.11 or later.
            security: TLS and SASL (`Security.of`); None for neither.
            rack: Where the reader is: brokers may name a nearer replica (`FetchedPartition.preferred_replica`).
            held_s: How much longer than `timeout_s` a fetch or a produce request may take while a broker before Kafka
                2.0 holds its answer back, as it does when it throttles a client, and answers others
                (`throttling.HELD_S`).
            on_throttle: Called when the broker throttles this client, on the thread of the call.
        """
        self.dialect = dialect
        self.client_id = client_id
        self._connection = Connection(
            host, port, timeout_s, receive_buffer_bytes, max_frame_bytes, reuse_answers=reuse_answers,
            send_buffer_bytes=send_buffer_bytes, connect_timeout_s=connect_timeout_s, security=security,
            client_id=client_id,
        )  # fmt: skip
        self._calls = BrokerCalls(self._connection, dialect, client_id)
        if on_throttle is not None:
            self._calls.on_throttle = on_throttle
        self._security = security
        self._held_s = held_s
        self.pace = FetchPace()
        self._probe: BrokerClient | Probe | None = None
        self._is_late = False
        self._timeout_s = timeout_s
        self._read_committed = read_committed
        self._rack = rack
        self._fetches = FetchMemory()

    @property
    def host(self) -> str:
        """The host of the broker."""
        return self._connection.host

    @property
    def port(self) -> int:
        """The port of the broker."""
        return self._connection.port

    @property
    def connects(self) -> int:
        """How often it has tried to connect; unchanged between two calls if one connection served both."""
        return self._connection.connects

    @property
    def ahead(self) -> int:
        """How many requests were sent ahead whose answers have not been received."""
        return self._connection.ahead

    @property
    def must_pause(self) -> bool:
        """Whether nothing is to be sent ahead before all answers have come, for the next authentication."""
        return self._connection.must_pause

    @property
    def throttled_s(self) -> float:
        """For how many seconds the broker throttles this client and reads no request; 0 if it does not.

        The next call waits for that long, and raises `Throttled` at once if that is beyond its deadline.
        """
        return self._connection.muted_s

    def report_throttles(self, on_throttle: Callable[[Throttle], None]) -> None:
        """Have another function called when the broker throttles this client."""
        self._calls.on_throttle = on_throttle

    def limit_calls(self, timeout_s: float) -> None:
        """Have the next calls end within a time that is shorter than `timeout_s`; a longer one has no effect."""
        self._connection.timeout_s = min(timeout_s, self._timeout_s)

    def api_versions(self) -> dict[int, range]:
        """Return which versions of each API key the broker serves: Kafka 0.10.0 and later.

        Raises:
            BrokerError: The broker refused to answer.
            ConnectionFailed: A broker of 0.8 closes the connection, and one of 0.9 never answers.
        """
        code, served = self.ask(self.dialect.api_versions())
        if code:
            raise BrokerError(code, None, None)
        return served

    def topic_metadata(self, topics: Sequence[str], *, create: bool = True) -> ClusterMetadata:
        """Return brokers and leaders of some topics; asking for an unknown one can create it.

        Error codes are part of the result: 5 for a topic that is being created, 3 for one that does not exist.

        Args:
            create: Whether the broker may create topics; False needs KAFKA011.

        Raises:
            ValueError: An empty list, which a broker takes for all topics (see `all_topic_metadata`).
        """
        if isinstance(topics, str) or not topics:
            raise ValueError(f"topics is {topics!r}: a list of at least one name is needed")
        return self._metadata(topics, create)

    def all_topic_metadata(self) -> ClusterMetadata:
        """Return brokers and leaders of every topic."""
        return self._metadata([])

    topicMetadata = topic_metadata  # noqa: N815

    def _metadata(self, topics: Sequence[str], create: bool = True) -> ClusterMetadata:
        metadata = self.ask(self.dialect.metadata(topics, create=create))
        missing = [topic for topic in topics if topic not in metadata.topics]
        if missing:
            raise DecodeError(f"metadata response: {missing[0]} and {len(missing) - 1} more are missing")
        return metadata

    def served_versions(self) -> Mapping[int, range]:
        """Return the versions that the broker serves, by API key, as its connection has asked for them.

        Connects if there is no connection. Empty for a dialect that does not choose versions.
        """
        return self._calls.served()

    def ask(self, request: AnyRequest[T]) -> T:
        """Return the decoded answer to a request of the dialect; the connection is closed if it cannot be decoded.

        Raises:
            VersionNotServed: The broker serves no version of it that is spoken here (KAFKA011 alone).
        """
        return self._calls.ask(request)

    def _patience(self, api: str, max_wait_ms: int) -> Patience | None:
        """Return how a request waits that a broker before Kafka 2.0 may hold back; None: no longer than others.

        Args:
            api: Its name, for the log.
            max_wait_ms: How long the broker may take without any throttle.
        """
        self._is_late = False
        if not self._held_s or self._calls.mutes:  # which holds nothing back
            return None
        first_s = max_wait_ms / 1000 + _LATE_S
        return Patience(first_s, self._connection.timeout_s, self._held_s, partial(self._is_held, api))

    def _is_held(self, api: str, waited_s: float) -> bool:
        """Return whether the broker answers over another connection, while it holds the answer to a request back."""
        if self._calls.mutes:
            return False
        timeout_s = min(_PROBE_S, self._connection.timeout_s)
        try:
            if self.dialect.chooses_versions:
                self._probe = client = BrokerClient(
                    self.host, self.port, timeout_s, self.client_id, dialect=self.dialect, security=self._security
                )
                with client:
                    client.served_versions()
            else:
                self._probe = probe = Probe(self.host, self.port, timeout_s, self.client_id, security=self._security)
                probe.ask()
        except (SimpleConsumerError, AuthenticationFailed):
            return False
        finally:
            self._probe = None
        self._is_late = True
        self._calls.report(Throttle(self.host, self.port, api, int(waited_s * 1000), True, False))
        return True

    def close(self) -> None:
        """Close finally; a call that is blocked in another thread ends at once with ConnectionFailed."""
        self._connection.close()
        probe = self._probe
        if probe is not None:
            probe.close()
