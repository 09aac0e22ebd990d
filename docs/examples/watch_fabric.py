"""Watch a fabric: subscribe to a collector's feed, print its busiest link, and alarms as rules raise them.

    python docs/examples/watch_fabric.py unix:/run/user/1000/millrace/collector.sock

with the address that `millrace collector` says when it is ready (docs/network/telemetry.md). The feed is a gRPC
service, and the client comes back by itself when the collector restarts. Without an address the program brings a
collector and a small fabric of its own, in virtual time; after three seconds there a second flow fills a cable, and the
rule's alarm ends it:

    ...
    s1->s2: 20% used, p99 5.3 ms
    ...
    ALARM raised: busy on s1->s2: utilisation is 0.854
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from collectors.collector import Collector
from collectors.events.rules import Rule, RuleSettings
from collectors.events.service import EventService
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from collectors.values import LinkCondition
from controller.network.virtual import VirtualController
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.families import COLLECTOR, ring

MS = 1_000_000
HEADERS = 14 + 20 + 8
"""Header bytes of a report's frame: Ethernet, IPv4, UDP."""
BUSY = Rule("busy", figure="utilisation", above=0.8)


async def show_links(feed: FeedClient, interval_ns: int) -> None:
    """Print the busiest link at an interval, and those that the controller says are dead, until cancelled."""
    async for state in feed.snapshots(interval_ns):
        heard = [link for link in state.links.values() if link.samples]
        for link in sorted(heard, key=lambda link: link.utilisation)[-1:]:
            print(f"{link.link}: {link.utilisation:.0%} used, p99 {link.delay_p99_ns / MS:.1f} ms")
        for key, status in state.statuses.items():
            if status.condition is LinkCondition.DOWN:
                print(f"{key}: down for {status.age_ns // MS} ms, {status.cause}")


async def watch(address: str, interval_ns: int, alarms: int | None = None) -> None:
    """Print links, and alarms as they come, for ever or until there were so many alarms."""
    seen = 0
    complain = partial(print, file=sys.stderr)
    async with FeedClient(FeedClientSettings(address=address), on_wait=complain) as feed:
        links = asyncio.create_task(show_links(feed, interval_ns))
        try:
            async for events in feed.events(since_ns=0):
                for event in events:
                    seen += 1
                    print(f"ALARM {event.phase}: {event.rule} on {event.subject}: {event.figure} is {event.value:.3g}")
                if alarms is not None and seen >= alarms:
                    return
        finally:
            links.cancel()


async def serve_ring(address: str) -> None:
    """Serve the feed of a collector over a fabric of its own, ten times as fast as real time, until cancelled."""
    topology = ring(3, rate="2 Mbit/s", delay="1 ms", access="100 Mbit/s")
    fabric = VirtualFabric(topology)
    VirtualController.over(fabric).start()
    collector = Collector(topology, fabric.clock)
    events = EventService(collector, RuleSettings(rules=(BUSY,)))

    fabric.host(COLLECTOR).on_frame(lambda frame, _: collector.receive(frame[HEADERS:]))
    fabric.start_flow("h1", flow_between(topology, 1, "h1", "h2", rate_bps=400_000))
    fabric.start_flow("h1", flow_between(topology, 2, "h1", "h2", rate_bps=1_500_000, start_ns=3000 * MS))
    server = FeedServer(collector, FeedSettings(address=address), events)
    await server.start()
    try:
        while True:
            fabric.run_until(fabric.now_ns + 100 * MS)
            events.step()
            await asyncio.sleep(0.01)
    finally:
        await server.stop()


async def main(addresses: list[str]) -> None:
    """Watch the feed that is named, or one of our own."""
    if addresses:
        await watch(addresses[0], 1000 * MS)
        return
    with TemporaryDirectory() as folder:
        address = f"unix:{Path(folder, 'feed.sock')}"
        serving = asyncio.create_task(serve_ring(address))
        try:
            await watch(address, 100 * MS, alarms=1)
        finally:
            serving.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
