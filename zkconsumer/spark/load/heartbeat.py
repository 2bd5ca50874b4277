"""The heartbeat of a load, by which another load learns whether it still works.

A load writes a number into a file next to its staging folder, and increases it every two seconds. A load that finds the
staging folder of another one watches that number. If it does not change for ten seconds, the other load is considered
dead, or suspended for so long that nobody waits for it. This is not proof: a load that was only suspended continues
some day. So whoever uses it must also prevent that load from publishing.

    _zkconsumer/staging/000000013-ab12.../       what it has written
    _zkconsumer/staging/000000013-ab12....alive  the number
    _zkconsumer/staging/000000013-ab12....room   reserved space, removed to make room for a manifest on a full disk

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

log = logging.getLogger(__name__)

BEAT_S: Final = 2.0
DEAD_S: Final = 10.0
_POLL_S: Final = 0.25
_ROOM_BYTES: Final = 64 * 1024
_ALIVE, _ROOM = ".alive", ".room"


class Heartbeat:
    """Shows that a load works, for the time of a block.

    Args:
        folder: its staging folder.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="load-heartbeat", daemon=True)

    def __enter__(self) -> None:
        # If there is no room for this, the load itself will fail with a better message.
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
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may succeed
                log.warning("the heartbeat of this load could not be written next to %s: %s", self._folder, error)


def all_dead(storage: Storage, folders: Collection[str]) -> bool:
    """Whether no load works on any of these staging folders; takes ten seconds if that is so."""
    before = {folder: _number(storage, folder) for folder in folders}
    deadline = time.monotonic() + DEAD_S
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        if any(_number(storage, folder) != number for folder, number in before.items()):
            return False
    return True


def make_room(storage: Storage, folders: Collection[str]) -> None:
    """Remove the reserved space of these folders."""
    for folder in folders:
        storage.delete(folder + _ROOM)


def _number(storage: Storage, folder: str) -> str | None:
    try:
        return storage.read_text(folder + _ALIVE)
    except Exception:  # noqa: BLE001 - a file that is gone, or half written, has no number
        return None
