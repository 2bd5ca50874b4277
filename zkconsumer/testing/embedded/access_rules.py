"""The access lists of an embedded cluster: rules that are kept, and by which nobody is refused.

A cluster has them if the setting `authorizer.class.name` is given, whatever it names. They are kept in memory, for all
brokers of the cluster.

Source: org.apache.kafka.common.resource.ResourcePatternFilter, org.apache.kafka.common.acl.AccessControlEntryFilter
(4.3).
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from simpleconsumer.messages.schema import Values

ANY: Final = 1
MATCH, LITERAL, PREFIXED = 2, 3, 4


class Rule(NamedTuple):
    """One rule, with Kafka's numbers."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AccessLists:
    """The rules of a cluster, in the order in which they were created.

    Threads: every method from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: dict[Rule, None] = {}

    def add(self, rule: Rule) -> None:
        """Have a rule; one that there is stays where it is."""
        with self._lock:
            self._rules.setdefault(rule)

    def found(self, wanted: Values) -> list[Rule]:
        """The rules that a filter of a request means."""
        with self._lock:
            return [rule for rule in self._rules if _is_meant(wanted, rule)]

    def take(self, wanted: Values) -> list[Rule]:
        """The same rules, which are gone then."""
        with self._lock:
            found = [rule for rule in self._rules if _is_meant(wanted, rule)]
            for rule in found:
                del self._rules[rule]
            return found


def _is_meant(wanted: Values, rule: Rule) -> bool:
    return (
        wanted["resource_type_filter"] in (ANY, rule.resource_type)
        and wanted["principal_filter"] in (None, rule.principal)
        and wanted["host_filter"] in (None, rule.host)
        and wanted["operation"] in (ANY, rule.operation)
        and wanted["permission_type"] in (ANY, rule.permission_type)
        and _is_name_meant(wanted["resource_name_filter"], wanted.get("pattern_type_filter", LITERAL), rule)
    )


def _is_name_meant(name: str | None, pattern: int, rule: Rule) -> bool:
    if pattern not in (ANY, MATCH, rule.pattern_type):
        return False
    if name is None or name == rule.resource_name:
        return True
    if pattern != MATCH:
        return False
    return name.startswith(rule.resource_name) if rule.pattern_type == PREFIXED else rule.resource_name == "*"
