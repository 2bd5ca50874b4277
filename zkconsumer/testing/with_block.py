"""What every server, cluster and member has in common: a `with` block starts it, and closes it at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from simpleconsumer.closing import Closing


class WithBlock(Closing, ABC):
    """Something that runs from the start of a `with` block to its end; closed too if its start fails."""

    @abstractmethod
    def _enter(self) -> object:
        """Start it; what this returns is not used."""

    @abstractmethod
    def close(self) -> None:
        """End it, and remove what it has left in temporary folders; it may be closed again."""

    def __enter__(self) -> Self:
        try:
            self._enter()
        except BaseException:
            self.close()
            raise
        return self
