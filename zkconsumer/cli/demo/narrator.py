"""Keeps what has happened so far in a demonstration, and shows it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from zkconsumer.cli.demo.display import Display
from zkconsumer.cli.demo.scene import Happening, Scene

__all__ = ["Narrator"]


class Narrator:
    """Keeps the last scene, and shows each new one.

    Threads: One.

    Attributes:
        start_ns: The moment from which seconds are counted.
        scene: The last scene.
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
        """Show an event."""
        self.update(happenings=(*self.scene.happenings, Happening(self.elapsed_s, text)))

    def update(self, **changed: Any) -> None:
        """Show the scene with these fields changed."""
        self.scene = replace(self.scene, elapsed_s=self.elapsed_s, **changed)
        self.display.show(self.scene)
