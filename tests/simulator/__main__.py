"""Runs the simulator: `python -m tests.simulator --help`."""

from tests.simulator.command import main

main()
