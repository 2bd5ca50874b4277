"""The recorded frames of tests/golden, by Kafka version and name, and what the Java library decoded from them."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from simpleconsumer.kafka08.requests import decode_fetch
from simpleconsumer.types import FetchedPartition, FetchRequest

GOLDEN = Path(__file__).parent.parent / "golden"
VERSIONS = ("0.8.0", "0.8.1.1", "0.8.2.2", "0.10.2.2")
VALUES = (b"hello", b"with key", "grüße ✓".encode(), b"fourth", b"fifth")
KEYS = (None, b"key", None, None, None)


def frame(version: str, name: str) -> bytes:
    """Return a whole frame, size field included."""
    lines = (GOLDEN / f"kafka-{version}" / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(lines[1:]))


def answer(version: str, name: str) -> bytes:
    """Return the body of a response, behind size and correlation id."""
    return frame(version, name)[8:]


def names(version: str, pattern: str) -> list[str]:
    """Return the names of the frames that match a regular expression as a whole."""
    files = sorted((GOLDEN / f"kafka-{version}").glob("*.hex"))
    return [file.stem for file in files if re.fullmatch(pattern, file.stem)]


class Fetch(NamedTuple):
    """A recorded fetch: which partition was asked, in which version, and the answer."""

    version: str
    name: str
    request: FetchRequest
    api_version: int

    @property
    def answer(self) -> bytes:
        return answer(self.version, f"{self.name}-response")

    def decode(self, body: bytes | None = None) -> FetchedPartition:
        return decode_fetch(self.answer if body is None else body, [self.request], self.api_version)[0]


def fetches() -> Iterator[Fetch]:
    """Yield every recorded fetch response."""
    for version in VERSIONS:
        for name in names(version, r"(java-fetch|hand-fetch-v\d)-.*-response"):
            stem = name.removesuffix("-response")
            yield Fetch(version, stem, FetchRequest(_topic(stem), 0, 0, 65536), _api_version(version, stem))


def decoded_by_java(version: str) -> dict[str, list[dict[str, str]]]:
    """Return the messages that the Java library printed, by name of the fetch."""
    fetched: dict[str, list[dict[str, str]]] = {}
    pattern = re.compile(
        r"(?P<name>fetch-\S+) \d+ offset=(?P<offset>\d+) next=(?P<next>\d+) magic=(?P<magic>\d) crc=(?P<crc>\d+)"
        r" key=(?P<key>.*) payload=(?P<payload>.*)"
    )
    for line in (GOLDEN / f"kafka-{version}" / "java-decoded.txt").read_text().splitlines():
        match = pattern.fullmatch(line)
        if match:
            fetched.setdefault(match["name"], []).append(match.groupdict())
    return fetched


def _topic(stem: str) -> str:
    java = re.fullmatch(r"java-fetch-(\w+)-from-\d", stem)
    if java:
        return f"g-{java[1]}"
    if stem.endswith("unknown-topic"):
        return "no-such"
    hand = re.match(r"hand-fetch-v\d-([gn]-\w+)", stem)
    return hand[1] if hand else "g-none"


def _api_version(version: str, stem: str) -> int:
    hand = re.match(r"hand-fetch-v(\d)", stem)
    return int(hand[1]) if hand else int(struct.unpack_from(">h", frame(version, f"{stem}-request"), 6)[0])
