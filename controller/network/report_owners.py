"""Distribution of switches over several collectors: which one each switch reports to, as leases come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from collectors.shards.assignment import assigned
from collectors.shards.values import LiveCollector
from controller.common.errors import ControllerError
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.topology.values import CollectorAddress, Topology

LOGGER = logging.getLogger("millrace.controller")


def check_sharing(topology: Topology, watches: Sequence[Watch]) -> None:
    """Raise ControllerError where several collectors cannot share a fabric's reports."""
    if topology.collector is None:
        raise ControllerError(f"collectors: topology {topology.name} names no collector, the first of them")
    for number, watch in enumerate(watches):
        if watch.mode != "md":
            # Hops of one packet would report to different collectors, each of which would miss the others' as losses;
            # and in mode xd a switch, which recognises reports to one collector only, would report on the others'.
            raise ControllerError(
                f"watches[{number}]: mode {watch.mode} needs all reports of a packet in one collector: use mode md, or"
                " leave out collectors"
            )


class ReportOwners:
    """Tells switches their collectors: `report_to` gets each switch's, by name, whenever that has changed."""

    def __init__(self, topology: Topology, report_to: Callable[[Mapping[str, CollectorAddress]], None]) -> None:
        self._topology, self._report_to = topology, report_to
        self.known = asyncio.Event()
        """Set once the live collectors are known."""
        self._owners: dict[str, str] = {}
        self._unknown: set[str] = set()

    def take(self, live: Sequence[LiveCollector]) -> None:
        """Take the live collectors; with none, reports go on to where they went."""
        usable = {collector.name: collector for collector in live if self._is_reachable(collector)}
        if not usable:
            LOGGER.warning("no collector holds a lease: switches report to where they did")
            return
        owners = assigned(self._topology.switch, list(usable))
        moved = sum(self._owners.get(switch) not in {None, owner} for switch, owner in owners.items())
        self._owners = owners
        self._report_to(
            {switch: CollectorAddress(usable[owner].host, usable[owner].udp_port) for switch, owner in owners.items()}
        )
        names = ", ".join(f"{name} (generation {usable[name].generation})" for name in sorted(usable))
        LOGGER.info("collectors: %s; %d of %d switches moved", names, moved, len(owners))

    async def follow(self, live: AsyncGenerator[tuple[LiveCollector, ...], None]) -> None:
        """Take the live collectors whenever they have changed, until cancelled."""
        async with aclosing(live) as changes:
            async for collectors in changes:
                self.take(collectors)
                self.known.set()

    def _is_reachable(self, collector: LiveCollector) -> bool:
        if collector.host in self._topology.host:
            return True
        if collector.name not in self._unknown:
            self._unknown.add(collector.name)
            LOGGER.warning(
                "collector %s: topology %s has no host %s: no switch reports to it",
                collector.name,
                self._topology.name,
                collector.host,
            )
        return False
