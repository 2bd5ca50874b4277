"""Remembers the last fetch of a connection, so that a repeated fetch is neither encoded nor decoded again.

A consumer that gets no messages repeats one request and receives the same answer. With 2,000 partitions each of them
has some 60 kB.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from simpleconsumer.dialect_types import AnyRequest, Request
from simpleconsumer.types import FetchedPartition, FetchRequest

__all__ = ["FetchMemory"]

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
