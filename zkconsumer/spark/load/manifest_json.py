"""The JSON of manifests: a head of named values, then lists with one line for each row, so that files can be compared.

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from zkconsumer.spark.load.errors import LoadRefused

__all__ = ["manifest_text", "parse_manifest"]

T = TypeVar("T")


def manifest_text(head: Mapping[str, Any], lists: Mapping[str, Sequence[Sequence[Any]]]) -> str:
    """Return the content of a manifest.

    Args:
        head: Its single values, among them `version`.
        lists: The rows of each list.
    """
    lines = [
        f' "{name}": [' + ",".join(f"\n  {json.dumps(row, ensure_ascii=False)}" for row in rows) + "]"
        for name, rows in lists.items()
    ]
    return json.dumps(head, indent=1, ensure_ascii=False)[:-2] + ",\n" + ",\n".join(lines) + "\n}\n"


def parse_manifest(
    path: str, text: str, kind: str, versions: Collection[int], build: Callable[[dict[str, Any]], T], remedy: str
) -> T:
    """Return what `build` makes of the values in a manifest.

    Args:
        path: Where it is, for errors.
        kind: What it should be a manifest of, for errors.
        versions: The versions of the format that can be read.
        build: Called with all values except `version`.
        remedy: What to do if it cannot be read.

    Raises:
        LoadRefused: It is no such manifest, or of another version.
    """
    try:
        found = json.loads(text)
        version = found.pop("version")
        if version not in versions:
            known = ", ".join(map(str, versions))
            raise LoadRefused(f"{path} is of version {version!r}; this release knows {known}")
        return build(found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise LoadRefused(f"{path} is no manifest of {kind} ({reason})", remedy=remedy) from error
