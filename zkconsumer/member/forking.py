"""Tells connectors when they wake up in a forked child, where none of their threads runs.

A connector belongs to the process that made it. What the child has is a copy whose lease nobody renews and whose
sockets are the parent's: going on with it would repeat what the parent delivers, and closing it would end the session
of the parent. Rule: what runs here takes no lock, as some thread of the parent may have held any of them at the fork.

Source: os.register_at_fork; failures of PyKafka and kafka-python under multiprocessing.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["ForkAware", "notify_after_fork"]


class ForkAware(Protocol):
    """What belongs to one process."""

    def on_fork(self) -> None:
        """This process is a fork of the owner's. Takes no lock."""


_told: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def notify_after_fork(owned: ForkAware) -> None:
    """Have `on_fork` called in every child that is forked while `owned` exists."""
    _told.add(owned)


def _tell_all() -> None:
    for owned in list(_told):
        owned.on_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell_all)
