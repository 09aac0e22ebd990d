"""Display of moves, and the time when the first packet took a new path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from collectors.values import HopRecord
from controller.apps.demo.outcome import Move
from controller.apps.demo.scenario import Scenario
from controller.network.intents import FlowSpec
from controller.network.paths.balancing.values import Rebalance
from dataplane.clock import NS_PER_S
from dataplane.fabric.agent import Arrival

_NS_PER_US = 1_000


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


def phase_name(scenario: Scenario, now_ns: int, moves: Sequence[Move]) -> str:
    """Return the phase of the run at a time, in one word."""
    if now_ns < scenario.congest_ns:
        return "warm-up" if now_ns < scenario.warm_up_ns else "before"
    return "rerouted" if first_moves(scenario, moves) else "congested"


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
