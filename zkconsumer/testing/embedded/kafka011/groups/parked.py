"""A request of a member that waits for its answer, on the thread of its connection; other connections go on."""

from __future__ import annotations

import threading

from zkconsumer.testing.embedded.broker import NoAnswer
from zkconsumer.testing.embedded.groups.values import Joined, Synced


class Parked:
    """One request.

    Threads: one waits, any other one answers.
    """

    def __init__(self) -> None:
        self._done = threading.Event()
        self._answer: Joined | Synced | None = None

    def give(self, answer: Joined | Synced | None) -> None:
        """Have the request answered; None: it gets no answer, and its connection is closed."""
        self._answer = answer
        self._done.set()

    def wait(self) -> Joined | Synced:
        """Return the answer, once there is one. A client that is gone meanwhile is noticed when it is sent.

        Raises:
            NoAnswer: there will be none: a later request of the member took its place, and the broker ends now.
        """
        self._done.wait()
        if self._answer is None:
            raise NoAnswer("a later request of the same member has taken its place")
        return self._answer
