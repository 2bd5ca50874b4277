"""Makes requests of an API in the version that is chosen when they are sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from simpleconsumer.dialect_types import Request, VersionedRequest
from simpleconsumer.messages.api import Api
from simpleconsumer.messages.schema import Values

T = TypeVar("T")


def call(
    api: Api,
    values: Values | Callable[[int], Values],
    result: Callable[[Values], T],
    versions: tuple[int, ...] | None = None,
    *,
    can_resend: bool = False,
) -> VersionedRequest[T]:
    """Return the call of an API that has schemas.

    Args:
        values: The fields of the request in all versions, or a function that returns those of one version. A version
            leaves out the fields that it does not have.
        result: Returns the result, from the fields of the answer. It raises DecodeError for an answer that does not
            fit the request.
        versions: The versions that the request can be sent in; None for all versions of the API that the client speaks.
        can_resend: Whether sending it twice does no harm.
    """

    def at(version: int) -> Request[T]:
        body = api.request.encode(version, values(version) if callable(values) else values)
        return Request(api.key, version, body, lambda answer: result(api.decode(version, answer)), can_resend)

    return versioned(api, at, versions, can_resend=can_resend)


def request_of(
    api: Api,
    version: int,
    body: bytes,
    decode: Callable[[memoryview], T],
    can_resend: bool = False,
    has_answer: bool = True,
    tail: Sequence[bytes] = (),
) -> Request[T]:
    """Return a request in a version."""
    return Request(api.key, version, body, decode, can_resend, has_answer, tail)


def versioned(
    api: Api,
    at: Callable[[int], Request[T]],
    versions: tuple[int, ...] | None = None,
    *,
    can_resend: bool = False,
    has_answer: bool = True,
) -> VersionedRequest[T]:
    """Return a request whose version is chosen when it is sent.

    Args:
        at: Returns the request of a version.
        versions: The versions that it can be sent in; None for all versions of the API that the client speaks.
    """
    return VersionedRequest(
        api.key, api.name, api.versions if versions is None else versions, at, can_resend, has_answer
    )


def serves(served: Mapping[int, range], api: Api, versions: Sequence[int] | None = None) -> bool:
    """Return whether a broker serves any version of an API that the client speaks, or any of these."""
    return any(version in served.get(api.key, ()) for version in (api.versions if versions is None else versions))
