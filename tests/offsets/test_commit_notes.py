"""What is stored beside offsets: the text of the application, and the leader epoch of the record before."""

from __future__ import annotations

from simpleconsumer.types import OffsetAndMetadata, TopicPartition
from zkconsumer.offsets.commits import CommitNotes

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def epoch(notes: CommitNotes, offset: int, partition: TopicPartition = T0) -> int:
    return notes.to_store(partition, offset).leader_epoch


def test_the_epoch_is_that_of_the_records_which_were_returned_before_the_offset() -> None:
    notes = CommitNotes()
    assert epoch(notes, 10) == -1
    notes.returned(T0, 10, 15, (3, 3))
    assert [epoch(notes, offset) for offset in (10, 11, 15, 16)] == [-1, 3, 3, -1]
    assert epoch(notes, 11, T1) == -1


def test_of_records_of_two_epochs_only_that_of_the_last_one_is_known() -> None:
    notes = CommitNotes()
    notes.returned(T0, 10, 15, (3, 4))
    assert [epoch(notes, offset) for offset in (14, 15)] == [-1, 4]


def test_the_last_two_polls_are_remembered_and_the_later_one_counts() -> None:
    notes = CommitNotes()
    for first, behind, of_poll in ((0, 5, 1), (5, 9, 2), (9, 12, 2)):
        notes.returned(T0, first, behind, (of_poll, of_poll))
    assert [epoch(notes, offset) for offset in (5, 9, 12)] == [-1, 2, 2]
    notes.returned(T0, 9, 11, (7, 7))  # after a seek back, and an election
    assert [epoch(notes, offset) for offset in (11, 12)] == [7, 2]


def test_records_without_an_epoch_have_none() -> None:
    notes = CommitNotes()
    notes.returned(T0, 0, 5, (None, None))
    assert epoch(notes, 5) == -1


def test_what_the_application_gives_is_stored_with_this_commit_alone() -> None:
    notes = CommitNotes()
    notes.returned(T0, 0, 5, (1, 1))
    with notes.given({(T0, 5): ("half", None), (T1, 7): ("", 2)}):
        assert notes.to_store(T0, 5) == OffsetAndMetadata(5, "half", 1)
        assert notes.to_store(T1, 7) == OffsetAndMetadata(7, "", 2)
    assert notes.to_store(T0, 5) == OffsetAndMetadata(5, "", 1)
    assert notes.to_store(T1, 7) == OffsetAndMetadata(7, "", -1)


def test_an_offset_that_was_read_keeps_its_epoch() -> None:
    notes = CommitNotes()
    notes.read({T0: OffsetAndMetadata(5, "half", 1), T1: OffsetAndMetadata(-1)})
    assert (notes.epoch_read(T0, 5), notes.epoch_read(T0, 6), notes.epoch_read(T1, -1)) == (1, -1, -1)
    assert notes.to_store(T0, 5) == OffsetAndMetadata(5, "", 1)
    notes.read({T0: OffsetAndMetadata(8)})
    assert (notes.epoch_read(T0, 5), notes.epoch_read(T0, 8)) == (-1, -1)
