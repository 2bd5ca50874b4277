"""Displays a demonstration: a moving picture on a terminal, plain lines anywhere else.

Writes a demonstration to one animated SVG file, for a page that cannot run anything.

Keeps what has happened so far in a demonstration, and shows it.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from zkconsumer.cli.demo.scene import HEIGHT, WIDTH, Happening, Scene, draw
from zkconsumer.cli.terminal import say

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
        self._live.update(draw(scene), refresh=True)

    def finish(self, scene: Scene) -> None:
        """Print the last picture for good."""
        self._console.print(draw(scene))


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
    fits = (size.columns or 80) >= WIDTH and (size.lines or 25) >= HEIGHT
    return LiveDisplay() if fits else PlainLines()


_EVERY_S = 1.0
_SHOWN_S = 0.6
_LAST_SHOWN = 4
"""Number of turns for which the last picture is shown before the animation starts again."""
_MARGIN = 12
_FRAME = "{styles}\0{backgrounds}\0{matrix}\0{terminal_width}\0{terminal_height}"
_NEEDLESS = re.compile(r' clip-path="[^"]*"|<text [^>]*>\s*</text>\s*')
_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="-{margin} -{margin} {width} {height}" aria-label="zkconsumer demo">
<style>
text {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 20px; white-space: pre }}
.frame {{ visibility: hidden; animation: turn {length:g}s step-end infinite }}
@keyframes turn {{ 0% {{ visibility: visible }} {share:.4f}% {{ visibility: hidden }} }}
@media (prefers-reduced-motion: reduce) {{ .frame {{ animation: none }} .frame:last-of-type {{ visibility: visible }} }}
"""


class Capture:
    """A display that shows everything on another display, and keeps one picture a second.

    Args:
        shown: The other display.
        path: The SVG file; opened now, written at the end.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, shown: Display, path: Path) -> None:
        self._shown = shown
        self._path = path
        self._scenes: list[Scene] = []
        path.open("a").close()

    def open(self) -> AbstractContextManager[object]:
        """Return the block of the other display."""
        return self._shown.open()

    def show(self, scene: Scene) -> None:
        """Show the scene, and keep it if the last one kept is old enough."""
        self._shown.show(scene)
        if not self._scenes or scene.elapsed_s >= self._scenes[-1].elapsed_s + _EVERY_S:
            self._scenes.append(scene)

    def finish(self, scene: Scene) -> None:
        """Write the file."""
        self._shown.finish(scene)
        self._path.write_text(moving_svg([*self._scenes, *[scene] * _LAST_SHOWN]), encoding="utf-8")


def moving_svg(scenes: Sequence[Scene]) -> str:
    """Return an SVG document that shows the scenes in turn, repeatedly."""
    frames = [_frame(scene, number) for number, scene in enumerate(scenes)]
    length_s = len(frames) * _SHOWN_S
    width, height = (float(size) + 2 * _MARGIN for size in frames[0][3:])
    parts = [_HEAD.format(width=width, height=height, margin=_MARGIN, length=length_s, share=100 / len(frames))]
    parts += [styles for styles, *_ in frames]
    area = f'x="-{_MARGIN}" y="-{_MARGIN}" width="{width}" height="{height}"'
    parts.append(f'</style>\n<rect {area} rx="8" fill="#16181d"/>\n')
    for number, (_, backgrounds, matrix, _, _) in enumerate(frames):
        delay_s = number * _SHOWN_S - length_s  # negative: every frame is inside its turn from the start
        parts.append(f'<g class="frame" style="animation-delay:{delay_s:.2f}s">{backgrounds}{matrix}</g>\n')
    return "".join(parts) + "</svg>\n"


def _frame(scene: Scene, number: int) -> list[str]:
    """Return styles, backgrounds, texts, width and height of one picture."""
    console = Console(
        file=StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor", highlight=False
    )
    console.print(draw(scene))
    svg = console.export_svg(title="", unique_id=f"f{number}", code_format=_FRAME)
    return _NEEDLESS.sub("", svg).replace("&#160;", "\N{NO-BREAK SPACE}").split("\0")


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
