"""Plans drawn from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Literal

from tests.simulator.actor import MemberSpec
from tests.simulator.operator_faults import CLOSED
from tests.simulator.plan import Plan, Step
from tests.simulator.profiles import PROFILES, Profile, profile_07

__all__ = ["MEMBERS", "PROFILES", "Profile", "draw_plan"]

MEMBERS: Final = ("ours", "java", "mixed")

_BUNCH_S: Final = 4.0


def draw_plan(seed: int | str, kinds: str = "ours", profile: Profile | None = None, generation: str = "0.8") -> Plan:
    """The plan of a seed.

    Args:
        kinds: "ours", "java" or "mixed" members.
        generation: of Kafka; in 0.7 the same profile has other faults.

    Raises:
        ValueError: another word for `kinds`.
    """
    if kinds not in MEMBERS:
        raise ValueError(f"members are {', '.join(MEMBERS)}, not {kinds!r}")
    # What not every profile has is drawn apart: the other plans of a seed stay what they were.
    chosen = profile or PROFILES["everything"]
    if generation == "0.7":
        return _draw_plan_07(seed, kinds, profile_07(chosen))
    order = random.Random(f"{seed}/order").choice(("0.8", "1.0"))
    storages = random.Random(f"{seed}/storages").choice(chosen.storages)
    if kinds == "mixed" and random.Random(f"{seed}/java").random() >= chosen.java:
        kinds = "ours"
    plan = _Drawing(random.Random(f"{seed}/plan"), kinds, chosen, order, storages).plan()
    return plan if storages == ("",) else _with_one_intent(plan, storages, random.Random(f"{seed}/intent"))


def _draw_plan_07(seed: int | str, kinds: str, profile: Profile) -> Plan:
    if kinds == "mixed" and random.Random(f"{seed}/java").random() >= profile.java:
        kinds = "ours"
    plan = _Drawing(random.Random(f"{seed}/plan 0.7"), kinds, profile, "0.8", ("",)).plan()
    return replace(plan, generation="0.7", steps=tuple(_step_07(step) for step in plan.steps))


def _step_07(step: Step) -> Step:
    """Return a step of Kafka 0.7, in which positions may be set within an entry."""
    if step.kind == "offset set" and int(step.at_s * 1000) % 2:
        return replace(step, word="inside", amount=1 + abs(step.amount) % 10)
    return step


def _with_one_intent(plan: Plan, storages: tuple[str, ...], rng: random.Random) -> Plan:
    """Return the plan with one intent for all members of ours, in half of the seeds as it is."""
    intents: list[Literal["", "zookeeper", "refuse"]] = ["", "", "refuse"]
    if "kafka" not in storages:  # ZooKeeper alone may be read only if all members write it
        intents.append("zookeeper")
    intent = rng.choice(intents)
    if not intent:
        return plan
    members = tuple(replace(each, intent=intent) if each.kind == "ours" else each for each in plan.members)
    return replace(plan, members=members)


class _Drawing:
    """The random numbers, and what was drawn so far."""

    def __init__(
        self, rng: random.Random, kinds: str, profile: Profile, java_order: str, storages: tuple[str, ...]
    ) -> None:
        self._rng = rng
        self._kinds = kinds
        self._profile = profile
        self._java_order = java_order
        self._storages = storages
        self._faults_s = rng.uniform(8.0, 25.0)
        self._session_s = rng.choice((4.0, 6.0, 6.0, 10.0))
        self._message_every_s = round(rng.uniform(0.15, 0.6), 3)
        self._bunches_s = [rng.uniform(1.0, self._faults_s) for _ in range(2)] if profile.bunched else []
        self._names: list[str] = []
        self._topics: list[tuple[str, int]] = []

    def plan(self) -> Plan:
        rng = self._rng
        topics = rng.choice(self._profile.topics)
        self._topics = [
            ("t" if number == 0 else f"t{number}", rng.randint(*self._profile.partitions)) for number in range(topics)
        ]
        members = tuple(self._members())
        self._names = list(dict.fromkeys(member.name for member in members))
        steps = [
            Step(self._round(rng.uniform(0.0, 2.0)), "join", name)
            for name in self._names
            if rng.random() < 0.7 or name == self._names[0]
        ]
        steps += self._scene()
        steps += [self._step() for _ in range(rng.randint(*self._profile.steps))]
        return Plan(
            members=members,
            topics=tuple(self._topics),
            steps=tuple(sorted(steps, key=lambda step: step.at_s)),
            servers=rng.choice(self._profile.servers),
            tick_s=rng.choice((0.5, 1.0, 2.0)),
            message_every_s=self._message_every_s,
            faults_s=self._round(self._faults_s),
        )

    @staticmethod
    def _round(time_s: float) -> float:
        return round(time_s, 4)

    # -- members ------------------------------------------------------------------------------------------------------

    def _members(self) -> list[MemberSpec]:
        rng = self._rng
        names = "abcdefgh"[: rng.randint(*self._profile.members)]
        is_roundrobin = rng.random() < self._profile.roundrobin
        by_filter = rng.random()
        storages = self._storages
        shared = {
            "session_s": self._session_s,
            "strategy": "roundrobin" if is_roundrobin else "range",
            "reset": "largest" if self._kinds == "ours" and rng.random() < 0.2 else "smallest",
        }
        found = []
        for number, name in enumerate(names):
            filters = not is_roundrobin and (by_filter < 0.2 or (by_filter < 0.3 and number % 2 == 1))
            kind = self._kind(number)
            storage = self._storage_of(storages)
            order = self._java_order if is_roundrobin and kind == "java" else ""
            # All members alike, or roundrobin deals nothing; and some come back with another subscription.
            for _ in range(2 if not is_roundrobin and rng.random() < self._profile.others else 1):
                values = {
                    **shared,
                    "order": order,
                    **storage,
                    **self._pace(),
                    **self._subscription(is_roundrobin, filters),
                }
                if kind == "ours":
                    values |= self._own_settings()
                found.append(MemberSpec(name, kind, **{**values, **self._profile.settings}))  # type: ignore[arg-type]
        return found

    def _storage_of(self, storages: tuple[str, ...]) -> dict[str, object]:
        """Where one member keeps its offsets; other plans than those with storages draw nothing for it."""
        if storages == ("",):
            return {}
        storage = self._rng.choice(storages)
        # A member that reads one store alone must be one of a group that all write it.
        intents = ("", "max", "kafka") if storage != "zookeeper" and "zookeeper" not in storages else ("",)
        return {"storage": storage, "intent": self._rng.choice(intents)}

    def _pace(self) -> dict[str, object]:
        # One stream alone must be able to catch up with everything.
        gap_s = self._message_every_s / sum(partitions for _, partitions in self._topics)
        return {
            "auto_commit_s": self._rng.choice((0.5, 1.0, 2.0)),
            "work_s": round(gap_s * self._rng.choice((0.1, 0.4, 0.8)), 4),
        }

    def _subscription(self, is_roundrobin: bool, filters: bool) -> dict[str, object]:
        rng = self._rng
        if filters:
            return {"whitelist": "t.*", "streams": rng.randint(1, 2)}
        if is_roundrobin:
            return {"topics": tuple((topic, 1) for topic, _ in self._topics)}
        wanted = [topic for topic, _ in self._topics if rng.random() < 0.8] or [self._topics[0][0]]
        return {"topics": tuple((topic, rng.choice(self._profile.streams)) for topic in wanted)}

    def _kind(self, number: int) -> str:
        if self._kinds == "mixed":
            return ("ours", "java")[number] if number < 2 else self._rng.choice(("ours", "java"))
        return self._kinds

    def _own_settings(self) -> dict[str, object]:
        rng = self._rng
        values: dict[str, object] = {"drain_s": rng.choice(self._profile.drains)}
        if rng.random() < 0.2:
            values |= {"auto_commit_s": 0.0, "commit_every": rng.randint(1, 6)}
        if rng.random() < self._profile.limited:
            values["max_processing_s"] = rng.choice((2.0, 4.0))
        return values

    def _scene(self) -> list[Step]:
        scenes = self._profile.scenes
        if self._kinds != "ours":  # see `_broker`
            scenes = tuple(scene for scene in scenes if not any(step.word == "replaced" for step in scene))
        if not scenes:
            return []
        scene = self._rng.choice(scenes)
        begin_s = self._rng.uniform(2.5, 6.0)
        return [replace(step, at_s=self._round(begin_s + step.at_s)) for step in scene]

    # -- steps --------------------------------------------------------------------------------------------------------

    def _step(self) -> Step:
        rng = self._rng
        kinds = list(self._profile.weights)
        kind = rng.choices(kinds, [self._profile.weights[each] for each in kinds])[0]
        at_s = self._round(self._moment_s())
        step = self._DRAWN.get(kind, _Drawing._on_member)(self, at_s, kind)
        if kind != "stuck" and self._profile.waits and rng.random() < self._profile.waits:
            return replace(step, at_s=self._round(at_s * rng.random()), when=rng.choice(self._profile.states))
        return step

    def _moment_s(self) -> float:
        if not self._profile.bunched:
            return self._rng.uniform(1.0, self._faults_s)
        return min(self._rng.choice(self._bunches_s) + self._rng.uniform(0.0, _BUNCH_S), self._faults_s)

    def _some_s(self) -> float:
        """How long something lasts: shorter than, about as long as, or longer than a session."""
        return self._round(self._rng.choice((0.3, 1.0, 1.0, 2.5)) * self._session_s * self._rng.uniform(0.1, 1.0))

    def _on_member(self, at_s: float, kind: str) -> Step:
        return Step(at_s, kind, self._rng.choice(self._names), for_s=self._some_s())

    def _at_once(self, at_s: float, kind: str) -> Step:
        return Step(at_s, kind, self._rng.choice(self._names))

    def _leave(self, at_s: float, kind: str) -> Step:
        word = self._rng.choice(("", "", "at once"))
        wait_ms = 0 if word else self._rng.choice((0, 0, 0, 200, 1000))
        return Step(at_s, kind, self._rng.choice(self._names), amount=wait_ms, word=word)

    def _fault(self, at_s: float, kind: str) -> Step:
        calls = self._rng.choice((0, 3, 30)) * self._rng.random()
        return Step(
            at_s, kind, self._rng.choice(self._names), amount=int(calls), word=self._rng.choice(("before", "behind"))
        )

    def _crash(self, at_s: float, kind: str) -> Step:
        comes_back = self._rng.random() < 0.5
        return Step(at_s, kind, self._rng.choice(self._names), for_s=self._some_s() if comes_back else 0.0)

    def _pause(self, at_s: float, kind: str) -> Step:
        word = self._rng.choice(("", "", "asking", "proving"))
        return Step(at_s, kind, self._rng.choice(self._names), for_s=self._some_s(), word=word)

    def _late(self, at_s: float, kind: str) -> Step:
        delay_s = self._round(self._rng.choice((0.2, 4.0)) * self._rng.random())
        return Step(at_s, kind, self._rng.choice(self._names), for_s=delay_s)

    def _slow(self, at_s: float, kind: str) -> Step:
        work_ms = self._rng.randint(*self._profile.slow_ms)
        return Step(at_s, kind, self._rng.choice(self._names), for_s=self._some_s(), amount=work_ms)

    def _stuck(self, at_s: float, kind: str) -> Step:
        for_s = self._some_s() + (self._rng.uniform(0.0, 4.0) if self._profile.limited == 1.0 else 0.0)
        return Step(at_s, kind, self._rng.choice(self._names), for_s=self._round(for_s))

    def _hold_up(self, at_s: float, kind: str) -> Step:
        return Step(
            at_s,
            kind,
            self._rng.choice(self._names),
            for_s=self._some_s(),
            word=self._rng.choice(("", "moving", "moving")),
        )

    def _old(self, at_s: float, kind: str) -> Step:
        return Step(
            at_s, kind, self._rng.choice(self._names), for_s=self._some_s(), word=self._rng.choice(("", "late"))
        )

    def _clock(self, at_s: float, kind: str) -> Step:
        return Step(at_s, kind, self._rng.choice(self._names), amount=self._rng.choice((-3600, 3600, 10**9)))

    def _answers(self, at_s: float, kind: str) -> Step:
        return Step(
            at_s, kind, self._rng.choice(self._names), for_s=self._some_s(), word=self._rng.choice(("", "", "answers"))
        )

    def _lost(self, at_s: float, kind: str) -> Step:
        words = ("", "create", "set", "delete") if kind == "lost reply" else ("", "create", "set", "delete", "handover")
        return Step(at_s, kind, self._rng.choice(self._names), word=self._rng.choice(words))

    def _on_servers(self, at_s: float, kind: str) -> Step:
        word = "all" if kind == "freeze" and self._rng.random() < 0.5 else ""
        amount = self._rng.randint(100, 2000) if kind == "lag" else 0
        return Step(at_s, kind, number=self._rng.randrange(3), for_s=self._some_s(), amount=amount, word=word)

    def _topic(self) -> tuple[str, int]:
        return self._rng.choice(self._topics)

    def _grow(self, at_s: float, kind: str) -> Step:
        return Step(at_s, kind, self._topic()[0], amount=self._rng.randint(1, 2))

    def _create(self, at_s: float, kind: str) -> Step:
        return Step(at_s, kind, f"tnew{self._rng.randint(0, 1)}", amount=self._rng.randint(1, 2))

    def _delete(self, at_s: float, kind: str) -> Step:
        comes_back = self._rng.random() < 0.7
        return Step(
            at_s,
            kind,
            self._topic()[0],
            for_s=self._some_s() if comes_back else 0.0,
            word=self._rng.choice(("", "offsets")),
        )

    def _on_partition(self, at_s: float, kind: str) -> Step:
        topic, count = self._topic()
        word = self._foreign() if kind == "owner replaced" else ""
        for_s = 0.0 if kind == "owner deleted" else self._some_s()
        return Step(at_s, kind, topic, self._rng.randrange(count), for_s, word=word)

    def _foreign(self) -> str:
        return self._rng.choice(("", "ephemeral"))

    def _named(self, at_s: float, kind: str) -> Step:
        return Step(at_s, kind, self._rng.choice(self._names), for_s=self._some_s(), word=self._foreign())

    def _late_answers(self, at_s: float, kind: str) -> Step:
        return Step(
            at_s,
            kind,
            self._rng.choice(self._names),
            for_s=self._round(self._rng.uniform(0.01, 0.3)),
            word=self._rng.choice(("", "cut", "cut")),
        )

    def _moved(self, at_s: float, kind: str) -> Step:
        return Step(at_s, kind, self._rng.choice(self._names), for_s=self._round(self._rng.choice((0.02, 0.5))))

    def _retention(self, at_s: float, kind: str) -> Step:
        return Step(at_s, kind, self._topic()[0], amount=self._rng.choice((30, 80, 100)))

    def _damaged(self, at_s: float, kind: str) -> Step:
        topic, count = self._topic()
        number = self._rng.randrange(count)
        return Step(
            at_s,
            kind,
            topic,
            number,
            amount=self._rng.choice((1, 2, 3, 8)),
            word=self._rng.choice(("negative", "far", "ahead", "back")),
        )

    def _offset(self, at_s: float, kind: str) -> Step:
        topic, count = self._topic()
        number = self._rng.randrange(count)
        word = self._rng.choice(("lower", "higher", "beyond", "garbage", "deleted"))
        few = self._rng.randint(1, 10)
        amount = {"lower": -few, "higher": few, "beyond": 100_000}.get(word, 0)
        return Step(at_s, kind, topic, number, amount=amount, word=word)

    def _on_manager(self, at_s: float, kind: str) -> Step:
        return Step(at_s, kind, for_s=self._some_s())

    def _slow_manager(self, at_s: float, kind: str) -> Step:
        return Step(
            at_s, kind, for_s=self._some_s(), amount=self._rng.randint(50, 4000), word=self._rng.choice(("", "mute"))
        )

    def _offset_in_kafka(self, at_s: float, kind: str) -> Step:
        topic, count = self._topic()
        word = self._rng.choice(("lower", "higher", "beyond", "deleted"))
        few = self._rng.randint(1, 10)
        amount = {"lower": -few, "higher": few, "beyond": 100_000}.get(word, 0)
        return Step(at_s, kind, topic, self._rng.randrange(count), amount=amount, word=word)

    def _poison(self, at_s: float, kind: str) -> Step:
        return Step(
            at_s,
            kind,
            number=self._rng.randint(0, 1),
            for_s=self._some_s(),
            word=self._rng.choice(self._profile.poisons),
        )

    def _closed(self, at_s: float, kind: str) -> Step:
        word = self._rng.choice(CLOSED)
        topic, count = self._topic()
        number = self._rng.randrange(count) if word in ("owner", "offset") else self._rng.randint(0, 1)
        target = self._rng.choice(self._names) if word == "member" else topic
        return Step(at_s, kind, target, number, self._some_s(), word=word)

    def _broker(self, at_s: float, kind: str) -> Step:
        # Fetchers of Java members end with their connection, and read whatever another log has at their position.
        words = ("", "killed", "deaf", "replaced") if self._kinds == "ours" else ("", "killed")
        return Step(at_s, kind, number=self._rng.randrange(3), for_s=self._some_s(), word=self._rng.choice(words))

    def _untargeted(self, at_s: float, kind: str) -> Step:
        return Step(at_s, kind)

    _DRAWN: Final[Mapping[str, Callable[[_Drawing, float, str], Step]]] = {
        "join": _at_once, "leave": _leave, "fault": _fault, "crash": _crash, "pause": _pause, "slow": _slow,
        "hold up": _hold_up,
        "wall clock": _clock, "old requests": _old,
        "end session": _at_once, "late watch": _late, "stall": _answers, "lost reply": _lost, "lost request": _lost,
        "outage": _on_servers, "stop server": _on_servers, "freeze": _on_servers, "isolate": _on_servers,
        "lag": _on_servers, "wipe": _untargeted, "grow": _grow, "create topic": _create, "delete topic": _delete,
        "leader": _on_partition, "retention": _retention, "damaged offset": _damaged, "owner deleted": _on_partition,
        "owner replaced": _on_partition, "offset set": _offset, "unregistered": _at_once, "poison": _poison,
        "late answers": _late_answers, "stuck": _stuck, "moved": _moved, "refused": _at_once, "name taken": _named,
        "closed": _closed, "broker": _broker,
        "manager moved": _on_manager, "manager dead": _on_manager, "manager slow": _slow_manager,
        "offset in kafka set": _offset_in_kafka,
    }  # fmt: skip
