"""The processes of a Spark job, and which of them dies."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
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


def killed_when_files_come(
    command: Sequence[str],
    kind: str,
    folder: Path,
    pattern: str,
    log: Path,
    *,
    environment: Mapping[str, str],
    timeout_s: float,
) -> bool:
    """Run a command, and kill one of its processes when a file has come; return False if it has ended before that.

    Args:
        kind: as of `victim_of`.
        folder, pattern: where the file comes, and how its path looks.
        log: a file for what the command prints.
        timeout_s: until the file comes, and again until all processes have ended.
    """
    before = set(folder.glob(pattern))
    with log.open("wb") as printed:
        process = subprocess.Popen(command, env=environment, stdout=printed, stderr=printed, start_new_session=True)
    wait_until(
        lambda: process.poll() is not None or any(path not in before for path in folder.glob(pattern)),
        timeout_s, f"{pattern}, the moment to kill", interval_s=0.002,
    )  # fmt: skip
    group = descendants(process.pid)
    victim = victim_of(process, kind) if process.poll() is None else None
    if victim is not None:
        os.kill(victim, signal.SIGKILL)
    process.wait(timeout_s)
    wait_gone(group)
    return victim is not None
