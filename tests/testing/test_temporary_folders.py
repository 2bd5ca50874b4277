"""Temporary folders of servers and members go when they are closed, and when the process of the tests is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkconsumer.testing import temporary_folders
from zkconsumer.testing.temporary_folders import remove_folder, temporary_folder
from zkconsumer.testing.waiting import wait_until

PATIENCE_S = 30.0
SERVERS = """
import sys, time
from zkconsumer.testing import EmbeddedCluster, MemberProcess

with EmbeddedCluster() as cluster, MemberProcess(cluster, "group", topics={"topic": 1}):
    print("ready", flush=True)
    time.sleep(600)
"""
FOLDERS = """
import os, sys, time
from zkconsumer.testing.temporary_folders import remove_folder, temporary_folder

first, second = temporary_folder("first-"), temporary_folder("second-")
(second / "sub").mkdir()
(second / "sub" / "file").write_text("x")
(second / "link").symlink_to(sys.argv[1])
remove_folder(first)
if sys.argv[2] == "fork" and os.fork() == 0:
    third = temporary_folder("third-")
    remove_folder(third)
    os.setsid()
    time.sleep(8)
    os._exit(0)
print("ready", flush=True)
if sys.argv[2] != "end":
    time.sleep(600)
"""


def started(program: str, temporary: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A process that has said `ready`."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
    return process


def sweepers_of(process_id: int) -> list[int]:
    """The processes that remove folders of another one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if str(temporary_folders.SWEEPER).encode() in words and str(process_id).encode() in words:
            found.append(int(path.parent.name))
    return found


def new_sweepers(known: set[int]) -> set[int]:
    """Those of this process that were started since; the kernel shows a command line only some time after its start."""
    wait_until(lambda: set(sweepers_of(os.getpid())) - known, PATIENCE_S, "a sweeper")
    return set(sweepers_of(os.getpid())) - known


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []


def test_nothing_of_a_cluster_and_a_member_is_left_after_a_kill(temporary: Path) -> None:
    process = started(SERVERS, temporary)
    prefixes = {each.name.rpartition("-")[0] for each in temporary.iterdir() if each.name.startswith("zkconsumer")}
    assert prefixes == {"zkconsumer-embedded", "zkconsumer-zookeeper", "zkconsumer-member-ours"}
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_S)
    gone = lambda: not list(temporary.glob("zkconsumer-*"))  # noqa: E731
    wait_until(gone, PATIENCE_S, "the folders to be removed", state=lambda: list(temporary.iterdir()))


@pytest.mark.parametrize("how", ["kill", "end", "fork"])
def test_what_was_not_given_up_goes_with_its_process(temporary: Path, tmp_path: Path, how: str) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "file").write_text("y")
    process = started(FOLDERS, temporary, str(beside), how)
    if how != "end":
        assert {each.name.partition("-")[0] for each in temporary.iterdir()} - {"third"} == {"second"}
        os.kill(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_S)
    start = time.monotonic()
    wait_until(lambda: not list(temporary.iterdir()), PATIENCE_S, "the folder to be removed")
    assert time.monotonic() - start < PATIENCE_S / 2
    assert (beside / "file").read_text() == "y", "a link is removed, and not what it names"
    wait_until(lambda: sweepers_of(process.pid) == [], PATIENCE_S, "the end of the sweeper")


def test_one_process_for_all_folders_and_none_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_folders, "_sweeper", temporary_folders._Sweeper())
    before = set(sweepers_of(os.getpid()))
    folders = [temporary_folder("zkconsumer-of-a-test-") for _ in range(3)]
    assert all(each.is_dir() and each.stat().st_mode & 0o077 == 0 for each in folders)
    [ours] = new_sweepers(before)
    os.kill(ours, signal.SIGKILL)
    ended = os.WEXITED | os.WNOWAIT | os.WNOHANG
    wait_until(lambda: os.waitid(os.P_PID, ours, ended), PATIENCE_S, "the end of the sweeper")
    remove_folder(folders.pop())
    folders.append(temporary_folder("zkconsumer-of-a-test-"))
    [another] = new_sweepers({*before, ours})
    assert another != ours
    for folder in folders:
        remove_folder(folder)
        remove_folder(folder)
        assert not folder.exists()
    assert set(sweepers_of(os.getpid())) <= before
