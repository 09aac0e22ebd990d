"""Display of moves, and the time when the first packet took a new path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from collectors.values import HopRecord, Snapshot
from controller.apps.demo.live import excess_ns
from controller.apps.demo.outcome import Move, Outcome
from controller.apps.demo.scenario import Scenario
from controller.network.intents import FlowSpec
from controller.network.paths.balancing.values import Rebalance
from dataplane.clock import NS_PER_S
from dataplane.fabric.agent import Arrival
from dataplane.topology.units import format_rate
from dataplane.topology.values import LinkKey

_NS_PER_US = 1_000
_PATIENCE_NS = 2 * NS_PER_S
"""The path server acts on a full link within a second; after two it has nothing better."""


def describe(move: Move) -> str:
    """Return a move as a line of the live view and the log."""
    return f"{move.time_ns / NS_PER_S:7.3f} s  {move.flow.src_host} → {move.flow.dst_host} moves: {move.reason}"


def describe_weights(change: Rebalance) -> str:
    """Return a change of weights as a line of the live view and the log."""
    return f"{change.time_ns / NS_PER_S:7.3f} s  all to {change.destination} at {change.switch}: {change.reason}"


def first_moves(scenario: Scenario, moves: Sequence[Move]) -> dict[FlowSpec, Move]:
    """Return each flow's first move in answer to the surge, in the order of time.

    `moves` are in the order of time; those before the surge had other causes.
    """
    first: dict[FlowSpec, Move] = {}
    for move in moves:
        if move.time_ns >= scenario.congest_ns:
            first.setdefault(move.flow, move)
    return first


def phase_name(
    scenario: Scenario, now_ns: int, moves: Sequence[Move], rebalances: Sequence[Rebalance], snapshot: Snapshot
) -> str:
    """Return the phase of the run at the time of a snapshot, in a word or two.

    Traffic is "rerouted" once the surge's link and those that flows moved to have no full queue; there is "no room" if
    such a link is full although nothing has changed for some time.
    """
    if now_ns < scenario.congest_ns:
        return "warm-up" if now_ns < scenario.warm_up_ns else "before"
    answers = first_moves(scenario, moves)
    changes: tuple[Move | Rebalance, ...] = (*moves, *rebalances)
    times = [change.time_ns for change in changes if change.time_ns >= scenario.congest_ns]
    watched = {scenario.congested, *(LinkKey(*link) for move in answers.values() for link in new_links(move))}
    if any(is_full(scenario, snapshot, link) for link in watched):
        return "no room" if now_ns - max(times, default=scenario.congest_ns) >= _PATIENCE_NS else "congested"
    return "rerouted" if times else "congested"


def is_full(scenario: Scenario, snapshot: Snapshot, link: LinkKey) -> bool:
    """Return whether packets wait on a link for at least a quarter of the longest time that its queue allows."""
    topology = scenario.topology
    directed = topology.directed_links[link]
    longest_ns = directed.queue_frames * scenario.frame_bytes * 8 * NS_PER_S / directed.rate_bps
    return excess_ns(topology, snapshot.links[link]) >= longest_ns / 4


def rate_text(rate_bps: float) -> str:
    """Return a rate with three significant digits."""
    return format_rate(int(float(f"{rate_bps:.3g}")))


def largest_surge(scenario: Scenario) -> FlowSpec:
    """Return the surge's largest flow."""
    return max((planned for planned in scenario.flows if planned.surge), key=lambda planned: planned.rate_bps).flow


def room_line(outcome: Outcome) -> str | None:
    """Return why the surge's link stayed full, in the path server's words; None if it did not."""
    if outcome.no_room is None:
        return None
    scenario = outcome.scenario
    flow = largest_surge(scenario)
    rate_bps = sum(planned.rate_bps for planned in scenario.flows if planned.flow == flow)
    link = scenario.topology.directed_links[scenario.congested]
    return (
        f"Not relieved: queues were still full at the end. {flow.src_host} sends {flow.dst_host} "
        f"{rate_text(rate_bps)} over {scenario.congested} ({rate_text(link.rate_bps)}); the path server: "
        f"{outcome.no_room}."
    )


def new_links(move: Move) -> set[tuple[str, str]]:
    """Return the links of a move's new path that the old one did not have."""
    return set(pairwise(move.new)) - set(pairwise(move.old))


def first_on_new_path_ns(
    scenario: Scenario, moves: Sequence[Move], records: Iterable[HopRecord], origin_ns: int
) -> int | None:
    """Return when telemetry first saw a flow that the surge moved on a new link, as run time; None if it never did.

    The stamp is the switch's, at the packet's arrival; switches share the machine's clock. Packets without telemetry
    may have been earlier by up to the sampling distance: `first_arrival_ns` sees them at the receiver.
    """
    topology, hosts = scenario.topology, scenario.topology.host_by_address
    by_flow = {(flow.src_host, flow.dst_host): move for flow, move in first_moves(scenario, moves).items()}
    seen: list[int] = []
    for record in records:
        src, dst = hosts.get(record.flow.src), hosts.get(record.flow.dst)
        move = by_flow.get((src.name, dst.name)) if src and dst else None
        switch = topology.switch_by_id.get(record.node_id)
        if move is None or switch is None or record.egress_port is None or record.ingress_timestamp_ns is None:
            continue
        peer = topology.neighbours[switch.name].get(record.egress_port)
        stamp_ns = record.ingress_timestamp_ns - origin_ns
        if peer is not None and (switch.name, peer.node) in new_links(move) and stamp_ns >= move.time_ns - _NS_PER_US:
            seen.append(stamp_ns)
    return min(seen, default=None)


def first_arrival_ns(
    scenario: Scenario, moves: Sequence[Move], arrivals: Callable[[str], Iterable[Arrival]]
) -> int | None:
    """Return when a receiver first got a packet that the surge had moved to a path of another length; None if never.

    `arrivals` has a host's packets in the order of time. Each switch decrements a packet's hop limit, so a packet
    whose remaining hops differ from those before the move, as the paths' lengths imply, came by the new path.
    """
    times: list[int] = []
    answers = first_moves(scenario, moves)
    for host in {flow.dst_host for flow in answers}:
        moved = {n: answers[p.flow] for n, p in scenario.by_number().items() if p.flow in answers}
        left: dict[int, int] = {}
        for arrival in arrivals(host):
            number = arrival.probe.flow_id
            move = moved.get(number)
            if move is None or len(move.new) == len(move.old) or not arrival.hop_limit:
                continue
            if arrival.arrived_ns < move.time_ns:
                left[number] = arrival.hop_limit
            elif left.get(number) == arrival.hop_limit + len(move.new) - len(move.old):
                times.append(arrival.arrived_ns)
                break
    return min(times, default=None)
