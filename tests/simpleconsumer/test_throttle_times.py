"""Where answers say that a client is throttled, and how large a fetch is then."""

from __future__ import annotations

import logging
import struct

import pytest

from simpleconsumer.messages.apis import APIS
from simpleconsumer.throttling import FetchPace, Throttle, ThrottleLog
from tests.simpleconsumer import golden_apis
from tests.simpleconsumer.golden_apis import Frames

MIB = 1024 * 1024


def decoded(each: Frames, answer: bytes) -> object:
    found = each.asked.decode(memoryview(answer))
    if each.asked.api_key == 1:
        return [(*one[:4], bytes(one.message_set), *one[5:]) for one in found]
    return found


@pytest.mark.parametrize("each", golden_apis.every(), ids=str)
def test_the_throttle_time_is_read_where_the_answer_of_a_real_broker_has_it(each: Frames) -> None:
    """In its place any number may stand, and the rest of the answer means the same."""
    request, answer = each.asked, bytearray(each.answer)
    api = APIS[request.api_key]
    assert api.throttle_ms(request.version, answer) == 0
    if request.version < api.throttled_from:
        return
    before = decoded(each, bytes(answer))
    at = api.throttle_at + (len(answer) if api.throttle_at < 0 else int(request.version >= api.flexible_from))
    struct.pack_into(">i", answer, at, 1234)
    assert api.throttle_ms(request.version, answer) == 1234
    assert decoded(each, bytes(answer)) == before
    if api.throttle_at >= 0:
        assert not any(api.throttle_ms(request.version, bytes(answer[:cut])) for cut in range(at + 4))


def test_every_request_of_today_is_one_whose_throttle_time_is_known_or_has_none() -> None:
    assert [api.name for api in APIS.values() if all(version < api.throttled_from for version in api.versions)] == [
        "SaslHandshake", "ApiVersions", "SaslAuthenticate",
    ]  # fmt: skip


def test_a_fetch_is_made_smaller_after_two_throttled_answers_in_a_row_and_larger_after_good_ones() -> None:
    pace = FetchPace()
    assert pace.limit(8 * MIB) == 8 * MIB
    pace.refused()
    assert pace.limit(8 * MIB) == 8 * MIB
    pace.refused()
    assert pace.limit(8 * MIB) == 4 * MIB
    pace.answered(4 * MIB)
    pace.refused()
    assert pace.limit(8 * MIB) == 4 * MIB  # as every second one is under a quota
    for _ in range(9):
        pace.answered(4 * MIB)
    assert pace.limit(8 * MIB) == 8 * MIB
    for _ in range(100):
        pace.limit(8 * MIB)
        pace.refused()
    assert pace.limit(8 * MIB) == 1024


def test_a_fetch_that_was_held_back_for_long_is_made_as_small_as_five_seconds_allow() -> None:
    pace = FetchPace()
    pace.limit(MIB)
    pace.answered(MIB, held_ms=50_000)
    assert pace.limit(MIB) == MIB // 10
    pace.answered(MIB // 10, held_ms=4_000)
    assert pace.limit(MIB) == MIB // 10
    for _ in range(200):
        pace.answered(pace.limit(MIB))
    assert pace.most_bytes is None or pace.limit(MIB) == MIB
    pace.answered(0, held_ms=50_000)  # others have used up the quota
    assert pace.limit(MIB) == MIB


def test_a_fetch_that_was_not_answered_is_made_smaller() -> None:
    pace = FetchPace()
    pace.limit(MIB)
    pace.unanswered()
    assert pace.limit(MIB) == MIB // 8


def test_a_throttle_is_logged_once_for_each_broker_and_request(caplog: pytest.LogCaptureFixture) -> None:
    log = ThrottleLog()
    for port in (1, 2, 1):
        for api in ("fetch", "produce", "fetch"):
            log.note(Throttle("broker", port, api, 1500, False), "me")
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 4
    assert "broker:1 throttles this client for 1.5 s: its quota is used up (fetch)" in lines[0]
    assert "client.id 'me'" in lines[0]
