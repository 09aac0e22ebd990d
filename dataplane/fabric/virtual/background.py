"""Background traffic of a virtual fabric as a fluid: rates on links, and packets only for samples.

One packet in `sample_every` of each flow is sent, and passes the switches' programs; the others are a rate on the links
of the flow's route, which the switches' tables decide and which is found again when they change. At each link a packet
waits behind the background's backlog, finds its frames in the queue, and is refused as often as they are; what the
background transmits counts as the port's bytes in our program's TX utilisation.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataplane.clock import NS_PER_S
from dataplane.errors import FabricError
from dataplane.fabric.hosts import Arrivals, Flow, Sender
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.fabric.virtual.fluid import FluidFlows, FluidLinks, LinkLoad, Numbers
from dataplane.fabric.virtual.routes import Route, RouteFinder
from dataplane.switch.ports.states import PortState
from dataplane.switch.tables.arrays import Cells
from dataplane.switch.traffic import WIRE_OVERHEAD_BYTES
from dataplane.topology.units import PPB
from dataplane.topology.values import LinkKey

TX_WINDOW_NS: Final = 65_536_000
"""The window of TX utilisation in our program (p4/egress/tx_utilization.p4)."""
STEP_NS: Final = TX_WINDOW_NS // 8
"""Longest time between two solutions of rates and backlogs."""
_TX_REGISTERS: Final = ("tx_window", "tx_window_bytes", "tx_last_window_bytes")


class FluidBackground:
    """Flows of a fabric, from now on, as a fluid and samples; a fabric has at most one.

    `senders` send the samples, in the order of the flows; their counts are of samples.
    """

    def __init__(self, fabric: VirtualFabric, flows: Sequence[tuple[str, Flow]], *, sample_every: int) -> None:
        """Start flows, each given with its host; raise FabricError if the fabric has a background already.

        With a `sample_every` of 1 every packet is sent, as by `VirtualFabric.start_flow`.
        """
        if sample_every < 1:
            raise FabricError(f"one packet in {sample_every} cannot be a sample")
        self._fabric, self._every = fabric, sample_every
        self._flows = [(host, replace(flow, start_ns=max(flow.start_ns, fabric.now_ns))) for host, flow in flows]
        self._numbers = {key: number for number, key in enumerate(fabric.cables)}
        links = [cable.link for cable in fabric.cables.values()]
        self._links = FluidLinks(
            [link.rate_bps for link in links],
            [link.queue_frames for link in links],
            STEP_NS,
            sampled=1 / max(sample_every - 1, 1),
        )
        self._finder = RouteFinder(fabric)
        self._routes: list[Route] = []
        self._flows_at: dict[str, set[int]] = {}
        self._changed: set[str] = set()
        self._port_states: dict[tuple[str, int], tuple[bool, bool]] = {}
        self._sent_before = self._links.sent_bits.copy(), self._links.sent_frames.copy()
        self._ports = _ports_by_switch(fabric, self._numbers)
        if sample_every > 1:
            self._attach()
            self._start()
        self.senders = tuple(self._send(host, flow) for host, flow in self._flows)

    def route(self, flow_id: int) -> Route:
        """Return a flow's present route; raise FabricError for an unknown one."""
        for number, (host, flow) in enumerate(self._flows):
            if flow.flow_id == flow_id:
                return self._routes[number] if self._routes else self._finder.find(host, flow)
        raise FabricError(f"the background has no flow {flow_id}")

    def load(self, link: LinkKey) -> LinkLoad:
        """Return the present background of a link, without samples; raise FabricError for an unknown one."""
        return self._links.load(self._number(link), self._fabric.now_ns)

    def sent_bytes(self, link: LinkKey) -> float:
        """Return the bytes of frames that a link has transmitted of the background, without samples."""
        number = self._number(link)
        self._links.advance(self._fabric.now_ns)
        return float(_frame_bytes(self._links.sent_bits[number], self._links.sent_frames[number]))

    def _number(self, link: LinkKey) -> int:
        if link not in self._numbers:
            raise FabricError(f"{self._fabric.topology.name}: there is no cable from {link.src!r} to {link.dst!r}")
        return self._numbers[link]

    # what packets meet

    def _attach(self) -> None:
        """Have packets meet the background on every link, and notice what changes routes."""
        fabric = self._fabric
        if any(fabric.host(host.name).background is not None for host in fabric.topology.hosts):
            raise FabricError(f"{fabric.topology.name}: the fabric has a background already")
        for key, number in self._numbers.items():
            port = _Shared(self._links, number, f"{fabric.seed}/background/{key}")
            if key.src in fabric.topology.switch:
                fabric.switch(key.src).traffic.set_background(fabric.cables[key].link.tail.port, port)
            else:
                fabric.host(key.src).background = port
        for node in fabric.topology.switches:
            fabric.p4runtime(node.name).on_change(partial(self._note_change, node.name))
            fabric.switch(node.name).add_port_listener(partial(self._note_port, node.name))
        fabric.on_cables(self._note_cables)

    def _send(self, host: str, flow: Flow) -> Sender:
        seeded = random.Random(f"{self._fabric.seed}/flow/{flow.flow_id}")
        sender = Sender(flow, seeded, sample_every=self._every)
        self._fabric.host(host).run(sender)
        return sender

    # rates and routes

    def _start(self) -> None:
        fabric = self._fabric
        self._links.advance(fabric.now_ns)
        self._routes = [Route((), (), arrives=False)] * len(self._flows)
        self._find_routes(range(len(self._flows)))
        self._note_cables()
        times = {flow.start_ns for _, flow in self._flows} | {flow.stop_ns for _, flow in self._flows}
        for time_ns in sorted(time_ns for time_ns in times if time_ns is not None and time_ns > fabric.now_ns):
            fabric.call_at(time_ns, self._solve)
        self._tick()

    def _tick(self) -> None:
        now_ns = self._fabric.now_ns
        self._links.advance(now_ns)
        if now_ns % TX_WINDOW_NS == 0:
            self._count_transmitted(now_ns // TX_WINDOW_NS)
        self._links.solve()
        self._fabric.call_at((now_ns // STEP_NS + 1) * STEP_NS, self._tick)

    def _solve(self) -> None:
        """Take the flows as they are now: their rates and routes."""
        links, now_ns = self._links, self._fabric.now_ns
        links.advance(now_ns)
        links.take_flows(self._columns(now_ns))
        links.solve()

    def _columns(self, now_ns: int) -> FluidFlows:
        running = [
            (flow, route)
            for (_, flow), route in zip(self._flows, self._routes, strict=True)
            if flow.start_ns <= now_ns and (flow.stop_ns is None or now_ns < flow.stop_ns)
        ]
        longest = max((len(route.links) for _, route in running), default=1)
        hops = np.full((len(running), longest), len(self._numbers), np.int64)
        for row, (_, route) in enumerate(running):
            hops[row, : len(route.links)] = [self._numbers[key] for key in route.links]
        frames = np.array([flow.frame_bytes for flow, _ in running], np.float64)
        wire_bytes = frames + WIRE_OVERHEAD_BYTES
        rates = np.array([flow.rate_bps for flow, _ in running], np.float64) * (1 - 1 / self._every)
        is_random = np.array([flow.arrivals is Arrivals.POISSON for flow, _ in running], np.float64)
        return FluidFlows(hops, rates * wire_bytes / frames, 8 * wire_bytes, is_random)

    def _find_routes(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            for switch in self._routes[number].switches:
                self._flows_at[switch].discard(number)
            self._routes[number] = route = self._finder.find(*self._flows[number])
            for switch in route.switches:
                self._flows_at.setdefault(switch, set()).add(number)

    def _note_change(self, switch: str) -> None:
        """Find the routes over a switch anew, once all that is written at this time is written."""
        if not self._changed:
            self._fabric.call_soon(self._follow_changes)
        self._changed.add(switch)

    def _note_port(self, switch: str, state: PortState) -> None:
        # Each hello is such a state, too.
        now = state.is_open, state.is_usable
        if self._port_states.get((switch, state.port), (True, True)) != now:
            self._port_states[switch, state.port] = now
            self._note_change(switch)

    def _follow_changes(self) -> None:
        changed, self._changed = self._changed, set()
        numbers = {number for switch in changed for number in self._flows_at.get(switch, ())}
        before = [self._routes[number] for number in sorted(numbers)]
        self._find_routes(sorted(numbers))
        if before != [self._routes[number] for number in sorted(numbers)]:
            self._solve()

    def _note_cables(self) -> None:
        self._links.advance(self._fabric.now_ns)
        for key, cable in self._fabric.cables.items():
            self._links.passes[self._numbers[key]] = (1 - cable.link.loss_ppb / PPB) * cable.up
        self._solve()

    # TX utilisation

    def _count_transmitted(self, window: int) -> None:
        """Count what the background transmitted in the window that ends now as our program counts packets."""
        bits, frames = self._links.sent_bits.copy(), self._links.sent_frames.copy()
        sent = _frame_bytes(bits - self._sent_before[0], frames - self._sent_before[1]).astype(np.uint64)
        self._sent_before = bits, frames
        for switch, (ports, numbers) in self._ports.items():
            carrying = sent[numbers] > 0
            if carrying.any():
                self._add_transmitted(switch, ports[carrying], sent[numbers[carrying]], window)

    def _add_transmitted(self, switch: str, ports: Numbers, sent: NDArray[np.uint64], window: int) -> None:
        registers = self._fabric.switch(switch).state
        cells = [] if registers is None else [_cells(registers.registers, name) for name in _TX_REGISTERS]
        if not cells or any(cell is None for cell in cells):
            return
        windows, current, last = (np.frombuffer(cell, np.uint64) for cell in cells if cell is not None)
        begun = windows[ports] == window  # a packet has left at this very time
        ended = np.where(windows[ports] + 1 == window, current[ports], 0)
        last[ports] = np.where(begun, last[ports], ended) + sent
        current[ports] = np.where(begun, current[ports], 0)
        windows[ports] = window


class _Shared:
    """A link as a packet meets it: a `Background`."""

    def __init__(self, links: FluidLinks, number: int, seed: str) -> None:
        self._links, self._number, self._seed = links, number, seed
        self._random: random.Random | None = None
        self._arrived_bits = 0.0

    def join(self, now_ns: int, *, behind: bool) -> tuple[int, int] | None:
        """Return the background's frames that a packet finds, and its wait for them; None if it is refused."""
        links, number = self._links, self._number
        if links.is_idle(number):
            return 0, 0
        if self._random is None:
            self._random = random.Random(self._seed)
        chance = links.chance(number, now_ns)
        if chance < 1 and self._random.random() >= chance:
            links.refuse_packet(number)
            return None
        before, self._arrived_bits = self._arrived_bits, links.arrived_bits(number, now_ns)
        depth = links.depth(number, now_ns)
        if behind:
            return depth, links.time_ns(number, self._arrived_bits - before)
        wait_ns = links.wait_ns(number, now_ns)
        probability, mean_ns = links.random_wait(number, now_ns)
        if probability and self._random.random() < probability:
            more_ns = self._random.expovariate(1 / mean_ns)
            depth += round(more_ns * links.rate_bps[number] / NS_PER_S / links.frame_bits[number])
            wait_ns += round(more_ns)
        return depth, wait_ns

    def depth(self, now_ns: int) -> int:
        """Return the background's frames that wait now."""
        return 0 if self._links.is_idle(self._number) else self._links.depth(self._number, now_ns)

    def occupy(self, now_ns: int, bits: int) -> None:
        """Have the background wait for a packet."""
        if not self._links.is_idle(self._number):
            self._links.add_packet(self._number, now_ns, bits)


def _ports_by_switch(fabric: VirtualFabric, numbers: dict[LinkKey, int]) -> dict[str, tuple[Numbers, Numbers]]:
    """Return the ports of each switch, and the numbers of the links that they send on."""
    pairs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, number in numbers.items():
        if key.src in fabric.topology.switch:
            pairs[key.src].append((fabric.cables[key].link.tail.port, number))
    return {
        switch: (np.array([port for port, _ in of_switch]), np.array([number for _, number in of_switch]))
        for switch, of_switch in pairs.items()
    }


def _cells(registers: dict[str, Cells], name: str) -> memoryview | None:
    """Return the words of the register with this name, in whatever control; None if the program has none."""
    return next((cells.words for full, cells in registers.items() if full.rpartition(".")[2] == name), None)


def _frame_bytes(bits: NDArray[np.float64], frames: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bytes of frames that take so many bits on the wire."""
    return np.maximum(bits / 8 - WIRE_OVERHEAD_BYTES * frames, 0.0)
