"""What has happened so far, and before whom it is shown."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from zkconsumer.cli.demo.display import Display
from zkconsumer.cli.demo.scene import Happening, Scene

__all__ = ["Narrator"]


class Narrator:
    """Keeps the last scene, and shows each new one.

    Threads: one.

    Attributes:
        start_ns: the moment from which seconds are counted.
        scene: the last one.
    """

    def __init__(self, display: Display, length_s: float, rate: int) -> None:
        self.start_ns = time.monotonic_ns()
        self.scene = Scene(length_s, rate)
        self.display = display

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return (time.monotonic_ns() - self.start_ns) / 1e9

    def say(self, text: str) -> None:
        """Tell what happens."""
        self.see(happenings=(*self.scene.happenings, Happening(self.elapsed_s, text)))

    def see(self, **seen: Any) -> None:
        """Show how it is now: these fields of the scene have changed."""
        self.scene = replace(self.scene, elapsed_s=self.elapsed_s, **seen)
        self.display.show(self.scene)
