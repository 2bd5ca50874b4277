"""`zkconsumer demo`: servers, processes and a death, and a last line that can be believed."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.command_line import Running, command, run
from zkconsumer.testing.java import find_java
from zkconsumer.testing.waiting import Deadline, wait_until

pytestmark = pytest.mark.real
LIMIT_S = 90.0


@pytest.fixture(autouse=True)
def _servers_can_be_started() -> None:
    find_java()


def last_counts(line: str) -> dict[str, int]:
    assert re.fullmatch(r"produced=\d+ delivered=\d+ lost=\d+ repeated=\d+", line), line
    return {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", line)}


def children_of(marker: str) -> list[str]:
    """Command lines of all processes that mention `marker`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if marker in text:
            found.append(text)
    return found


def shown_without_loss(*options: str) -> str:
    """What a whole demonstration prints, which has lost nothing."""
    with Running("demo", "--steady", "1", *options) as demo:
        assert demo.process.wait(LIMIT_S) == 0, (demo.lines()[-20:], demo.errors())
        lines = demo.lines()
    counts = last_counts(lines[-1])
    assert counts["produced"] == counts["delivered"] > 500
    assert counts["lost"] == 0
    return "\n".join(lines)


def test_it_loses_nothing_and_repeats_what_a_death_explains() -> None:
    text = shown_without_loss()
    counts = last_counts(text.splitlines()[-1])
    for owners in ("ann 0 1 2 3, bob 4 5 6 7", "ann 0 1 2, bob 3 4 5, cleo 6 7", "ann 0 1 2 3 4 5 6 7"):
        assert re.search(rf"shared after [\d.]+ s: {owners}$", text, re.MULTILINE), text
    again = f"{counts['repeated']} messages? (was|were)" if counts["repeated"] else "no message was"
    assert re.search(rf"^ *[\d.]+ s  {again} delivered again: cleo had", text, re.MULTILINE), text
    assert "\x1b" not in text


def test_it_loses_nothing_on_kafka_0_7() -> None:
    text = shown_without_loss("--generation", "0.7")
    assert "2 embedded brokers of Kafka 0.7" in text
    for owners in ("ann 0-0 0-1 0-2 0-3, bob 1-0 1-1 1-2 1-3", "ann 0-0 0-1 0-2, bob 0-3 1-0 1-1, cleo 1-2 1-3"):
        assert re.search(rf"shared after [\d.]+ s: {owners}$", text, re.MULTILINE), text


def test_real_and_embedded_brokers_at_once_are_refused() -> None:
    got = run("demo", "--kafka", "0.8.2.2", "--generation", "0.7")
    assert got.returncode == 2
    assert b"--kafka already chooses the brokers" in got.stderr


def test_an_injected_loss_and_an_injected_repeat_show_in_line_and_status() -> None:
    with Running("demo", "--steady", "1", "--inject", "loss", "--inject", "repeat") as demo:
        assert demo.process.wait(LIMIT_S) == 1, demo.lines()[-20:]
        lines, errors = demo.lines(), demo.errors()
    counts = last_counts(lines[-1])
    assert counts["lost"] == 1
    assert counts["produced"] == counts["delivered"] + 1
    assert counts["repeated"] >= 1
    assert "1 more without that reason" in lines[-2]
    assert re.search(r"lost: message demo-\d-\d+ was acknowledged and never delivered", errors)
    assert re.search(r"repeated: offset \d+ of demo/\d came again after [\d.]+ s", errors)


def test_on_a_terminal_there_is_a_picture_and_the_same_last_line() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        command(["demo", "--steady", "0.5"]), stdin=theirs, stdout=theirs, stderr=theirs, env=environment,
        start_new_session=True,
    ) as process:  # fmt: skip
        os.close(theirs)
        text = read_all(ours, LIMIT_S)
        assert process.wait(10) == 0, text[-2000:]
    assert "\x1b[" in text
    assert "cleo" in text
    assert last_counts(text.splitlines()[-1])["lost"] == 0


def read_all(descriptor: int, limit_s: float) -> str:
    """What a terminal was sent until its last process ended."""
    chunks = []
    deadline = Deadline(limit_s)
    while select.select([descriptor], [], [], deadline.remaining_s)[0]:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # Linux: EIO, the other side is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(descriptor)
    return b"".join(chunks).decode("utf-8", "replace")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_whatever_ends_it_early_leaves_no_process_and_no_file(number: int, tmp_path: Path) -> None:
    with Running("demo", scratch=tmp_path) as demo:
        demo.wait_lines(5)
        port = re.search(r"ZooKeeper (127\.0\.0\.1:\d+)", "\n".join(demo.lines()))
        assert port is not None, (demo.lines(), demo.errors())
        wait_until(lambda: len(children_of(port[1])) >= 2, 20, "members to run")
        demo.process.send_signal(number)
        assert demo.process.wait(30) == (-number if number == signal.SIGKILL else 130), demo.errors()
        assert number == signal.SIGKILL or demo.errors() == "interrupted; everything is stopped\n"
    wait_until(lambda: not children_of(port[1]), 20, "members to end", state=lambda: children_of(port[1]))
    wait_until(lambda: not list(tmp_path.iterdir()), 20, "no file left", state=lambda: list(tmp_path.rglob("*")))


@pytest.mark.parametrize("room_kib", [4, 64, 256])
def test_a_full_disk_is_the_only_message(room_kib: int, tmp_path: Path) -> None:
    """Too little to start with, for the brokers, for what the members write down."""
    demo = command(["demo", "--plain"])
    in_a_namespace = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'mount -t tmpfs -o size={room_kib + 4}k tmpfs "$0" && exec "$@"',
        str(tmp_path),
    ]
    try:
        subprocess.run([*in_a_namespace, "true"], check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no tmpfs can be mounted in a namespace of its own (unshare --map-root-user --mount)")
    ended = subprocess.run([*in_a_namespace, *demo], env={**os.environ, "TMPDIR": str(tmp_path)},
                           capture_output=True, text=True, timeout=LIMIT_S, check=False)  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == (
        f"zkconsumer: there is no space for the temporary files of ZooKeeper, brokers and members in {tmp_path} "
        "(No space left on device); free space there, or set TMPDIR to another folder\n"
    )
    assert "lost" not in ended.stdout


def test_an_unknown_version_is_refused_in_a_sentence() -> None:
    ended = run("demo", "--kafka", "0.8.7")
    assert ended.returncode == 1
    assert b"0.8.7" in ended.stderr
    assert b"Traceback" not in ended.stderr
