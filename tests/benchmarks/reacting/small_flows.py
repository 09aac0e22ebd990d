"""A surge of many small flows that the hash spreads unevenly: no pair of hosts as a whole has another path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from collectors.values import FlowKey
from controller.apps.demo.prepare import Prepared
from controller.apps.demo.scenario import PlannedFlow, Scenario
from controller.apps.demo.virtual import VirtualRun
from controller.network.paths.balancing.forwarding import Forwarding
from controller.network.paths.deciding.graph import Network
from controller.network.tables.path_choice import flow_hash
from dataplane.fabric.hosts import flow_between
from dataplane.wire.ipv4 import PROTOCOL_UDP

SMALL = " in small flows"
"""Suffix of a topology's name where the surge consists of small flows."""
PARTS = 20
OVER = 18
"""Small flows across the congested link, out of all that replace one flow; they carry its load."""


def scattered(plan: Prepared) -> Prepared:
    """Return the plan with small flows of the same pairs of hosts in the place of each flow of the surge."""
    scenario = plan.scenario
    network = Network(scenario.topology)
    alive = np.ones(len(network.table.links), np.bool_)
    forwarding = Forwarding(scenario.topology, network.base_trees, alive, {})
    link = network.table.link_number[scenario.congested]
    flows = [planned for planned in scenario.flows if not planned.surge]
    number = max(planned.number for planned in scenario.flows) + 1
    for planned in scenario.flows:
        if planned.surge:
            some = list(_parts(scenario, planned, number, forwarding, link))
            number = some[-1].number + 1
            flows += some
    return replace(plan, scenario=replace(scenario, flows=tuple(flows)))


def _parts(
    scenario: Scenario, planned: PlannedFlow, number: int, forwarding: Forwarding, link: int
) -> Iterator[PlannedFlow]:
    topology, pair = scenario.topology, planned.flow
    src, dst = topology.host[pair.src_host], topology.host[pair.dst_host]
    switches = (forwarding.table.switch_number[topology.attachment[host.name].node] for host in (src, dst))
    source, destination = switches
    left = {True: OVER, False: PARTS - OVER}
    rate_bps = planned.rate_bps / OVER
    # One after the other: frames of all that come together are a queue by themselves.
    step_ns = round(8e9 * scenario.frame_bytes / rate_bps / PARTS)
    while any(left.values()):
        flow = flow_between(topology, number, src.name, dst.name, 1)
        key = FlowKey(src.ipv4, dst.ipv4, PROTOCOL_UDP, flow.src_port, flow.dst_port)
        over = link in (forwarding.path(flow_hash(key), source, destination) or ())
        if left[over]:
            left[over] -= 1
            start_ns = planned.start_ns + (PARTS - sum(left.values())) * step_ns
            yield replace(planned, number=number, rate_bps=rate_bps, start_ns=start_ns)
        number += 1


def laid_anew_ns(virtual: VirtualRun, crossing: set[int]) -> tuple[int | None, int | None]:
    """Return from the surge's start to the first packet of a flow that left the link, and to when the rest fitted.

    By the packets themselves, as they leave the switch at the link's tail; `crossing` began on the link.
    """
    scenario = virtual.scenario
    assert virtual.fabric.hops is not None
    neighbours = scenario.topology.neighbours[scenario.congested.src]
    rates = {planned.number: planned.rate_bps for planned in scenario.flows}
    rate_bps = scenario.topology.directed_links[scenario.congested].rate_bps
    on_link, first_ns = set(crossing), None
    for hop in virtual.fabric.hops.hops:
        if hop.switch != scenario.congested.src or hop.flow_id not in rates or hop.started_ns < scenario.congest_ns:
            continue
        if neighbours[hop.out_port].node == scenario.congested.dst:
            on_link.add(hop.flow_id)
        elif hop.flow_id in on_link:
            on_link.discard(hop.flow_id)
            first_ns = first_ns or hop.started_ns - scenario.congest_ns
            if sum(rates[number] for number in on_link) <= rate_bps:
                return first_ns, hop.started_ns - scenario.congest_ns
    return first_ns, None
