"""Says what each line of a properties file will do.

Pure: text in, values out. Nothing is connected, and no file that a setting names is opened. Secrets, and values of
unknown settings, which may be misspelled secrets, are not in what comes back.

Finds settings of a file that have no effect together, or do not fit each other or the servers. `zkconsumer
check-config` reports these. They are not logged when a consumer starts, because each of them can be meant; what is
logged there (`zkconsumer.config.checks.warnings_about`) is reported as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from zkconsumer.config.checks import contradictions, warning_about_07, warning_about_empty_auth, warnings_about
from zkconsumer.config.properties import PropertyLine, property_lines
from zkconsumer.config.tables.keys import CONSUMER_SETTINGS, KEYS
from zkconsumer.config.tables.kinds import Integer
from zkconsumer.config.tables.producer_keys import PRODUCER_SETTINGS, contradiction
from zkconsumer.config.tables.setting_table import Key, SettingTable, convert, generation_of, given_twice
from zkconsumer.errors import ConfigError

_LEAST_SESSION_MS: Final = 4000
_LARGEST_SESSION_MS: Final = 40_000
"""ZooKeeper grants 2 to 20 times its tickTime, which is 2000 ms in its sample configuration."""
_LONG_WAIT_MS: Final = 60_000
_LARGEST_MESSAGE_BYTES: Final = 1_000_012
"""The default of `message.max.bytes` of brokers."""


class Finding(NamedTuple):
    """A finding about a file.

    Attributes:
        severity: `error` (the consumer refuses the file), `warning` (something else happens than the file says) or
            `note`.
        line: Number of the line; None when it is about the whole file.
        setting: The 0.8 name of the setting, None for an unknown one and for the whole file.
        sentence: The finding.
    """

    severity: str
    line: int | None
    setting: str | None
    sentence: str


def implausible(values: Mapping[str, Any], given: Collection[str], names_of_07: list[str]) -> Iterator[Finding]:
    """Yield what does not fit together.

    Args:
        values: The values of all settings, by their 0.8 names.
        given: The 0.8 names of those in the file.
        names_of_07: The names in the file that Kafka 0.7 alone has.
    """
    for sentence in warnings_about(values):
        yield Finding("warning", None, None, sentence)
    empty_auth = warning_about_empty_auth({name: values[name] for name in given})
    if empty_auth is not None:
        yield Finding("warning", None, "zookeeper.auth", empty_auth)
    yield from _about_07(values, given, names_of_07)
    for check in (_without_effect, _sessions, _sizes, _times, _credentials):
        for severity, setting, sentence in check(values, given):
            yield Finding(severity, None, setting, sentence)


def implausible_for_producers(
    values: Mapping[str, Any], given: Collection[str], names_of_07: list[str]
) -> Iterator[Finding]:
    """Yield what does not fit together in the settings of a producer; see `implausible`."""
    acks, queue_ms = "request.required.acks", "queue.enqueue.timeout.ms"
    if values[acks] == 0:
        yield Finding("warning", None, acks,
                      f"{acks} is 0: messages that a broker does not accept are lost without an error")  # fmt: skip
    elif acks not in given:
        yield Finding("note", None, acks,
            f"{acks} is not in the file: the default is 1, and was 0 in Kafka 0.8, where messages could be lost "
            f"without an error")  # fmt: skip
    empty_auth = warning_about_empty_auth({name: values[name] for name in given})
    if empty_auth is not None:
        yield Finding("warning", None, "zookeeper.auth", empty_auth)
    linger = "queue.buffering.max.ms"
    if values["producer.type"] == "sync" and linger in given:
        yield Finding("note", None, linger, f"{linger} has no effect: producer.type is sync, and send waits for each "
                      "message")  # fmt: skip
    if names_of_07 and queue_ms not in given and values[queue_ms] < 0:
        yield Finding("note", None, queue_ms,
            f"{queue_ms} is not in the file: send waits while the queue is full; in Kafka 0.7 it raised an error at "
            f"once")  # fmt: skip


Found = Iterator[tuple[str, str, str]]
_ONLY_07 = {"offsets.storage": "zookeeper", "partition.assignment.strategy": "range"}
"""Settings that members of Kafka 0.7 cannot choose."""


def _about_07(values: Mapping[str, Any], given: Collection[str], names: list[str]) -> Iterator[Finding]:
    if values["kafka.generation"] == "0.7":
        for name, only in _ONLY_07.items():
            if values[name] != only:
                yield Finding("error", None, name, f"{name} is {values[name]}, but Kafka 0.7 supports only {only}")
        return
    sentence = warning_about_07(names, given)
    if sentence is not None:
        yield Finding("warning", None, "auto.offset.reset", sentence)
    if names:
        other = [key for key in KEYS if key.default_07 is not None and key.name not in given
                 and key.name != "auto.offset.reset"]  # fmt: skip
        for key in other:
            yield Finding("note", None, key.name, f"{key.name} is not in the file: its default is "
                          f"{values[key.name]}, and was {key.default_07} in Kafka 0.7")  # fmt: skip
        yield Finding("note", None, None, f"Java consumers of 0.8 and later ignore names of 0.7: {', '.join(names)}")


def _without_effect(values: Mapping[str, Any], given: Collection[str]) -> Found:
    if "dual.commit.enabled" in given and values["offsets.storage"] != "kafka" and values["dual.commit.enabled"]:
        yield ("warning", "dual.commit.enabled", "dual.commit.enabled has no effect without offsets.storage=kafka: "
               "offsets are stored only in ZooKeeper")  # fmt: skip
    if values["shallowiterator.enable"]:
        yield ("warning", "shallowiterator.enable", "shallowiterator.enable has no effect: compressed message sets are "
               "always decoded")  # fmt: skip
    if "fetcher.backoff.ms" in given:
        yield ("note", "fetcher.backoff.ms",
            "fetcher.backoff.ms only has an effect with brokers of Kafka 0.7; fetch.wait.max.ms limits the wait of "
            "an empty fetch")  # fmt: skip
    if "auto.commit.interval.ms" in given and not values["auto.commit.enable"]:
        yield ("note", "auto.commit.interval.ms", "auto.commit.interval.ms has no effect with auto.commit.enable=false")
    if "zookeeper.sync.time.ms" in given and "rebalance.backoff.ms" in given:
        yield ("note", "zookeeper.sync.time.ms",
            "zookeeper.sync.time.ms has no effect: it only sets the default of rebalance.backoff.ms, which is "
            "given")  # fmt: skip
    if "roundrobin.order" in given and values["partition.assignment.strategy"] != "roundrobin":
        yield ("note", "roundrobin.order", "roundrobin.order has no effect with "
               f"partition.assignment.strategy={values['partition.assignment.strategy']}")  # fmt: skip
    if values["fetch.min.bytes"] > 1 and values["fetch.wait.max.ms"] == 0:
        yield ("warning", "fetch.min.bytes", "fetch.min.bytes has no effect with fetch.wait.max.ms=0: brokers answer "
               "at once")  # fmt: skip


def _sessions(values: Mapping[str, Any], given: Collection[str]) -> Found:
    session_ms = values["zookeeper.session.timeout.ms"]
    patience_ms = values["rebalance.max.retries"] * values["rebalance.backoff.ms"]
    if session_ms < _LEAST_SESSION_MS:
        waits = ""
        if session_ms <= patience_ms < _LEAST_SESSION_MS:
            waits = (f"; rebalance.max.retries x rebalance.backoff.ms = {patience_ms} ms is less than that: when a "
                     "member dies, its partitions are reported as blocked, and Java members give up, before its "
                     "session can expire")  # fmt: skip
        yield ("warning" if waits else "note", "zookeeper.session.timeout.ms",
               f"zookeeper.session.timeout.ms = {session_ms}: a ZooKeeper server with tickTime=2000 grants at least "
               f"{_LEAST_SESSION_MS} ms{waits}")  # fmt: skip
    if session_ms > _LARGEST_SESSION_MS:
        yield ("note", "zookeeper.session.timeout.ms", f"zookeeper.session.timeout.ms = {session_ms}: a ZooKeeper "
               f"server with tickTime=2000 grants at most {_LARGEST_SESSION_MS} ms")  # fmt: skip
    if values["zookeeper.connection.timeout.ms"] > _LONG_WAIT_MS:
        wait_s = values["zookeeper.connection.timeout.ms"] / 1000
        yield ("note", "zookeeper.connection.timeout.ms", f"it takes {wait_s:g} s until a ZooKeeper that does not "
               "answer is reported (zookeeper.connection.timeout.ms)")  # fmt: skip
    if "consumer.id" in given:
        yield ("note", "consumer.id", "consumer.id is fixed: each member of the group needs its own")


def _sizes(values: Mapping[str, Any], given: Collection[str]) -> Found:
    fetch = values["fetch.message.max.bytes"]
    if fetch > values["queued.max.bytes"]:
        yield ("warning", "fetch.message.max.bytes", f"fetch.message.max.bytes = {fetch} is more than queued.max.bytes "
               f"= {values['queued.max.bytes']}: fetches are as large as queued.max.bytes allows")  # fmt: skip
    if fetch > values["decoded.max.bytes"]:
        yield ("warning", "decoded.max.bytes", f"decoded.max.bytes = {values['decoded.max.bytes']} is less than "
               f"fetch.message.max.bytes = {fetch}: a compressed message set that can be fetched may be too large to "
               "be decoded")  # fmt: skip
    if fetch < _LARGEST_MESSAGE_BYTES:
        yield ("note", "fetch.message.max.bytes", f"fetch.message.max.bytes = {fetch} is less than the largest message "
               f"that brokers accept by default ({_LARGEST_MESSAGE_BYTES}): this consumer fetches a larger message "
               "by itself, but Java members of the group stop at it")  # fmt: skip


def _times(values: Mapping[str, Any], given: Collection[str]) -> Found:
    timeout_ms = values["consumer.timeout.ms"]
    if 0 <= timeout_ms < values["fetch.wait.max.ms"]:
        yield ("warning", "consumer.timeout.ms", f"consumer.timeout.ms = {timeout_ms} is less than fetch.wait.max.ms = "
               f"{values['fetch.wait.max.ms']}: a stream may time out while messages are on their way")  # fmt: skip


def _credentials(values: Mapping[str, Any], given: Collection[str]) -> Found:
    if values["zookeeper.auth"] and not values["zookeeper.use.ssl"]:
        yield ("note", "zookeeper.auth", "zookeeper.auth is sent in clear text without zookeeper.use.ssl=true")


_LONGEST: Final = 300
"""Most characters of the file in one message."""


@dataclass(frozen=True)
class CheckedLine:
    """The effect of one line.

    Attributes:
        line: Its number; the first one of a line that is continued.
        name: The name as it stands there; in an unknown name `***` replaces the text after the name of a secret.
        setting: Its name in Kafka 0.8, or ours; None if there is no such setting.
        spelling: `0.8` for that name, `0.7` for the name of Kafka 0.7; None if there is no such setting.
        status: `used`, `refused` (the value is not allowed), `overridden` (a later line counts) or `ignored` (unknown).
        value: The value in force as text, `***` for a secret; None unless `used`.
        unit: `ms` or `bytes`; None for other settings.
        is_default: The value is the default.
    """

    line: int
    name: str
    setting: str | None
    spelling: str | None
    status: str
    value: str | None = None
    unit: str | None = None
    is_default: bool = False


@dataclass(frozen=True)
class ValueInForce:
    """The value of a setting.

    Attributes:
        setting: Its name in Kafka 0.8, or ours.
        value: As text, `***` for a secret; None if it has none.
        unit: `ms` or `bytes`; None for other settings.
        line: The line that gives it; None for a default.
    """

    setting: str
    value: str | None
    unit: str | None
    line: int | None


@dataclass(frozen=True)
class FileCheck:
    """The effect of a properties file.

    Attributes:
        lines: Every property of the file, in order.
        findings: The findings: errors, warnings and notes.
        values: The value of every setting, given or not; empty if there are errors.
        program: `consumer` or `producer`: whose file it was taken for.
    """

    lines: tuple[CheckedLine, ...]
    findings: tuple[Finding, ...]
    values: tuple[ValueInForce, ...]
    program: str = "consumer"

    @property
    def is_good(self) -> bool:
        """True without an error and without a warning."""
        return all(finding.severity == "note" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, in the form of `zkconsumer check-config --json`."""
        return {
            "good": self.is_good,
            "program": self.program,
            "lines": [vars(line) for line in self.lines],
            "findings": [finding._asdict() for finding in self.findings],
            "values": [vars(value) for value in self.values],
        }

    def to_json(self) -> str:
        """Return `to_dict()` as JSON text, in one line."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def check_properties(text: str, program: str | None = None) -> FileCheck:
    """Return what the properties of a consumer or a producer will do.

    Args:
        text: The file.
        program: `consumer` or `producer`; None finds it out by the names that one of them alone has.

    Raises:
        ValueError: The text is not a properties file: an escape `\\u` without four hexadecimal digits.
    """
    entries = list(property_lines(text))
    kind = _PROGRAMS[program or program_of(entry.name for entry in entries)]
    checks = _LineChecks(entries, kind.name, kind.table)
    findings = checks.findings
    if any(line.status == "refused" for line in checks.lines):
        findings.append(Finding("note", None, None, "the settings were not checked against each other, because of the "
                                "errors"))  # fmt: skip
        return FileCheck(checks.with_values(), tuple(sorted(findings, key=_place)), (), kind.name)
    values = kind.table.completed(checks.given)
    findings += [Finding("error", checks.places.get(each.key), each.key, str(each)) for each in kind.errors(values)]
    found = kind.implausible(values, checks.given.keys(), checks.names_of_07)
    findings += [each._replace(line=checks.places.get(each.setting or "")) for each in found]
    has_errors = any(finding.severity == "error" for finding in findings)
    in_force = () if has_errors else tuple(_values(kind.table, values, checks.places))
    return FileCheck(checks.with_values(), tuple(sorted(findings, key=_place)), in_force, kind.name)


def program_of(names: Iterable[str]) -> str:
    """Return whose settings these are: `producer` if more of them are of producers alone than of consumers alone."""
    ours = [(PRODUCER_SETTINGS.find(name) is not None, CONSUMER_SETTINGS.find(name) is not None) for name in names]
    return "producer" if ours.count((True, False)) > ours.count((False, True)) else "consumer"


@dataclass(frozen=True)
class _Program:
    """The program that a file may be for.

    Attributes:
        name: `consumer` or `producer`.
        table: Its settings.
        errors: Yields an error for every two settings that contradict each other.
        implausible: Yields what does not fit together; see `implausible`.
    """

    name: str
    table: SettingTable
    errors: Callable[[Mapping[str, Any]], Iterable[ConfigError]]
    implausible: Callable[[Mapping[str, Any], Collection[str], list[str]], Iterable[Finding]]


def _producer_errors(values: Mapping[str, Any]) -> Iterator[ConfigError]:
    found = contradiction(values)
    if found is not None:
        yield ConfigError(*found)


_PROGRAMS: Final[Mapping[str, _Program]] = {
    "consumer": _Program("consumer", CONSUMER_SETTINGS, contradictions, implausible),
    "producer": _Program("producer", PRODUCER_SETTINGS, _producer_errors, implausible_for_producers),
}


class _LineChecks:
    """The effect of the lines of a file, each by itself.

    Attributes:
        lines: Every line, without its value.
        findings: The findings about single lines, and about missing settings.
        given: The values that count, by their 0.8 names.
        places: The lines of these.
        names_of_07: The names that count and that Kafka 0.7 alone has.
    """

    def __init__(self, entries: Sequence[PropertyLine], program: str, table: SettingTable) -> None:
        self._program = program
        self._table = table
        self.lines: list[CheckedLine] = []
        self.findings: list[Finding] = []
        self.given: dict[str, object] = {}
        self.places: dict[str, int] = {}
        self._entries: dict[str, PropertyLine] = {}
        last = {entry.name: entry for entry in entries}
        self.names_of_07 = table.names_of_07(last)
        self._generation = generation_of({name: entry.value for name, entry in last.items()})
        for entry in entries:
            key = table.find(entry.name)
            if last[entry.name] is not entry:
                self._add(entry, key, "overridden", self._overridden(entry, key, last[entry.name]))
            elif key is None:
                self._add(entry, None, "ignored", self._ignored(entry))
            else:
                self._take(entry, key)
        self._look_for_missing(table)

    def _look_for_missing(self, table: SettingTable) -> None:
        """Report settings that must be given; without a group, those of `bootstrap.servers` are enough."""
        refused = {line.setting for line in self.lines if line.status == "refused"}
        missing = [error.key for error in table.missing(self.given) if error.key not in refused]
        for key in table.keys:
            if missing and key.unless is not None and key.unless in self.given and key.name not in self.given:
                names, verb = " and ".join(missing), "are" if len(missing) > 1 else "is"
                sentence = f"{key.unless} is enough to read topics; to join a group, {names} {verb} needed"
                self.findings.append(Finding("note", self.places[key.unless], key.unless, sentence))
                missing = []
        for name in missing:
            sentence = f"{name} is not in the file; add it, unless your program sets it"
            self.findings.append(Finding("error", None, name, sentence))

    def _add(self, entry: PropertyLine, key: Key | None, status: str, finding: Finding | None = None) -> None:
        self.lines.append(self._line(entry, key, status))
        if finding is not None:
            self.findings.append(finding)

    def _take(self, entry: PropertyLine, key: Key) -> None:
        """Keep the value of a line, unless the consumer would refuse it."""
        try:
            value = convert(key, entry.value, self._generation)
            if self.given.get(key.name, value) != value:
                raise given_twice(key, self._entries[key.name], entry)
        except ConfigError as error:
            self._add(entry, key, "refused", Finding("error", entry.line, key.name, _shown(str(error))))
            return
        repeated = None
        if key.name in self.given:
            sentence = f"{entry.name} sets {key.name} to the same value as line {self.places[key.name]}"
            repeated = Finding("note", entry.line, key.name, sentence)
        self._add(entry, key, "used", repeated)
        if "_" in entry.name:
            sentence = f"Java {self._program}s ignore {entry.name}: they know it as {key.name}"
            self.findings.append(Finding("note", entry.line, key.name, sentence))
        self.given[key.name] = value
        self.places.setdefault(key.name, entry.line)
        self._entries.setdefault(key.name, entry)

    def with_values(self) -> tuple[CheckedLine, ...]:
        """Return the lines; lines that are used have the values of their settings."""
        return tuple(self._with_value(line) for line in self.lines)

    def _with_value(self, line: CheckedLine) -> CheckedLine:
        key = self._table.find(line.name)
        if key is None or line.status != "used":
            return line
        value = self.given[key.name]
        others = {name: each for name, each in self.given.items() if name != key.name}
        default = self._table.completed(others)[key.name]
        return replace(line, value=_text(key, value), is_default=value == default)

    def _ignored(self, entry: PropertyLine) -> Finding:
        hint = self._table.unknown(entry.name).hint
        if self._program == "producer" and CONSUMER_SETTINGS.find(entry.name) is not None:
            hint = "it is a setting of consumers"
        sentence = f"{_shown(self._table.shown_name(entry.name))} is ignored: no such setting exists"
        return Finding("warning", entry.line, None, f"{sentence}; {hint}" if hint else sentence)

    def _overridden(self, entry: PropertyLine, key: Key | None, last: PropertyLine) -> Finding:
        is_same = entry.value == last.value
        name = entry.name if key else self._table.shown_name(entry.name)
        return Finding(
            "note" if is_same else "warning", entry.line, key.name if key else None,
            f"{_shown(name)} has no effect: line {last.line} sets it again"
            f"{', to the same value' if is_same else ''}, and the last line counts",
        )  # fmt: skip

    def _line(self, entry: PropertyLine, key: Key | None, status: str) -> CheckedLine:
        if key is None:
            return CheckedLine(entry.line, _shown(self._table.shown_name(entry.name)), None, None, status)
        spelling = "0.7" if self._table.names_of_07([entry.name]) else "0.8"
        return CheckedLine(entry.line, _shown(entry.name), key.name, spelling, status, unit=_unit(key))


def _place(finding: Finding) -> tuple[int, int]:
    severities = ("error", "warning", "note")
    return severities.index(finding.severity), finding.line or 0


def _values(table: SettingTable, values: Mapping[str, object], places: Mapping[str, int]) -> Iterator[ValueInForce]:
    for key in table.keys:
        value = values[key.name]
        is_set = value is not None or isinstance(key.kind, Integer)  # None of an integer is `off`
        shown = _text(key, value) if is_set and value != () else None
        yield ValueInForce(key.name, shown, _unit(key), places.get(key.name))


def _text(key: Key, value: object) -> str:
    return "***" if key.secret else _shown(key.kind.format(value))


def _unit(key: Key) -> str | None:
    last = key.name.rpartition(".")[2]
    return last if last in ("ms", "bytes") else None


def _shown(text: str) -> str:
    """Return text of the file so that it can be printed on a terminal, in one line that is not too long."""
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in short)
