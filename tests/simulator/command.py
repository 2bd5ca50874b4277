"""`python -m tests.simulator`: runs thousands of seeds of simulated groups, and replays one of them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from tests.simulator.campaign import Campaign, Outcome, run_seeds, shrink_seed
from tests.simulator.drawing import MEMBERS, draw_plan
from tests.simulator.java_member import JavaMember
from tests.simulator.plan import Plan, format_plan
from tests.simulator.plan_file import read_plan
from tests.simulator.profiles import ALL, PROFILES, profile_of
from tests.simulator.run import trace_run
from tests.simulator.shrink import only_steps
from zkconsumer.testing.history.checks import Finding

__all__ = ["main", "simulate_command"]

_SHOWN_FINDINGS, _SHOWN_ROWS = 3, 5
_REPORT_EVERY_S = 10.0
_COMPLETE: Final[Mapping[str, int]] = {"ours": 10_000, "mixed": 20_000}
"""With at least so many seeds of all profiles, a row or a kind of fault that none has reached is a failure."""

_EPILOG = """\
\b
A member of ours is the production code, on a simulated ZooKeeper and simulated brokers; "java" members are a model of
Kafka 0.8.2.2's, or 0.7.2's. The same seed always gives the same run. Status 1: a seed failed, or so many were run that
they should have reached every row of the machines and every kind of fault, and did not.

\b
Examples:
  python -m tests.simulator --seeds 10000 --jobs 2
  python -m tests.simulator --members mixed --profile sessions --seeds 1000
  python -m tests.simulator --generation 0.7 --members mixed --seeds 1000
  python -m tests.simulator --seed 4711 --trace
  python -m tests.simulator --plan scene.json --trace
"""


class _Steps(click.ParamType[tuple[int, ...]]):
    name = "numbers"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = [word for word in str(value).split(",") if word]
        if not all(word.isdigit() for word in words):
            self.fail(f"{value!r} is not numbers with commas between them, as 0,3,4", param, ctx)
        return tuple(map(int, words))


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--seeds", metavar="N", type=click.IntRange(1), default=1000, help="How many seeds. [1000]")
@click.option("--first", metavar="SEED", type=click.IntRange(0), default=0, help="The first of them. [0]")
@click.option("--jobs", metavar="N", type=click.IntRange(1, 64), default=1, help="Processes. [1]")
@click.option("--members", type=click.Choice(MEMBERS), default="ours", help="Who is in the group. [ours]")
@click.option("--generation", type=click.Choice(("0.7", "0.8")), default="0.8", help="Of Kafka. [0.8]")
@click.option(
    "--profile",
    type=click.Choice([ALL, *PROFILES]),
    default=ALL,
    help="Which faults happen; all: several profiles, each in its turn by the number of the seed. [all]",
)
@click.option("--most-failures", metavar="N", type=click.IntRange(1), default=5, help="End after so many. [5]")
@click.option("--seed", metavar="SEED", type=click.IntRange(0), help="Run this one alone, and print its plan.")
@click.option(
    "--plan",
    "plan_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run this plan, JSON as --seed prints it; --seed then seeds the random numbers. [0]",
)
@click.option("--keep", metavar="STEPS", type=_Steps(), help="With --seed or --plan: only these steps, as 0,3,4.")
@click.option("--trace", is_flag=True, help="With --seed or --plan: all that happens, line by line.")
def simulate_command(
    seeds: int, first: int, jobs: int, members: str, generation: str, profile: str, most_failures: int,
    seed: int | None, plan_file: Path | None, keep: tuple[int, ...] | None, trace: bool,
) -> None:  # fmt: skip
    """Run consumer groups in a simulated world: members, ZooKeeper, brokers, faults, in virtual time."""
    if plan_file is not None:
        raise click.exceptions.Exit(_replay(_read(plan_file), seed or 0, keep, trace))
    if seed is not None:
        plan = draw_plan(seed, members, profile_of(profile, seed), generation)
        raise click.exceptions.Exit(_replay(plan, seed, keep, trace))
    if keep is not None or trace:
        raise click.UsageError("--keep and --trace go with --seed or --plan")
    campaign = Campaign(members, profile, generation)
    outcomes = run_seeds(range(first, first + seeds), members, profile, jobs, generation)
    for outcome in _shown(outcomes, seeds):
        campaign.add(outcome)
        if outcome.findings:
            _print_failure(outcome, campaign)
        if len(campaign.failed) >= most_failures:
            click.echo(f"{len(campaign.failed)} seeds have failed; ending")
            break
    raise click.exceptions.Exit(_print_end(campaign))


def _shown(outcomes: Iterable[Outcome], count: int) -> Iterator[Outcome]:
    """The outcomes, with a bar on a terminal, and a line now and then elsewhere."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        yield from track(outcomes, "seeds", total=count, console=Console(stderr=True))
        return
    reported_s = time.monotonic()
    for number, outcome in enumerate(outcomes, 1):
        yield outcome
        if time.monotonic() - reported_s >= _REPORT_EVERY_S:
            reported_s = time.monotonic()
            click.echo(f"{number} of {count} seeds", err=True)


def _print_failure(outcome: Outcome, campaign: Campaign) -> None:
    click.echo(f"\nseed {outcome.seed} failed:")
    _print_findings(outcome.findings)
    generation = "" if campaign.generation == "0.8" else f"--generation {campaign.generation} "
    choice = f"{generation}--members {campaign.members} --profile {campaign.profile} --seed {outcome.seed}"
    replay = f"python -m tests.simulator {choice}"
    kept = shrink_seed(outcome, campaign.members, campaign.profile, campaign.generation)
    click.echo(
        f"Of its steps {len(kept)} are enough. See it happen:\n"
        f"  {replay} --keep {','.join(map(str, kept)) or ','} --trace"
    )


def _print_findings(findings: list[Finding]) -> None:
    for finding in findings[:_SHOWN_FINDINGS]:
        click.echo(f"  {finding}")
    if len(findings) > _SHOWN_FINDINGS:
        click.echo(f"  and {len(findings) - _SHOWN_FINDINGS} more")


def _print_end(campaign: Campaign) -> int:
    """Print a summary; return the exit status."""
    took_s = max(campaign.elapsed_s, 0.001)
    click.echo(
        f"{campaign.seeds} seeds of {campaign.members}, {campaign.profile}: {len(campaign.failed)} failed; "
        f"{took_s:.0f} s, {campaign.seeds / took_s:.1f} seeds/s, {campaign.steps / took_s:,.0f} steps/s"
    )
    kinds = Counter(finding.check for outcome in campaign.failed for finding in outcome.findings)
    for check, count in kinds.most_common():
        click.echo(f"  {check}: {count}")
    return 1 if campaign.failed or not _is_complete(campaign) else 0


def _is_complete(campaign: Campaign) -> bool:
    """Whether all is reached that so many seeds have to reach; prints what is not."""
    needed = _COMPLETE.get(campaign.members)
    if campaign.profile != ALL or needed is None or campaign.generation != "0.8":
        return True
    missing = campaign.coverage.missing()
    if not missing:
        click.echo("Every row of the machines and every kind of fault was reached.")
        return True
    is_enough = campaign.seeds >= needed
    shown = missing if is_enough else missing[:_SHOWN_ROWS]
    click.echo(f"{len(missing)} rows of the machines and kinds of faults were not reached:")
    for name in shown:
        click.echo(f"  {name}")
    if len(missing) > len(shown):
        click.echo(f"  and {len(missing) - len(shown)} more")
    if not is_enough:
        click.echo(f"That is a failure only from {needed:,} seeds on.")
    return not is_enough


def _read(path: Path) -> Plan:
    try:
        return read_plan(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--plan") from error


def _replay(plan: Plan, seed: int, keep: tuple[int, ...] | None, trace: bool) -> int:
    if keep is not None:
        try:
            plan = only_steps(plan, keep)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--keep") from error
    run, lines = trace_run(plan, seed, JavaMember)
    if trace:
        for line in lines:
            click.echo(line)
        click.echo()
    click.echo(format_plan(plan))
    if run.findings:
        click.echo(f"\nseed {seed} failed:")
        _print_findings(run.findings)
        return 1
    rest_s = 0.0 if run.converged_s is None else run.converged_s - run.healed_s
    click.echo(f"\nseed {seed} is clean: {run.steps} events, at rest {rest_s:.1f} s after the last fault")
    return 0


def main() -> None:
    """Run the command and exit."""
    simulate_command(prog_name="python -m tests.simulator")
