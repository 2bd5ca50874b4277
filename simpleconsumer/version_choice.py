"""Chooses the version of a request: the newest one that both this package and the broker have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from simpleconsumer.dialect_types import AnyRequest, Request
from simpleconsumer.errors import VersionNotServed

__all__ = ["chosen_request"]

T = TypeVar("T")


def chosen_request(asked: AnyRequest[T], served: Mapping[int, range], host: str, port: int) -> Request[T]:
    """Return the request in the version to send; one of a fixed version stays as it is.

    Args:
        served: The versions that the broker serves, by API key.
        host: Of the broker, for the error.
        port: Of the broker, for the error.

    Raises:
        VersionNotServed: There is no version that both have.
    """
    if isinstance(asked, Request):
        return asked
    there = served.get(asked.api_key, range(0))
    common = [version for version in asked.versions if version in there]
    if not common:
        bounds = (there.start, there.stop - 1) if there else None
        raise VersionNotServed(host, port, asked.api, tuple(asked.versions), bounds)
    return asked.at(max(common))
