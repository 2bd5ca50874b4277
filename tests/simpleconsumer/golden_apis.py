"""The recorded frames of tests/golden/apis: requests of every version, and how their answers are read."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

from simpleconsumer.dialect import KAFKA011
from simpleconsumer.dialect_types import AnyRequest, Request
from simpleconsumer.kafka011.calls import call
from simpleconsumer.messages import apis
from simpleconsumer.messages.apis import APIS
from simpleconsumer.types import FetchRequest, OffsetAndMetadata, ProducerId, SaslAnswer, TopicPartition
from tests.simpleconsumer import golden_acls, golden_groups, golden_topics

FOLDER = Path(__file__).parent.parent / "golden" / "apis"
VERSIONS = ("0.10.2.2", "1.1.1", "2.8.2", "3.9.2", "4.3.1")
ZERO = TopicPartition("g-apis", 0)
ONE = TopicPartition("g-apis", 1)


class Frames(NamedTuple):
    """A request and its answer as a real broker saw them.

    Attributes:
        kafka: Version of the broker.
        name: Of the files, without `hand-` and `-request`.
    """

    kafka: str
    name: str

    @property
    def version(self) -> int:
        """Of the request."""
        return int(struct.unpack_from(">h", self.request, 6)[0])

    @property
    def request(self) -> bytes:
        return frame(self.kafka, f"hand-{self.name}-request")

    @property
    def answer(self) -> bytes:
        """The body of the answer, behind size and correlation id."""
        return frame(self.kafka, f"hand-{self.name}-response")[8:]

    @property
    def asked(self) -> Request[Any]:
        """The request as the dialect makes it."""
        return in_version(_question(self), self.version)

    def decoded(self) -> Any:
        return self.asked.decode(memoryview(self.answer))

    def __str__(self) -> str:
        return f"{self.kafka} {self.name}"


def in_version(asked: AnyRequest[Any], version: int) -> Request[Any]:
    return asked if isinstance(asked, Request) else asked.at(version)


def frame(kafka: str, name: str) -> bytes:
    """Return a whole frame, size field included."""
    lines = (FOLDER / f"kafka-{kafka}" / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(lines[1:]))


def every() -> list[Frames]:
    """Return all recorded requests that have an answer."""
    files = sorted(FOLDER.glob("kafka-*/hand-*-request.hex"))
    found = [Frames(file.parent.name.removeprefix("kafka-"), file.stem[5:-8]) for file in files]
    return [each for each in found if (FOLDER / f"kafka-{each.kafka}" / f"hand-{each.name}-response.hex").exists()]


def of_name(pattern: str) -> list[Frames]:
    """Return the recorded requests whose names match a regular expression as a whole."""
    return [each for each in every() if re.fullmatch(pattern, each.name)]


def _question(each: Frames) -> AnyRequest[Any]:
    """Return what was asked in a recorded request."""
    stem = re.sub(r"-v\d+", "", each.name)
    body = _sent_body(each)
    if stem.startswith(golden_groups.APIS):
        return golden_groups.question(stem, each.version, body)
    if stem.startswith(golden_acls.APIS):
        return golden_acls.question(stem, each.version)
    if stem.startswith(golden_topics.APIS):
        return golden_topics.question(stem, body)
    if stem.startswith("Fetch"):
        return _fetch(stem)
    if stem.startswith("Produce"):
        return _produce(each, stem, body)
    if stem.startswith(("ListOffsets", "OffsetForLeaderEpoch")):
        return _offsets(stem, body)
    return _others(stem, body)


def _sent_body(each: Frames) -> bytes:
    """Return a recorded request behind its header."""
    request = each.request
    key, version = struct.unpack_from(">hh", request, 4)
    behind_client_id = 14 + struct.unpack_from(">h", request, 12)[0]
    return request[behind_client_id + (version >= APIS[key].flexible_from) :]


def _fetch(stem: str) -> AnyRequest[Any]:
    wanted = {
        "Fetch": [FetchRequest("g-apis", 0, 0, 1000)],
        "Fetch-out-of-range": [FetchRequest("g-apis", 0, 99, 1000)],
        "Fetch-unknown": [FetchRequest("g-apis", 7, 0, 1000), FetchRequest("g-apis", 0, 0, 100)],
        "Fetch-fenced": [FetchRequest("g-apis", 0, 0, 1000, 77)],
        "Fetch-rack": [FetchRequest("g-apis", 0, 0, 1000)],
        "Fetch-open": [FetchRequest("g-apis", 0, 0, 10000)],
        "Fetch-aborted": [FetchRequest("g-apis", 0, 0, 10000)],
    }[stem]
    is_committed = stem in ("Fetch-rack", "Fetch-open", "Fetch-aborted")
    return KAFKA011.fetch(wanted, 100, 1, read_committed=is_committed, rack="r1" if stem == "Fetch-rack" else "")


def _produce(each: Frames, stem: str, body: bytes) -> AnyRequest[Any]:
    partition = TopicPartition("no-such", 0) if stem == "Produce-refused" else ZERO
    data = body[body.index(partition.topic.encode()) + len(partition.topic) + 12 :]
    transactional_id = "g-txn" if stem == "Produce-txn" else None
    acks, timeout_ms = struct.unpack_from(">hi", body, 0 if each.version < 3 else 2 + 5 * (stem == "Produce-txn"))
    return KAFKA011.produce({partition: data}, acks, timeout_ms, transactional_id=transactional_id)


def _offsets(stem: str, body: bytes) -> AnyRequest[Any]:
    time_ms = struct.unpack_from(">q", body, len(body) - 8)[0]
    if stem.startswith("OffsetForLeaderEpoch"):
        return KAFKA011.epoch_ends({ZERO: (5 if stem.endswith("unknown") else 0, -1)})
    if stem in ("ListOffsets-latest", "ListOffsets-earliest", "ListOffsets-stable"):
        is_committed = stem == "ListOffsets-stable"
        return KAFKA011.offsets([ZERO], -2 if "earliest" in stem else -1, 1, read_committed=is_committed)[0]
    return KAFKA011.offsets_for_times({ZERO: time_ms})


def _others(stem: str, body: bytes) -> AnyRequest[Any]:
    producer = ProducerId(-1, -1)
    if stem in ("InitProducerId-next", "InitProducerId-fenced"):
        producer = ProducerId(*struct.unpack_from(">qh", body, len(body) - 11))
    if stem.startswith(("AddPartitions", "EndTxn")):
        producer = ProducerId(*struct.unpack_from(">qh", body, 2 + struct.unpack_from(">h", body)[0]))
    asked: dict[str, AnyRequest[Any]] = {
        "ApiVersions": KAFKA011.api_versions(),
        "Metadata": KAFKA011.metadata(["g-apis"]),
        "Metadata-unknown": KAFKA011.metadata(["no-such"], create=False),
        "Metadata-all": KAFKA011.metadata([]),
        "FindCoordinator": KAFKA011.coordinator("g-group"),
        "FindCoordinator-txn": KAFKA011.coordinator("g-txn", of_transactions=True),
        "OffsetCommit": KAFKA011.commit_offsets("g-group", {ZERO: OffsetAndMetadata(1, "m")}),
        "OffsetFetch": KAFKA011.fetch_offsets("g-group", [ZERO, ONE]),
        "DescribeConfigs": KAFKA011.topic_settings(["g-apis"], ["cleanup.policy"]),
        "DescribeConfigs-unknown": KAFKA011.topic_settings(["no-such"], ["cleanup.policy"]),
        "DeleteGroups": KAFKA011.delete_group("g-group"),
        "DeleteGroups-unknown": KAFKA011.delete_group("g-none"),
        "InitProducerId": KAFKA011.producer_id("g-txn", 60_000),
        "InitProducerId-idempotent": KAFKA011.producer_id(None, 60_000),
        "InitProducerId-next": KAFKA011.producer_id("g-txn", 60_000, producer),
        "InitProducerId-fenced": KAFKA011.producer_id("g-txn", 60_000, producer),
        "AddPartitionsToTxn": KAFKA011.add_to_transaction("g-txn", producer, [ZERO]),
        "EndTxn-commit": KAFKA011.end_transaction("g-txn", producer, commit=True),
        "EndTxn-abort": KAFKA011.end_transaction("g-txn", producer, commit=False),
        "EndTxn-none": KAFKA011.end_transaction("g-other", producer, commit=True),
        "SaslHandshake": call(
            apis.SASL_HANDSHAKE, {"mechanism": "PLAIN"}, lambda answer: (answer["error_code"], answer["mechanisms"])
        ),
    }
    if stem.startswith("SaslAuthenticate"):
        return call(apis.SASL_AUTHENTICATE, {"auth_bytes": body[4:]}, SaslAnswer.of)
    return asked[stem]
