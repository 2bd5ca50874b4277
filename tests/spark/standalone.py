"""A standalone cluster of Spark: a master and workers in processes of their own, and executors that know no zkconsumer.

The jars are those of pyspark. The interpreter of the executors has the compiled packages that docs/SPARK.md names, and
nothing of this project: what it needs of that has to come with the job.
"""

from __future__ import annotations

import os
import sys
import venv
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import pyspark
from killing import descendants
from spark_jobs import QUICK_JAVA

from zkconsumer.spark.archive import COMPILED
from zkconsumer.spark.errors import RequirementMissing
from zkconsumer.spark.requirements import check_java
from zkconsumer.testing.errors import JavaMissing
from zkconsumer.testing.processes import ChildProcess, free_port
from zkconsumer.testing.waiting import wait_until

SPARK: Final = Path(pyspark.__file__).parent
_START_S: Final = 60.0


def bare_interpreter(folder: Path) -> Path:
    """An interpreter with pyspark and the packages that executors need beside the archive, and without this project."""
    venv.create(folder, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    installed = [Path(entry) for entry in sys.path if "site-packages" in Path(entry).parts]
    for name in ("pyspark", "py4j", *COMPILED):
        for path in [path for site in installed for path in (*site.glob(name), *site.glob(f"{name}[-.]*"))]:
            if not (packages / path.name).exists():
                (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"


class StandaloneSpark:
    """Master and workers; use it as a context manager.

    Attributes:
        python: The interpreter of executors, see `bare_interpreter`.
        master: The URL of the master.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._stack = ExitStack()
        self._servers: list[ChildProcess] = []
        self.python = bare_interpreter(folder / "python")
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")},
            "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(self.python),
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
        }  # fmt: skip

    def __enter__(self) -> Self:
        try:
            check_java()
        except RequirementMissing as error:
            raise JavaMissing(str(error)) from error
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        deploy = "org.apache.spark.deploy"
        self._serve(
            "master", f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", f"{port}", "--webui-port", "0"
        )
        for number in range(self._workers):
            self._serve(
                f"worker-{number}",
                f"{deploy}.worker.Worker",
                self.master,
                "--host",
                "127.0.0.1",
                "--webui-port",
                "0",
                "--cores",
                "2",
                "--memory",
                "2g",
                "--work-dir",
                str(self._folder / "work"),
            )
        wait_until(
            lambda: self._servers[0].tail(200).count("Registering worker") == self._workers,
            _START_S,
            "all workers at the master",
        )
        return self

    def __exit__(self, *exception: object) -> None:
        for server in reversed(self._servers):
            server.kill_group()

    def _serve(self, name: str, *command: str) -> None:
        log = self._folder / f"{name}.txt"
        shell = [str(SPARK / "bin" / "spark-class"), *command]
        self._servers.append(ChildProcess(name, shell, log, directory=self._folder, environment=self.environment))

    def submit(
        self, job: Path, *arguments: str, options: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> ChildProcess:
        """Start `spark-submit` with a program, whose output goes to `stdout.txt` beside it; return at once.

        Args:
            options: Of `spark-submit`.
            environment: Variables beside those that all processes have.
        """
        quiet = {
            "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1", "spark.sql.shuffle.partitions": "2",
            "spark.executor.memory": "600m", "spark.executor.cores": "1", "spark.cores.max": "2",
        }  # fmt: skip
        settings = [word for name, value in quiet.items() for word in ("--conf", f"{name}={value}")]
        command = [str(SPARK / "bin" / "spark-submit"), "--master", self.master, *settings, *options, str(job),
                   *arguments]  # fmt: skip
        return ChildProcess(
            "spark-submit", command, job.parent / "stderr.txt", output_path=job.parent / "stdout.txt",
            directory=job.parent, environment={**self.environment, **(environment or {})},
        )  # fmt: skip

    def executors(self) -> list[int]:
        """The processes of executors that run now."""
        found = {pid: command for server in self._servers for pid, command in descendants(server.pid).items()}
        return sorted(pid for pid, command in found.items() if "CoarseGrainedExecutorBackend" in command)
