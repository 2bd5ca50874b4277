"""ApiVersions: which versions of each API a broker serves.

Source: ApiVersionsRequest.json, ApiVersionsResponse.json (4.3). Every broker from 0.10.0 on answers version 0, also
before an authentication; one of 0.9 never answers it, and one of 0.8 closes the connection.
"""

from __future__ import annotations

from simpleconsumer.kafka011 import apis
from simpleconsumer.kafka08 import requests as requests_08
from simpleconsumer.types import Buffer

__all__ = ["decode_api_versions"]

_FIRST_FETCH_OF_KAFKA_4 = 4
_FIRST_PRODUCE_OF_KAFKA_4 = 3


def decode_api_versions(answer: Buffer) -> tuple[int, dict[int, range]]:
    """Return error code, and for each API key the versions that the broker really serves."""
    code, served = requests_08.decode_api_versions(answer)
    produce, fetch = served.get(apis.PRODUCE.key), served.get(apis.FETCH.key)
    if produce and fetch and fetch.start >= _FIRST_FETCH_OF_KAFKA_4:
        # Kafka 4 names versions of Produce that it has not, for an old client (KAFKA-18659), and closes on them.
        served[apis.PRODUCE.key] = range(max(produce.start, _FIRST_PRODUCE_OF_KAFKA_4), produce.stop)
    return code, served
