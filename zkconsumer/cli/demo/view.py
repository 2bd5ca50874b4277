"""Draws a scene for a terminal. Pure: takes a scene, returns what `rich` can print."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from zkconsumer.cli.demo.scene import Happening, Scene

__all__ = ["COLOURS", "HEIGHT", "WIDTH", "draw"]

COLOURS = {"ann": "cyan", "bob": "yellow", "cleo": "magenta"}
WIDTH, HEIGHT = 78, 24
"""Size of the picture, in columns and lines."""

_SHOWN_HAPPENINGS = 8
_BARS = "▁▂▃▄▅▆▇█"
_STATES = {"joining": "dim", "leaving": "dim", "left": "dim", "killed": "bold red"}


def draw(scene: Scene) -> RenderableType:
    """Return the whole picture, `WIDTH` columns by `HEIGHT` lines."""
    return Padding(
        Group(
            _title(scene),
            Text(),
            _partitions(scene),
            Text(),
            _members(scene),
            Text(),
            _counts(scene),
            Text(),
            *(_happening(each) for each in _padded(scene.happenings)),
        ),
        (0, 1),
    )


def _title(scene: Scene) -> RenderableType:
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    line.add_row(
        Text.assemble(("zkconsumer demo", "bold"), "  ", (scene.cluster or "starting the cluster ...", "dim")),
        Text(f"{scene.elapsed_s:.0f} s of about {scene.length_s:.0f}", "dim"),
    )
    return line


def _partitions(scene: Scene) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(width=10)
    for _ in scene.owners:
        table.add_column(width=6, justify="center")
    numbers = [Text(partition, "bold") for partition in scene.partitions]
    owners = [_owner(owner) for owner in scene.owners]
    lag = [Text(str(lag) if lag else "·", "bold yellow" if lag > 20 else "dim") for lag in scene.lag]
    table.add_row(Text("partition", "dim"), *numbers)
    table.add_row(Text("owner", "dim"), *owners)
    table.add_row(Text("lag", "dim"), *lag)
    return table


def _owner(owner: str | None) -> Text:
    if owner is None:
        return Text("—", "dim")
    return Text(f"{owner:^6}", f"bold #16181d on {COLOURS.get(owner, 'white')}")


def _members(scene: Scene) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("member", width=9)
    table.add_column("", width=9)
    table.add_column("partitions", justify="right", width=10)
    table.add_column("messages", justify="right", width=8)
    table.add_column("each second", justify="right", width=11)
    table.add_column("", width=12)
    for actor in scene.actors:
        owned = scene.owners.count(actor.name)
        table.add_row(
            Text(actor.name, f"bold {COLOURS.get(actor.name, '')}"),
            Text(actor.state, _STATES.get(actor.state, "")),
            str(owned) if owned else "·",
            f"{actor.delivered:,}",
            str(actor.rates[-1]) if any(actor.rates) else "·",
            Text(_bars(actor.rates, scene.rate), COLOURS.get(actor.name, "")),
        )
    for _ in range(len(COLOURS) - len(scene.actors)):
        table.add_row("")
    return table


def _bars(rates: Sequence[int], full: int) -> str:
    """Return a bar for each second, full when the member got every message produced, a blank when it got none.

    >>> _bars([0, 1, 50, 200], 100)
    ' ▁▄█'
    """
    levels = [min(len(_BARS), max(1, rate * len(_BARS) // full)) for rate in rates]
    return "".join(_BARS[level - 1] if rate else " " for level, rate in zip(levels, rates, strict=True))


def _counts(scene: Scene) -> RenderableType:
    under_way = scene.produced - scene.delivered
    return Text.assemble(
        ("produced ", "dim"), (f"{scene.produced:,}", "bold"),
        ("   delivered ", "dim"), (f"{scene.delivered:,}", "bold green"),
        ("   under way ", "dim"), f"{max(0, under_way):,}",
        ("   repeated ", "dim"), (f"{scene.repeated:,}", "bold yellow" if scene.repeated else ""),
    )


def _padded(happenings: Sequence[Happening]) -> list[Happening | None]:
    shown: list[Happening | None] = list(happenings[-_SHOWN_HAPPENINGS:])
    return shown + [None] * (_SHOWN_HAPPENINGS - len(shown))


def _happening(happening: Happening | None) -> Text:
    if happening is None:
        return Text(" ")
    line = Text.assemble((f"{happening.at_s:5.1f} s  ", "dim"), happening.text, no_wrap=True, overflow="ellipsis")
    for name, colour in COLOURS.items():
        line.highlight_words([name], f"bold {colour}")
    return line
