"""Objects that a `with` block closes at its end."""

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import Self


class Closing:
    """Something that a `with` block closes at its end."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> object:
        """End it; it may be closed again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
