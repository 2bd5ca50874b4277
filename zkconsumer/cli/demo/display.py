"""Displays a demonstration: a moving picture on a terminal, plain lines anywhere else."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from zkconsumer.cli.demo import view
from zkconsumer.cli.demo.output import say
from zkconsumer.cli.demo.scene import Happening, Scene

__all__ = ["Display", "LiveDisplay", "PlainLines", "display_for_stdout"]

_COUNTS_EVERY_S = 5.0


class Display(Protocol):
    """Shows scenes, one after the other.

    Threads: one.
    """

    def open(self) -> AbstractContextManager[object]:
        """Return a block during which scenes are shown."""

    def show(self, scene: Scene) -> None:
        """Show how it is now."""

    def finish(self, scene: Scene) -> None:
        """Print the last scene for good; called after the block."""


class LiveDisplay:
    """A picture that is redrawn in its place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def open(self) -> AbstractContextManager[object]:
        """Return a block during which the picture is on the terminal."""
        return self._live

    def show(self, scene: Scene) -> None:
        """Redraw the picture."""
        self._live.update(view.draw(scene), refresh=True)

    def finish(self, scene: Scene) -> None:
        """Print the last picture for good."""
        self._console.print(view.draw(scene))


class PlainLines:
    """A line for each event, and the counts from time to time."""

    def __init__(self) -> None:
        self._printed = 0
        self._counted_s = 0.0

    def open(self) -> AbstractContextManager[object]:
        """Return a block that does nothing."""
        return nullcontext()

    def show(self, scene: Scene) -> None:
        """Print what is new."""
        for happening in scene.happenings[self._printed :]:
            _print(happening)
        self._printed = len(scene.happenings)
        if scene.produced and scene.elapsed_s >= self._counted_s + _COUNTS_EVERY_S:
            self._counted_s = scene.elapsed_s
            _print(Happening(scene.elapsed_s, _counts(scene)))

    def finish(self, scene: Scene) -> None:
        """Print what is new, and the counts."""
        self._counted_s = float("-inf")
        self.show(scene)


def _counts(scene: Scene) -> str:
    each_second = sum(actor.rates[-1] for actor in scene.actors if actor.rates)
    return (
        f"produced {scene.produced}, delivered {scene.delivered} ({each_second} in the last second), "
        f"lag {sum(scene.lag)}, repeated {scene.repeated}"
    )


def _print(happening: Happening) -> None:
    say(f"{happening.at_s:5.1f} s  {happening.text}")


def display_for_stdout() -> Display:
    """Return the picture if standard output is a terminal that is large enough for it, lines otherwise."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return PlainLines()
    size = os.get_terminal_size(sys.stdout.fileno())
    # A terminal that does not know its size says 0; `rich` then takes 80 by 25.
    fits = (size.columns or 80) >= view.WIDTH and (size.lines or 25) >= view.HEIGHT
    return LiveDisplay() if fits else PlainLines()
