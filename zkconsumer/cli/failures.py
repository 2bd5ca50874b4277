"""The errors of the command line, and the sentence in which a command reports an error, without a traceback.

Rule: an error that a package raises on purpose is reported by its message; every other exception is a fault of the
program, and the message says so.
"""

from __future__ import annotations

from zkconsumer_error import RemediedError, ZkConsumerError

__all__ = ["CliError", "sentence_of"]


class CliError(RemediedError):
    """A problem that the user can solve."""


def sentence_of(error: Exception) -> str | None:
    """Return one sentence about an error that was raised on purpose, None for a fault of the program."""
    if isinstance(error, ZkConsumerError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return None
