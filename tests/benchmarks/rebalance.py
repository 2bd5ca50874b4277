"""What a rebalance costs ZooKeeper, how long it takes, and whom it disturbs: members of ours, and Java's of 0.8.2.2.

    python tests/benchmarks/rebalance.py                                     # 50 real members, 500 partitions
    python tests/benchmarks/rebalance.py --cast java                         # real Java members, a JVM each
    python tests/benchmarks/rebalance.py --world simulated --members 200 --partitions 2000
    python tests/benchmarks/rebalance.py --phases stagger --members 8 --partitions 32

Real members are whole connectors, several in a process, on an embedded broker with an empty topic; their requests are
counted by a proxy in front of a real ZooKeeper. Simulated members are the same code (or the model of Java's) in
virtual time. A transaction counts as its parts, pings and handshakes do not count.

| column | |
|---|---|
| seconds | from the change to the first look at which every partition has the owner that it should have |
| requests | all that the group asks until it asks nothing more |
| moved | partitions that have another owner than before |
| stopped | partitions that have not, and yet another owner node: their owner gave them back in between |
| gave up | members that used up their tries meanwhile (Java's only) |
| target | what the project promises itself, and whether it is kept |
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # Beside this file stands the file itself, whose name is that of the package that is measured.
    sys.path[0] = str(Path(__file__).parents[2])
    from tests.benchmarks.rebalance_phases import main

    main(__doc__)
