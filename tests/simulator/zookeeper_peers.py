"""Decides which servers of the simulated ZooKeeper reach each other, and which one leads.

Servers stop, freeze, and are cut off from the others. A leader and a follower that receive nothing from each other part
after the sync limit; a server without a leader takes no clients; a majority within reach elects a leader.

Source: QuorumPeer, Leader and Learner of ZooKeeper 3.4.
"""

from __future__ import annotations

from tests.simulator.schedule import Event
from tests.simulator.zookeeper_ensemble import Ensemble
from tests.simulator.zookeeper_server import Server

__all__ = ["Peers"]


class Peers:
    """What happens to the servers of one ensemble."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._schedule = ensemble.schedule
        self._servers = ensemble.servers
        self._limits: dict[Server, Event] = {}
        self._held: set[Server] = set()
        self._election: Event | None = None

    # -- processes --------------------------------------------------------------------------------------------------

    def stop(self, server: Server) -> None:
        """End its process: its clients and the other servers notice at once."""
        self.thaw(server)
        server.is_up = False
        server.drop_clients()
        self._part(server)

    def start(self, server: Server) -> None:
        """Start its process with the data it had."""
        if not server.is_up:
            server.is_up = True
            self._come_back(server)

    def freeze(self, server: Server) -> None:
        """Stop its process without ending it: bytes to it wait, its clock runs on."""
        if server.is_up and not server.is_frozen:
            server.is_frozen = True
            for link in server.links:
                link.up.hold()
            self._reach_changed(server)

    def thaw(self, server: Server) -> None:
        """Let it go on: what waited comes in, and its timers that are due run."""
        if not server.is_frozen:
            return
        server.is_frozen = False
        for link in server.links:
            link.up.release()
        self._reach_changed(server)
        if not server.is_following:
            # It takes a moment until it sees that the others have left it; until then it answers from what it has.
            self._schedule.after(self._ensemble.settings.client_latency.draw(self._ensemble.rng), self._left, server)

    # -- links between servers --------------------------------------------------------------------------------------

    def isolate(self, server: Server) -> None:
        """Cut it off from all other servers; its clients still reach it."""
        server.is_isolated = True
        self._reach_changed(server)

    def rejoin(self, server: Server) -> None:
        """Let it reach the other servers again."""
        if server.is_isolated:
            server.is_isolated = False
            self._reach_changed(server)
            if not server.is_following:
                self._come_back(server)

    # -- which servers reach each other -------------------------------------------------------------------------------

    def _reach_changed(self, server: Server) -> None:
        if len(self._servers) > 1:
            if _is_silent(server) and server not in self._limits and server.is_following:
                limit_s = self._ensemble.settings.sync_limit * self._ensemble.settings.tick_s
                self._limits[server] = self._schedule.after(limit_s, self._limit_passed, server)
            elif not _is_silent(server):
                self._schedule.cancel(self._limits.pop(server, None))
        self._settle()

    def _limit_passed(self, server: Server) -> None:
        del self._limits[server]
        self._part(server)
        if server.is_isolated and not server.is_frozen:
            server.drop_clients()

    def _part(self, server: Server) -> None:
        """The other servers give it up; a leader without a majority gives up leading."""
        self._schedule.cancel(self._limits.pop(server, None))
        server.is_following = False
        server.to_leader.clear()
        server.from_leader.clear()
        leader = self._ensemble.leader
        followers = sum(each.is_following for each in self._servers)
        if leader is not None and (server is leader or 2 * followers <= len(self._servers)):
            self._lose_leader()
        self._settle()

    def _lose_leader(self) -> None:
        self._ensemble.abandon()
        for server in self._servers:
            server.is_following = False
            server.to_leader.clear()
            server.from_leader.clear()
            if server.is_up and not server.is_frozen:
                server.drop_clients()
        self._elect_soon()

    def _settle(self) -> None:
        """Hold the pipes that nothing passes, and let the leader go on if it has a majority."""
        ensemble = self._ensemble
        leader = ensemble.leader
        for server in self._servers:
            is_held = leader is not None and (_is_silent(server) or _is_silent(leader))
            if is_held and server not in self._held:
                self._held.add(server)
                server.to_leader.hold()
                server.from_leader.hold()
            elif not is_held and server in self._held:
                self._held.discard(server)
                server.to_leader.release()
                server.from_leader.release()
        heard = sum(each.is_following and not _is_silent(each) for each in self._servers)
        has_majority = len(self._servers) == 1 or (2 * heard > len(self._servers))
        is_heard = leader is not None and (len(self._servers) == 1 or not _is_silent(leader))
        ensemble.has_quorum = has_majority and is_heard
        if leader is not None and not leader.is_frozen and ensemble.has_quorum:
            ensemble.catch_up()

    # -- who leads --------------------------------------------------------------------------------------------------

    def _left(self, server: Server) -> None:
        """A server notices that it has no leader."""
        if server.is_up and not server.is_frozen and not server.is_following:
            server.drop_clients()
            self._come_back(server)

    def _come_back(self, server: Server) -> None:
        if self._ensemble.leader is None:
            self._elect_soon()
        else:
            self._schedule.after(self._ensemble.settings.election.draw(self._ensemble.rng), self._join, server)

    def _elect_soon(self) -> None:
        if self._election is None:
            wait_s = self._ensemble.settings.election.draw(self._ensemble.rng)
            self._election = self._schedule.after(wait_s, self._elect)

    def _elect(self) -> None:
        """A majority within reach elects the server that is furthest; without one, servers that come back elect."""
        self._election = None
        able = [server for server in self._servers if server.is_up and not _is_silent(server)]
        if self._ensemble.leader is not None or 2 * len(able) <= len(self._servers):
            return
        leader = max(able, key=lambda server: (server.tree.zxid, server.number))
        leader.drop_clients()
        # What a majority had is not lost with the leader that wrote it.
        if leader.tree is not self._ensemble.newest_tree:
            leader.tree = self._ensemble.newest_tree.copy()
        leader.is_following = leader.is_serving = True
        self._ensemble.follow(leader)
        for server in able:
            self._join(server)
        self._settle()

    def _join(self, server: Server) -> None:
        leader = self._ensemble.leader
        if leader is None or server.is_following or not server.is_up or _is_silent(server):
            return
        if _is_silent(leader):
            self._come_back(server)
            return
        server.drop_clients()
        server.tree = leader.tree.copy()
        server.is_following = server.is_serving = True
        self._settle()


def _is_silent(server: Server) -> bool:
    """Whether the other servers receive nothing from it."""
    return server.is_frozen or server.is_isolated
