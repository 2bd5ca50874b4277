"""`zkconsumer spark-zip`: writes the archive for Spark executors on which this package is not installed."""

from __future__ import annotations

from pathlib import Path

import click

from zkconsumer.cli.failures import CliError
from zkconsumer.spark.archive import COMPILED, write_archive
from zkconsumer.spark.errors import RequirementMissing

__all__ = ["spark_zip"]

_EPILOG = f"""\
\b
An archive cannot carry compiled code, so executors need these packages: {', '.join(COMPILED)}.

\b
Example: a job whose executors do not have zkconsumer
  zkconsumer spark-zip zkconsumer.zip
  spark-submit --py-files zkconsumer.zip job.py

\b
job.py registers the source before it uses it:
  from zkconsumer.spark import ZkConsumerSource
  spark.dataSource.register(ZkConsumerSource)
"""


@click.command("spark-zip", epilog=_EPILOG)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def spark_zip(file: Path) -> None:
    """Write FILE, an archive of zkconsumer for `spark-submit --py-files`."""
    try:
        size_bytes = write_archive(file)
    except ValueError as error:
        raise CliError(str(error), "give FILE such a name") from None
    except RequirementMissing as error:
        raise CliError(str(error)) from None
    click.echo(f"Wrote {file}, {size_bytes // 1024} KiB. Executors also need {', '.join(COMPILED)}.")
