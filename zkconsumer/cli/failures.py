"""What the command line says when something goes wrong: one sentence with its remedy, and no traceback.

Rule: whatever the packages below raise on purpose becomes a sentence here; everything else is a fault of the program
and says so.
"""

from __future__ import annotations

from zkconsumer_error import ZkConsumerError

__all__ = ["CliError", "sentence_of"]


class CliError(ZkConsumerError):
    """Something the user can do something about.

    Args:
        sentence: what is wrong, with the value and the place.
        remedy: what to do about it, a clause; empty when the sentence says it all.
    """

    def __init__(self, sentence: str, remedy: str = "") -> None:
        super().__init__(sentence, remedy)
        self.sentence = sentence
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.sentence}; {self.remedy}" if self.remedy else self.sentence


def sentence_of(error: Exception) -> str | None:
    """One sentence about an error that was raised on purpose, `None` for a fault of the program."""
    if isinstance(error, ZkConsumerError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return None
