"""Scrapes of an exporter, as Prometheus makes and reads them."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.cli.command_line import TIMEOUT_S
from zkconsumer.testing.waiting import wait_until

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped_text(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode())


def scraped(port: int) -> Samples:
    return {
        (sample.name.removeprefix("zkconsumer_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(scraped_text(port))
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def values(found: Samples, name: str, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
    """The series of a metric that have these labels among others."""
    return {at: number for (each, at), number in found.items() if each == name and labels.items() <= dict(at).items()}


def wait_up(port: int, wanted: float = 1.0) -> Samples:
    found: Samples = {}

    def is_so() -> bool:
        found.clear()
        found.update(scraped(port))
        return value(found, "exporter_up") == wanted

    wait_until(is_so, 4 * TIMEOUT_S, f"up to be {wanted}", state=lambda: found)
    return found
