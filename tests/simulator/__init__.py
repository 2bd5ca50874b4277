"""A consumer group in virtual time: ZooKeeper, brokers, members and faults, all drawn from one seed.

Nothing here knows a thread, a socket or a clock. Everything that happens is an event of one `Schedule`, and every
choice is drawn from the one `random.Random` that the caller passes, so that a seed determines the whole run: run again,
it is the same to the last event.

`simulate(plan, seed)` runs a `Plan` and checks its history; `World` is the same, driven step by step by the caller.
`zookeeper` is the entry to the simulated ZooKeeper and has the faults as methods; `port` is what a member uses in the
place of `rebalance.zookeeper.port.kazoo_port`; `process` is what is paused and killed; `schedule` is time. Brokers are
those of Kafka 0.8 (`brokers`), and in plans of generation 0.7 those of `brokers_07`, beside Java members of 0.7.2
(`java_connector_07`).

Tests send the same requests to the simulated and to a real ZooKeeper and compare the answers
(tests/simulation/test_simulated_against_real.py). Where the two differ:

- Agreement is not simulated. With a majority within reach a write is final when the leader sees it; no write is lost
  with a leader that crashed half way. Servers can be cut off one by one, not in groups.
- No chroots, access lists, sequence nodes, containers, quotas, observers, read-only servers, or limit to the size of a
  node. Data that is lost is lost on all servers at once.
- Children are listed in the order of their creation; real servers promise none.
- One link carries all connections of a process to a server in turn: the last bytes of one arrive before the first of
  the next. The handshake of TCP takes no time of its own.
- A server answers as soon as it is asked; only links, and followers behind their leader, take time.
- A client library never falls behind but where `PortSettings.overtaking` says so; credentials are never refused.
"""

from tests.simulator.actor import MemberSpec
from tests.simulator.drawing import PROFILES, draw_plan
from tests.simulator.pipe import Latency
from tests.simulator.plan import Plan, Step, format_plan, parse_plan
from tests.simulator.port import PortSettings, SimulatedPort
from tests.simulator.process import Process
from tests.simulator.run import Run, simulate, trace_run
from tests.simulator.schedule import Schedule
from tests.simulator.world import World
from tests.simulator.zookeeper import SimulatedZooKeeper
from tests.simulator.zookeeper_ensemble import ZooKeeperSettings

__all__ = [
    "PROFILES",
    "Latency",
    "MemberSpec",
    "Plan",
    "PortSettings",
    "Process",
    "Run",
    "Schedule",
    "SimulatedPort",
    "SimulatedZooKeeper",
    "Step",
    "World",
    "ZooKeeperSettings",
    "draw_plan",
    "format_plan",
    "parse_plan",
    "simulate",
    "trace_run",
]
