"""Streams and messages are generic: type checkers take the types of keys and values from the decoders."""

from __future__ import annotations

import pytest

from tests.mypy_snippets import complaints_about

# `#=` is the type that mypy reveals, `#!` a part of its complaint; it says nothing about the other lines.
# ruff: noqa: E501
SNIPPETS = """\
from collections.abc import Iterator

from zkconsumer import ConsumerConfig, ConsumerConnector, KafkaStream, Message, Whitelist
from simpleconsumer import SimpleConsumer
class Order:
    def __init__(self, price: int) -> None: self.price = price
def order(value: bytes) -> Order: return Order(int(value))
connector = ConsumerConnector(ConsumerConfig("zk", "g"))
reveal_type(connector.create_message_streams({"t": 1}))  #= dict[str, list[KafkaStream[bytes, bytes]]]
reveal_type(connector.create_message_streams({}, value_decoder=order))  #= dict[str, list[KafkaStream[bytes, Order]]]
reveal_type(connector.create_message_streams({"t": 1}, bytes.decode))  #= dict[str, list[KafkaStream[str, bytes]]]
reveal_type(connector.createMessageStreams({"t": 1}, None, order))  #= dict[str, list[KafkaStream[bytes, Order]]]
reveal_type(connector.create_message_streams_by_filter(Whitelist("t"), 2))  #= list[KafkaStream[bytes, bytes]]
[stream] = connector.create_message_streams({"t": 1}, key_decoder=bytes.decode, value_decoder=order)["t"]
reveal_type(stream)  #= KafkaStream[str, Order]
reveal_type(next(stream))  #= Message[str, Order]
for message in stream: reveal_type(message.key)  #= str | None
reveal_type(message.value)  #= Order | None
print(message.value.price)  #! "None" of "Order | None" has no attribute "price"
print(message.value.price if message.value else 0)
[plain] = connector.create_message_streams_by_filter(Whitelist("t"))
reveal_type(next(plain).value)  #= bytes | None
reveal_type(SimpleConsumer("b", 9092).fetch("t", 0, 0)[0].key)  #= bytes | None
def bare(stream: KafkaStream, message: Message) -> Iterator[Message]: yield from stream
bare(stream, next(stream))
def typed(stream: KafkaStream[str, Order]) -> None: ...
typed(stream)
typed(plain)  #! incompatible type "KafkaStream[bytes, bytes]"
reveal_type(Message("t", 0, 1, 2, "key", 7))  #= Message[str, int]
from zkconsumer.aio import AsyncConsumerConnector
aio = AsyncConsumerConnector(ConsumerConfig("zk", "g"))
async def read() -> None: [one] = (await aio.create_message_streams({"t": 1}, value_decoder=order))["t"]; reveal_type(one)  #= AsyncKafkaStream[bytes, Order]
async def each() -> None: [one] = await aio.create_message_streams_by_filter(Whitelist("t")); reveal_type((await anext(one)).key)  #= bytes | None
async def bad() -> None: aio.commit_offsets()  #! Are you missing an await?
connector.create_message_streams({"t": 1}, value_decoder=len, key_decoder=str.upper)  #! "key_decoder"
"""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Line -> what mypy says about it."""
    return complaints_about(SNIPPETS, tmp_path_factory.mktemp("typed"))


@pytest.mark.parametrize("number", range(1, len(SNIPPETS.splitlines()) + 1))
def test_mypy_sees_the_types(number: int, complaints: dict[int, str]) -> None:
    line = SNIPPETS.splitlines()[number - 1]
    said = complaints.get(number, "")
    for prefix in (
        "simpleconsumer.types.",
        "zkconsumer.streams.stream.",
        "zkconsumer.aio.reading.",
        "snippets.",
        "builtins.",
    ):
        said = said.replace(prefix, "")
    code, _, expected = line.partition("  #! ")
    code, _, revealed = code.partition("  #= ")
    if expected:
        assert expected in said, code
    elif revealed:
        assert said == f'Revealed type is "{revealed}"', code
    else:
        assert not said, code
