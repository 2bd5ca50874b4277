"""One API of Kafka: its number, its versions, and the schemas of its requests and answers.

Chooses the version of a request: the newest one that both this package and the broker have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from simpleconsumer.dialect_types import AnyRequest, Request
from simpleconsumer.errors import VersionNotServed
from simpleconsumer.messages.schema import NEVER, Schema, Values, skip_tagged_fields
from simpleconsumer.primitives import encode_int16, encode_int32, encode_string, read_int32
from simpleconsumer.types import Buffer

_API_VERSIONS: Final = 18


class Api:
    """One API.

    Args:
        request, response: The schemas; empty for fetch and produce, whose bodies are encoded by hand.

    Attributes:
        key: Its number.
        name: Its name in Kafka.
        versions: The versions that the client speaks, in rising order.
        flexible_from: The first version with compact lengths and tagged fields.
        throttled_from: The first version whose answers say for how long the client is throttled.
        throttle_at: Where they say it: after so many bytes of the body, or so many before its end if negative.
        request, response: The schemas.
    """

    def __init__(
        self,
        key: int,
        name: str,
        versions: tuple[int, ...],
        flexible_from: int = NEVER,
        throttled_from: int = NEVER,
        throttle_at: int = 0,
        request: str = "",
        response: str = "",
    ) -> None:
        self.key = key
        self.name = name
        self.versions = versions
        self.flexible_from = flexible_from
        self.throttled_from = throttled_from
        self.throttle_at = throttle_at
        self.request = Schema(f"{name} request", request, flexible_from)
        self.response = Schema(f"{name} response", response, flexible_from)

    def __repr__(self) -> str:
        return f"<API {self.name}>"

    def frame(self, version: int, correlation_id: int, client_id: str, body: bytes, tail_bytes: int = 0) -> bytes:
        """Return a whole request: size, header and body. `tail_bytes` more follow it, which the size counts.

        Raises:
            ValueError: This package does not speak that version.
        """
        if version not in self.versions:
            spoken = ", ".join(map(str, self.versions))
            raise ValueError(f"version {version} of {self.name} is not supported; this client speaks {spoken}")
        # A client id has the old encoding in every header, so that brokers can read it before they know the version.
        tags = b"\0" if version >= self.flexible_from else b""
        head = encode_int16(self.key) + encode_int16(version) + encode_int32(correlation_id) + encode_string(client_id)
        return encode_int32(len(head) + len(tags) + len(body) + tail_bytes) + head + tags + body

    def decode(self, version: int, answer: Buffer) -> Values:
        """Return the values of an answer.

        Args:
            answer: The bytes after the correlation id: in flexible versions tagged fields of the header, then the body.
                The header of ApiVersions has none, so that any client can read it.

        Raises:
            DecodeError: The bytes do not fit the schema.
        """
        has_tags = version >= self.flexible_from and self.key != _API_VERSIONS
        return self.response.decode(version, answer, skip_tagged_fields(answer, 0) if has_tags else 0)

    def throttle_ms(self, version: int, answer: Buffer) -> int:
        """Return for how long an answer says that the client is throttled; 0 if it does not say so, or is cut off.

        Args:
            answer: The bytes after the correlation id.
        """
        if version < self.throttled_from:
            return 0
        at = self.throttle_at + (len(answer) if self.throttle_at < 0 else int(version >= self.flexible_from))
        return max(read_int32(answer, at)[0], 0) if 0 <= at <= len(answer) - 4 else 0


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
