"""Writes a demonstration to one animated SVG file, for a page that cannot run anything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from io import StringIO
from pathlib import Path

from rich.console import Console

from zkconsumer.cli.demo import view
from zkconsumer.cli.demo.display import Display
from zkconsumer.cli.demo.scene import Scene

__all__ = ["Capture", "moving_svg"]

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
        file=StringIO(), record=True, width=view.WIDTH, force_terminal=True, color_system="truecolor", highlight=False
    )
    console.print(view.draw(scene))
    svg = console.export_svg(title="", unique_id=f"f{number}", code_format=_FRAME)
    return _NEEDLESS.sub("", svg).replace("&#160;", "\N{NO-BREAK SPACE}").split("\0")
