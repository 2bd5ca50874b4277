"""Requests recorded from brokers with record batches, replayed: the embedded broker answers every byte as they did.

What differs from run to run is put in from the run: the port, the ids of cluster, topic and members, and producer ids.
What the embedded broker does not serve (authentication, settings) is left out.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

import pytest
from broker_wire import Wire, request, string

from simpleconsumer.kafka011.record_encode import encode_record_batch
from simpleconsumer.types import ProducerId
from tests.simpleconsumer import golden_apis
from tests.simpleconsumer.golden_apis import Frames
from zkconsumer.testing.embedded.cluster import VERSIONS, EmbeddedCluster
from zkconsumer.testing.embedded.group_values import Join, Sync, Who
from zkconsumer.testing.embedded.kafka011.apis import SERVED
from zkconsumer.testing.embedded.kafka011.broker import Broker011
from zkconsumer.testing.embedded.kafka011.generations import GENERATIONS as GENERATIONS_011
from zkconsumer.testing.embedded.kafka011.group_records import StoredOffset
from zkconsumer.testing.embedded.kafka011.transaction_state import Transaction, encode_transaction
from zkconsumer.testing.embedded.offsets import TRANSACTIONS_TOPIC
from zkconsumer.testing.waiting import wait_until

GENERATIONS = ("0.10", "1.1", "2.8", "4.3")
TOPIC = "g-apis"
OF_MEMBERS = r"(SyncGroup|Heartbeat|LeaveGroup|OffsetCommit-member)-.*"
"""Requests of members of groups; of some the JoinGroup is not recorded."""
UUID = rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
NEVER_EQUAL = (
    r"(ApiVersions|InitProducerId-idempotent|ListGroups|DescribeGroups-(?!unknown)"
    r"|DeleteRecords-v|DescribeProducers-v).*"
)
"""A table with APIs that are not served, a number that is new each time, groups and producers of other programs, and
partitions in no order; these requests have tests of their own."""
OF_ANOTHER_RECORDING = r"InitProducerId-(v[34]|idempotent-v[34]|next-.*|fenced-.*)"
"""With epochs of another cluster; `tests/producer/test_transactions_of_zombies.py` compares what they do."""
UNORDERED = {("1.1", "Metadata-v5"), ("0.10", "Metadata-v1"), ("0.10", "Metadata-v2")}
"""Brokers before 2.0 name partitions in no order."""
TRANSACTIONAL_ID = "g-txn"
PRODUCE = 0
FIND_COORDINATOR = 10
IS_TRANSACTIONAL = 0x10
IS_CONTROL = 0x20


def recorded(generation: str) -> list[Frames]:
    """The frames of a version in the order in which they were sent; last those of another recording, of groups."""
    frames = [
        each for each in golden_apis.every()
        if each.kafka == VERSIONS[generation] and not re.fullmatch(OF_ANOTHER_RECORDING, each.name)
        and "Acls" not in each.name  # `test_embedded_access_lists.py` compares them
    ]  # fmt: skip
    return sorted(frames, key=lambda each: (
        each.name.startswith(("ListGroups", "DescribeGroups")), struct.unpack_from(">i", each.request, 8)[0]
    ))  # fmt: skip


def final_log(generation: str) -> list[bytes]:
    """The batches of the topic as the last recorded fetch shows them; of some no produce request is recorded."""
    fetches = [each for each in recorded(generation) if each.name.startswith("Fetch-aborted")]
    if not fetches:
        return []
    answer = fetches[-1].answer
    at = next(at for at in range(len(answer)) if re.match(rb"\0{11}.\0{4}\x02", answer[at : at + 17], re.DOTALL))
    found = []
    while at + 61 <= len(answer):
        end = at + 12 + struct.unpack_from(">i", answer, at + 8)[0]
        found.append(answer[at:end])
        at = end
    assert at == len(answer)
    return found


def is_served(frames: Frames) -> bool:
    return frames.asked.api_key in SERVED


def place(batch: bytes) -> int:
    """The base offset of a batch."""
    return int(struct.unpack_from(">q", batch)[0])


def timeless(batch: bytes) -> bytes:
    """A batch without checksum and times."""
    return batch[:17] + batch[21:27] + batch[43:]


class Replay:
    """A cluster to which the recording is sent, in its order; the answers by name."""

    def __init__(self, cluster: EmbeddedCluster, generation: str) -> None:
        self.cluster = cluster
        self.answers: dict[str, bytes] = {}
        self._member_ids: dict[bytes, bytes] = {}
        self._log = cluster.batch_log(TOPIC, 0)
        self._batches = final_log(generation)
        self._port = cluster.port(0)
        with Wire(self._port) as wire:
            for frames in recorded(generation):
                self._make_ready_for(frames, wire)
                if is_served(frames):
                    answer = self.answers[frames.name] = wire.ask(self._with_members(frames.request))
                    self._learn(frames.answer, answer)

    def _learn(self, recorded: bytes, answer: bytes) -> None:
        """Note which of our member ids stand in the places of recorded ones."""
        self._member_ids.update(zip(re.findall(UUID, recorded), re.findall(UUID, answer), strict=False))

    def _with_members(self, frame: bytes) -> bytes:
        return re.sub(UUID, lambda found: self._member_ids.get(found[0], found[0]), frame)

    def _join(self, frames: Frames) -> None:
        """Have the member of a request in its group, if it is one that is recorded without its JoinGroup."""
        at = 14 + len("golden")
        size = struct.unpack_from(">h", frames.request, at)[0]
        group = frames.request[at + 2 : at + 2 + size].decode()
        [recorded] = set(re.findall(UUID, frames.request)) or {b""}
        broker = self.cluster.brokers[0]
        assert isinstance(broker, Broker011)
        if not recorded or recorded in self._member_ids:
            return
        join = Join("", {"range": b""}, 10.0, 10.0, client_id="golden", names_members_first=False)
        joined = broker.groups.join(group, join)
        self._learn(frames.request, joined.member_id.encode())
        if not frames.name.startswith("SyncGroup"):
            broker.groups.sync(group, Sync(Who(joined.generation, joined.member_id), {}))

    def _make_ready_for(self, frames: Frames, wire: Wire) -> None:
        """Bring the broker to where the real one was: some of what it had been sent before is not recorded."""
        name = frames.name
        if re.fullmatch(OF_MEMBERS, name):
            self._join(frames)
        elif name.startswith("DeleteGroups-v"):
            self._commit_for("g-group")
        elif name == "FindCoordinator-v0":
            wait_until(lambda: wire.ask(frames.request)[8:10] == b"\0\0", 10, "a coordinator")
        elif name.startswith(("OffsetCommit", "JoinGroup")):
            found = request(FIND_COORDINATOR, string("g-group"))
            wait_until(lambda: wire.ask(found)[8:10] == b"\0\0", 10, "a coordinator, which was found before")
        elif name.startswith("Produce"):
            [stored] = frames.decoded()
            self._append_up_to(stored.base_offset)
        elif name.startswith("Fetch") and frames.version >= 4:
            self._append_up_to(max(each.high_watermark for each in frames.decoded()))
        elif name == "FindCoordinator-txn-v1":
            wait_until(lambda: wire.ask(frames.request)[12:14] == b"\0\0", 10, "a coordinator of transactions")
        elif name.startswith("CreateTopics-collides"):
            self.cluster.create_topic("g_topics.a")
        elif name.startswith("DeleteRecords-v"):
            self.cluster.produce("g-topics", [b"%d" % number for number in range(5)], partition=0)
        elif name.startswith("DescribeConfigs-v"):
            self.cluster.registry.set_config(TOPIC, {"cleanup.policy": "compact"})
        elif name.startswith("InitProducerId-v"):
            self._store_producer(frames.decoded()[1])
        elif name.startswith(("EndTxn-commit", "EndTxn-abort")):
            self._append_while(lambda batch: not batch[22] & IS_CONTROL)
            self._open_transaction()
        elif name.startswith("ListOffsets-stable"):
            self._append_while(lambda batch: batch[22] == IS_TRANSACTIONAL)

    def _commit_for(self, group: str) -> None:
        """Have a group with an offset, if that is not recorded."""
        broker = self.cluster.brokers[0]
        assert isinstance(broker, Broker011)
        assert broker.groups.commit(group, Who(-1, ""), {(TOPIC, 0): StoredOffset(1)}) == 0

    def _store_producer(self, producer: ProducerId) -> None:
        """Have the coordinator find the producer that the next epoch makes the recorded one."""
        states = self.cluster.batch_log(TRANSACTIONS_TOPIC, 0)
        if not states.end_offset:
            before = Transaction(producer.producer_id, producer.epoch - 1, 60_000)
            states.append_batch(encode_record_batch([encode_transaction(TRANSACTIONAL_ID, before, 0)]))

    def _open_transaction(self) -> None:
        """Add the partition again, if that is not recorded."""
        broker = self.cluster.brokers[0]
        assert isinstance(broker, Broker011)
        known = broker.transactions.state(TRANSACTIONAL_ID)
        assert known is not None
        broker.transactions.add(TRANSACTIONAL_ID, known.producer, [(TOPIC, 0)])

    def answer(self, frames: Frames) -> bytes:
        """The answer, with the recorded markers in the places of ours, which have times of their own."""
        answer = self.answers[frames.name]
        for marker in (batch for batch in self._batches if batch[22] & IS_CONTROL):
            at = answer.find(marker[:12])
            if at >= 0:
                end = at + len(marker)
                assert timeless(answer[at:end]) == timeless(marker)
                answer = answer[:at] + marker + answer[end:]
        return answer

    def _append_up_to(self, end_offset: int) -> None:
        self._append_while(lambda batch: place(batch) < end_offset)

    def _append_while(self, is_wanted: Callable[[bytes], bool]) -> None:
        """Append the batches of the recording behind the end of the log, as long as they are wanted."""
        for batch in self._batches:
            if place(batch) >= self._log.end_offset:
                if not is_wanted(batch):
                    return
                self._log.append_as_is(batch)

    def expected(self, frames: Frames) -> bytes:
        """The recorded answer, told of the port and the ids of this run."""
        answer = struct.pack(">i", len(frames.answer) + 4) + frames.request[8:12] + frames.answer
        at = answer.find(b"127.0.0.1") + len("127.0.0.1")
        if at >= 9:
            answer = answer[:at] + struct.pack(">i", self._port) + answer[at + 4 :]
        answer = self._with_members(answer)
        if frames.name.startswith("Metadata"):
            answer = re.sub(rb"[\w-]{22}", self.cluster.registry.cluster_id().encode(), answer)
            at = answer.find(TOPIC.encode()) + len(TOPIC)
            if frames.version >= 10 and at >= len(TOPIC):
                answer = answer[:at] + (self.cluster.registry.topics()[TOPIC].topic_id or b"") + answer[at + 16 :]
        return answer


@pytest.fixture(scope="module")
def replays() -> Iterator[dict[str, Replay]]:
    """The replay of each generation."""
    replays = {}
    clusters = []
    try:
        for generation in GENERATIONS:
            clusters.append(EmbeddedCluster(1, generation=generation, zookeeper=False).start_all())
            clusters[-1].create_topic(TOPIC, 2)
            replays[generation] = Replay(clusters[-1], generation)
        yield replays
    finally:
        for cluster in clusters:
            cluster.close()


ALL = [(generation, each) for generation in GENERATIONS for each in recorded(generation)]
EQUAL = [
    pytest.param(generation, each, id=str(each))
    for generation, each in ALL
    if is_served(each) and not re.fullmatch(NEVER_EQUAL, each.name) and (generation, each.name) not in UNORDERED
]


@pytest.mark.parametrize(("generation", "frames"), EQUAL)
def test_an_answer_is_that_of_the_recording(replays: dict[str, Replay], generation: str, frames: Frames) -> None:
    replay = replays[generation]
    assert replay.answer(frames).hex() == replay.expected(frames).hex()


@pytest.mark.parametrize(("generation", "name"), sorted(UNORDERED))
def test_metadata_of_a_broker_that_names_partitions_in_no_order_is_the_same(
    replays: dict[str, Replay], generation: str, name: str
) -> None:
    [frames] = [each for each in recorded(generation) if each.name == name]
    replay = replays[generation]

    def partitions(answer: bytes) -> list[object]:
        return sorted(frames.asked.decode(memoryview(answer[8:])).topics[TOPIC].partitions)

    assert partitions(replay.answers[name]) == partitions(replay.expected(frames))
    assert sorted(replay.answers[name]) == sorted(replay.expected(frames))


def test_every_version_that_is_spoken_by_the_client_is_replayed() -> None:
    replayed = {(each.asked.api_key, each.version) for _, each in ALL if is_served(each)}
    left_out = {(each.asked.api_key, each.version) for _, each in ALL} - replayed
    assert {(key, version) for key, version in left_out if key in SERVED} == set()


@pytest.mark.parametrize("generation", GENERATIONS)
def test_what_is_listed_is_listed_by_the_real_broker_in_at_least_these_versions(
    replays: dict[str, Replay], generation: str
) -> None:
    [frames] = [each for each in recorded(generation) if each.name == "ApiVersions-v0"]
    code, real = frames.decoded()
    own_code, own = frames.asked.decode(memoryview(replays[generation].answers["ApiVersions-v0"][8:]))
    assert code == own_code == 0
    assert set(own) == {key for key in SERVED if key in real}
    for key, versions in own.items():
        assert versions.start >= real[key].start
        assert versions.stop <= real[key].stop
        if (generation, key) != ("4.3", PRODUCE):  # which names versions that it does not serve
            assert versions.start == real[key].start


def test_a_broker_whose_frames_are_not_replayed_lists_what_the_real_one_does() -> None:
    [frames] = [each for each in recorded("3.9") if each.name == "ApiVersions-v0"]
    _, real = frames.decoded()
    for key, versions in GENERATIONS_011["3.9"].listed.items():
        assert versions == real[key]


def test_producer_ids_are_new_each_time(replays: dict[str, Replay]) -> None:
    answers = [answer for name, answer in replays["2.8"].answers.items() if name.startswith("InitProducerId-idem")]
    assert len(answers) == len({answer[14:22] for answer in answers}) == 2
    assert {answer[8:14] + answer[22:] for answer in answers} == {bytes(8)}


@pytest.mark.parametrize(("generation", "body"), [("1.1", "002300000000"), ("2.8", "002300000001001200000003")])
def test_an_unknown_version_of_api_versions_is_answered_as_of_version_0(
    replays: dict[str, Replay], generation: str, body: str
) -> None:
    with Wire(replays[generation].cluster.port(0)) as wire:
        assert wire.ask(request(18, b"", version=99))[8:].hex() == body
        assert wire.ask(request(18, b""))[8:10] == b"\0\0"


@pytest.mark.parametrize(("api", "version"), [(0, 2), (1, 3), (3, 99), (11, 10), (99, 0)])
def test_an_unknown_api_or_version_closes_the_connection(replays: dict[str, Replay], api: int, version: int) -> None:
    with Wire(replays["4.3"].cluster.port(0)) as wire:
        wire.send(request(api, bytes(40), version=version))
        assert wire.is_closed()


@pytest.mark.parametrize("generation", ["1.1", "2.8", "4.3"])
def test_deleted_records_are_those_of_the_recording_in_any_order(replays: dict[str, Replay], generation: str) -> None:
    [frames] = [each for each in recorded(generation) if each.name == "DeleteRecords-v0"]
    assert frames.asked.decode(memoryview(replays[generation].answers[frames.name][8:])) == frames.decoded()
