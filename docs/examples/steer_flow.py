"""Steer one flow by an intent: it moves to another path while its packets are on their way, and none is lost.

Five switches make a ring. What h1 sends to h3 takes the shortest way, over s2. We want it to go around the other
side, and say only that: which entries it takes in which tables, and in which order so that no packet finds a gap, is
the controller's affair. The receiving host measures what it did to the delay. All of it runs in virtual time.

    python docs/examples/steer_flow.py

prints

    shortest path: 56 packets, 8.2 ms
     501 ms: make on s3
     502 ms: make on s4
     503 ms: make on s5
     504 ms: make on s1
    over s1-s5-s4-s3: 56 packets, 10.3 ms
    1051 ms: break on s1
    1052 ms: break on s5
    1053 ms: break on s4
    1054 ms: break on s3
    shortest path: 56 packets, 8.2 ms
    lost of all: 0

In a fabric that runs the same `RouteSet` comes from a path server (docs/network/paths.md) to the daemon
(docs/network/controller.md).
"""

from __future__ import annotations

from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.fabric.hosts import Receiver, flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.families import ring

MS = 1_000_000
FLOW = FlowSpec("h1", "h3")
AROUND = ("s1", "s5", "s4", "s3")


class Experiment:
    """A fabric with its controller, one flow of 1 Mbit/s from the start, and who receives it."""

    def __init__(self) -> None:
        self.fabric = VirtualFabric(ring(5, rate="100 Mbit/s", delay="2 ms"))
        # A write takes a millisecond; entries that are no longer needed go 20 ms after the new ones are in place.
        delays = WriteDelays(write_delay_ns=1 * MS, drain_ns=20 * MS)
        self.controller = VirtualController.over(self.fabric, delays=delays)
        self.controller.start()
        self.receiver = Receiver()
        self.fabric.host(FLOW.dst_host).on_frame(self.receiver.receive)
        flow = flow_between(self.fabric.topology, 1, FLOW.src_host, FLOW.dst_host, rate_bps=1_000_000)
        self.fabric.start_flow(FLOW.src_host, flow)

    def submit(self, routes: RouteSet) -> None:
        """Want these explicit paths from now on; other flows take the shortest ones."""
        seen = len(self.controller.applied)
        self.controller.submit(routes)
        self.fabric.run_until(self.fabric.now_ns + 50 * MS)
        for applied in self.controller.applied[seen:]:
            print(f"{applied.time_ns // MS:4} ms: {applied.step.phase} on {', '.join(applied.step.updates)}")

    def measure(self, name: str, duration_ns: int) -> None:
        """Print what arrives of what is sent from now on, for so long."""
        begin_ns = self.fabric.now_ns
        self.fabric.run_until(begin_ns + duration_ns + 50 * MS)
        got = self.receiver.measure(1, begin_ns, begin_ns + duration_ns)
        print(f"{name}: {got.packets} packets, {(got.delay_max_ns or 0) / MS:.1f} ms")


def main() -> None:
    """Take the flow around the ring, and back."""
    experiment = Experiment()
    experiment.measure("shortest path", 450 * MS)
    experiment.submit(RouteSet(1, (Route(FLOW, AROUND),)))
    experiment.measure(f"over {'-'.join(AROUND)}", 450 * MS)
    experiment.submit(RouteSet(2, ()))
    experiment.measure("shortest path", 450 * MS)
    print(f"lost of all: {experiment.receiver.measure(1, 0, experiment.fabric.now_ns).lost}")


if __name__ == "__main__":
    main()
