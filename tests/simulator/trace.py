"""Prints a run as lines of text: time, member, event.

12.345678 b         asks       create owners/t/3 'g_b-0', if ids/g_b is at 1
12.347011 b         receives   create owners/t/3: node exists
12.347312 b         g_b t-3: claiming -> blocked after ClaimRefused
12.350000 -         *** stall b for 4 s
"""

from __future__ import annotations

import logging
from typing import Any, Final

from rebalance.zookeeper.port.requests import (
    Check,
    Create,
    Delete,
    Exists,
    Fault,
    GetChildren,
    GetData,
    Multi,
    Reply,
    Request,
    SessionChange,
    SetData,
    Stat,
    Sync,
)
from tests.simulator.plan import GROUP, Step
from tests.simulator.stage import Stage
from zkconsumer.testing.history import Event

__all__ = ["Trace", "tree_lines"]

_ROOT: Final = f"/consumers/{GROUP}/"
_LOGGERS: Final = ("rebalance", "zkconsumer")
_LONGEST: Final = 400


class Trace(logging.Handler):
    """Collects lines while a world runs; as a log handler it receives the production code's log, debug lines too."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self._stage: Stage | None = None

    def listen(self, stage: Stage) -> None:
        """Trace this stage from now on, and its members, also those that join later."""
        self._stage = stage
        stage.listener = self

    def line(self, who: str, what: str) -> None:
        """Add a line at the present moment."""
        now = 0.0 if self._stage is None else self._stage.schedule.now
        self.lines.append(f"{now:10.6f} {who or '-':<9} {what[:_LONGEST]}")

    def event(self, event: Event) -> None:
        """Something that goes into the history."""
        where = f" {event.topic}/{event.partition}" if event.topic else ""
        at = f" offset {event.offset}" if event.offset >= 0 else ""
        by = f" ({event.id})" if event.id and event.kind not in ("acked", "deliver", "done") else ""
        self.line(event.member, f"=== {event.kind}{where}{at}{by}")

    def step(self, step: Step) -> None:
        """Something that happens to the group."""
        self.line("", f"*** {str(step).partition(' ')[2]}")

    def report(self, who: str, what: str, about: object) -> None:
        """Something that goes through a port."""
        if isinstance(about, SessionChange):
            granted = f" {about.session_id:#x}, {about.timeout_s:g} s" if about.session_id else ""
            self.line(who, f"{what:<10} {about.what}{granted}")
        elif isinstance(about, tuple):
            request, reply = about
            self.line(who, f"{what:<10} {_asked(request)}: {_answer(request, reply)}")
        elif isinstance(about, str):
            self.line(who, f"{what:<10} {_short(about)}".rstrip())
        else:
            self.line(who, f"{what:<10} {_asked(about)}")  # type: ignore[arg-type]

    def emit(self, record: logging.LogRecord) -> None:
        """Something that the production code logs."""
        self.line("", f"{record.levelname.lower():<7} {record.getMessage()}")

    def __enter__(self) -> Trace:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.addHandler(self)
            logger.setLevel(logging.DEBUG)
            logger.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.removeHandler(self)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True


def _short(path: str) -> str:
    return path.removeprefix(_ROOT)


def _asked(request: Request | Check) -> str:
    match request:
        case Multi((Check() as fence, *rest)):
            parts = ", ".join(_asked(part) for part in rest)
            return f"{parts or 'nothing'}, if {_short(fence.path)} is at {fence.version}"
        case Multi(operations):
            return ", ".join(_asked(part) for part in operations)
        case Create(path, data, ephemeral):
            return f"create {_short(path)} {_text(data)}{' ephemeral' if ephemeral else ''}"
        case SetData(path, data, version):
            return f"set {_short(path)} at {version} to {_text(data)}"
        case Delete(path, version):
            return f"delete {_short(path)} at {version}"
        case Check(path, version):
            return f"check {_short(path)} at {version}"
        case Exists(path, watch) | GetData(path, watch) | GetChildren(path, watch):
            verb = {Exists: "exists", GetData: "get", GetChildren: "children"}[type(request)]
            return f"{verb} {_short(path)}{' and watch' if watch is not None else ''}"
        case Sync(path):
            return f"sync {_short(path)}"


def _answer(request: Request, reply: Reply) -> str:
    if reply.fault is not None:
        return reply.fault.value
    if isinstance(request, Multi):
        faults = [each.value for each in reply.value if isinstance(each, Fault)]
        return ", ".join(faults) or "done"
    return _value(reply.value)


def _value(value: Any) -> str:
    if isinstance(value, Stat):
        owner = f", owner {value.ephemeral_owner:#x}" if value.ephemeral_owner else ""
        return f"version {value.version}{owner}"
    if isinstance(value, tuple):
        data, stat = value
        return f"{_text(data) if isinstance(data, bytes) else data}, {_value(stat)}"
    return "nothing" if value is None else str(value)


def _text(data: bytes) -> str:
    return repr(data.decode("utf-8", "replace"))


def tree_lines(stage: Stage) -> list[str]:
    """The nodes of the group as they stand: path, data, version, owner."""
    lines: list[str] = []
    names = {each.port.session_id: each.name for each in stage.participants.values() if each.port.session_id}

    def walk(path: str) -> None:
        node = stage.zookeeper.read(path)
        if node is None:
            return
        data, stat = node
        owner = stat.ephemeral_owner
        by = f" ephemeral of {names.get(owner, hex(owner))}" if owner else ""
        lines.append(f"{path} {_text(data) if data else ''} version {stat.version}{by}")
        for name in stage.zookeeper.children(path):
            walk(f"{path}/{name}")

    walk(_ROOT.rstrip("/"))
    return lines
