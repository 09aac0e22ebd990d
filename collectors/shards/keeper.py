"""A collector's part among several: its lease, and which switches report to others, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from collectors.collector import Collector
from collectors.errors import CollectorError
from collectors.shards.assignment import assigned
from collectors.shards.live import LiveCollectors
from collectors.shards.membership import RENEWALS, Announcement, Membership
from collectors.shards.settings import ShardSettings
from dataplane.clock import NS_PER_S
from dataplane.leases.opening import open_leases
from dataplane.topology.values import Topology

LOOKS: Final = 20
"""Looks at the leases within the duration of one."""
_ATTENTION_S: Final = 0.1


class ShardKeeper:
    """Keeps a collector's lease until it is cancelled; raises CollectorError if the storage cannot be opened.

    A busy event loop does not delay renewals.
    """

    def __init__(
        self,
        collector: Collector,
        topology: Topology,
        settings: ShardSettings,
        me: Announcement,
        say: Callable[[str], None],
    ) -> None:
        self._collector, self._topology, self._settings, self._me, self._say = collector, topology, settings, me, say
        leases, timeout_s = settings.leases, settings.lease_ns / RENEWALS / NS_PER_S
        self._storage = open_leases(leases.sqlite, leases.etcd, timeout_s, CollectorError)
        self._membership = Membership(self._storage, me, lease_ns=settings.lease_ns)
        self._live = LiveCollectors(self._storage)
        self._lapses = self._doubt = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def __str__(self) -> str:
        return f"one of several collectors as {self._me.name}"

    @property
    def generation(self) -> int | None:
        """The generation of the lease, None while it is not held."""
        return self._membership.generation

    async def run(self) -> None:
        """Keep the lease, and log its changes, until cancelled; then give it back. Raise errors of the thread."""
        self._thread = threading.Thread(target=self._keep, name="shard", daemon=True)
        self._thread.start()
        told = ""
        try:
            while self._failure is None:
                line = self._line()
                if line and line != told:
                    self._say(told := line)
                await asyncio.sleep(_ATTENTION_S)
            raise self._failure
        finally:
            await asyncio.to_thread(self.close)

    async def leave(self) -> None:
        """Give the lease back, and wait until the controller has sent the switches to others."""
        self._end.set()
        await asyncio.to_thread(self._stop)
        await asyncio.sleep(self._settings.lease_ns / NS_PER_S)

    def close(self) -> None:
        """Give the lease back, if it is held, and close the storage."""
        self._end.set()
        self._stop()
        self._storage.close()

    def _stop(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._membership.release()

    def _keep(self) -> None:
        try:
            while not self._end.wait(self._settings.lease_ns / LOOKS / NS_PER_S):
                self._membership.step()
                self._live.step()
                self._end_accounts_of_others()
        except Exception as error:  # noqa: BLE001 - raised where the process waits for it
            self._failure = error

    def _end_accounts_of_others(self) -> None:
        """End the accounts of switches that another collector has, as long as it has them: late reports may come.

        Others may see this collector dead when it does not: after a late renewal all accounts are ended, for a lease.
        """
        live, nodes = self._live.live, self._topology.switch
        if self._membership.lapses != self._lapses:
            self._lapses, self._doubt = self._membership.lapses, LOOKS
        if self._doubt:
            self._doubt -= 1
            self._collector.end_accounts({node.node_id for node in nodes.values()})
        if not live:
            return
        owners = assigned(nodes, [collector.name for collector in live])
        others = {nodes[switch].node_id for switch, owner in owners.items() if owner != self._me.name}
        self._collector.end_accounts(others)

    def _line(self) -> str:
        name, generation = self._me.name, self.generation
        problem = self._membership.problem or self._live.problem
        if problem:
            return problem
        return "" if generation is None else f"collector {name}: has its lease, generation {generation}"
