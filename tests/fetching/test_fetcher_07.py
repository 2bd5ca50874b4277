"""How fetching from Kafka 0.7 handles impossible answers, connections that end anywhere, and odd entries."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count

import pytest

from rebalance.rebalance_statistics import Counters
from simpleconsumer.dialect import KAFKA07
from simpleconsumer.errors import CorruptMessage, MessageTooLarge
from simpleconsumer.kafka07.requests import encode_entry, encode_wrapper
from simpleconsumer.types import MAX_INT64, Broker, FetchedPartition, TopicPartition
from tests.fetching.feeding_07 import (
    DEADLINE_S,
    FETCH,
    OFFSETS,
    P0,
    P1,
    ByteLog,
    ScriptedBroker07,
    framed,
    part,
    plain,
    rigged_07,
)
from zkconsumer.errors import PartitionStopped
from zkconsumer.fetching.entry_checks import CheckCalls, EntryChecks
from zkconsumer.fetching.fetch_state import EntryMark, FetchState, Need
from zkconsumer.fetching.partition_queue import FetchTask
from zkconsumer.testing import EmbeddedCluster, TcpProxy
from zkconsumer.testing.waiting import wait_until

VALUES = [b"value %d" % number for number in range(60)]
LOG = b"".join(
    plain(VALUES[at : at + 5]) + bytes(KAFKA07.encode_messages(VALUES[at + 5 : at + 10], "gzip", None, None))
    for at in range(0, 60, 10)
)
SMALL = {"fetch_message_max_bytes": 400}
"""Several fetches for the log."""


# -- partitions that the broker does not have --------------------------------------------------------------------------


@contextmanager
def one_log_of_three() -> Iterator[ScriptedBroker07]:
    """A broker that has partition 0 alone: it answers a fetch of another one, and no question for its offsets."""
    with ScriptedBroker07(ByteLog(LOG)) as broker:
        broker.on_fetch = lambda number, position, size: (
            broker.logs[number].fetch(position, size) if number < len(broker.logs) else (3, b"")
        )
        yield broker  # `on_offsets` fails on a partition without a log, and ends the connection


P2 = TopicPartition("t", "0-2")


@pytest.mark.catalogue("F7")
@pytest.mark.parametrize("has_start", [True, False], ids=["stored offset", "no offset"])
def test_partitions_that_the_broker_does_not_have_end_no_connection_and_are_asked_for_ever_less_often(
    has_start: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with one_log_of_three() as broker, rigged_07(broker.broker) as rig, caplog.at_level(logging.WARNING):
        started: dict[int | str, int] = {}
        for name in (P1, P2):
            if has_start:
                rig.start(name)
            else:
                rig.delivery.resolve(name, "smallest", partial(started.__setitem__, name.partition))
        rig.start(P0)
        assert rig.values(60) == VALUES
        polls = len(broker.fetched)
        wait_until(lambda: len(broker.fetched) > polls + 150, DEADLINE_S, "150 polls, 20 ms apart")
        for number in (1, 2):
            assert 5 <= sum(asked[0] == number for asked in broker.fetched) <= 25
        assert len(broker._connections) == 1
        assert [record.getMessage() for record in caplog.records] == [
            f"t/0-{n} on broker 0: WrongPartition (code 3): broker 0 has no partition {n} of the topic, although "
            "/brokers/topics/t/0 counts it; trying again after pauses that grow to 10 s" for n in (1, 2)
        ]  # fmt: skip
        status = rig.delivery.partition_status()
        assert status[P0].last_error is None
        stored = [status[each].last_error for each in (P1, P2) if has_start]
        reasons = stored or rig.delivery.unknown_starts().values()
        assert ["broker 0 has no partition" in str(reason) for reason in reasons] == [True, True]
        broker.logs += [ByteLog(LOG), ByteLog(LOG)]
        if has_start:
            assert sorted(rig.values(120)) == sorted(VALUES * 2)
        else:
            wait_until(lambda: started == {"0-1": 0, "0-2": 0}, DEADLINE_S, "the starts")
            assert rig.delivery.unknown_starts() == {}


# -- answers that make no sense ----------------------------------------------------------------------------------------


def cut_to(size: int) -> Callable[[bytes], bytes]:
    """Cut an answer of a whole frame to so many bytes behind its size, which says so."""
    return lambda answer: framed(answer[4 : 4 + size])


def with_length(length: int) -> Callable[[bytes], bytes]:
    """Change the length of the last part of a multifetch answer."""

    def changed(answer: bytes) -> bytes:
        at, last = 6, 6
        while at < len(answer):
            last = at
            at += 4 + int(struct.unpack_from(">i", answer, at)[0])
        return answer[:last] + struct.pack(">i", length) + answer[last + 4 :]

    return changed


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "negative frame": lambda _: struct.pack(">i", -7),
    "huge frame": lambda _: struct.pack(">i", 2**31 - 1) + b"x" * 64,
    "text": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "no bytes": cut_to(0),
    "one byte": cut_to(1),
    "no parts": cut_to(2),
    "half a length": cut_to(4),
    "a byte less": lambda answer: framed(answer[4:-1]),
    "a byte more": lambda answer: framed(answer[4:] + b"\0"),
    "one part more": lambda answer: framed(answer[4:] + part(0, LOG)),
    "error and garbage": lambda answer: framed(struct.pack(">h", -1) + answer[9:]),
    "negative length": with_length(-1),
    "length of no code": with_length(1),
    "huge length": with_length(2**31 - 1),
    "length of a part less": with_length(20),
}


@pytest.mark.catalogue("F1")
@pytest.mark.parametrize("kind", HOSTILE)
def test_an_answer_that_makes_no_sense_costs_the_connection_and_no_message(kind: str) -> None:
    with ScriptedBroker07(ByteLog(LOG), ByteLog(LOG)) as broker, rigged_07(broker.broker, **SMALL) as rig:
        multifetches = count()

        def instead(what: int, answer: bytes) -> tuple[bytes, bool]:
            hostile = what not in (FETCH, OFFSETS) and next(multifetches) % 3 == 1
            return (HOSTILE[kind](answer) if hostile else answer), True

        broker.instead_of = instead
        rig.start(P0)
        rig.start(P1)
        assert sorted(rig.values(120)) == sorted(VALUES * 2)
        assert rig.is_silent()
        assert next(multifetches) > 3
        assert set(rig.delivery.positions().values()) == {len(LOG)}


def test_an_error_code_of_a_whole_multifetch_holds_both_partitions_up_and_loses_nothing() -> None:
    with ScriptedBroker07(ByteLog(LOG), ByteLog(LOG)) as broker, rigged_07(broker.broker) as rig:
        answers = count()
        broker.instead_of = lambda what, answer: (
            (framed(struct.pack(">h", -1)) if next(answers) < 5 else answer),
            True,
        )
        rig.start(P0)
        rig.start(P1)
        assert sorted(rig.values(120)) == sorted(VALUES * 2)


def test_bytes_behind_an_error_code_are_not_delivered() -> None:
    with ScriptedBroker07(ByteLog(LOG)) as broker, rigged_07(broker.broker) as rig:
        answers = count()
        broker.on_fetch = lambda number, position, size: (
            (2, plain([b"never"])) if next(answers) < 3 else broker.logs[number].fetch(position, size)
        )
        rig.start()
        assert rig.values(60) == VALUES


@pytest.mark.catalogue("F1")
def test_a_connection_that_ends_at_any_byte_of_an_answer_loses_and_repeats_nothing() -> None:
    """Every second answer with messages of both partitions is cut, one byte later each time."""
    values = [b"%05d" % number for number in range(20_000)]
    length = 4 + 2 + 2 * (4 + 2 + 2 * 15)
    with (
        ScriptedBroker07(ByteLog(plain(values)), ByteLog(plain(values))) as broker,
        rigged_07(broker.broker, fetch_message_max_bytes=30, refresh_leader_backoff_ms=1) as rig,
    ):
        answers = count()
        cuts: list[int] = []

        def cut(what: int, answer: bytes) -> tuple[bytes, bool]:
            if len(answer) < length or next(answers) % 2 or len(cuts) == length:
                return answer, True
            cuts.append(len(cuts))
            return answer[: cuts[-1]], False

        broker.instead_of = cut
        rig.start(P0)
        rig.start(P1)
        got: dict[object, list[bytes]] = {"0-0": [], "0-1": []}
        while len(cuts) < length or min(map(len, got.values())) < 100:
            message = next(rig.stream)
            got[message.partition].append(message.value)
        for found in got.values():
            assert found == values[: len(found)]


@pytest.mark.catalogue("F1")
def test_a_link_that_breaks_within_the_answers_of_an_embedded_broker_loses_and_repeats_nothing() -> None:
    values = [b"%03d" % number for number in range(300)]
    with (
        EmbeddedCluster(1, generation="0.7", zookeeper=False) as cluster,
        TcpProxy(("127.0.0.1", cluster.port(0))) as proxy,
        rigged_07(
            Broker(0, "127.0.0.1", proxy.port, generation="kafka07"), fetch_message_max_bytes=80,
            refresh_leader_backoff_ms=1,
        ) as rig,
    ):  # fmt: skip
        for at in range(0, 300, 10):
            cluster.produce("t", values[at : at + 10], partition="0-0", codec="gzip" if at % 20 else "none")
        rig.start()
        got: list[bytes] = []
        for cut in range(1, 100):
            before = proxy.moved_bytes("down")
            proxy.stall_after(cut)
            while proxy.moved_bytes("down") - before < cut:
                got += rig.next_within(0.01)
            proxy.drop()
            proxy.clear()
            got += rig.values(min(3, 300 - len(got)))
        assert [*got, *rig.values(300 - len(got))] == values
        assert rig.is_silent()


# -- odd entries -------------------------------------------------------------------------------------------------------


EMPTY = encode_wrapper(b"", "gzip")
NESTED_EMPTY = encode_wrapper(encode_wrapper(b"", "snappy") * 2, "gzip")


@pytest.mark.parametrize("empty", [EMPTY, NESTED_EMPTY, EMPTY * 3], ids=["empty", "nested", "three"])
@pytest.mark.parametrize("fetch_bytes", [60, 200, 65536])
def test_entries_without_messages_are_passed_over_wherever_an_answer_ends(empty: bytes, fetch_bytes: int) -> None:
    """A fetch may end behind such an entry, or hold nothing else."""
    log = empty + b"".join(plain([value]) + empty for value in VALUES) + empty
    with ScriptedBroker07(ByteLog(log)) as broker, rigged_07(broker.broker, fetch_message_max_bytes=fetch_bytes) as rig:
        rig.start()
        assert rig.values(60) == VALUES
        assert rig.is_silent()
        assert rig.delivery.positions() == {P0: len(log)}


def test_an_entry_that_ends_with_an_error_and_nothing_is_passed_over() -> None:
    bad = bytearray(encode_entry(b"bad"))
    bad[-1] ^= 1
    entry = encode_wrapper(plain([b"good"]) + bytes(bad) + EMPTY, "gzip")
    log = entry + plain([b"behind"])
    for policy in ("skip", "raise"):
        with (
            ScriptedBroker07(ByteLog(log)) as broker,
            rigged_07(broker.broker, fetch_message_max_bytes=len(entry), on_message_error=policy) as rig,
        ):
            rig.start()
            assert rig.values(1) == [b"good"]
            if policy == "raise":
                with pytest.raises(Exception, match="message 1 of the entry: the CRC is"):
                    rig.values(1)
            assert rig.values(1) == [b"behind"]
            assert rig.is_silent()
            assert rig.delivery.positions() == {P0: len(log)}


def test_an_entry_larger_than_the_fetch_is_asked_for_with_the_size_that_it_names() -> None:
    large = bytes(5000)
    log = plain([b"before", large, b"behind"])
    with ScriptedBroker07(ByteLog(log)) as broker, rigged_07(broker.broker, fetch_message_max_bytes=3) as rig:
        rig.start()
        assert rig.values(3) == [b"before", large, b"behind"]
        sizes = [size for _, position, size in broker.fetched if position == 16]
        assert sizes[:3] == [3, 6, 5010]


def test_an_entry_above_the_limit_is_an_error_with_its_place_size_and_limit() -> None:
    log = plain([b"before", bytes(50_000), b"behind"])
    with (
        ScriptedBroker07(ByteLog(log)) as broker,
        rigged_07(broker.broker, fetch_message_max_bytes=100, queued_max_bytes=20_000) as rig,
    ):
        rig.start()
        assert rig.values(1) == [b"before"]
        with pytest.raises(MessageTooLarge, match=r"t/0-0 at 16: .* it takes 50010 bytes, and the limit is 20000"):
            rig.values(1)
        assert rig.values(1) == [b"behind"]
        assert max(size for _, _, size in broker.fetched) <= 20_000


def test_a_damaged_size_above_the_limit_moves_no_position_out_of_the_log() -> None:
    """With `largest`, all that is behind it would be lost."""
    good = plain(VALUES)
    log = good + struct.pack(">i", 500_000) + LOG * 20
    settings = {"fetch_message_max_bytes": 2000, "queued_max_bytes": 9999, "auto_offset_reset": "largest"}
    with ScriptedBroker07(ByteLog(log), ByteLog(LOG)) as broker, rigged_07(broker.broker, **settings) as rig:
        rig.start()
        assert rig.values(60) == VALUES
        end = rf"it would end at {len(good) + 500_004}, after the end of the log, {len(log)}: its size is damaged"
        reason = rf"it takes 500004 bytes, and the limit is 9999; {end}"
        with pytest.raises(PartitionStopped, match=rf"t/0-0 at {len(good)}: stopped: .*{reason}"):
            rig.values(1)
        assert rig.delivery.positions() == {P0: len(good)}
        rig.start(P1)
        assert rig.values(60) == VALUES, "the others are read on"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (struct.pack(">i", -5) + bytes(96), "has size -5"),
        (bytes(100), "has size 0"),
        (struct.pack(">i", 2**31 - 1) + b"\1\0" + bytes(94), "takes 2147483651 bytes, more than any answer can have"),
        (struct.pack(">i", 200_000_000) + b"\1\0" + bytes(10), "came, in the middle of an entry"),
        (struct.pack(">i", 5000) + b"\7" + bytes(10), "came, in the middle of an entry"),
        (struct.pack(">i", 5000) + b"\7" + bytes(95), "the entry has magic 7"),
    ],
    ids=["negative", "zero", "huge", "beyond the log", "cut", "magic"],
)
def test_a_size_that_leads_nowhere_stops_its_partition_behind_the_last_good_message(bad: bytes, reason: str) -> None:
    log = plain(VALUES) + bad
    with (
        ScriptedBroker07(ByteLog(log), ByteLog(LOG)) as broker,
        rigged_07(broker.broker, fetch_message_max_bytes=100) as rig,
    ):
        rig.start()
        assert rig.values(60) == VALUES
        end = len(plain(VALUES))
        with pytest.raises(PartitionStopped, match=rf"t/0-0 at {end}: stopped: .*{reason}"):
            rig.values(1)
        assert rig.delivery.positions()[P0] == end
        rig.start(P1)
        assert rig.values(60) == VALUES, "the others are read on"


def test_an_answer_that_is_larger_than_what_was_asked_for_is_read_once() -> None:
    with ScriptedBroker07(ByteLog(LOG)) as broker, rigged_07(broker.broker, fetch_message_max_bytes=50) as rig:
        broker.on_fetch = lambda number, position, size: broker.logs[number].fetch(position, 10 * size)
        rig.start()
        assert rig.values(60) == VALUES
        assert rig.is_silent()


def test_a_position_at_the_end_of_all_numbers_stops_its_partition() -> None:
    """No offsets request could name what is behind it, and no file of ZooKeeper could store it."""
    start = MAX_INT64 - 20
    log = ByteLog(plain([b"one", b"two", b"three"]), start)
    with ScriptedBroker07(log, ByteLog(LOG)) as broker, rigged_07(broker.broker) as rig:
        rig.start(P0, start)
        assert rig.values(1) == [b"one"]
        with pytest.raises(PartitionStopped, match=rf"t/0-0 at {start + 13}: stopped: 7 bytes of 65536 came"):
            rig.values(1)
        assert rig.delivery.positions()[P0] == start + 13
        rig.start(P1)
        assert rig.values(60) == VALUES, "the others are read on"


class Asked:
    """A connection to a broker whose log starts at 5."""

    dialect = KAFKA07

    def __init__(self) -> None:
        self.about: list[TopicPartition] = []

    def multi_offsets_before(
        self, partitions: Sequence[TopicPartition], time_ms: int, max_offsets: int = 1
    ) -> list[tuple[int, list[int]]]:
        self.about += partitions
        return [(0, [5])]


def test_nothing_is_asked_about_one_partition_while_the_answer_holds_messages_of_others() -> None:
    """The memory of an answer is used again for the next one."""
    connection = Asked()
    calls = CheckCalls(lambda task, reason: None, lambda partition, gone, restart: None)
    checks = EntryChecks(0, connection, Counters(), calls)  # type: ignore[arg-type]
    states = [FetchState(each, 26, 100, Need.COMPARE, last_entry=EntryMark(13, 26, 0)) for each in (P0, P1)]
    for state, code, data in zip(states, (1, 0), (b"", plain([b"other", b"log"])), strict=True):
        answer = FetchedPartition(*state.partition, code, -1, memoryview(data))
        checks.take(FetchTask(state, None, "smallest"), answer)
    assert connection.about == []
    assert [state.need for state in states] == [Need.COMPARE] * 2
    checks.decide()
    assert connection.about == [P0, P1]
    assert [(state.need, state.offset) for state in states] == [(Need.FETCH, 5)] * 2
    checks.decide()
    assert connection.about == [P0, P1]


# -- offsets that make no sense ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [(0, []), (0, [-1]), (0, [-(2**63), 0]), (3, [5]), (-1, [])],
    ids=["none", "negative", "least", "error with positions", "error"],
)
def test_an_end_of_a_log_that_cannot_be_is_asked_for_again(
    wrong: tuple[int, list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedBroker07(ByteLog(LOG)) as broker, rigged_07(broker.broker, auto_offset_reset="smallest") as rig:
        answers = count()
        broker.on_offsets = lambda number, time_ms, _: (
            wrong if next(answers) < 3 else broker.logs[number].offsets(time_ms)
        )
        with caplog.at_level(logging.WARNING):
            rig.start(P0, 10**6)
            assert rig.values(60) == VALUES
        assert f"offset 1000000 is out of range, the log has 0 to {len(LOG)}; continuing at 0" in caplog.text


@pytest.mark.parametrize("body", [struct.pack(">hi", 0, 2**31 - 1), struct.pack(">hi", 0, -1), b"", b"\0\0\0\0\0\1"])
def test_an_absurd_count_of_offsets_costs_the_connection_and_nothing_else(body: bytes) -> None:
    with ScriptedBroker07(ByteLog(LOG)) as broker, rigged_07(broker.broker, auto_offset_reset="smallest") as rig:
        answers = count()
        broker.instead_of = lambda what, answer: (
            (framed(body) if what == OFFSETS and next(answers) < 3 else answer),
            True,
        )
        rig.start(P0, 10**6)
        assert rig.values(60) == VALUES


def test_starts_of_segments_that_cannot_be_lead_nowhere_and_stop_no_other_partition() -> None:
    """The search for the entry around a position within one starts at a segment; this broker names none that can be."""
    with ScriptedBroker07(ByteLog(LOG), ByteLog(LOG)) as broker, rigged_07(broker.broker) as rig:
        broker.on_offsets = lambda number, time_ms, most: (0, [len(LOG), -5] if most > 1 else [0])
        rig.start(P0, 3)
        rig.start(P1)
        assert rig.values(60) == VALUES
        broker.on_offsets = lambda number, time_ms, _: broker.logs[number].offsets(time_ms)
        assert rig.values(60) == VALUES


def test_a_walk_over_entries_of_impossible_size_says_from_where_it_came() -> None:
    broken = plain([b"one"]) + struct.pack(">i", 2) + bytes(200)
    with ScriptedBroker07(ByteLog(broken)) as broker, rigged_07(broker.broker) as rig:
        rig.start(P0, 100)
        with pytest.raises(PartitionStopped, match=r"t/0-0 at 100: .*entry at .* 13, .*from 0, where its segment"):
            rig.values(1)


# -- messages that cannot be delivered ---------------------------------------------------------------------------------


def test_bombs_are_refused_one_by_one_and_what_is_between_them_is_delivered() -> None:
    bomb = encode_wrapper(encode_entry(bytes(20_000_000)), "gzip")
    log = b"".join(plain([value]) + bomb for value in VALUES[:20])
    with (
        ScriptedBroker07(ByteLog(log)) as broker,
        rigged_07(broker.broker, decoded_max_bytes=1_000_000, fetch_message_max_bytes=100_000) as rig,
    ):
        rig.start()
        for number in range(20):
            assert rig.values(1) == [VALUES[number]]
            with pytest.raises(MessageTooLarge, match=r"t/0-0 at \d+: gzip: inflates to more than 1000000 bytes"):
                rig.values(1)
        assert rig.is_silent()
        wait_until(lambda: rig.delivery.positions() == {P0: len(log)}, DEADLINE_S, "the position behind the last bomb")


def test_entries_nested_too_deep_are_an_error_and_what_is_behind_them_is_delivered() -> None:
    deep = plain([b"deep"])
    for _ in range(3):
        deep = encode_wrapper(deep, "gzip")
    with ScriptedBroker07(ByteLog(deep + plain([b"behind"]))) as broker, rigged_07(broker.broker) as rig:
        rig.start()
        with pytest.raises(CorruptMessage, match="t/0-0 at 0: compressed entries nested deeper than 2"):
            rig.values(1)
        assert rig.values(1) == [b"behind"]
