"""The state of a transactional id by itself: what requests and times make of it, and how it is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simpleconsumer.types import ProducerId
from zkconsumer.testing.embedded.disk.messages import Refusal
from zkconsumer.testing.embedded.kafka011.transaction_state import (
    LAST_EPOCH,
    NO_PRODUCER,
    Transaction,
    TransactionState,
    decode_transaction,
    encode_transaction,
)

WHERE = [("t", 0), ("t", 1), ("u", 0)]
FRESH = Transaction(7, 3, 1000)
OPEN = FRESH.with_partitions(FRESH.producer, WHERE[:1], 50)


def new_id() -> int:
    return 99


def test_a_transaction_goes_through_its_states() -> None:
    more = OPEN.with_partitions(OPEN.producer, WHERE, 60)
    assert (more.state, more.partitions, more.started_ms) == (TransactionState.ONGOING, frozenset(WHERE), 50)
    prepared = more.ended(more.producer, commit=True)
    assert (prepared.is_prepared, prepared.is_commit) == (True, True)
    partly = prepared.without(WHERE[:2])
    assert (partly.state, partly.partitions) == (prepared.state, frozenset(WHERE[2:]))
    done = partly.without(WHERE[2:])
    assert (done.state, done.partitions, done.started_ms) == (TransactionState.COMPLETE_COMMIT, frozenset(), -1)
    assert done.with_partitions(done.producer, WHERE[:1], 70).started_ms == 70


def test_a_transaction_is_late_behind_its_time() -> None:
    assert not OPEN.is_late(1050)
    assert OPEN.is_late(1051)
    assert not OPEN.ended(OPEN.producer, commit=False).is_late(5000)
    fenced = OPEN.fenced()
    assert (fenced.epoch, fenced.state) == (4, TransactionState.PREPARE_ABORT)


def test_used_up_epochs_give_a_new_id_which_the_producer_may_ask_for_again() -> None:
    last = Transaction(7, LAST_EPOCH, 1000)
    assert last.started(NO_PRODUCER, 1000, new_id).producer == ProducerId(99, 0)
    rotated = last.started(last.producer, 1000, new_id)
    assert rotated.producer == ProducerId(99, 0)
    assert rotated.last_producer_id == 7
    with pytest.raises(Refusal, match="error 90"):
        rotated.started(ProducerId(7, 3), 1000, new_id)


@given(
    st.text(min_size=1, max_size=20),
    st.builds(
        Transaction, st.integers(0, 2**62), st.integers(0, LAST_EPOCH), st.integers(1, 900_000),
        st.sampled_from([each for each in TransactionState if each is not TransactionState.EMPTY]),
        partitions=st.frozensets(st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 9))),
        started_ms=st.integers(-1, 2**50),
    ),
)  # fmt: skip
def test_a_record_is_read_as_it_was_written(name: str, transaction: Transaction) -> None:
    key, value = encode_transaction(name, transaction, 5)
    assert decode_transaction(key, value) == (name, transaction)
    assert decode_transaction(key, value[:-1]) is None
    empty = replace(transaction, state=TransactionState.EMPTY, partitions=frozenset())
    assert decode_transaction(*encode_transaction(name, empty, 5)) == (name, empty)
