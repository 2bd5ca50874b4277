"""Runs a consumer of ours as a child process, and reads the history that it writes."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zkconsumer.config.tables.keys import find_key, unknown_setting
from zkconsumer.testing.cluster import Cluster
from zkconsumer.testing.history.events import parse_event
from zkconsumer.testing.members.message_lines import MESSAGE, parse_message
from zkconsumer.testing.members.recorded_member import DEFAULTS, Delivered, MemberKind, RecordedMember, Subscription
from zkconsumer.testing.processes import ChildProcess
from zkconsumer.testing.zookeeper.login import ZooKeeperLogin

READY_S = 20.0


@dataclass(frozen=True)
class Note:
    """A line that a member has printed about itself; see `program.py`."""

    time_ns: int
    word: str
    text: str


class MemberProcess(RecordedMember):
    """A consumer of ours in a process of its own; a `GroupMember`.

    `with MemberProcess(cluster, "group", topics={"t": 2}) as member: member.wait_messages(100)`. `member` of its events
    is its `consumer_id`.

    Attributes:
        name: its `consumer.id`, too.
    """

    def __init__(
        self,
        cluster: Cluster | str,
        group: str,
        name: str | None = None,
        *,
        topics: Mapping[str, int] | None = None,
        whitelist: str | None = None,
        blacklist: str | None = None,
        streams: int = 1,
        consumer_id: str | None = None,
        settings: Mapping[str, object] | None = None,
        zookeeper_connect: str | None = None,
        work_ms: float = 0.0,
        timeout_s: float = READY_S,
        copies: int = 1,
        commit_on_revoke: bool = False,
        verbose: bool = False,
        skip: int = 0,
        twice: int = 0,
        bootstrap_servers: str | None = None,
    ) -> None:
        """Prepare a member; `start()` (or the `with` block) starts it. See `MemberKind` for the other arguments.

        Args:
            cluster: a cluster, or a `zookeeper.connect`.
            name: an older way to give the `consumer_id`, with which the process is launched at once, and nothing but
                `auto.offset.reset=smallest` is set by default.
            copies: so many members in the process, named `<consumer_id>00`, `<consumer_id>01`, ...
            commit_on_revoke: its listener calls `commit_offsets()`.
            verbose: log every step.
            skip: number of the message that its application forgets; 0: none. Such a history must not pass as clean.
            twice: number of the message that its application handles twice; 0: none. The same.
            bootstrap_servers: of a group that brokers coordinate; the ZooKeeper of the cluster is not asked then, and
                what asks it (`owned`, `session_id`) must not be used.

        Raises:
            ValueError: not exactly one of topics, whitelist and blacklist, or both names.
            UnknownSetting: there is no such setting.
        """
        for setting in settings or {}:
            if find_key(setting) is None:
                raise unknown_setting(setting)
        if name is not None and consumer_id is not None:
            raise ValueError(f"name {name!r} and consumer_id {consumer_id!r} mean the same: give one of them")
        subscription = Subscription.of(topics, whitelist, blacklist, streams)
        super().__init__(cluster, group, name or consumer_id, id_prefix="ours", timeout_s=timeout_s)
        self.name = self.consumer_id
        where = _where(cluster, zookeeper_connect, bootstrap_servers)
        defaults = {} if name is not None else _without_zookeeper(DEFAULTS) if bootstrap_servers else DEFAULTS
        file = self._settings_file(defaults, settings or {})
        self._command = [
            *[sys.executable, "-m", "zkconsumer.testing.members.program"],
            *[*where, "--group", group, "--name", self.consumer_id],
            *[f"--{subscription.kind}={subscription.spec}", "--streams", str(subscription.streams)],
            *["--copies", str(copies), "--work-ms", str(work_ms), "--skip", str(skip), "--twice", str(twice)],
            *(["--verbose"] if verbose else []),
            *(["--commit-on-revoke"] if commit_on_revoke else []),
            *["--settings-file", str(file)],
        ]
        self._notes: list[Note] = []
        if name is not None:
            self.launch()

    def _settings_file(self, defaults: Mapping[str, object], given: Mapping[str, object]) -> Path:
        """Return the file of all settings. A command line is shown to everybody by ps, and one may be a password."""
        of_login = {} if self._login is None else self._login.settings()
        chosen = {**defaults, **of_login, **given}
        self._login = ZooKeeperLogin.of_settings(chosen)
        file = self.folder / "settings.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps({key: str(value) for key, value in chosen.items()}))
        return file

    def _launched(self) -> ChildProcess:
        return ChildProcess(f"member {self.name}", self._command, self.folder / "log", output_path=self._output)

    def _ask_to_leave(self) -> None:
        self.process.signal(signal.SIGTERM)

    def leave(self, timeout_s: float = 15.0) -> None:
        """The older name of `stop()`."""
        self.stop(timeout_s)

    def notes(self, word: str, since_ns: int = 0) -> list[Note]:
        """Return its notes under this word."""
        self._read()
        return [note for note in self._notes if note.word == word and note.time_ns >= since_ns]

    def _take(self, line: str) -> None:
        if not line.startswith("#"):
            self._events.append(parse_event(line))
            return
        _, time_ns, word, text = line.split(" ", 3)
        if word == MESSAGE:
            self._messages.append(Delivered(int(time_ns), *parse_message(text)))
            return
        self._notes.append(Note(int(time_ns), word, text))
        if word == "ready":
            self._ready = True


def _where(cluster: Cluster | str, zookeeper_connect: str | None, bootstrap_servers: str | None) -> list[str]:
    """Return the arguments that say where a member finds its cluster."""
    if bootstrap_servers is not None:
        return ["--brokers", bootstrap_servers]
    return ["--connect", zookeeper_connect or (cluster if isinstance(cluster, str) else cluster.zookeeper_connect)]


def _without_zookeeper(settings: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in settings.items() if not name.startswith("zookeeper.")}


if TYPE_CHECKING:
    _kind: MemberKind = MemberProcess
