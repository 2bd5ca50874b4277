"""ApiVersions: what the broker serves. A version that it does not know is answered too, in the encoding of version 0.

Source: kafka.server.KafkaApis.handleApiVersionsRequest, ApiVersionsResponse.json (1.1, 2.8).
"""

from __future__ import annotations

from struct import pack
from typing import Final

from simpleconsumer.messages import apis
from zkconsumer.testing.embedded.broker import Part
from zkconsumer.testing.embedded.kafka011.api import Asked, ServedApi
from zkconsumer.testing.embedded.kafka011.writing import CLASSIC, FLEXIBLE
from zkconsumer.testing.embedded.reading import Reader

__all__ = ["API", "refused_version"]

UNSUPPORTED_VERSION: Final = 35
_FIRST_FLEXIBLE: Final = 3
_FIRST_WITH_THROTTLE_TIME: Final = 1
_FIRST_THAT_NAMES_THE_RANGE: Final = 3
"""Brokers that serve this version of ApiVersions (2.4 and later) say so when they refuse another one."""


def _read(reader: Reader, version: int) -> None:
    if version >= _FIRST_FLEXIBLE:
        reader.string()  # name of the client's software
        reader.string()  # and its version
        reader.end()


def _answer(asked: Asked[None]) -> list[Part]:
    served = asked.host.served
    code = asked.errors.get(("", -1), 0)
    if code == UNSUPPORTED_VERSION:
        return [refused_version(served[apis.API_VERSIONS.key])]
    encoding = FLEXIBLE if asked.version >= _FIRST_FLEXIBLE else CLASSIC
    ranges = [] if code else sorted(served.items())
    rows = (pack(">hhh", key, each.start, each.stop - 1) + encoding.end for key, each in ranges)
    throttle = pack(">i", 0) if asked.version >= _FIRST_WITH_THROTTLE_TIME else b""
    return [pack(">h", code) + encoding.array(rows) + throttle + encoding.end]


def refused_version(own: range) -> bytes:
    """Return the answer to an unknown version of this request.

    Args:
        own: the versions of it that are served.
    """
    newest = own.stop - 1
    if newest < _FIRST_THAT_NAMES_THE_RANGE:
        return pack(">hi", UNSUPPORTED_VERSION, 0)
    return pack(">hihhh", UNSUPPORTED_VERSION, 1, apis.API_VERSIONS.key, own.start, newest)


API: Final = ServedApi(apis.API_VERSIONS, "api_versions", range(4), _read, _answer)
