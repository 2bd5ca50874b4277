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
Executors need these installed, as an archive cannot carry compiled code: {', '.join(COMPILED)}.

\b
Example: a job whose executors know nothing of zkconsumer
  zkconsumer spark-zip zkconsumer.zip
  spark-submit --py-files zkconsumer.zip job.py

\b
job.py has to make the source known before it uses it:
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
        raise CliError(str(error), "give it such a name") from None
    except RequirementMissing as error:
        raise CliError(str(error)) from None
    click.echo(f"Wrote {file}, {size_bytes // 1024} KiB. Executors need {', '.join(COMPILED)} beside it.")
