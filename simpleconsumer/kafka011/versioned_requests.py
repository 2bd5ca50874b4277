"""Makes requests of an API in one of its versions, or in the one that is chosen when they are sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from simpleconsumer.dialect_types import Request, VersionedRequest
from simpleconsumer.kafka011.apis import Api

__all__ = ["request_of", "serves", "versioned"]

T = TypeVar("T")


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
        versions: Those that it can be sent in; None for all of the API that are spoken.
    """
    return VersionedRequest(
        api.key, api.name, api.versions if versions is None else versions, at, can_resend, has_answer
    )


def serves(served: Mapping[int, range], api: Api, versions: Sequence[int] | None = None) -> bool:
    """Return whether a broker serves any version of an API that is spoken, or any of these."""
    return any(version in served.get(api.key, ()) for version in (api.versions if versions is None else versions))
