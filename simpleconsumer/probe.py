"""Finds out which generation of Kafka a broker speaks, from its address alone.

Brokers from Kafka 0.10.0 on answer the question for their versions, one of 0.9 never does, and one of 0.8 closes the
connection. A later question on the same connection for the members of no group, which 0.9 answers, makes waiting
needless: the first answer decides. No answer is long, however large the cluster is.
Brokers of Kafka 0.7 cannot be distinguished from a server that is no broker at all.

Source: kafka.network.Processor, kafka.server.KafkaApis (0.8.2.2, 0.9.0.1: KAFKA-3547, 0.10.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from simpleconsumer.connection import Connection
from simpleconsumer.dialect import KAFKA011, KAFKA08
from simpleconsumer.errors import ConnectionFailed, DecodeError
from simpleconsumer.messages.apis import DESCRIBE_GROUPS, FETCH
from simpleconsumer.primitives import encode_array
from simpleconsumer.security.security import Security
from simpleconsumer.types import Broker

_NO_ID = -1
_VERSIONS_ID, _GROUPS_ID, _METADATA_ID = 1, 2, 3
_FIRST_FETCH_OF_KAFKA_4: Final = 4
_INT32 = Struct(">i")


def probed_broker(
    host: str, port: int, timeout_s: float = 30.0, client_id: str = "zkconsumer", *, security: Security | None = None
) -> Broker:
    """Return the broker at an address, with the generation and the versions that it speaks; its id is -1.

    Args:
        host: Name or address.
        timeout_s: Deadline of all that is asked.
        client_id: Name under which the broker logs requests.
        security: TLS and SASL; None for neither. A broker with SASL that this package speaks is of 0.10 or later, and
            is not asked.

    Raises:
        AuthenticationFailed: Broker or client refuse each other.
        ConnectionFailed: There is no broker, or none of Kafka 0.8 or later.
        DecodeError: The server that answers is no broker.
    """
    return Probe(host, port, timeout_s, client_id, security=security).ask()


class Probe:
    """Asks one address which broker is there; see `probed_broker`.

    Threads: One at a time. `close()` from any thread ends a question at once with ConnectionFailed.

    Attributes:
        is_closed: Nothing is asked any more.
    """

    def __init__(
        self, host: str, port: int, timeout_s: float, client_id: str, *, security: Security | None = None
    ) -> None:
        self.is_closed = False
        self._host = host
        self._port = port
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._security = security
        self._connection: Connection | None = None

    def ask(self) -> Broker:
        """Return the broker; errors are those of `probed_broker`."""
        host, port = self._host, self._port
        if self._security is not None and self._security.sasl is not None:
            return _of_versions(host, port)
        versions = KAFKA08.frame(KAFKA08.api_versions(), _VERSIONS_ID, self._client_id)
        groups = DESCRIBE_GROUPS.frame(0, _GROUPS_ID, self._client_id, encode_array([]))
        try:
            answer = self._call(versions + groups)
        except ConnectionFailed as error:
            if not error.is_sent or not isinstance(error.__cause__, ConnectionError) or self.is_closed:
                raise
            # Closed: Kafka 0.8, if it answers a question that all brokers know.
            self._call(KAFKA08.frame(KAFKA08.metadata([]), _METADATA_ID, self._client_id), _METADATA_ID)
            return Broker(_NO_ID, host, port)
        if len(answer) < _INT32.size:
            raise DecodeError(f"{host}:{port}: answer of {len(answer)} bytes, too short for a correlation id")
        found = _INT32.unpack_from(answer)[0]
        if found == _VERSIONS_ID:
            return _of_versions(host, port)
        if found == _GROUPS_ID:
            return Broker(_NO_ID, host, port, commit_version=2)
        raise DecodeError(f"{host}:{port}: answer to request {found}, expected {_VERSIONS_ID} or {_GROUPS_ID}")

    def close(self) -> None:
        """End a question that is under way, and have no other one asked."""
        self.is_closed = True
        if self._connection is not None:
            self._connection.close()

    def _call(self, frame: bytes, correlation_id: int | None = None) -> memoryview:
        connection = self._connection = Connection(self._host, self._port, self._timeout_s, security=self._security)
        try:
            if self.is_closed:
                connection.close()
            return connection.call(frame, correlation_id=correlation_id)
        finally:
            connection.close()


def has_no_older_peers(served: Mapping[int, range]) -> bool:
    """Return whether no broker of 0.9 can be in the cluster of one that serves these versions, which is of Kafka 4."""
    fetches = served.get(FETCH.key, range(0))
    return bool(fetches) and fetches[0] >= _FIRST_FETCH_OF_KAFKA_4


def _of_versions(host: str, port: int) -> Broker:
    """Return the broker at an address that lists the versions of its requests."""
    return Broker(_NO_ID, host, port, 2, KAFKA011.name, 2)
