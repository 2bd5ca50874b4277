"""Which broker is asked first: one that answers, with the fewest requests under way, and by chance among equals."""

from __future__ import annotations

import os
import random

from simpleconsumer.connection import UNDER_WAY, RequestsUnderWay
from zkconsumer.cluster.leaders import AskingOrder

PLACES = [("b", port) for port in range(1, 7)]


def test_those_with_fewer_requests_come_first_and_those_that_did_not_answer_last() -> None:
    under_way = RequestsUnderWay()
    order = AskingOrder(random.Random(1), under_way)
    for port in (1, 1, 4):
        under_way.begin(("b", port))
    assert order.failed(("b", 2))
    assert not order.failed(("b", 2)), "it is news once"
    assert order.of(PLACES[:4]) == [("b", 3), ("b", 4), ("b", 1), ("b", 2)]
    under_way.end(("b", 1))
    under_way.end(("b", 1))
    under_way.end(("b", 1))
    assert under_way.at(("b", 1)) == 0
    order.answered(("b", 2))
    assert set(order.of(PLACES[:4])[:3]) == {("b", 1), ("b", 2), ("b", 3)}


def test_an_address_that_is_not_registered_any_more_is_forgotten() -> None:
    order = AskingOrder(random.Random(1), RequestsUnderWay())
    order.failed(("b", 1))
    order.failed(("b", 2))
    order.keep([("b", 2)])
    assert order.of(PLACES[:2]) == [("b", 1), ("b", 2)]


def test_the_order_of_equals_is_random_and_each_comes_once() -> None:
    order = AskingOrder(random.Random(1), RequestsUnderWay())
    found = {tuple(order.of([*PLACES, *PLACES])) for _ in range(6)}
    assert len(found) > 2
    assert all(sorted(each) == PLACES for each in found)


def test_a_forked_process_has_no_requests_under_way() -> None:
    address = ("forked", 1)
    UNDER_WAY.begin(address)
    try:
        child = os.fork()
        if child == 0:
            os._exit(UNDER_WAY.at(address))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert UNDER_WAY.at(address) == 1
    finally:
        UNDER_WAY.end(address)
