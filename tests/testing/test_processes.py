"""Child processes live exactly as long as their parent process, whichever thread started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from zkconsumer.testing.errors import WaitTimeout
from zkconsumer.testing.processes import ChildProcess, free_ports
from zkconsumer.testing.waiting import wait_until

SLEEP = ["sleep", "300"]


def state_of(pid: int) -> str:
    """The letter of /proc/<pid>/stat; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return ""


def alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z", "X")


def test_exit_code_and_both_outputs_are_kept(tmp_path: Path) -> None:
    child = ChildProcess(
        "shell", ["sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path / "log", output_path=tmp_path / "out"
    )
    assert child.wait(10) == 3
    assert not child.running
    assert (tmp_path / "out").read_text() == "out\n"
    assert child.tail() == "err"


@pytest.fixture
def carelessly_started() -> Iterator[None]:
    """This process as `nohup`, `&` in a script and a careless parent leave it: signals are ignored, and blocked."""
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what a process ignores")
def test_a_child_begins_with_no_signal_ignored_or_blocked(carelessly_started: None, tmp_path: Path) -> None:
    child = ChildProcess("grep", ["grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"], tmp_path / "log")
    assert child.wait(10) == 0
    assert child.tail().split() == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16]


def test_a_child_hears_what_it_is_sent_however_its_parent_was_started(carelessly_started: None, tmp_path: Path) -> None:
    children = [ChildProcess("sleeper", SLEEP, tmp_path / "log") for _ in range(2)]
    children[0].signal(signal.SIGHUP)
    assert children[0].wait(10) == -signal.SIGHUP
    assert children[1].stop() == -signal.SIGTERM


def test_a_program_that_does_not_exist_says_so_in_its_log(tmp_path: Path) -> None:
    child = ChildProcess("nothing", ["/no/such/program"], tmp_path / "log")
    assert child.wait(10) == 127
    assert "cannot run /no/such/program" in child.tail()


def test_stop_asks_first_and_kills_what_does_not_listen(tmp_path: Path) -> None:
    polite = ChildProcess("polite", SLEEP, tmp_path / "polite")
    assert polite.stop() == -signal.SIGTERM
    deaf = ChildProcess("deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], tmp_path / "deaf")
    wait_until(lambda: "ready" in deaf.tail(), 10, "the shell to ignore SIGTERM")
    assert deaf.stop(timeout_s=0.2) == -signal.SIGKILL
    assert not alive(deaf.pid)


def test_pause_returns_when_the_process_stands_still_and_resume_when_it_may_go_on(tmp_path: Path) -> None:
    child = ChildProcess("sleeper", SLEEP, tmp_path / "log")
    child.pause()
    assert state_of(child.pid) == "T"
    assert child.running
    assert child.paused
    child.pause()  # again: no effect, and no wait for ever
    child.resume()
    wait_until(lambda: state_of(child.pid) == "S", 5, "the process to go on")
    child.pause()
    assert child.stop() == -signal.SIGTERM


def test_waiting_has_a_deadline_and_another_thread_may_kill_meanwhile(tmp_path: Path) -> None:
    child = ChildProcess("sleeper", SLEEP, tmp_path / "log")
    with pytest.raises(WaitTimeout, match=r"waited 0\.05 s for sleeper"):
        child.wait(0.05)
    killer = threading.Timer(0.1, child.kill)
    killer.start()
    assert child.wait(20) == -signal.SIGKILL
    killer.join()


def test_standard_input_is_a_pipe_that_can_be_closed(tmp_path: Path) -> None:
    child = ChildProcess("cat", ["cat"], tmp_path / "log", stdin=True)
    assert child.running
    child.close_stdin()
    assert child.wait(10) == 0


def test_a_child_survives_the_thread_that_started_it(tmp_path: Path) -> None:
    children: list[ChildProcess] = []
    threads = [
        threading.Thread(target=lambda n=n: children.append(ChildProcess(f"s{n}", SLEEP, tmp_path / f"log{n}")))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pytest.raises(WaitTimeout):  # a signal tied to the threads would have come by now
        children[0].wait(0.3)
    assert all(child.running for child in children)
    for child in children:
        child.kill()


PARENT = textwrap.dedent(
    """
    import os, sys, threading, time
    from pathlib import Path
    from zkconsumer.testing.processes import ChildProcess
    folder = Path(sys.argv[1])
    children = []
    def start(n):
        # a shell that goes on after its own child, which it has started as Spark starts Java
        command = ["sh", "-c", "sleep 300 & echo $! > $0; wait; sleep 300", str(folder / f"below{n}")]
        children.append(ChildProcess(f"s{n}", command, folder / f"log{n}"))
    threads = [threading.Thread(target=start, args=(n,)) for n in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    while not all((folder / f"below{n}").exists() and (folder / f"below{n}").read_text() for n in range(3)):
        time.sleep(0.01)
    below = [int((folder / f"below{n}").read_text()) for n in range(3)]
    if sys.argv[2] == "fork" and os.fork() == 0:   # a copy of the parent that holds every descriptor open
        time.sleep(300)
    children[0].pause()                            # a stopped child must die too
    print(*[c.pid for c in children], *[c._guard.pid for c in children], *below, flush=True)
    time.sleep(0 if sys.argv[2] == "exit" else 300)
    """
)


@pytest.mark.parametrize("way", ["kill", "terminate", "exit", "fork"])
def test_children_and_what_they_started_die_with_a_parent_that_is_killed_or_just_ends(tmp_path: Path, way: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), way],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    try:
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 9
        if way != "exit":
            assert all(alive(pid) for pid in pids)
            parent.send_signal(signal.SIGTERM if way == "terminate" else signal.SIGKILL)
        parent.wait(20)
        wait_until(lambda: not any(alive(pid) for pid in pids), 10, "children, guards and grandchildren to be gone")
    finally:
        try:
            os.killpg(parent.pid, signal.SIGKILL)  # the forked copy
        except ProcessLookupError:
            pass
        parent.stdout.close()
        parent.wait(20)


def test_a_group_is_killed_with_its_process(tmp_path: Path) -> None:
    below = tmp_path / "below"
    command = ["sh", "-c", "sleep 300 & echo $! > $0; cat > $0.in", str(below)]
    child = ChildProcess("shell", command, tmp_path / "log", stdin=True)
    child.write_stdin(b"written")
    pid = int(wait_until(lambda: below.exists() and below.read_text(), 10, "the shell's own child"))
    child.kill_group()
    assert child.returncode == -signal.SIGKILL
    wait_until(lambda: not alive(pid) and not alive(child.pid), 10, "both to be gone")
    child.kill_group()  # a second time has no effect


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends a child together with its parent")
def test_a_child_dies_with_its_guard(tmp_path: Path) -> None:
    child = ChildProcess("sleeper", SLEEP, tmp_path / "log")
    child._guard.kill()
    assert child.wait(10) == -signal.SIGKILL
    wait_until(lambda: not alive(child.pid), 10, "the child to be gone")


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20
