"""Fixtures that all tests share: real servers, fresh names, and what `slow` and `real` mean.

A test that asks for a real server is marked `real`. Where Java or the jars are missing it is skipped with the
sentence that says what to install, unless ZKCONSUMER_REQUIRE_REAL=1 is set, which turns the skip into a failure:
continuous integration must not pass by skipping. Tests marked `slow` run only when `-m` names that mark.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from kazoo.client import KazooClient

from tests import durations, sets
from zkconsumer.testing.errors import version_tuple
from zkconsumer.testing.kafka import KafkaCluster
from zkconsumer.testing.kafka.security import BrokerCertificates, BrokerSecurity
from zkconsumer.testing.zookeeper import ZooKeeperServer

settings.register_profile("unhurried", deadline=None)  # how long an example takes means nothing on a busy machine
settings.load_profile("unhurried")

pytest_plugins = ["zkconsumer.testing.pytest_plugin"]
"""Brings `zookeeper`, `kafka_cluster(s)`, `embedded_cluster(s)`, and the skip where Java or the jars are missing."""

REAL_FIXTURES = {"zookeeper", "kafka_clusters", "secured_clusters", "embedded_clusters", "spark"}
INNER_LOOP = "not real"
"""The tests to run often: `tests/run -m "not real"`."""

SPARK_FILES = {
    "tests/spark/on_kafka_07/test_load_07.py",
    "tests/spark/on_kafka_07/test_sink_07.py",
    "tests/spark/on_kafka_07/test_spark_07.py",
    "tests/spark/test_load_by_brokers.py",
    "tests/spark/test_load_changes.py",
    "tests/spark/test_load_closed_nodes.py",
    "tests/spark/test_load_compaction.py",
    "tests/spark/test_load_row_counts.py",
    "tests/spark/test_load_delta.py",
    "tests/spark/test_load_event_time.py",
    "tests/spark/test_load_failures.py",
    "tests/spark/test_load_file_size.py",
    "tests/spark/test_load_headers.py",
    "tests/spark/test_load_iceberg.py",
    "tests/spark/test_load_job.py",
    "tests/spark/test_load_dead_runs.py",
    "tests/spark/test_load_newer_logs.py",
    "tests/spark/test_load_places.py",
    "tests/spark/test_load_portions.py",
    "tests/spark/test_load_topic_names.py",
    "tests/spark/test_load_real_logs.py",
    "tests/spark/test_persisted_folders.py",
    "tests/spark/test_sink.py",
    "tests/spark/test_spark_batch.py",
    "tests/spark/test_spark_filters.py",
    "tests/spark/test_spark_headers.py",
    "tests/spark/test_spark_of_every_age.py",
    "tests/spark/test_spark_stream.py",
    "tests/spark/test_spark_stream_headers.py",
}
"""Files whose tests share a Spark session, which costs half a gigabyte and twenty seconds of a core."""

SHORT_SESSIONS = {"group.min.session.timeout.ms": 500}

LEFT_IGNORED = {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTTIN, signal.SIGTTOU}
"""Python ignores the first two itself, and not for children; a write to a terminal would never end with the others."""


def start_children_as_a_terminal_does() -> None:
    """Have children start with no signal ignored or blocked, however the tests were started: `nohup`, `&`, cron.

    An ignored signal stays ignored in a child, one with a handler does not. So each has a handler that does nothing: to
    the tests themselves a hangup or an interrupt means as little as before.
    """
    for number in signal.valid_signals() - LEFT_IGNORED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


start_children_as_a_terminal_does()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, start with the longest files, and treat those that share a Spark session as one file."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    seconds = durations.recorded()
    seconds["tests/spark"] = sum(seconds.get(name, 0) for name in SPARK_FILES)

    class LongestFirst(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope: str = super()._split_scope(nodeid)
            return "tests/spark" if scope in SPARK_FILES else scope

        def _assign_work_unit(self, node: Any) -> None:
            # What is left is in the order of its numbers of tests; `max` takes the first of equals.
            longest = max(self.workqueue, key=lambda scope: seconds.get(scope, 0))
            self.workqueue.move_to_end(longest, last=False)
            super()._assign_work_unit(node)

    return LongestFirst(config, log)


# -- sets of tests whose files have not changed ------------------------------------------------------------------------


LEFT_OUT: pytest.StashKey[list[str]] = pytest.StashKey()
FAILED_FILES: set[Path] = set()
SECONDS_OF_FILES: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-sets", action="store_true", help="also run sets of tests whose files are unchanged")


def is_default_suite(config: pytest.Config) -> bool:
    """Whether the whole default suite runs, and not some tests that were chosen."""
    return not config.option.markexpr and _is_unchosen(config)


def is_inner_loop(config: pytest.Config) -> bool:
    """Whether all tests of the default suite run that need no real servers."""
    return str(config.option.markexpr) == INNER_LOOP and _is_unchosen(config)


def _is_unchosen(config: pytest.Config) -> bool:
    chosen = config.option.keyword or getattr(config.option, "lf", False)
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not chosen


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name long bytes by their argument: gzip compresses differently in each process, and names must be the same."""
    return argname if isinstance(val, bytes) and len(val) > 32 else None


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.stash[LEFT_OUT] = config.workerinput["left_out"]
    else:
        leaves_out = is_default_suite(config) or is_inner_loop(config)
        known = sets.unchanged() if leaves_out and not config.option.all_sets else []
        config.stash[LEFT_OUT] = [name for name in known if name in sets.SETS]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Have a process of xdist leave out the same sets as the first one."""
    node.workerinput["left_out"] = node.config.stash[LEFT_OUT]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    left_out = [sets.SETS[name] for name in config.stash[LEFT_OUT]]
    return True if any(tests.has(collection_path) for tests in left_out) else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid.partition("::")[0]
    SECONDS_OF_FILES[name] += report.duration
    if report.failed:
        FAILED_FILES.add(sets.ROOT / name)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.stash[LEFT_OUT]:
        names = ", ".join(config.stash[LEFT_OUT])
        terminalreporter.write_line(f"left out, as unchanged since they passed: {names} (--all-sets runs them, too)")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Record which sets have passed, and how long files took, on a machine that has what real servers need."""
    config = session.config
    is_complete = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and is_default_suite(config)
    if hasattr(config, "workerinput") or config.option.collectonly or not is_complete:
        return
    if shutil.which("java") and shutil.which("mvn"):
        ran = [name for name in sets.SETS if name not in config.stash[LEFT_OUT]]
        sets.record([name for name in ran if not any(map(sets.SETS[name].has, FAILED_FILES))])
        if exitstatus == pytest.ExitCode.OK and config.getoption("dist", None) == "loadfile":
            durations.record(SECONDS_OF_FILES)


# -- choice and order --------------------------------------------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if REAL_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real)
    if "slow" not in config.option.markexpr and not any("::" in argument for argument in config.args):
        slow = [item for item in items if item.get_closest_marker("slow")]
        if slow:
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that runs in this process sets up logging for good; the next test must not see that."""
    loggers = [logging.getLogger(name) for name in ("zkconsumer", "rebalance", "simpleconsumer", "kazoo")]
    before = [(list(logger.handlers), logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers[:] = handlers
        logger.propagate = propagate
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def no_log_lines_of_earlier_tests(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Keep out of `caplog` what ZooKeeper clients log that an earlier test has left.

    A member that is shut down while ZooKeeper is stalled leaves its client to end by itself, up to a session later.
    """
    earlier = set(threading.enumerate()) - {threading.current_thread()}

    def is_of_this_test(record: logging.LogRecord) -> bool:
        return not record.name.startswith(("kazoo", "rebalance")) or threading.current_thread() not in earlier

    caplog.handler.addFilter(is_of_this_test)
    yield
    caplog.handler.removeFilter(is_of_this_test)


@pytest.fixture(scope="session")
def secured_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], KafkaCluster]]:
    """Gives a running broker of a version with listeners of TLS and SASL; all that ask for a version share it.

    The user is `alice` with the password `secret-of-alice`.
    """
    security = BrokerSecurity(certificates=BrokerCertificates.make(tmp_path_factory.mktemp("broker-certificates")))
    running: dict[str, KafkaCluster] = {}
    with contextlib.ExitStack() as stack:

        def cluster(version: str) -> KafkaCluster:
            if version not in running:
                running[version] = stack.enter_context(KafkaCluster(version, security=security))
            return running[version]

        yield cluster


@pytest.fixture(scope="session")
def kafka_clusters() -> Iterator[Callable[[str, int], KafkaCluster]]:
    """Gives running clusters by version and number of brokers, which all tests share, as the plugin's fixture does.

    Groups that brokers coordinate may have sessions of half a second there, so tests of them need no other brokers.
    """
    running: dict[tuple[str, int], KafkaCluster] = {}
    with contextlib.ExitStack() as stack:

        def cluster(version: str, brokers: int) -> KafkaCluster:
            key = (version, brokers)
            if key not in running:
                settings = SHORT_SESSIONS if version_tuple(version) >= (0, 9) else {}
                running[key] = stack.enter_context(KafkaCluster(version, brokers, settings=settings))
            return running[key]

        yield cluster


@pytest.fixture(scope="session")
def kafka_0822(kafka_clusters: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    """Two Kafka 0.8.2.2 brokers (ids 0 and 1) that all tests share: do not stop them, and use topics of your own."""
    return kafka_clusters("0.8.2.2", 2)


@pytest.fixture
def fresh_group() -> str:
    """A new consumer group name."""
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def fresh_topic() -> Callable[[], str]:
    """Makes new topic names: `fresh_topic()`."""
    return lambda: f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def zookeeper_client(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client of ZooKeeper itself, beside what is tested."""
    client = KazooClient(zookeeper.connect)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture(scope="module")
def fresh_chroot(zookeeper: ZooKeeperServer, zookeeper_client: KazooClient) -> str:
    """Addresses of ZooKeeper with a path that nobody else has."""
    path = f"/{uuid.uuid4().hex}"
    zookeeper_client.ensure_path(path)
    return zookeeper.connect + path
