"""`zkconsumer exporter`: serves the lag of all groups to Prometheus, until it is ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from zkconsumer.admin import LagChoice
from zkconsumer.cli.failures import CliError
from zkconsumer.cli.options.connection_options import (
    bootstrap_option,
    brokers_instead,
    connection_settings,
    named_places,
    no_zookeeper,
    zookeeper_option,
)
from zkconsumer.cli.options.option_types import NameFilter, Seconds
from zkconsumer.cli.terminal.signals import Interrupted, LeaveSignals

if TYPE_CHECKING:
    from zkconsumer.lag_exporter import LagExporter
    from zkconsumer.prometheus import MetricsServer

__all__ = ["exporter"]

_EPILOG = """\
\b
The exporter joins no group, and covers members of any client. It reads the cluster every --interval-s seconds, and a
scrape gets the figures of the last round. Figures older than --stale-after-s are left out. docs/OPERATIONS.md lists
the metrics, with rules for alerts. The exporter needs the package prometheus_client: pip install
'zkconsumer[prometheus]'.

\b
Example:
  zkconsumer exporter --zookeeper localhost:2181 --port 9308 --host 0.0.0.0
  zkconsumer exporter --bootstrap-server b1:9092,b2:9092
"""


@click.command(epilog=_EPILOG)
@zookeeper_option(required=False)
@bootstrap_option()
@click.option("--port", type=click.IntRange(0, 65535), default=9308, show_default=True,
              help="Port to listen on; 0 chooses a free port and prints it.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all addresses.")
@click.option("--interval-s", type=Seconds(min=1, max=86_400), default=30.0, show_default=True,
              help="Seconds between two rounds of reading.")
@click.option("--stale-after-s", type=Seconds(min=1),
              help="Leave out older figures. [three intervals, at least 90 s]")
@click.option("--group-filter", type=NameFilter(), metavar="REGEX", help="Only groups whose whole name matches.")
@click.option("--topic-filter", type=NameFilter(), metavar="REGEX", help="Only topics whose whole name matches.")
@click.option("--max-partitions", type=click.IntRange(min=0), default=20_000, show_default=True,
              help="Export at most so many partitions; the sums by topic and group count all.")
@click.option("--with-owners", is_flag=True, help="Also export the owner of each partition, as a label.")
def exporter(
    zookeeper: str | None, brokers: str | None, port: int, host: str, interval_s: float, stale_after_s: float | None,
    group_filter: Callable[[str], bool] | None, topic_filter: Callable[[str], bool] | None, max_partitions: int,
    with_owners: bool,
) -> None:
    """Serve the lag of all groups to Prometheus."""
    try:
        from zkconsumer.lag_exporter import ExporterSettings, LagExporter
    except ImportError:
        raise CliError("the exporter needs the package prometheus_client, which is not installed",
                       "pip install 'zkconsumer[prometheus]'") from None  # fmt: skip
    choice = LagChoice((), group_filter or LagChoice.keeps_group, topic_filter or LagChoice.keeps_topic)
    settings = ExporterSettings(interval_s, stale_after_s, max_partitions, with_owners)
    given = brokers_instead(brokers)
    if given is None and zookeeper is None:
        raise no_zookeeper(connection_settings(), or_brokers=True)
    with named_places():
        running = LagExporter(
            zookeeper if given is None else None, brokers=given, properties=connection_settings().properties,
            choice=choice, settings=settings,
        )  # fmt: skip
    try:
        with LeaveSignals(), _served(running, port, host) as server, running:
            place = f"[{host}]" if ":" in host else host
            click.echo(f"the lag of all groups is served at http://{place}:{server.port}/metrics")
            threading.Event().wait()
    except Interrupted:  # nothing was joined or written, so there is nothing to leave in order
        pass


def _served(running: LagExporter, port: int, host: str) -> MetricsServer:
    try:
        return running.serve(port, host)
    except OSError as error:
        raise CliError(error.strerror or str(error), "choose another --port, or another --host") from None
