"""The processes of a Spark job, and which of them dies."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from zkconsumer.testing.waiting import wait_until


def descendants(pid: int) -> dict[int, str]:
    """The processes below one, with their command lines."""
    children: dict[int, list[int]] = {}
    commands: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found, left = {}, [pid]
    while left:
        for child in children.get(left.pop(), []):
            found[child] = commands.get(child, "")
            left.append(child)
    return found


def victim_of(process: subprocess.Popen[bytes], kind: str) -> int | None:
    if kind == "driver":
        return process.pid
    words = {"jvm": "SparkSubmit", "worker": "pyspark.daemon"}[kind]
    matching = [pid for pid, command in descendants(process.pid).items() if words in command]
    return max(matching, default=None)


def wait_gone(pids: Iterable[int]) -> None:
    """Wait until none of the processes is there."""
    wait_until(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()], 60, f"the end of {list(pids)}")
