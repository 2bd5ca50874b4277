"""The count of the tryout tells lost and repeated messages; a count that cannot fail would show nothing."""

from __future__ import annotations

from zkconsumer.cli.tryout_ledger import Delivered, Ledger


def delivered(number: int, offset: int | None = None, member: str = "ann") -> Delivered:
    return Delivered(member, "t", 0, number if offset is None else offset, number)


def test_all_there_once() -> None:
    ledger = Ledger()
    for number in (1, 2):
        ledger.produced(number)
        assert not ledger.delivered(delivered(number))
    assert ledger.summary == "produced=2 delivered=2 lost=0 repeated=0"


def test_a_lost_message_is_counted_and_named() -> None:
    ledger = Ledger()
    for number in (1, 2, 3):
        ledger.produced(number)
    ledger.delivered(delivered(1))
    ledger.delivered(delivered(3))
    assert ledger.missing == [2]
    assert ledger.summary == "produced=3 delivered=2 lost=1 repeated=0"


def test_a_message_that_two_members_print_is_repeated() -> None:
    ledger = Ledger()
    ledger.produced(1)
    ledger.delivered(delivered(1))
    assert ledger.delivered(delivered(1, member="bob"))
    assert ledger.summary == "produced=1 delivered=1 lost=0 repeated=1"


def test_a_message_that_the_producer_sent_twice_is_not() -> None:
    ledger = Ledger()
    ledger.produced(1)
    ledger.delivered(delivered(1, offset=10))
    assert not ledger.delivered(delivered(1, offset=11))
    assert ledger.repeated == 0


def test_a_message_may_arrive_before_its_acknowledgement() -> None:
    ledger = Ledger()
    ledger.delivered(delivered(1))
    assert ledger.missing == []
    ledger.produced(1)
    assert ledger.summary == "produced=1 delivered=1 lost=0 repeated=0"
