"""The nodes of Kafka 0.7: text as Java writes and reads it, and what is wrong with other text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebalance.errors import Kafka08Node, UnreadableNode
from rebalance.subscription import Subscription, assign_range
from rebalance.zookeeper.znodes import Registration
from rebalance.zookeeper.znodes_07 import (
    MAX_PARTITIONS,
    broker_and_number,
    format_registration_07,
    parse_broker_07,
    parse_partition_count_07,
    parse_registration_07,
    partition_names,
)

PATH = "/consumers/g/ids/g_1"
JSON_08 = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1400000000123"}'


# -- registrations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "subscription"),
    [
        (b'{ "t.1": 2,"t2": 1 }', Subscription.static({"t.1": 2, "t2": 1})),
        (b'{ "t": 1 }', Subscription.static({"t": 1})),
        (b"{  }", Subscription.static({})),
        (rb"*2*t\.1|x/y", Subscription.white_list(r"t\.1|x/y", 2)),
        (b"!1!t2|__.*", Subscription.black_list("t2|__.*", 1)),
        (b"*1*test", Subscription.white_list("test", 1)),
        (b"*4*", Subscription.white_list("", 4)),
        (b"*2*a*b", Subscription.white_list("a*b", 2)),
    ],
)
def test_registrations_of_java_0_7_2_are_read_and_written_to_the_byte(data: bytes, subscription: Subscription) -> None:
    assert Subscription.from_registration(parse_registration_07(data, PATH)) == subscription
    assert format_registration_07(subscription.to_registration(timestamp_ms=1)) == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the node is empty"),
        (None, "the node is empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"*x*t", r"not \*streams\*regex"),
        (b"*1!t", r"not \*streams\*regex"),
        (b"*1*a\nb", r"not \*streams\*regex"),
        (b"*0*t", "number of streams for 't' is 0,"),
        (b"!99999999999!t", "number of streams for 't' is -1,"),
        (b'{ "t": 0 }', "number of streams for 't' is 0,"),
        (b'{ "t": "1" }', "number of streams for 't' is '1',"),
        (b'{ "t": true }', "number of streams for 't' is True,"),
        (b"[1]", "not the topics"),
        (b'{ "t" 1 }', "not the topics"),
    ],
)
def test_a_registration_that_no_reader_can_use_is_named_with_its_path(data: bytes | None, reason: str) -> None:
    with pytest.raises(UnreadableNode, match=reason) as raised:
        parse_registration_07(data, PATH)
    assert raised.value.path == PATH


def test_a_registration_of_kafka_0_8_is_told_apart() -> None:
    with pytest.raises(Kafka08Node, match=r"Kafka 0\.8 or later"):
        parse_registration_07(JSON_08, PATH)
    # A topic may have any name, also one that 0.8 has as a key.
    assert parse_registration_07(b'{ "subscription": 1 }', PATH).subscription == (("subscription", 1),)


@pytest.mark.parametrize(
    ("registration", "reason"),
    [
        (Registration("static", (("t", 0),)), "number of streams for 't' is 0,"),
        (Registration("static", (('a"b', 1),)), "quote"),
        (Registration("white_list", ()), "one regex"),
        (Registration("white_list", (("a\nb", 1),)), "line end"),
        (Registration("other", (("a", 1),)), "not one of static"),
    ],
)
def test_text_that_would_stop_java_members_is_not_written(registration: Registration, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        format_registration_07(registration)


@given(st.dictionaries(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(1, 1000), max_size=5))
def test_what_is_written_is_read_again(topics: dict[str, int]) -> None:
    written = format_registration_07(Registration("static", tuple(topics.items())))
    assert parse_registration_07(written, PATH).subscription == tuple(topics.items())


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        parse_registration_07(data, PATH)
    except UnreadableNode:
        pass


# -- brokers, topics, partitions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "host", "port"),
    [
        (b"127.0.0.1-1795247393689:127.0.0.1:35097", "127.0.0.1", 35097),
        (b"h1-1:h1:9092", "h1", 9092),
        (b"other:h1:9092", "h1", 9092),
        (b"h-1:h:9092:more", "h", 9092),
        (b"::1-17:::1:9092", "::1", 9092),
        (b"fe80::2-17:fe80::2:9092", "fe80::2", 9092),
    ],
)
def test_the_address_of_a_broker_is_read(data: bytes, host: str, port: int) -> None:
    node = parse_broker_07(3, data)
    assert (node.id, node.host, node.port) == (3, host, port)


@pytest.mark.parametrize("data", [b"", None, b"h", b"h:1", b"a:h:x", b"a:h:0", b"a:h:70000", b"a::9", b"\xff:h:1"])
def test_an_address_that_cannot_be_used_is_named(data: bytes | None) -> None:
    with pytest.raises(UnreadableNode, match="/brokers/ids/3"):
        parse_broker_07(3, data)


def test_a_broker_of_kafka_0_8_is_told_apart() -> None:
    with pytest.raises(Kafka08Node):
        parse_broker_07(3, b'{"host":"h","port":9092,"version":1}')


def test_the_number_of_partitions_is_a_number() -> None:
    assert parse_partition_count_07("/p", b"2") == 2
    for data in (b"", None, b"-1", b"x", b"2 ", b"%d" % (MAX_PARTITIONS + 1)):
        with pytest.raises(UnreadableNode, match="/p"):
            parse_partition_count_07("/p", data)


def test_partitions_are_sorted_as_text() -> None:
    assert partition_names({0: 2, 2: 1, 10: 1}) == ("0-0", "0-1", "10-0", "2-0")
    assert partition_names({2: 11})[:3] == ("2-0", "2-1", "2-10")
    assert partition_names({}) == ()


def test_the_name_of_a_partition_says_its_broker_and_its_number() -> None:
    assert broker_and_number("10-3") == (10, 3)
    assert broker_and_number("2147483647-0") == (2147483647, 0)
    for name in ("3", "1-", "-1", "1-2-3", "a-1", " 1-2", 3):
        with pytest.raises(ValueError, match="broker-partition"):
            broker_and_number(name)


def test_range_follows_the_order_of_text() -> None:
    names = partition_names({0: 2, 2: 1, 10: 1})
    assert assign_range({"t": names}, {"t": ["A-0", "B-0"]}) == {
        ("t", "0-0"): "A-0", ("t", "0-1"): "A-0", ("t", "10-0"): "B-0", ("t", "2-0"): "B-0",
    }  # fmt: skip
