"""A chain's knowledge of the fabric, and how it differs between two chains that carry the same load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.values import LinkState, Snapshot
from controller.network.intents import RouteSet
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from dataplane.topology.values import LinkKey, Topology
from tests.benchmarks.chaining import flows

FRAMES = 2.0
LOAD = 0.05
"""Tolerance, as a share of a link's rate: the load is the mean of a few readings, each drawn at random."""
DELAY_SHARE, DELAY_NS = 0.2, 300
SNAPSHOTS, INTERVAL_NS = 10, 1_000_000_000
"""Snapshots, each of another window, that figures are averaged over."""
TOTAL_RATE_SHARE = 0.1
"""Tolerance, as a share of the sum of all flows' rates; a rate is over ten reports or so, one more or less."""
FRESH_NS = 1_500_000_000

_SHOWN = 3

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """A link's figures, the means of several snapshots; `age_ns` and `source` are the newest."""

    queue_frames: float
    load: float
    delay_ns: float
    loss: float
    age_ns: int | None
    source: str


@dataclass(frozen=True, slots=True)
class State:
    """Links between switches, each pair of hosts' measured path and rate (bit/s), and the explicit routes."""

    links: Mapping[LinkKey, LinkFigures]
    paths: Mapping[Pair, flows.Path]
    rates_bps: Mapping[Pair, int]
    routes: Mapping[Pair, flows.Path]


async def state_of(folder: Path, topology: Topology) -> State:
    """Return the state of the chain in a folder."""
    taken: list[Snapshot] = []
    async with (
        FeedClient(FeedClientSettings(address=f"unix:{folder}/collector.sock")) as feed,
        RouteClient(RouteClientSettings(address=f"unix:{folder}/paths.sock")) as paths,
    ):
        async with aclosing(feed.snapshots(INTERVAL_NS)) as snapshots:
            async for snapshot in snapshots:
                taken.append(snapshot)
                if len(taken) == SNAPSHOTS:
                    break
        return state(topology, taken, await paths.current_routes())


def state(topology: Topology, snapshots: Sequence[Snapshot], routes: RouteSet) -> State:
    """Return the state that snapshots, one after the other, and a route set show."""
    hosts = topology.host_by_address
    seen = {(hosts[key.src].name, hosts[key.dst].name): path for key, path in snapshots[-1].paths.items()}
    return State(
        {key: _figures([snapshot.links[key] for snapshot in snapshots]) for key in flows.fabric_links(topology)},
        {pair: path.switches for pair, path in seen.items()},
        {pair: path.rate_bps or 0 for pair, path in seen.items()},
        {(route.flow.src_host, route.flow.dst_host): route.switches for route in routes.routes},
    )


def _figures(states: Sequence[LinkState]) -> LinkFigures:
    return LinkFigures(
        fmean(state.queue_occupancy_frames for state in states),
        fmean(state.utilisation for state in states),
        fmean(state.delay_mean_ns for state in states),
        fmean(state.loss or 0.0 for state in states),
        states[-1].age_ns,
        states[-1].source,
    )


def differences(disturbed: State, calm: State, truth: Mapping[Pair, flows.Path]) -> list[str]:
    """Return the differences between two states beyond the tolerances above, a line each; both should be the truth.

    A flow's path in force is its explicit route, else the one that it is seen on: that is compared, since routes that
    answered old congestions stay, and the chain that was never disturbed has seen none of those. Links that no flow
    crosses are left out: nothing is reported of them.
    """
    crossed = {LinkKey(*ends) for path in truth.values() for ends in pairwise(path)}
    lines = [line for key in sorted(crossed) for line in _of_link(key, disturbed.links[key], calm.links[key])]
    for name, state in (("disturbed", disturbed), ("calm", calm)):
        lines += _listed(f"{name}: seen on another path", _wrong(state.paths, truth))
        lines += _listed(f"{name}: routed elsewhere", _wrong({**state.paths, **state.routes}, truth))
        lines += _listed(f"{name}: not seen", (pair for pair in truth if pair not in state.paths))
    total, other = sum(disturbed.rates_bps.values()), sum(calm.rates_bps.values())
    if abs(total - other) > TOTAL_RATE_SHARE * other:
        lines.append(f"flows send {total} bit/s, and {other} bit/s in the calm chain")
    return lines


def _of_link(key: LinkKey, link: LinkFigures, other: LinkFigures) -> Iterator[str]:
    for age_ns in (link.age_ns, other.age_ns):
        if age_ns is None or age_ns > FRESH_NS:
            yield f"{key}: its newest figures are {age_ns} ns old"
    if link.source != other.source:
        yield f"{key}: its delay is from {link.source}, not {other.source}"
    if abs(link.queue_frames - other.queue_frames) > FRAMES:
        yield f"{key}: {link.queue_frames:.1f} frames, not {other.queue_frames:.1f}"
    if abs(link.load - other.load) > LOAD:
        yield f"{key}: load {link.load:.3f}, not {other.load:.3f}"
    if abs(link.delay_ns - other.delay_ns) > DELAY_SHARE * other.delay_ns + DELAY_NS:
        yield f"{key}: {link.delay_ns:.0f} ns, not {other.delay_ns:.0f} ns"
    if link.loss != other.loss:
        yield f"{key}: loss {link.loss}, not {other.loss}"


def _wrong(paths: Mapping[Pair, flows.Path], truth: Mapping[Pair, flows.Path]) -> Iterator[Pair]:
    return (pair for pair, path in paths.items() if truth.get(pair) != path)


def _listed(what: str, pairs: Iterator[Pair]) -> list[str]:
    named = [f"{src}->{dst}" for src, dst in pairs]
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return [f"{what}: {', '.join(named[:_SHOWN])}{more}"] if named else []
