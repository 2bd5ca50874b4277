"""The types of settings: each converts text, or a Python value, to one type, and back. Pure.

`convert` raises a bare ValueError, which the caller, who knows the key, turns into a ConfigError. `allowed` describes
the allowed values, for that error and for the documentation.

The kind of `partition.assignment.strategy`: names of assignors, and in groups of brokers one's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, cast

from rebalance.brokers.assignor import Assignor
from simpleconsumer.security.secret import NOT_UTF8, Secret, is_utf8

INT32_MAX = 2**31 - 1
PATH = "a path"
"""The allowed values for the name of a file, which may be no UTF-8."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DIGEST_ID = re.compile(r"[^:]+:[A-Za-z0-9+/]{27}=")
_ITEM = re.compile(r"(?:\\.|[^\\,])+", re.DOTALL)
_LIST = re.compile(rf"(?:{_ITEM.pattern}(?:,{_ITEM.pattern})*)?", re.DOTALL)


class HiddenValueError(ValueError):
    """The value is not allowed, and may hold a password: the error does not show it."""


class Kind(Protocol):
    """A type of setting."""

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""

    def convert(self, value: object) -> object:
        """Return the typed value; ValueError when it is not allowed."""

    def format(self, value: object) -> str:
        """Return the text of a converted value, which converts back to it."""


@dataclass(frozen=True)
class Integer:
    """A whole number in a range; with `off`, also the word off, which is None."""

    least: int
    most: int = INT32_MAX
    off: bool = False

    @property
    def allowed(self) -> str:
        span = f"from {self.least} to {self.most}" if self.least > -INT32_MAX else f"up to {self.most}"
        return f"an integer {span}" + (" or off" if self.off else "")

    def convert(self, value: object) -> int | None:
        if isinstance(value, str):
            value = value.strip()
            if self.off and value == "off":
                return None
            if not _INTEGER.fullmatch(value):
                raise ValueError
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise ValueError
        return value

    def format(self, value: object) -> str:
        return "off" if value is None else str(value)


@dataclass(frozen=True)
class Boolean:
    """true or false, in lower case as Kafka requires, or a Python bool."""

    allowed: str = "true or false"

    def convert(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        words = {"true": True, "false": False}
        if not isinstance(value, str) or value.strip() not in words:
            raise ValueError
        return words[value.strip()]

    def format(self, value: object) -> str:
        return "true" if value else "false"


@dataclass(frozen=True)
class Choice:
    """One of a few words; with `any_case`, in any case, and then stored in lower case."""

    words: tuple[str, ...]
    any_case: bool = False

    @property
    def allowed(self) -> str:
        return ", ".join(self.words[:-1]) + f" or {self.words[-1]}"

    def convert(self, value: object) -> str:
        word = str(value).strip() if isinstance(value, str | int | float) else ""
        word = word.lower() if self.any_case else word
        if word not in self.words:
            raise ValueError
        return word

    def format(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True)
class Text:
    """Text that a check accepts; the check raises ValueError with the reason if it does not."""

    allowed: str = "text"
    check: Callable[[str], object] | None = None

    def convert(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        if self.check is not None:
            self.check(value)
        return value

    def format(self, value: object) -> str:
        return str(value)


class ZooKeeperAuth(NamedTuple):
    """A credential to add to the session, in the form of ZooKeeper's `addauth`; not shown in a repr."""

    scheme: str
    credential: str

    def __repr__(self) -> str:
        return f"ZooKeeperAuth(scheme={self.scheme!r}, credential='***')"


class ZooKeeperAcl(NamedTuple):
    """One entry of the access control list of nodes we create; permissions are letters of `cdrwa`."""

    scheme: str
    id: str
    permissions: str


OPEN_ACL = ZooKeeperAcl("world", "anyone", "cdrwa")
CREATOR_ACL = ZooKeeperAcl("auth", "", "cdrwa")
_ACL_WORDS = {"open": OPEN_ACL, "creator": CREATOR_ACL}


@dataclass(frozen=True)
class AuthList:
    r"""`scheme:credential` items between commas; a comma or backslash inside one has a backslash before it."""

    allowed: str = r"scheme:credential, or several separated by commas (a comma inside is written \,)"

    def convert(self, value: object) -> tuple[ZooKeeperAuth, ...]:
        return tuple(self._item(item) for item in _items(value))

    def _item(self, item: object) -> ZooKeeperAuth:
        scheme, credential = item.split(":", 1) if isinstance(item, str) and ":" in item else _pair(item)
        if not scheme.isalnum() or not credential:
            raise ValueError
        if not is_utf8(credential):
            raise ValueError(NOT_UTF8)
        return ZooKeeperAuth(scheme, Secret(credential))

    def format(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(_escape_item(f"{scheme}:{credential}") for scheme, credential in value)


@dataclass(frozen=True)
class AclList:
    """`scheme:id:permissions` items between commas, or the words open and creator for the usual ones."""

    allowed: str = "open, creator, or scheme:id:permissions (letters of cdrwa), or several separated by commas"

    def convert(self, value: object) -> tuple[ZooKeeperAcl, ...]:
        entries = tuple(self._item(item) for item in _items(value))
        if not entries:
            raise ValueError
        return entries

    def _item(self, item: object) -> ZooKeeperAcl:
        if isinstance(item, str) and item in _ACL_WORDS:
            return _ACL_WORDS[item]
        if isinstance(item, str):
            scheme, separator, rest = item.partition(":")
            identity, last, permissions = rest.rpartition(":")
            if not separator or not last:
                raise ValueError
        elif isinstance(item, tuple) and len(item) == 3 and all(isinstance(part, str) for part in item):
            scheme, identity, permissions = item
        else:
            raise ValueError
        if not scheme.isalnum() or not permissions or set(permissions) - set("cdrwa"):
            raise ValueError
        if scheme == "digest" and not _DIGEST_ID.fullmatch(identity):
            # With a password instead of the hash nobody could open the created nodes, not even their creator.
            raise HiddenValueError("the hash after the user of `digest` must have 28 characters: the base64 of the "
                                   "SHA-1 of user:password; `creator` needs no hash")  # fmt: skip
        return ZooKeeperAcl(scheme, identity, permissions)

    def format(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(_escape_item(":".join(entry)) for entry in value)


def _items(value: object) -> Iterable[object]:
    if not isinstance(value, str):
        if isinstance(value, list | tuple):
            return value
        raise ValueError
    if not _LIST.fullmatch(value):
        raise ValueError
    return [re.sub(r"\\(.)", r"\1", item, flags=re.DOTALL).lstrip() for item in _ITEM.findall(value)]


def _pair(item: object) -> tuple[str, str]:
    if isinstance(item, tuple) and len(item) == 2 and all(isinstance(part, str) for part in item):
        return item
    raise ValueError


def _escape_item(text: str) -> str:
    return text.replace("\\", "\\\\").replace(",", "\\,")


ZOOKEEPER_STRATEGIES: Final = ("range", "roundrobin")
"""The strategies that members of a group in ZooKeeper can agree on."""
_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_CLASSES: Final = {
    "RangeAssignor": "range", "RoundRobinAssignor": "roundrobin", "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}  # fmt: skip
_FACE: Final = ("subscription_user_data", "assign", "on_assignment")
AssignorNames = str | tuple[str | Assignor, ...]
"""One name, or several names and objects, the one that is wanted first."""


@dataclass(frozen=True)
class AssignorList:
    """Names of Kafka's assignors, names of their Java classes, or objects; the first one is the most wanted."""

    allowed: str = "some of range, roundrobin, sticky, cooperative-sticky, separated by commas, or assignor objects"

    def convert(self, value: object) -> tuple[str | Assignor, ...]:
        if isinstance(value, str):
            items: list[object] = list(value.split(","))
        else:
            items = list(value) if isinstance(value, Iterable) else [value]
        found = tuple(self._assignor(item) for item in items)
        names = [each if isinstance(each, str) else each.name for each in found]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{twice[0]} is named twice")
        if not found:
            raise ValueError("the list has no assignors")
        return found

    def _assignor(self, item: object) -> str | Assignor:
        if isinstance(item, str):
            word = item.strip()
            name = _CLASSES.get(word.removeprefix(_PACKAGE), word)
            if name not in _CLASSES.values():
                raise ValueError(f"{word!r} is not one of them")
            return name
        if isinstance(item, type):
            raise ValueError(f"{item.__name__} is a class; give an instance")
        if not isinstance(getattr(item, "name", None), str) or not getattr(item, "supported_protocols", None):
            raise ValueError(f"{type(item).__name__} has no name or no supported_protocols")
        lacks = [method for method in _FACE if not callable(getattr(item, method, None))]
        if lacks:
            raise ValueError(f"{type(item).__name__} has no method {lacks[0]}")
        return cast("Assignor", item)

    def format(self, value: object) -> str:
        assert isinstance(value, tuple)
        return ",".join(each if isinstance(each, str) else each.name for each in value)


@dataclass(frozen=True)
class AssignorChoice(AssignorList):
    """The same, where a group in ZooKeeper has one strategy: a single name stays a word."""

    def convert(self, value: object) -> AssignorNames:  # type: ignore[override]
        found = super().convert(value)
        first = found[0]
        return first if len(found) == 1 and isinstance(first, str) else found

    def format(self, value: object) -> str:
        return value if isinstance(value, str) else super().format(value)


def assignors_of(names: AssignorNames) -> tuple[Assignor, ...]:
    """Return the assignors of a setting; named ones are created anew, as each keeps the state of its member."""
    from rebalance.brokers.assignor import (  # needed in groups of brokers alone
        RangeAssignor,
        RoundRobinAssignor,
    )
    from rebalance.brokers.sticky import CooperativeStickyAssignor, StickyAssignor

    made_by: Mapping[str, Callable[[], Assignor]] = {
        "range": RangeAssignor, "roundrobin": RoundRobinAssignor, "sticky": StickyAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }  # fmt: skip
    several = (names,) if isinstance(names, str) else names
    return tuple(made_by[each]() if isinstance(each, str) else each for each in several)
