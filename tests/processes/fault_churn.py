"""Random faults for minutes: a seed decides which fault happens next, and to which member."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace

from fault_players import CASTS, SESSION_S, Player
from fault_stage import UNGRACEFUL, Stage
from kazoo.exceptions import KazooException

from zkconsumer.testing.errors import KitError
from zkconsumer.testing.history.limits import Trouble
from zkconsumer.testing.kafka import probe as kafka_probe
from zkconsumer.testing.waiting import Deadline, wait_until

MOST_MEMBERS = 5
LEARNS_S = 2.0
LIMITS = replace(UNGRACEFUL, zombie_slack_s=1.0, told_late_s=1.0)


class Churn:
    """A group and what may happen to it; each step does one thing, and something later takes it back."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.rng = random.Random(seed)
        self.steps: list[str] = []
        self._names = 0
        self._pending: list[tuple[float, str, Callable[[], object]]] = []
        self._troubles: list[Trouble] = []

    # ---- members

    def living(self) -> list[Player]:
        """Members whose process runs and is to go on."""
        return [player for player in self.stage.players if player.expected]

    def well(self) -> list[Player]:
        """Members to which nothing lasting is being done."""
        return [player for player in self.living() if not player.process.paused and player.name not in self._busy]

    @property
    def _busy(self) -> set[str]:
        return {name for _, name, _ in self._pending}

    # ---- what may happen

    def step(self) -> None:
        """Do one random thing."""
        self._take_back()
        choices: list[tuple[str, Callable[[], object]]] = []
        if len(self.living()) < MOST_MEMBERS:
            choices += [("join", self._join)] * 3
        well = self.well()
        if len(well) > 1:
            player = self.rng.choice(well)
            faults: dict[str, Callable[[Player], object]] = {
                "leave": Player.begin_to_leave, "kill": Player.kill, "pause": self._pause, "end session": self._expire,
                "stall": self._stall, "lose answers": self._lose_answers, "drop": self._drop,
            }  # fmt: skip
            choices += [(f"{word} {player.name}", lambda act=act: act(player)) for word, act in faults.items()]  # type: ignore[misc]
        if not self._pending:  # a member that is cut off, or whose server is down, learns of no deletion
            choices.append(("delete an owner node", self._delete_owner))
            choices += [("kill ZooKeeper", self._kill_zookeeper), ("freeze ZooKeeper", self._freeze_zookeeper)]
            if self._are_replicas_in_sync():
                choices += [("pause a broker", self._pause_broker), ("kill a broker", self._kill_broker)]
        if not choices:
            return  # all members are busy
        word, act = self.rng.choice(choices)
        self.steps.append(f"{time.monotonic():.3f} {word}")
        act()

    def go_on(self, pause_s: float) -> None:
        """Let time pass, and take back what is due meanwhile."""
        deadline = Deadline(pause_s)

        def is_over() -> bool:
            self._take_back()
            return deadline.expired

        wait_until(is_over, pause_s + 60.0, "the next step", interval_s=0.05)

    def _later(self, delay_s: float, name: str, act: Callable[[], object]) -> None:
        self._pending.append((time.monotonic() + delay_s, name, act))

    def _take_back(self, all_of_it: bool = False) -> None:
        due = [each for each in self._pending if all_of_it or each[0] <= time.monotonic()]
        self._pending = [each for each in self._pending if each not in due]
        for _, name, act in due:
            self.steps.append(f"{time.monotonic():.3f} {name or 'servers'} back")
            act()

    def _trouble(self, name: str = "") -> Callable[[], None]:
        """Commits of a member, or of all, may be impossible from now on until what comes back is called."""
        began_ns = time.monotonic_ns()
        return lambda: self._troubles.append(Trouble(began_ns, time.monotonic_ns() + 1_000_000_000, name))

    def _join(self) -> None:
        self._names += 1
        kind = self.rng.choice(CASTS[self.stage.cast])
        like = next(player for player in self.stage.players if player.kind == kind)
        self.stage.launch(self.stage.prepare(f"m{self._names}", like=like))

    def _pause(self, player: Player) -> None:
        player.pause()
        self.stage.in_hand += 1
        self._later(self.rng.choice([1.0, 2.0 * SESSION_S]), player.name, player.resume)

    def _expire(self, player: Player) -> None:
        try:
            player.end_session()
        except (KitError, KazooException):
            return  # it has not joined yet, or its session ended by itself at this very moment
        # It learns of this end, which came before its time, from ZooKeeper alone: nothing may keep it from that.
        self._later(LEARNS_S, player.name, lambda: None)

    def _drop(self, player: Player) -> None:
        player.link.drop()
        self._later(LEARNS_S, player.name, lambda: None)

    def _stall(self, player: Player) -> None:
        self._cut(player, player.link.stall)

    def _lose_answers(self, player: Player) -> None:
        self._cut(player, lambda: player.link.half("up"))

    def _cut(self, player: Player, act: Callable[[], object]) -> None:
        over = self._trouble(player.name)
        act()

        def heal() -> None:
            player.link.clear()
            over()

        self._later(self.rng.choice([1.0, 2.0 * SESSION_S]), player.name, heal)

    def _delete_owner(self) -> None:
        place = self.rng.choice(list(self.stage.places))
        try:
            self.stage.cluster.client.delete(f"/consumers/{self.stage.group}/owners/{place[0]}/{place[1]}")
        except KazooException:
            pass  # no member owns it now

    # ---- servers

    def _are_replicas_in_sync(self) -> bool:
        """Whether the death of a broker loses nothing of what was acknowledged; Kafka's own losses are not meant.

        In Kafka 0.7, which has no replicas, the load counts as acknowledged what is flushed.
        """
        cluster = self.stage.cluster
        if self.stage.is_07:
            return all(broker.running for broker in cluster.brokers.values())
        try:
            told = [kafka_probe.topic_leaders(broker.port, self.stage.topic) for broker in cluster.brokers.values()]
        except OSError:
            return False
        return all(len(each.isr) == len(cluster.brokers) for answer in told for each in answer.values())

    def _kill_zookeeper(self) -> None:
        server, over = self.stage.cluster.zookeeper, self._trouble()
        server.kill()
        self.go_on(self.rng.choice([0.5, SESSION_S]))
        server.start()
        over()

    def _freeze_zookeeper(self) -> None:
        server, over = self.stage.cluster.zookeeper, self._trouble()
        server.pause()
        self.go_on(self.rng.choice([0.5, 2 * SESSION_S]))
        server.resume()
        over()

    def _pause_broker(self) -> None:
        broker_id = self.rng.choice(list(self.stage.cluster.brokers))
        self.stage.cluster.pause(broker_id)
        self._later(3.0, "", lambda: self.stage.cluster.resume(broker_id))

    def _kill_broker(self) -> None:
        broker_id = self.rng.choice(list(self.stage.cluster.brokers))
        self.stage.cluster.kill(broker_id, expire=True)
        self._later(3.0, "", lambda: self.stage.cluster.start(broker_id))

    # ---- the end

    def end(self) -> None:
        """Everything is taken back; a member of ours comes, Java members beside it are killed, and all must be well.

        A Java member may have given up, or be stuck for good, because of a fault.
        """
        self._take_back(all_of_it=True)
        self.stage.limits = replace(LIMITS, troubles=tuple(self._troubles))
        if not self.stage.is_java_alone:
            for player in self.living():
                if player.kind == "java":
                    player.kill()
        self._join_last()

    def _join_last(self) -> None:
        kind = "java" if self.stage.is_java_alone else "ours"
        like = next(player for player in self.stage.players if player.kind == kind)
        self.stage.mark()
        self.stage.launch(self.stage.prepare("last", like=like))
        self.stage.wait_full(60.0)
