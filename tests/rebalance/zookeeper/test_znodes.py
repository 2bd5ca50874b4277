"""Every path and payload, byte by byte, of every version; and what others may have left there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scala_json import ScalaJsonError, parse_full

from rebalance.errors import InvalidName, Kafka07Node, NoListener, UnreadableNode
from rebalance.zookeeper import znodes
from rebalance.zookeeper.znodes import (
    MAX_OFFSET,
    MAX_STREAMS,
    BrokerNode,
    PartitionState,
    Registration,
    escape_as_java,
    java_refusal,
    parse_lenient,
)

PATH = "/consumers/g/ids/g_c"


def parse(data: bytes | None) -> Registration:
    return znodes.parse_registration(data, PATH)


def assert_told(error: UnreadableNode, path: str, data: bytes | None) -> None:
    """The error names the node, what is wrong with it, and the beginning of what it holds."""
    assert error.path == path
    assert isinstance(error.reason, str)
    assert error.reason
    assert error.excerpt == (data or b"")[:80]
    assert error.size_bytes == len(data or b"")


# Paths


@pytest.mark.catalogue("A10")
def test_the_tree_of_a_healthy_group() -> None:
    subscribed = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":'
    members = {
        "g_h1-1400000000000-0a1b2c3d": subscribed + b'"1400000000123"}',
        "g_h2-1400000000500-9f8e7d6c": subscribed + b'"1400000000777"}',
    }
    written = {
        znodes.registration_path("g", member): znodes.format_registration(Registration("static", (("t", 1),), stamp))
        for member, stamp in zip(members, (1400000000123, 1400000000777), strict=True)
    }
    assert written == {f"/consumers/g/ids/{member}": data for member, data in members.items()}
    assert [znodes.owner_path("g", "t", partition) for partition in (0, 1)] == [
        "/consumers/g/owners/t/0",
        "/consumers/g/owners/t/1",
    ]
    assert {znodes.offset_path("g", "t", 0): znodes.format_offset(42), znodes.offset_path("g", "t", 1): b"17"} == {
        "/consumers/g/offsets/t/0": b"42",
        "/consumers/g/offsets/t/1": b"17",
    }
    assert znodes.parse_owner(b"g_h1-1400000000000-0a1b2c3d-0") == "g_h1-1400000000000-0a1b2c3d-0"


def test_the_other_paths() -> None:
    assert znodes.group_path("g") == "/consumers/g"
    assert znodes.ids_path("g") == "/consumers/g/ids"
    assert znodes.owners_path("g", "t") == "/consumers/g/owners/t"
    assert znodes.offsets_path("g", "t") == "/consumers/g/offsets/t"
    assert (znodes.BROKERS, znodes.broker_path(7)) == ("/brokers/ids", "/brokers/ids/7")
    assert (znodes.TOPICS, znodes.topic_path("t")) == ("/brokers/topics", "/brokers/topics/t")
    assert znodes.partition_state_path("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert znodes.owner_path("g", "t", "10-0") == "/consumers/g/owners/t/10-0"


@pytest.mark.catalogue("A10")
def test_a_name_in_bytes_makes_no_path_of_its_own() -> None:
    with pytest.raises(TypeError, match="b'g'"):
        znodes.ids_path(b"g")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a/b", "", ".", "..", "/"])
def test_a_name_that_would_lead_elsewhere_makes_no_path(name: str) -> None:
    with pytest.raises(InvalidName, match="is not allowed in a path under /consumers") as refused:
        znodes.group_path(name)
    assert (refused.value.kind, refused.value.name) == ("path component", name)
    with pytest.raises(InvalidName):
        znodes.owner_path("g", name, 0)


# Registrations, as each version writes them

STATIC = (("t.1", 2), ("t2", 1))
WHITE = ((r"t\.1|x/y", 2),)
QUOTED = ((r't\.1|"x"/y', 2),)
BLACK = (("t2|__.*", 1),)


@pytest.mark.parametrize(
    ("data", "pattern", "subscription", "timestamp_ms"),
    [
        (
            b'{ "pattern":"static", "subscription":{ "t.1": 2,"t2": 1 }, "timestamp":"1795248341729", "version":1 }',
            "static", STATIC, 1795248341729,
        ),
        (
            rb'{ "pattern":"white_list", "subscription":{ "t\.1|x/y" : 2 }, "timestamp":"1", "version":1 }',
            "white_list", WHITE, 1,
        ),
        (
            b'{ "pattern":"black_list", "subscription":{ "t2|__.*" : 1 }, "timestamp":"1", "version":1 }',
            "black_list", BLACK, 1,
        ),
        (
            b'{"version":1,"subscription":{"t.1":2,"t2":1},"pattern":"static","timestamp":"1795248352958"}',
            "static", STATIC, 1795248352958,
        ),
        (
            rb'{"version":1,"subscription":{"t\.1|x/y":2},"pattern":"white_list","timestamp":"1"}',
            "white_list", WHITE, 1,
        ),
        (
            rb'{"version":1,"subscription":{"t\\.1|x\/y":2},"pattern":"white_list","timestamp":"1"}',
            "white_list", WHITE, 1,
        ),
        (
            rb'{"version":1,"subscription":{"t\\.1|\"x\"\/y":2},"pattern":"white_list","timestamp":"1"}',
            "white_list", QUOTED, 1,
        ),
        (
            b'{"version":1,"subscription":{"t2|__.*":1},"pattern":"black_list","timestamp":"1"}',
            "black_list", BLACK, 1,
        ),
        (
            rb'{"version":1,"subscription":{"t\\\\.1|x\\/y":2},"pattern":"white_list","timestamp":"1"}',
            "white_list", ((r"t\\.1|x\/y", 2),), 1,
        ),
    ],
    ids=[
        "0.8.0 static", "0.8.0 white", "0.8.0 black", "0.8.1 static", "0.8.1 white", "0.8.2 white",
        "0.8.2 to 0.10 quoted", "0.8.1 black", "1.1 white",
    ],
)  # fmt: skip
def test_registrations_of_every_version(
    data: bytes, pattern: str, subscription: tuple[tuple[str, int], ...], timestamp_ms: int
) -> None:
    assert parse(data) == Registration(pattern, subscription, timestamp_ms)
    assert java_refusal(data) is None


@pytest.mark.catalogue("C3", "N6")
@pytest.mark.parametrize(
    "data",
    [b'{ "t.1": 2,"t2": 1 }', b'{ "t": 1 }', b'{"t":2}', rb'*2*t\.1|"x"/y', b"!1!t2|__.*", b"*1*test", b"*2*a*b"],
)
def test_registrations_of_07_are_called_so(data: bytes) -> None:
    with pytest.raises(Kafka07Node) as unreadable:
        parse(data)
    assert_told(unreadable.value, PATH, data)


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"null",
        b"topic1",
        b"{}",
        b"[]",
        b'"text"',
        b"{",
        b'{"version":1,"subscription":{"t":1},"timestamp":"1"}',
        b'{"subscription":{"t":"2"}}',
        b'{"version":1,"subscription":{"t":"1"},"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"t":0},"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"t":-1},"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"t":1.0},"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"t":1e3},"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"t":true},"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"t":2147483647},"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":["t"],"pattern":"static","timestamp":"1"}',
        b'{"version":1,"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"t":1},"pattern":1,"timestamp":"1"}',
        b'{"version":NaN,"subscription":{"t":1},"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1"} trailing',
        b'{"version":1,"subscription":{"\xff\xfe":1},"pattern":"static","timestamp":"1"}',
        b"\x00" * 1_000_000,
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
        b'{"version":' + b"9" * 1_000_000 + b',"subscription":{},"pattern":"static"}',
        b'{"t' + b" " * 500_000,
    ],
)
def test_poison_is_reported_with_its_path_and_never_spreads(data: bytes | None) -> None:
    with pytest.raises(UnreadableNode) as unreadable:
        parse(data)
    assert not isinstance(unreadable.value, Kafka07Node)
    assert_told(unreadable.value, PATH, data)
    assert str(unreadable.value).startswith(PATH)
    assert len(str(unreadable.value)) < 600


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":1400000000123}',
        b'{"version":99999999999,"subscription":{"t":1},"pattern":"static","timestamp":"1"}',
        b'{"version":1.0,"subscription":{"t":1},"pattern":"static","timestamp":"1"}',
        b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":1e3}',
        b'{"version":2147483648,"subscription":{"t":1},"pattern":"static","timestamp":"1"}',
        b'{"version":-2147483649,"subscription":{"t":1},"pattern":"static","timestamp":"1"}',
    ],
)
def test_numbers_that_stop_java_members_are_read_here_and_told(data: bytes) -> None:
    assert parse(data).subscription == (("t", 1),)
    refused = java_refusal(data)
    assert refused is not None
    assert "unquoted number" in refused
    with pytest.raises(ScalaJsonError):
        parse_full(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "5"}',
         Registration("static", (("t", 1),), 5)),
        (b'{"subscription":{"t":1},"pattern":"static"}', Registration("static", (("t", 1),), None)),
        (b'{"subscription":{"t":1},"pattern":"static","timestamp":123}', Registration("static", (("t", 1),), 123)),
        (b'{"subscription":{"t":1},"pattern":"static","timestamp":"x"}', Registration("static", (("t", 1),), None)),
        (b'{"subscription":{},"pattern":"static","timestamp":"5"}', Registration("static", (), 5)),
        (b'{"subscription":{},"pattern":"white_list","timestamp":"5"}', Registration("static", (), 5)),
        (b'{"subscription":{"t":1},"pattern":"odd","timestamp":"5","x":null,"y":[1],"z":true}',
         Registration("static", (("t", 1),), 5)),
        ('{"subscription":{"grüße":1},"pattern":"static","timestamp":"5"}'.encode(),
         Registration("static", (("grüße", 1),), 5)),
        (rb'{"subscription":{"a\b\d":1},"pattern":"white_list","timestamp":"5"}',
         Registration("white_list", (("a\b\\d", 1),), 5)),
        (rb'{"subscription":{"a\u0062\u00":1},"pattern":"white_list","timestamp":"5"}',
         Registration("white_list", ((r"ab\u00", 1),), 5)),
        (b'{"version":2147483647,"subscription":{"t":1},"pattern":"static"}', Registration("static", (("t", 1),))),
        (b'{"version":-2147483648,"subscription":{"t":1},"pattern":"static"}', Registration("static", (("t", 1),))),
    ],
)  # fmt: skip
def test_what_is_harmless_to_java_members_is_harmless_here(data: bytes, expected: Registration) -> None:
    assert parse(data) == expected
    assert java_refusal(data) is None
    assert parse_full(data)["subscription"] == dict(expected.subscription)  # type: ignore[index, call-overload]


@pytest.mark.parametrize("character", ["\n", "\x1a"])
@pytest.mark.parametrize("place", ['"t%st":1', '"t":1,"a\\\\%sb":1', '"t":1,"a\\"%s":1'])
def test_raw_characters_that_end_a_text_for_java_members_are_read_here_and_told(place: str, character: str) -> None:
    data = ('{"version":1,"subscription":{' + place % character + '},"pattern":"static","timestamp":"1"}').encode()
    assert parse(data).subscription
    assert f"U+{ord(character):04X}" in (java_refusal(data) or "")
    with pytest.raises(ScalaJsonError):
        parse_full(data)


def test_of_a_text_that_java_members_fail_on_the_beginning_is_told() -> None:
    refusal = java_refusal(b'{"' + b"t" * 100 + b'\n":1}')
    assert refusal == f"the text {chr(34) + 't' * 49!r} holds U+000A without a backslash"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[" * 100_000, "JSON nested too deep"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b"-Infinity", "-Infinity is not JSON"),
    ],
)
def test_what_is_no_json_is_said_in_one_clause(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parse_lenient(data)


def test_newlines_between_texts_stop_no_java_member() -> None:
    data = b'{"version":1,\n"subscription":\n{"t\\n":1},"pattern":"static",\n"timestamp":"1"}'
    assert java_refusal(data) is None
    assert parse_full(data)


def test_bytes_that_are_not_utf_8_stop_us_but_no_java_member() -> None:
    data = b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"\xff"}'
    assert java_refusal(data) is None
    with pytest.raises(UnreadableNode):
        parse(data)


def test_control_characters_that_stand_raw_in_a_text_are_read_as_they_are() -> None:
    data = b'{"subscription":{"a\t\x01b":1},"pattern":"white_list","timestamp":"5"}'
    assert parse(data) == Registration("white_list", (("a\t\x01b", 1),), 5)


# Registrations, as we write them


@pytest.mark.catalogue("N2")
@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ('-"-', r"-\"-"),
        ("-\\-", r"-\\-"),
        ("-/-", r"-\/-"),
        (r"-\b-", r"-\\b-"),
        (r"-\f-", r"-\\f-"),
        (r"-\n-", r"-\\n-"),
        (r"-\r-", r"-\\r-"),
        (r"-\t-", r"-\\t-"),
        (r"-\u0000-", r"-\\u0000-"),
        (r"-\u001f-", r"-\\u001f-"),
        (r"-\u007f-", r"-\\u007f-"),
        (r"-\u009f-", r"-\\u009f-"),
        ("-\b\f\n\r\t-", r"-\b\f\n\r\t-"),
        ("-\x00\x1f\x7f\x9f-", r"-\u0000\u001f\u007f\u009f-"),
        ("-\xa0é-", "-\xa0é-"),
    ],
)
def test_a_regex_is_escaped_once_as_0_8_2_does(text: str, escaped: str) -> None:
    assert escape_as_java(text) == escaped
    data = znodes.format_registration(Registration("white_list", ((text, 1),), 1))
    assert data == f'{{"version":1,"subscription":{{"{escaped}":1}},"pattern":"white_list","timestamp":"1"}}'.encode()


def test_our_white_list_is_byte_for_byte_that_of_0_8_2() -> None:
    written = znodes.format_registration(Registration("white_list", QUOTED, 1795248352958))
    assert written == (
        rb'{"version":1,"subscription":{"t\\.1|\"x\"\/y":2},"pattern":"white_list","timestamp":"1795248352958"}'
    )


@pytest.mark.parametrize(
    "registration",
    [
        Registration("static", (("t", 1),), None),
        Registration("static", (("t", 1),), -1),
        Registration("static", (("t", 1),), True),
        Registration("static", (("t", 0),), 1),
        Registration("static", (("t", 2**31),), 1),
        Registration("static", (("t", 1.0),), 1),  # type: ignore[arg-type]
        Registration("static", (("t", "1"),), 1),  # type: ignore[arg-type]
        Registration("odd", (("t", 1),), 1),
        Registration("white_list", (), 1),
        Registration("white_list", (("a", 1), ("b", 1)), 1),
    ],
)
def test_what_would_stop_java_members_is_not_written(registration: Registration) -> None:
    with pytest.raises(ValueError, match=r"timestamp|streams|pattern|one regex"):
        znodes.format_registration(registration)


texts = st.text(st.characters(codec="utf-8"), max_size=20)
subscriptions = st.dictionaries(texts, st.integers(1, znodes.MAX_STREAMS), max_size=5)


@pytest.mark.catalogue("A7")
@given(subscriptions, st.integers(0, 2**63 - 1))
def test_a_java_member_reads_what_we_write(subscription: dict[str, int], timestamp_ms: int) -> None:
    registration = Registration("static", tuple(subscription.items()), timestamp_ms)
    data = znodes.format_registration(registration)
    assert parse_full(data) == {
        "version": 1,
        "subscription": subscription,
        "pattern": "static",
        "timestamp": str(timestamp_ms),
    }
    assert parse(data) == registration
    assert java_refusal(data) is None


@pytest.mark.parametrize("count", [0, -1, MAX_STREAMS + 1])
def test_a_registration_with_a_count_that_is_no_number_of_streams_is_refused_by_name_and_count(count: int) -> None:
    with pytest.raises(UnreadableNode, match=f"number of streams for 't.1' is {count},"):
        parse(b'{"subscription":{"t.1":%d},"pattern":"static"}' % count)


@pytest.mark.parametrize(
    ("read", "data", "reason"),
    [
        (parse, b'{ "t": 1 }', "a registration of Kafka 0.7"),
        (parse, b'{"subscription":{}}', "no pattern, or a pattern that is not text"),
        (parse, b'{"pattern":"static"}', "no subscription, or a subscription that is not an object"),
        (parse, b"", "the node is empty (Kafka 0.8 writes JSON here)"),
        (parse, None, "the node is empty (Kafka 0.8 writes JSON here)"),
        (parse, b"[]", "not a JSON object"),
        (parse, b'{"\xff"}', "not UTF-8"),
        (lambda data: znodes.parse_offset(PATH, data), b"-1", "not an offset from 0 to 2^63-1 in decimal digits"),
        (lambda data: znodes.parse_broker(1, data), b"host-1:host:9092", "a broker of Kafka 0.7"),
        (lambda data: znodes.parse_broker(1, data), b"{}", "no host and port"),
        (lambda data: znodes.parse_topic("t", data), b"{}", "no partitions"),
        (lambda data: znodes.parse_partition_state(PATH, data), b"{}", "leader, leader_epoch or isr is missing"),
    ],
)
def test_what_is_wrong_with_a_node_is_said_in_one_clause(
    read: Callable[[bytes | None], object], data: bytes | None, reason: str
) -> None:
    with pytest.raises(UnreadableNode) as unreadable:
        read(data)
    assert unreadable.value.reason == reason


def test_the_most_streams_can_be_written_and_read() -> None:
    written = Registration("static", (("t", MAX_STREAMS),), 1)
    assert parse(znodes.format_registration(written)) == written


def test_a_node_that_is_not_utf_8_and_one_that_is_no_json_are_told_apart() -> None:
    with pytest.raises(UnreadableNode, match="not UTF-8"):
        parse(b'{"\xff"}')
    with pytest.raises(UnreadableNode, match="not JSON"):
        parse(b"{")


def test_a_timestamp_that_is_half_of_a_pair_is_none() -> None:
    data = rb'{"subscription":{"t":1},"pattern":"static","timestamp":"\ud83d"}'
    assert parse(data) == Registration("static", (("t", 1),), None)


def test_the_latest_timestamp_can_be_written() -> None:
    written = Registration("static", (("t", 1),), MAX_OFFSET)
    assert parse(znodes.format_registration(written)) == written


@pytest.mark.parametrize("flip", [None, 0x01, 0x20, 0x80, 0xFF])
def test_a_registration_cut_or_changed_anywhere_is_read_or_unreadable(flip: int | None) -> None:
    whole = rb'{"version":1,"subscription":{"t\\.1|\"x\"\/y":2},"pattern":"white_list","timestamp":"1795248352958"}'
    unreadable = 0
    for at in range(len(whole)):
        data = whole[:at] if flip is None else whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]
        try:
            assert isinstance(parse(data), Registration)
        except UnreadableNode:
            unreadable += 1
    assert unreadable > len(whole) // 4


# Offsets and owners


@pytest.mark.catalogue("E6")
@pytest.mark.parametrize("offset", [0, 1, 2**31, 2**63 - 1])
def test_offsets_at_the_edges(offset: int) -> None:
    data = znodes.format_offset(offset)
    assert data == str(offset).encode()
    assert znodes.parse_offset("/o", data) == offset


@pytest.mark.catalogue("E6")
@pytest.mark.parametrize(
    "data",
    [None, b"", b"-1", b"-5", b"abc", b"12\n", b" 12", b"+5", b"1.0", b"1e3", b"0x10", b"1" * 20,
     b"0" * 20, b"9223372036854775808", "٣".encode(), b"\xff", b"1" * 1_000_000],
)  # fmt: skip
def test_an_offset_that_is_none_is_unreadable(data: bytes | None) -> None:
    with pytest.raises(UnreadableNode) as unreadable:
        znodes.parse_offset("/consumers/g/offsets/t/0", data)
    assert_told(unreadable.value, "/consumers/g/offsets/t/0", data)


@pytest.mark.parametrize("offset", [-1, 2**63, True, 1.0, "1", None])
def test_an_offset_that_is_none_is_not_written(offset: object) -> None:
    with pytest.raises(ValueError, match="offset"):
        znodes.format_offset(offset)  # type: ignore[arg-type]


def test_whatever_an_owner_node_holds_can_be_shown() -> None:
    assert znodes.parse_owner(None) == ""
    assert znodes.parse_owner(b"") == ""
    assert znodes.parse_owner(b"c\xff-0") == "c\ufffd-0"


# Brokers


@pytest.mark.parametrize(
    ("data", "host", "port"),
    [
        (b'{ "host":"127.0.0.1", "jmx_port":-1, "port":35429, "timestamp":"1795247044928", "version":1 }',
         "127.0.0.1", 35429),
        (b'{"jmx_port":-1,"timestamp":"1795247012524","host":"127.0.0.1","version":1,"port":60933}',
         "127.0.0.1", 60933),
        (b'{"jmx_port":-1,"timestamp":"1795247062704","endpoints":["PLAINTEXT://127.0.0.1:38377"],'
         b'"host":"127.0.0.1","version":2,"port":38377}', "127.0.0.1", 38377),
        (b'{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://127.0.0.1:50839"],'
         b'"jmx_port":-1,"host":"127.0.0.1","timestamp":"1795247195659","port":50839,"version":4}',
         "127.0.0.1", 50839),
        (b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
         b'"endpoints":["PLAINTEXT://127.0.0.1:33161"],"jmx_port":-1,"port":33161,"host":"127.0.0.1",'
         b'"version":5,"timestamp":"1795247131445"}', "127.0.0.1", 33161),
        (b'{"host":null,"port":-1,"version":2,"endpoints":["SSL://s:1","PLAINTEXT://p:9092"]}', "p", 9092),
        (b'{"host":null,"port":-1,"version":4,"listener_security_protocol_map":{"INTERNAL":"PLAINTEXT",'
         b'"EXTERNAL":"SASL_SSL"},"endpoints":["EXTERNAL://e:1","INTERNAL://i:9092"]}', "i", 9092),
        (b'{"host":null,"port":-1,"version":2,"endpoints":["PLAINTEXT://[2001:db8::1]:9092"]}', "2001:db8::1", 9092),
        (b'{"host":"[::1]","port":9092,"version":1}', "::1", 9092),
        (b'{"host":"::1","port":9092,"version":1}', "::1", 9092),
        (b'{"host":"h","port":9092}', "h", 9092),
    ],
    ids=["0.8.0", "0.8.1 and 0.8.2", "0.9.0", "0.10.2 and 1.1", "2.8 and 3.9", "endpoints", "listener map", "IPv6",
         "IPv6 host in brackets", "IPv6 host", "least"],
)  # fmt: skip
def test_brokers_of_every_version(data: bytes, host: str, port: int) -> None:
    assert znodes.parse_broker(4, data)[:3] == (4, host, port)


LISTENERS = (
    b'{"host":"h","port":9092,"version":4,"listener_security_protocol_map":{"OUT":"SASL_SSL","IN":"PLAINTEXT",'
    b'"TLS":"SSL","ALSO":"SSL"},"endpoints":["OUT://o:1","IN://h:9092","TLS://[::1]:2","ALSO://a:3"]}'
)


@pytest.mark.parametrize(
    ("data", "protocol", "address"),
    [
        (LISTENERS, "PLAINTEXT", ("h", 9092)),
        (LISTENERS, "SASL_SSL", ("o", 1)),
        (LISTENERS, "SSL", ("::1", 2)),
        (b'{"host":"h","port":9092,"version":2,"endpoints":["PLAINTEXT://h:9092","SSL://h:9093"]}', "SSL", ("h", 9093)),
        (b'{"host":null,"port":-1,"version":2,"endpoints":["SSL://h:9093"]}', "SSL", ("h", 9093)),
    ],
)
def test_the_address_is_that_of_the_wanted_protocol(data: bytes, protocol: str, address: tuple[str, int]) -> None:
    assert znodes.parse_broker(4, data, protocol)[1:3] == address


@pytest.mark.parametrize(
    "data", [LISTENERS, b'{"host":"h","port":9092,"version":1}', b'{"host":null,"port":-1,"endpoints":[]}']
)
def test_a_broker_without_the_wanted_protocol_is_refused_in_these_words(data: bytes) -> None:
    with pytest.raises(NoListener, match="/brokers/ids/4: the broker has no SASL_PLAINTEXT listener"):
        znodes.parse_broker(4, data, "SASL_PLAINTEXT")


@pytest.mark.parametrize(
    ("version", "told"), [(b'"version":1', 1), (b'"version":4', 4), (b'"version":"4"', 1), (b"", 1)]
)
def test_the_version_of_a_registration_tells_the_age_of_the_broker(version: bytes, told: int) -> None:
    data = b'{"host":"h","port":9092' + (b"," + version if version else b"") + b"}"
    assert znodes.parse_broker(4, data) == BrokerNode(4, "h", 9092, told)


def test_only_numbers_as_brokers_write_them_are_broker_ids() -> None:
    names = ["2", "10", "0", "2147483647", "2147483648", "007", "-1", "\u00b2", "\u0663", "x", "", "9" * 5000]
    assert znodes.broker_ids(names) == [0, 2, 10, 2147483647]


def test_a_broker_of_07_is_called_so() -> None:
    for data in (
        b"127.0.0.1-1795247393689:127.0.0.1:35097",
        b"fe80::1-1795247393689:fe80::1:35097",
        b"::1-1795247393689:::1:35097",
    ):
        with pytest.raises(Kafka07Node) as unreadable:
            znodes.parse_broker(0, data)
        assert_told(unreadable.value, "/brokers/ids/0", data)


@pytest.mark.parametrize(
    ("data", "host", "port"),
    [
        (b'{"host":"XX","port":1}', "XX", 1),
        (b'{"host":"X1","port":65535}', "X1", 65535),
        (b'{"host":null,"port":-1,"listener_security_protocol_map":{"OTHER":"SSL"},"endpoints":["PLAINTEXT://h:9092"]}',
         "h", 9092),
    ],
    ids=["lowest port", "highest port", "a listener that the map does not name is its own protocol"],
)  # fmt: skip
def test_addresses_at_the_edges(data: bytes, host: str, port: int) -> None:
    assert znodes.parse_broker(4, data)[:3] == (4, host, port)


@pytest.mark.parametrize(
    "data",
    [
        b'{"host":null,"port":-1,"version":2,"endpoints":["SSL://h:9093"]}',
        b'{"host":null,"port":-1,"version":4,"listener_security_protocol_map":{"PLAINTEXT":"SSL"},'
        b'"endpoints":["PLAINTEXT://h:9093"]}',
        b'{"host":null,"port":-1,"version":2,"endpoints":["PLAINTEXT://:9092"]}',
        b'{"host":null,"port":-1,"version":2,"endpoints":["PLAINTEXT://h:99999",7,"odd"]}',
        b'{"host":null,"port":-1,"version":2,"endpoints":[]}',
    ],
)
def test_a_broker_without_plaintext_is_refused_in_these_words(data: bytes) -> None:
    with pytest.raises(NoListener, match="/brokers/ids/1: the broker has no PLAINTEXT listener") as refused:
        znodes.parse_broker(1, data)
    assert_told(refused.value, "/brokers/ids/1", data)


@pytest.mark.parametrize(
    "data",
    [None, b"", b"{}", b'{"host":"h"}', b'{"host":"h","port":"9092"}', b'{"host":"h","port":0}',
     b'{"host":7,"port":9092}', b'{"host":"","port":9092}', b'{"host":"[]","port":9092}',
     b'{"host":"h","port":65536}', b"h"],
)  # fmt: skip
def test_a_broker_without_address_is_unreadable(data: bytes | None) -> None:
    with pytest.raises(UnreadableNode) as unreadable:
        znodes.parse_broker(1, data)
    assert type(unreadable.value) is UnreadableNode
    assert_told(unreadable.value, "/brokers/ids/1", data)


# Topics and partition states


@pytest.mark.parametrize(
    ("data", "partitions"),
    [
        (b'{ "partitions":{ "0":[ 0 ], "1":[ 0 ] }, "version":1 }', (0, 1)),
        (b'{"version":1,"partitions":{"1":[0],"0":[0]}}', (0, 1)),
        (b'{"partitions":{"0":[0],"1":[0]},"topic_id":"XsCJeSnbQZGgmQchSOzM5A","adding_replicas":{},'
         b'"removing_replicas":{},"version":3}', (0, 1)),
        (b'{"version":1,"partitions":{"10":[0],"9":[0],"2":[0]}}', (2, 9, 10)),
        (b'{"version":1,"partitions":{}}', ()),
    ],
    ids=["0.8.0", "0.8.1 to 1.1", "2.8 and 3.9", "by number", "none"],
)  # fmt: skip
def test_topics_of_every_version(data: bytes, partitions: tuple[int, ...]) -> None:
    assert znodes.parse_topic("test", data) == partitions


@pytest.mark.parametrize(
    "data",
    [None, b"", b"{}", b'{"partitions":[0]}', b'{"partitions":{"x":[0]}}', b'{"partitions":{"-1":[0]}}',
     b'{"partitions":{"1.0":[0]}}'],
)  # fmt: skip
def test_a_topic_without_partitions_is_unreadable(data: bytes | None) -> None:
    with pytest.raises(UnreadableNode) as unreadable:
        znodes.parse_topic("test", data)
    assert_told(unreadable.value, "/brokers/topics/test", data)


def test_the_replicas_of_each_partition_come_in_order_of_the_partitions() -> None:
    data = b'{"version":1,"partitions":{"10":[2,1],"2":[1],"9":[]}}'
    assert list(znodes.parse_replicas("test", data).items()) == [(2, (1,)), (9, ()), (10, (2, 1))]


@pytest.mark.parametrize("data", [b"{}", b'{"partitions":{"0":0}}', b'{"partitions":{"0":["0"]}}'])
def test_replicas_that_are_no_broker_ids_are_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableNode) as unreadable:
        znodes.parse_replicas("test", data)
    assert_told(unreadable.value, "/brokers/topics/test", data)


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (
            b'{ "controller_epoch":1, "isr":[ 0 ], "leader":0, "leader_epoch":0, "version":1 }',
            PartitionState(0, 0, (0,)),
        ),
        (b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}', PartitionState(0, 0, (0,))),
        (b'{"controller_epoch":1,"leader":-1,"version":1,"leader_epoch":7,"isr":[2,1]}', PartitionState(-1, 7, (2, 1))),
    ],
    ids=["0.8.0", "later", "no leader"],
)
def test_partition_states_of_every_version(data: bytes, state: PartitionState) -> None:
    assert znodes.parse_partition_state("/s", data) == state


@pytest.mark.parametrize(
    "data",
    [None, b"{}", b'{"leader":0,"leader_epoch":0}', b'{"leader":"0","leader_epoch":0,"isr":[0]}',
     b'{"leader":0,"leader_epoch":0,"isr":["0"]}', b'{"leader":true,"leader_epoch":0,"isr":[]}'],
)  # fmt: skip
def test_a_state_without_leader_is_unreadable(data: bytes | None) -> None:
    with pytest.raises(UnreadableNode) as unreadable:
        znodes.parse_partition_state("/s", data)
    assert_told(unreadable.value, "/s", data)


@pytest.mark.parametrize(
    ("data", "settings"),
    [
        (b'{"version":1,"config":{"cleanup.policy":"compact","segment.bytes":"1024"}}',
         {"cleanup.policy": "compact", "segment.bytes": "1024"}),
        (b'{"version":1,"config":{}}', {}),
        (b'{"version":1}', {}),
        (b'{"version":1,"config":[]}', {}),
    ],
)  # fmt: skip
def test_the_settings_of_a_topic_are_those_that_differ_from_its_brokers(data: bytes, settings: dict[str, str]) -> None:
    assert znodes.parse_topic_config(znodes.topic_config_path("t"), data) == settings


def test_settings_of_a_topic_that_are_no_json_are_refused_by_their_path() -> None:
    with pytest.raises(UnreadableNode, match="/config/topics/t"):
        znodes.parse_topic_config(znodes.topic_config_path("t"), b"compact")
