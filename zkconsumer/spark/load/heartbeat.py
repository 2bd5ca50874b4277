"""Whether the load that wrote a staging folder is still at work.

A load that works writes a number into a file beside its staging folder, and a higher one every two seconds. Who finds
the folder of another load watches the number: when it stays what it is for ten seconds, that load is dead, or has been
stopped for so long that nobody waits for it. Whoever goes by this must not rely on it: a load that was only stopped
goes on some day.

    _zkconsumer/staging/000000013-ab12.../       what it has written
    _zkconsumer/staging/000000013-ab12....alive  the number
    _zkconsumer/staging/000000013-ab12....room   nothing: its removal makes room for a manifest on a disk that is full

Threads: the number is written on a thread of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from zkconsumer.spark.load.storage import Storage

__all__ = ["Heartbeat", "all_dead", "make_room"]

log = logging.getLogger(__name__)

BEAT_S: Final = 2.0
DEAD_S: Final = 10.0
_POLL_S: Final = 0.25
_ROOM_BYTES: Final = 64 * 1024
_ALIVE, _ROOM = ".alive", ".room"


class Heartbeat:
    """Says that a load works, for the time of a block.

    Args:
        folder: its staging folder.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="load-alive", daemon=True)

    def __enter__(self) -> None:
        # Where there is no room for this the load itself will say so.
        with suppress(Exception):
            self._storage.overwrite(self._folder + _ROOM, " " * _ROOM_BYTES)
            self._storage.overwrite(self._folder + _ALIVE, "0")
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join(DEAD_S)
        with suppress(Exception):  # a later run removes them
            self._storage.delete(self._folder + _ROOM)
            self._storage.delete(self._folder + _ALIVE)

    def _beat(self) -> None:
        number = 0
        while not self._over.wait(BEAT_S):
            number += 1
            try:
                self._storage.overwrite(self._folder + _ALIVE, str(number))
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may do better
                log.warning("that this load is alive could not be noted in %s: %s", self._folder, error)


def all_dead(storage: Storage, folders: Collection[str]) -> bool:
    """Whether nobody works on any of these staging folders; waits for as long as it takes to tell."""
    before = {folder: _number(storage, folder) for folder in folders}
    deadline = time.monotonic() + DEAD_S
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        if any(_number(storage, folder) != number for folder, number in before.items()):
            return False
    return True


def make_room(storage: Storage, folders: Collection[str]) -> None:
    """Remove what these folders need for nothing."""
    for folder in folders:
        storage.delete(folder + _ROOM)


def _number(storage: Storage, folder: str) -> str | None:
    try:
        return storage.read_text(folder + _ALIVE)
    except Exception:  # noqa: BLE001 - a file that is gone, or half written, is no number
        return None
