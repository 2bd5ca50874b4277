"""How the byte budget is divided among streams, and a stream's room among its partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.fetching.byte_shares import SMALLEST_SHARE_BYTES, Candidate, Shares, least_useful_bytes, share_out

SIZE = 100_000
MIB = 1024 * 1024


def busy(count: int, size: int = SIZE, least: int = 0) -> list[Candidate]:
    return [Candidate("stream", size, least)] * count


def at_end(count: int, size: int = SIZE) -> list[Candidate]:
    return [Candidate("stream", size, 0, True)] * count


def shared(candidates: list[Candidate], room: int, own: int = 0, cap: int = 2**40) -> list[int]:
    return share_out(candidates, room, own, cap)


# -- among streams -----------------------------------------------------------------------------------------------------


def test_a_single_stream_has_the_whole_budget() -> None:
    shares = Shares.of(64 * MIB, 1)
    assert shares.room(0, 0) == shares.most_bytes == 64 * MIB
    assert shares.room(60 * MIB, 0) == 4 * MIB
    assert shares == (64 * MIB, 0)


def test_what_does_not_divide_evenly_is_whole_bytes_and_the_rest_is_common() -> None:
    shares = Shares.of(1001, 3)
    assert shares == (166, 503)
    rooms = [shares.room(held, 3) for held in (0, 7, 170)]
    assert rooms == [416, 409, 248]
    granted = shared([*at_end(3, 17_001), *busy(3, 17_001)], 70_001)
    assert granted == [11_666, 11_666, 11_666, 16_384, 16_384, 0]
    for each in (*shares, *rooms, *granted):
        assert isinstance(each, int)


def test_equal_shares_are_whole_bytes() -> None:
    granted = shared(busy(3), 200_000)
    assert granted == [66_666] * 3
    assert all(isinstance(size, int) for size in granted)


def test_of_two_streams_each_has_a_quarter_for_itself_and_half_at_most() -> None:
    shares = Shares.of(64 * MIB, 2)
    assert shares.own_bytes == 16 * MIB
    assert shares.room(0, 0) == shares.most_bytes == 32 * MIB
    assert shares.room(32 * MIB, 16 * MIB) == 0


def test_beside_a_stream_that_holds_all_it_may_there_are_still_24_of_64() -> None:
    assert Shares.of(64 * MIB, 2).room(0, 16 * MIB) == 24 * MIB


def test_of_a_thousand_streams_the_only_busy_one_still_has_a_quarter_of_the_budget() -> None:
    assert Shares.of(64 * MIB, 1000).room(0, 0) >= 16 * MIB


def test_a_large_message_beyond_all_room_costs_the_others_nothing_of_their_own() -> None:
    assert Shares.of(64 * MIB, 2).room(0, 200 * MIB) == 16 * MIB


@given(st.integers(1, 10**9), st.integers(1, 100), st.lists(st.tuples(st.integers(0, 99), st.floats(0, 1))))
def test_who_ever_takes_how_much_of_his_room_the_budget_holds_and_each_finds_his_own_share(
    limit: int, streams: int, takes: list[tuple[int, float]]
) -> None:
    shares = Shares.of(limit, streams)
    held = [0] * streams
    for stream, part in takes:
        taken = sum(map(shares.beyond, held))
        held[stream % streams] += int(part * shares.room(held[stream % streams], taken))
    taken = sum(map(shares.beyond, held))
    assert sum(held) <= limit
    for one in held:
        assert sum(held) + shares.room(one, taken) <= limit
        assert one + shares.room(one, taken) >= limit // 2 // streams


# -- among partitions --------------------------------------------------------------------------------------------------


def test_what_fits_is_granted_whole() -> None:
    assert shared([*busy(1, 30_000), *busy(1, 170_000)], 200_000) == [30_000, 170_000]
    assert shared(busy(3), 300_000) == [SIZE] * 3
    assert shared([*busy(1), *at_end(2)], 300_000, own=300_000) == [SIZE] * 3


def test_many_partitions_get_equal_shares() -> None:
    assert shared(busy(10), 500_000) == [50_000] * 10


def test_no_share_is_below_the_smallest_and_the_rest_waits_for_its_turn() -> None:
    assert shared(busy(10), 5 * SMALLEST_SHARE_BYTES) == [SMALLEST_SHARE_BYTES] * 5 + [0] * 5


def test_partitions_at_their_end_get_little_where_it_would_be_the_common_half() -> None:
    granted = shared([*at_end(10), *busy(2)], 10 * SMALLEST_SHARE_BYTES + 2 * SIZE, own=0)
    assert granted == [SMALLEST_SHARE_BYTES] * 10 + [SIZE] * 2


def test_of_the_common_half_partitions_at_their_end_get_little_though_all_would_fit() -> None:
    assert shared([*at_end(2), *busy(1)], 10 * SIZE) == [SMALLEST_SHARE_BYTES] * 2 + [SIZE]


def test_partitions_with_more_of_different_sizes_are_granted_whole_if_they_fit() -> None:
    assert shared([*busy(1, 300_000), *busy(1, 10_000)], 320_000) == [300_000, 10_000]


def test_partitions_at_their_end_never_take_more_than_half_of_the_room() -> None:
    assert shared(at_end(1), 20_000) == [10_000]
    granted = shared([*at_end(100), *busy(1)], 200_000)
    assert granted == [1024] * 100 + [200_000 - 100 * 1024]


def test_a_large_message_is_never_cut() -> None:
    large = Candidate("stream", SIZE, 80_000)
    assert shared([large, *busy(3)], 200_000)[0] == 80_000


def test_a_large_message_may_exceed_what_one_request_should_ask_for() -> None:
    large = Candidate("stream", SIZE, 80_000)
    assert shared([large, *busy(3)], 200_000, cap=40_000) == [80_000, 0, 0, 0]


def test_no_partition_takes_the_room_that_a_large_message_before_it_waits_for() -> None:
    large = Candidate("stream", 500_000, 500_000)
    assert shared([*busy(1), large, *busy(3)], 200_000) == [40_000, 0, 0, 0, 0]


def test_no_partition_is_left_out_for_ever_when_the_longest_wait_comes_first() -> None:
    waiting, rounds = list(range(7)), 0
    while waiting and rounds < 10:
        granted = shared(busy(len(waiting)), 2 * SMALLEST_SHARE_BYTES)
        waiting = [one for one, size in zip(waiting, granted, strict=True) if not size]
        rounds += 1
    assert rounds == 4


CANDIDATES = st.lists(
    st.builds(Candidate, st.just("stream"), st.integers(1, 10**6), st.integers(0, 10**6), st.booleans()),
    min_size=1, max_size=30,
)  # fmt: skip


@given(CANDIDATES, st.integers(0, 10**7), st.integers(0, 10**7), st.integers(1, 10**7))
def test_grants_stay_within_the_room_and_the_first_is_served_when_there_is_any_for_it(
    candidates: list[Candidate], room: int, own: int, cap: int
) -> None:
    granted = shared(candidates, room, own, cap)
    assert len(granted) == len(candidates)
    assert all(0 <= size <= one.size_bytes for size, one in zip(granted, candidates, strict=True))
    assert sum(granted) <= min(room, max(cap, least_useful_bytes(candidates[0])))
    for size, one in zip(granted, candidates, strict=True):
        assert size == 0 or one.is_at_end or size >= min(one.size_bytes, one.least_bytes)
    if room >= least_useful_bytes(candidates[0]) and cap >= SMALLEST_SHARE_BYTES * len(candidates):
        assert granted[0] > 0
