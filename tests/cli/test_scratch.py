"""The temporary folder of a command is gone with the command, by whatever means that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from zkconsumer.cli.terminal import CliError, refuse_if_full, scratch_folder
from zkconsumer.testing.waiting import wait_until

PROGRAM = """
import sys, tempfile
from pathlib import Path
from zkconsumer.cli.terminal import scratch_folder

with scratch_folder("test-"):
    Path(tempfile.mkdtemp(), "file").write_text("something")
    print("made", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_temporary_files_of_the_block_lie_in_it_and_go_with_it(temporary: Path) -> None:
    with scratch_folder("test-") as folder:
        assert folder.parent == temporary
        assert Path(tempfile.mkdtemp()).parent == folder
    assert list(temporary.iterdir()) == []
    assert tempfile.gettempdir() == str(temporary)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_process_that_is_ended_by_a_signal_leaves_no_folder(temporary: Path, number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"made\n"
        assert len(list(temporary.glob("test-*/*/file"))) == 1
        process.send_signal(number)
        assert process.wait(30) != 0
    wait_until(lambda: not list(temporary.iterdir()), 20, "the folder to be removed")


def test_a_signal_to_the_whole_group_of_processes_does_not_reach_who_removes_it(temporary: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"made\n"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    wait_until(lambda: not list(temporary.iterdir()), 20, "the folder to be removed")


def test_a_folder_that_cannot_be_made_is_reported_with_a_remedy(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary / "file").write_text("no folder")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "file"))
    with pytest.raises(
        CliError,
        match=r"no temporary folder can be created in .*: Not a directory; set TMPDIR to "
        r"another folder",
    ):
        scratch_folder("test-").__enter__()


def test_a_folder_that_has_room_is_not_refused(temporary: Path) -> None:
    refuse_if_full(temporary)
    assert list(temporary.iterdir()) == []


def test_a_folder_in_which_nothing_can_be_written_is_refused_with_the_remedy(temporary: Path) -> None:
    """A limit on the size of files stands for a disk without room."""
    program = """
import resource, sys
from pathlib import Path
from zkconsumer.cli.terminal import refuse_if_full

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
refuse_if_full(Path(sys.argv[1]))
"""
    folder = temporary / "scratch"
    folder.mkdir()
    ended = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1] == (
        "zkconsumer.cli.terminal.CliError: there is no space for the temporary files of ZooKeeper, brokers and "
        "members in "
        f"{temporary} (File too large); free space there, or set TMPDIR to another folder"
    )
