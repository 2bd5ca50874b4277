"""Notifies connectors and producers in a forked child process, where none of their threads runs.

A connector belongs to the process that made it. The child has a copy whose lease nothing renews and whose sockets are
those of the parent: using it would deliver again what the parent delivers, and closing it would end the session of the
parent. A copy of a producer would never send what it takes. Rule: what runs here takes no lock, because a thread of the
parent may have held any of them at the fork.

Source: os.register_at_fork; failures of PyKafka and kafka-python under multiprocessing.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

__all__ = ["ForkAware", "notify_after_fork"]


class ForkAware(Protocol):
    """An object that belongs to one process."""

    def _on_fork(self) -> None:
        """This process is a fork of the owner's. Takes no lock."""


_objects: weakref.WeakSet[ForkAware] = weakref.WeakSet()


def notify_after_fork(owned: ForkAware) -> None:
    """Have `_on_fork` called in every child that is forked while `owned` exists."""
    _objects.add(owned)


def _notify_all() -> None:
    for owned in list(_objects):
        owned._on_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_notify_all)
