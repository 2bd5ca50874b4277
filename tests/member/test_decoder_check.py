"""Decoders that are coroutine functions are refused before a member joins, in threads and in asyncio."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from zkconsumer import ConsumerConfig, ConsumerConnector, Whitelist
from zkconsumer.aio import AsyncConsumerConnector


async def decode(value: bytes) -> bytes:
    return value


class Decoder:
    async def __call__(self, value: bytes) -> bytes:
        return value


@pytest.mark.parametrize("name", ["key_decoder", "value_decoder"])
@pytest.mark.parametrize("decoder", [decode, Decoder()])
def test_a_decoder_that_nothing_awaits_is_refused(name: str, decoder: Any) -> None:
    config = ConsumerConfig("127.0.0.1:1", "g", zookeeper_connection_timeout_ms=200)
    said = f"^{name} is a coroutine function; make it `def`"
    connector = ConsumerConnector(config)
    with pytest.raises(TypeError, match=said):
        connector.create_message_streams({"t": 1}, **{name: decoder})
    with pytest.raises(TypeError, match=said):
        connector.create_message_streams_by_filter(Whitelist("t"), **{name: decoder})

    async def join() -> None:
        async with AsyncConsumerConnector(config) as consumer:
            await consumer.create_message_streams({"t": 1}, **{name: decoder})

    with pytest.raises(TypeError, match=said):
        asyncio.run(join())
