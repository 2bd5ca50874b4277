"""A mirror: copies topics of one cluster to another, each record once and in order, for every reader.

Each process of a mirror is a member of a group on the target, which shares out the partitions of the state topic: the
slots. A lane belongs to a slot by its name. Sharing is for speed alone: what keeps records from being copied twice is
the sequence numbers, not the group.

Threads: `run` by one; `stop` from any, and from signal handlers. Each lane has its own.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import zlib
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import Final

from rebalance.errors import RebalanceError
from rebalance.rebalance_statistics import Counters
from simpleconsumer.consumer import LATEST
from simpleconsumer.errors import SimpleConsumerError
from simpleconsumer.types import TopicPartition
from zkconsumer.cluster.zookeeper_connection import ClusterSilent
from zkconsumer.config import KafkaConsumerConfig
from zkconsumer.errors import ReadFailed
from zkconsumer.mirror.copier import LaneCopier
from zkconsumer.mirror.errors import LaneStuck, MirrorRefused, MirrorUnfinished
from zkconsumer.mirror.lane_runs import Lane
from zkconsumer.mirror.lane_settings import LaneFigures, LaneSettings
from zkconsumer.mirror.lane_source import SourcePool
from zkconsumer.mirror.pieces import BatchLimits
from zkconsumer.mirror.reports import lane_states
from zkconsumer.mirror.sides import Both, MirrorSettings
from zkconsumer.mirror.slot_claims import SlotClaims
from zkconsumer.mirror.state_log import StateLog
from zkconsumer.mirror.topics.mirror_plan import TopicPlan
from zkconsumer.mirror.topics.topic_copies import TopicCopies
from zkconsumer.polling.poller import Poller

log = logging.getLogger(__name__)

_LOOK_S: Final = 10.0
_SESSION_MS: Final = 6000
"""So soon the slots of a process that was killed go to others; brokers allow no less by default."""
_CHECK_S: Final = 2.0
_FIRST_LOOK_S: Final = 120.0
"""So long a mirror that is to end waits for its first look at the topics."""
_CLOSE_S: Final = 2.0
_POLL_S: Final = 0.2
_LEAVE_S: Final = 10.0
_LOOP_REMEDY: Final = "leave the topic out of one of the mirrors: --whitelist"


class Mirror:
    """Copies until it is stopped, or until everything is copied that was there.

    Args:
        settings: What is copied, and how.

    Raises:
        MirrorRefused: The mirror cannot be started as it is asked for.
        ConfigError: A property has a value that is not allowed.
    """

    def __init__(self, settings: MirrorSettings) -> None:
        self.settings = settings
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._slots: dict[int, dict[Lane, LaneCopier]] = {}
        self._ended: dict[Lane, LaneFigures] = {}
        self._throttles: dict[str, Counters] = {}

    def stop(self) -> None:
        """Have `run` end: what was sent is waited for."""
        self._stopping.set()

    def figures(self) -> dict[Lane, LaneFigures]:
        """Return what each lane of this process has done."""
        with self._lock:
            return {lane: copier.figures for slot in self._slots.values() for lane, copier in slot.items()}

    def ended(self) -> dict[Lane, LaneFigures]:
        """Return what each lane had done that this process does not copy any more."""
        with self._lock:
            return dict(self._ended)

    def throttled_ms(self) -> dict[str, int]:
        """Return for how long the brokers of each side have throttled this process: `source`, `target`."""
        with self._lock:
            found = dict(self._throttles)
        return {side: sum(counters.counts("throttle_ms").values()) for side, counters in found.items()}

    def run(self) -> None:
        """Copy until `stop` is called, or everything is copied.

        Raises:
            MirrorRefused, ZkConsumerError: See the class; and the first failure of a lane, with `until_end`.
        """
        settings = self.settings
        with ExitStack() as stack:
            both = Both(settings, stack)
            settings = both.settings
            copies = TopicCopies(both, settings)
            copies.make_state_topic()
            self._note_sides(both)
            pool = SourcePool(both.source_config, both.source.new_cluster(), copies.count(), both.source.counters)
            stack.callback(pool.stop)
            member = _Member(settings) if both.has_numbers else SlotClaims(settings, copies.slots)
            stack.callback(member.close)
            leased_until = member.leased_until if isinstance(member, _Member) else _no_end
            owned = _OwnedSlots(self, both, copies, pool, leased_until)
            stack.callback(owned.stop)
            member.listen(owned)
            while not self._stopping.is_set():
                member.poll()
                owned.look()
                if settings.until_end and owned.is_done():
                    break
            if not owned.stop() and settings.until_end:
                raise MirrorUnfinished

    # -- for the slots of this process ---------------------------------------------------------------------------------

    def _note_sides(self, both: Both) -> None:
        with self._lock:
            self._throttles = {"source": both.source.counters, "target": both.target.counters}

    def _put(self, slot: int, lanes: dict[Lane, LaneCopier]) -> None:
        with self._lock:
            self._slots[slot] = lanes

    def _take(self, slot: int) -> dict[Lane, LaneCopier]:
        with self._lock:
            lanes = self._slots.pop(slot, {})
            self._ended.update({lane: copier.figures for lane, copier in lanes.items()})
        return lanes


def plan(settings: MirrorSettings) -> list[TopicPlan]:
    """Return what a mirror would do about each topic; changes nothing.

    Raises:
        MirrorRefused: A cluster cannot be told from others, or a side is not named.
    """
    with ExitStack() as stack:
        both = Both(settings, stack)
        return TopicCopies(both, both.settings).plan(describes=True)


class _OwnedSlots:
    """The slots of this process, and their lanes. Threads: the one of `Mirror.run`."""

    def __init__(
        self, mirror: Mirror, both: Both, copies: TopicCopies, pool: SourcePool, leased_until: Callable[[], float]
    ) -> None:  # fmt: skip
        self._leased_until = leased_until
        self._mirror = mirror
        self._both = both
        self._copies = copies
        self._pool = pool
        self._states: dict[int, StateLog] = {}
        self._looked_at = self._checked_at = float("-inf")
        self._first_look_by = time.monotonic() + _FIRST_LOOK_S
        self._lanes: list[Lane] | None = None
        self._ends: dict[Lane, int] = {}
        self._incarnations: dict[str, str] = {}
        self._pace = _Pace(mirror.settings.rate_bytes)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Take slots over; `look` starts their lanes."""
        settings = self._both.settings
        for name in partitions:
            slot = int(name.partition)
            self._states[slot] = StateLog(settings.state_topic, slot, self._both.target, settings.target)
            self._mirror._put(slot, {})
        self._looked_at = float("-inf")

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """End the lanes of slots that go to another process."""
        self._end([int(name.partition) for name in partitions])

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """End the lanes of slots that another process has already: their batches are safe by their numbers."""
        self._end([int(name.partition) for name in partitions])

    def _end(self, slots: Collection[int]) -> bool:
        """End the lanes of slots; return whether all that was sent is acknowledged."""
        copiers = [copier for slot in slots for copier in self._mirror._take(slot).values()]
        for copier in copiers:
            copier.stop()
        deadline = time.monotonic() + _LEAVE_S
        busy = [copier for copier in copiers if not copier.join(deadline - time.monotonic())]
        for copier in busy:
            copier.close()
        deadline = time.monotonic() + _CLOSE_S
        for copier in busy:
            if not copier.join(deadline - time.monotonic()):
                log.warning("mirror: lane %s is still busy", copier.lane.place)
        for slot in slots:
            self._states.pop(slot, None)
        return not busy

    def stop(self) -> bool:
        """End all lanes; return whether all that was sent is acknowledged."""
        return self._end(list(self._states))

    def look(self) -> None:
        """Start lanes for partitions that are new, from time to time."""
        if time.monotonic() - self._looked_at < _LOOK_S:
            return
        self._looked_at = time.monotonic()
        try:
            lanes = self._copies.lanes()
            self._incarnations.update(self._both.incarnations(sorted({lane.source.topic for lane in lanes})))
        except (ClusterSilent, SimpleConsumerError, RebalanceError, LaneStuck) as error:
            if self._lanes is None and self._mirror.settings.until_end and time.monotonic() > self._first_look_by:
                raise  # it would wait for ever: no lane runs that could fail
            log.warning("mirror: the topics cannot be looked up now: %s", error)
            return
        self._lanes = lanes
        for slot, state in self._states.items():
            running = dict(self._mirror._slots.get(slot, {}))
            self._refuse_loops(running)
            for lane in lanes:
                if lane not in running and slot_of(lane, self._copies.slots) == slot:
                    running[lane] = LaneCopier(
                        lane, state, self._pool, self._lane_settings(), self._leased_until
                    )  # fmt: skip
                    running[lane].start()
            self._mirror._put(slot, running)

    def _refuse_loops(self, running: Mapping[Lane, LaneCopier]) -> None:
        """Stop the lanes whose records come from the target, as is known by now."""
        for lane, copier in running.items():
            reason = self._copies.why_refused(lane.source.topic)
            if reason:
                copier.refuse(MirrorRefused(f"{lane.place}: {reason}", _LOOP_REMEDY))

    def is_done(self) -> bool:
        """Return whether all is copied that was there: by this process, and by the others of the mirror.

        Raises:
            ZkConsumerError: The failure of the first lane that has one.
            MirrorRefused: There is nothing to copy.
        """
        figures = self._mirror.figures()
        for found in figures.values():
            if found.failure is not None:
                raise found.failure
        if self._lanes is None or not self._states:
            return False
        if not self._lanes:
            wanted = self._mirror.settings.whitelist
            raise MirrorRefused(f"no topic of the source matches {wanted!r}", "see --whitelist")
        if not self._knows_ends(self._lanes):
            return False
        if any(found.position < self._ends.get(lane, 0) for lane, found in figures.items()):
            return False
        others = set(self._lanes) - set(figures)
        if not others:
            return True
        if time.monotonic() - self._checked_at < _CHECK_S:
            return False
        self._checked_at = time.monotonic()
        try:
            states = lane_states(self._both, self._both.settings)
        except (ClusterSilent, SimpleConsumerError, RebalanceError, ReadFailed) as error:
            log.warning("mirror: the other lanes cannot be looked up now: %s", error)
            return False
        done = {each.lane for each in states if _is_at(each.position, self._ends.get(each.lane, 0))}
        return others <= done

    def _knows_ends(self, lanes: Collection[Lane]) -> bool:
        """Look up once where the logs of the source end; return whether all are known."""
        missing = {lane.source: lane for lane in lanes if lane not in self._ends}
        if missing and time.monotonic() - self._checked_at >= _CHECK_S:
            self._checked_at = time.monotonic()
            try:
                found = self._both.source.cluster.log_ends(list(missing), [LATEST], read_committed=True)
            except (ClusterSilent, SimpleConsumerError) as error:
                log.warning("mirror: the ends of the logs cannot be looked up now: %s", error)
                return False
            known = {missing[name]: ends[0] for name, ends in found.items() if not isinstance(ends, str)}
            self._ends.update({lane: end or 0 for lane, end in known.items()})
        return all(lane in self._ends for lane in lanes)

    def _lane_settings(self) -> LaneSettings:
        settings = self._mirror.settings
        limits = BatchLimits(codec=settings.compression, sets_times=settings.sets_times)
        return LaneSettings(
            self._both.source, self._both.target, self._both.new_producer_id, limits, settings.skips_losses,
            self._incarnations, settings.forgotten_after_ms, self._copies.compacted, self._pace.take,
            settings.transactional_id, settings.preserves_offsets, settings.pins_producers, self._copies.cut,
            settings.settle_s, self._both.has_numbers,
        )  # fmt: skip


class _Member:
    """Membership in the group of the mirror. Threads: the one of `Mirror.run`."""

    def __init__(self, settings: MirrorSettings) -> None:
        given = {name: value for name, value in settings.target.items() if name not in ("group.id", "client.id")}
        properties = {"session.timeout.ms": _SESSION_MS, "heartbeat.interval.ms": _SESSION_MS // 4,
                      "request.timeout.ms": _SESSION_MS * 2 // 3, **given,
                      "group.id": settings.state_topic, "enable.auto.commit": "false",
                      "auto.offset.reset": "latest", "client.id": f"mirror-{settings.name}"}  # fmt: skip
        self._topic = settings.state_topic
        self._poller = Poller(KafkaConsumerConfig.from_properties(properties))

    def leased_until(self) -> float:
        """Return until when the slots of this process are its own, in seconds of CLOCK_BOOTTIME."""
        return self._poller.leased_until

    def listen(self, listener: _OwnedSlots) -> None:
        """Join the group."""
        self._poller.subscribe([self._topic], listener)

    def poll(self) -> None:
        """Take part in the group for a moment."""
        self._poller.poll(_POLL_S)
        assigned = self._poller.state.assigned
        moving = set(assigned) - set(assigned.paused())
        if moving:
            self._poller.positions.pause(sorted(moving))  # the records are read by `StateLog`

    def close(self) -> None:
        """Leave the group."""
        self._poller.close(_LEAVE_S, in_hand_is_done=True)


class _Pace:
    """Limits the bytes a second of all lanes together. Threads: any."""

    def __init__(self, rate_bytes: int | None) -> None:
        self._rate_bytes = rate_bytes
        self._lock = threading.Lock()
        self._free_at = 0.0

    def take(self, size_bytes: int, stopping: threading.Event) -> None:
        """Wait until so many bytes may be copied, or the event is set."""
        if self._rate_bytes is None:
            return
        with self._lock:
            now = time.monotonic()
            wait_s = max(0.0, self._free_at - now)
            self._free_at = max(now, self._free_at) + size_bytes / self._rate_bytes
        stopping.wait(wait_s)


def _no_end() -> float:
    """Return until when slots are owned by claims, which the senders of old targets do not ask for."""
    return math.inf


def _is_at(position: int | None, end: int) -> bool:
    return position is not None and position >= end


def slot_of(lane: Lane, slots: int) -> int:
    """Return to which slot a lane belongs."""
    return zlib.crc32(f"{lane.cluster}/{lane.source.topic}/{lane.source.partition}".encode()) % slots
