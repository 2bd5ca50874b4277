"""The settings of a load, checked before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rebalance.zookeeper.port.requests import ZooKeeperPort
from simpleconsumer.dialect import dialect_of
from zkconsumer.cluster.generation import AUTO, refuse_other_brokers
from zkconsumer.cluster.metadata_reader import MetadataReader
from zkconsumer.cluster.registry import ClusterReader
from zkconsumer.cluster.zookeeper_connection import READ_TIMEOUT_S
from zkconsumer.spark.errors import OptionRefused
from zkconsumer.spark.load.failures import LoadRefused
from zkconsumer.spark.load.writing import FORMATS, PARTITIONINGS, Shape, check_event_time
from zkconsumer.spark.options.option_table import TIME_OPTIONS
from zkconsumer.spark.options.options import SourceOptions, batch_options
from zkconsumer.spark.settings_files import with_settings_files

_DECIDED_HERE: Final = {
    **dict.fromkeys(
        ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"), "a run ends where the logs end when it starts"
    ),
    "failondataloss": "see `allow_loss`",
    "onmessageerror": "messages that cannot be decoded are written to the side output",
    "assign": "a load reads whole topics",
    "filterpushdown": "a run reads everything that it has planned",
}


@dataclass(frozen=True)
class LoadSettings:
    """The topics to load, and the target.

    Attributes:
        source: Options of `format("zkconsumer")`: `zookeeper.connect` or `bootstrap.servers`, one of `subscribe`,
            `subscribePattern` and `blacklist`, and any others. `startingOffsets`, or a time in its place, applies to
            partitions that were never loaded. With `includeHeaders` the rows have a column `headers`. With `group.id`
            (and `zookeeper.connect`) the offsets are stored for that group, too, once the data is published.
        folder: Path or URL of the folder, on any file system that Spark supports.
        shape: Of the files.
        allow_loss: Continue if messages that were not loaded yet are not in the logs any more.
        allow_leaderless: If partitions have no leader, report them and load the others.
        max_messages: Most messages of a run; `None` for no limit.
        allow_gaps: Offsets may be missing in any topic, not only in compacted ones.

    Raises:
        LoadRefused: The shape does not exist, or an option does not apply to a load.
        OptionRefused: An option is wrong.
    """

    source: Mapping[str, str]
    folder: str
    shape: Shape = field(default_factory=lambda: Shape("parquet", "date"))
    allow_loss: bool = False
    allow_gaps: bool = False
    allow_leaderless: bool = True
    max_messages: int | None = None

    def __post_init__(self) -> None:
        _one_of("format", self.shape.format, FORMATS)
        _one_of("partitioning", self.shape.partition_by, PARTITIONINGS)
        if self.shape.event_time is not None:
            check_event_time(self.shape.event_time)
        if self.max_messages is not None and self.max_messages < 1:
            raise LoadRefused(f"max_messages is {self.max_messages}; it must be at least 1")
        if self.shape.file_bytes is not None and self.shape.file_bytes < 1:
            raise LoadRefused(f"the file size is {self.shape.file_bytes} bytes; it must be at least 1")
        for name in self.source:
            if name.lower() == "maxbytesperpartition" and self.shape.file_bytes is not None:
                raise OptionRefused(name, "the file size sets it already: a file contains what one task has read")
            if name.lower() in _DECIDED_HERE:
                raise OptionRefused(name, f"not for a load: {_DECIDED_HERE[name.lower()]}")
        object.__setattr__(self, "source", dict(self.source))
        options = self.options()
        if options.counts_bytes:
            self._refuse_for_07()
        shape = self.shape._replace(has_places=options.counts_bytes, has_headers=options.include_headers)
        object.__setattr__(self, "shape", shape)

    def _refuse_for_07(self) -> None:
        """Refuse what a load of Kafka 0.7 has not, where offsets count bytes."""
        if self.shape.is_table:
            raise LoadRefused(
                f"a table ({self.shape.format}) cannot have messages of Kafka 0.7: its columns do not "
                "distinguish messages of one compressed entry",
                remedy="load into parquet or json",
            )
        if self.max_messages is not None:
            raise LoadRefused(
                "a run on Kafka 0.7 cannot be limited by messages or time: the number of messages "
                "between two byte positions is not known",
                remedy="leave the limit out, or load fewer topics",
            )

    def options(self) -> SourceOptions:
        """The options for the source."""
        # A load may start at latest, to leave the past out. A batch that did so would be empty, and is refused.
        given = with_settings_files(self.source)
        starts = [name for name in given if name.lower() == "startingoffsets"]
        if starts and given[starts[0]].strip().lower() == "latest":
            del given[starts[0]]
        return batch_options(given)

    @property
    def starts_at_latest(self) -> bool:
        """True if partitions that were never loaded start at their end."""
        given = {name.lower(): value.strip().lower() for name, value in self.source.items()}
        has_time = any(name.lower() in given for name in TIME_OPTIONS)
        return given.get("startingoffsets") == "latest" and not has_time


def of_found_generation(settings: LoadSettings, source: ZooKeeperPort | MetadataReader) -> LoadSettings:
    """Return the settings for the brokers that are registered: with `kafka.generation=0.7` if all are of Kafka 0.7.

    Settings that name the generation of the brokers are returned as they are, and so are those of brokers that were
    found without ZooKeeper.

    Args:
        source: A connected port, or what asks the brokers alone.

    Raises:
        LoadRefused: The settings have no meaning on Kafka 0.7.
        ConfigError: The settings name another generation than that of the brokers.
        ClusterSilent: No answer in time.
    """
    if isinstance(source, MetadataReader):
        source.brokers()
        return settings
    config = settings.options().config
    forced = config.kafka_generation
    brokers = ClusterReader(source, READ_TIMEOUT_S, config.security_protocol).brokers()
    if forced != AUTO:
        refuse_other_brokers(forced, brokers)
        return settings
    if not brokers or not all(dialect_of(each).has_byte_positions for each in brokers):
        return settings
    return replace(settings, source={**settings.source, "kafka.generation": "0.7"})


def _one_of(what: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise LoadRefused(f"{what} {value!r} is not known; it must be one of {', '.join(allowed)}")
