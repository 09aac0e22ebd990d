"""A rule over the network's state that raises an event: say when a queue fills, and when it has emptied.

A rule names a figure of every link (docs/network/telemetry.md has them all), a limit, and what clears it again. Here
two rules watch the links of a small ring while a second flow comes and goes: one has limits that somebody had to know,
the other finds by itself that the delay's level has changed. Packets carry INT, switches report, the collector makes of
it what the rules look at, ten times a second. All of it runs in virtual time.

    python docs/examples/raise_event.py

prints

    2300 ms: delay has changed: raised on s1->s2, delay_p50_ns 1.48e+07, threshold 5.32e+06
    2900 ms: queue fills: raised on s1->s2, queue_occupancy_frames 17.5, threshold 10
    4200 ms: delay has changed: cleared on s1->s2, delay_p50_ns 5.3e+06, threshold 5.32e+06
    4400 ms: queue fills: cleared on s1->s2, queue_occupancy_frames 0, threshold 2

In a collector that runs, the same rules stand in its settings file, and events go to whoever subscribes to its feed
(docs/network/history.md).
"""

from __future__ import annotations

from collectors.collector import Collector
from collectors.events.rules import ChangeSettings, Rule, RuleSettings
from collectors.events.service import EventService
from collectors.values import Event
from controller.network.virtual import VirtualController
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.families import COLLECTOR, ring

MS = 1_000_000
HEADERS = 14 + 20 + 8
"""Header bytes of a report's frame: Ethernet, IPv4, UDP."""
RULES = RuleSettings(
    rules=(
        Rule("queue fills", figure="queue_occupancy_frames", above=10.0, clear=2.0, hold_ns=200 * MS),
        Rule("delay has changed", figure="delay_p50_ns", change=ChangeSettings()),
    )
)


def tell(events: tuple[Event, ...]) -> None:
    """Print events; a program would page somebody, or move traffic."""
    for event in events:
        limit = f"{event.figure} {event.value:.3g}, threshold {event.threshold:.3g}"
        print(f"{event.time_ns // MS} ms: {event.rule}: {event.phase} on {event.subject}, {limit}")


def main() -> None:
    """Let five seconds pass: one flow is there always, another from 2 s to 3.5 s."""
    topology = ring(3, rate="2 Mbit/s", delay="1 ms", access="100 Mbit/s")
    fabric = VirtualFabric(topology)
    VirtualController.over(fabric).start()
    collector = Collector(topology, fabric.clock)
    service = EventService(collector, RULES)
    service.subscribe(tell)

    def look() -> None:
        service.step()
        fabric.call_after(100 * MS, look)

    fabric.host(COLLECTOR).on_frame(lambda frame, _: collector.receive(frame[HEADERS:]))
    fabric.call_after(100 * MS, look)
    fabric.start_flow("h1", flow_between(topology, 1, "h1", "h2", rate_bps=400_000))
    surge = flow_between(topology, 2, "h1", "h2", rate_bps=1_700_000, start_ns=2000 * MS, stop_ns=3500 * MS)
    fabric.start_flow("h1", surge)
    fabric.run_until(5000 * MS)


if __name__ == "__main__":
    main()
