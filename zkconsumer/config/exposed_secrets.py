"""Warns of passwords that other users of the machine can read: in files, and in command lines."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable

from zkconsumer.config.tables.keys import find_key

__all__ = ["warn_of_exposed_secrets", "warn_of_shown_secrets"]

logger = logging.getLogger("zkconsumer.config")
_reported: set[str] = set()
"""Files of which this process has reported already that they expose a secret: a load reads its file several times."""


def warn_of_exposed_secrets(path: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Log a warning, once in a process, when a file holds a password and every user of the machine can read it."""
    secrets = sorted({key.name for name in names if (key := find_key(name)) is not None and key.secret})
    if secrets and str(path) not in _reported and _everybody_reads(os.fspath(path)):
        _reported.add(str(path))
        mode = stat.S_IMODE(os.stat(path).st_mode)
        logger.warning("%s contains %s, and every user of this machine can read the file (mode %04o): chmod 600 %s",
                       path, ", ".join(secrets), mode, path)


def _everybody_reads(path: str) -> bool:
    """Return True if users without any right of owner or group can open the file."""
    try:
        place = os.path.realpath(path)
        mode = os.stat(place).st_mode
        while place != (place := os.path.dirname(place)):
            if not os.stat(place).st_mode & stat.S_IXOTH:
                return False
        return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)
    except OSError:
        return False


def warn_of_shown_secrets(names: Iterable[str], option: str) -> None:
    """Log a warning for each secret among the settings that an option of the command line holds."""
    for name in names:
        key = find_key(name)
        if key is not None and key.secret:
            logger.warning("%s %s=... shows a secret to every user of this machine (ps); put it into a file "
                           "for --config", option, key.name)
