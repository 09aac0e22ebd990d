"""Pods with peers on a loaded fat tree: delays between peers, and bandwidth bounds, with the network and without it.

Hosts of a fat tree are loaded by a demand matrix with hot spots; what lies between them is the cost map of that load.
Pods arrive one after the other, each with peers that are on hosts, or pods that came before, and are placed by the
framework's `decide`: by the default profile, with bandwidth reserved for those placed before; and by the same profile
without its network policies, in the variant of several that does best. `peer_delay_ratio` is the mean delay between
peers with all pods' traffic added, without the network over with it.

`bounds_kept` is of small cases: groups of pods that state bandwidth, placed by `place_group`; bounds that are kept by
ours over those that an exact solution keeps (a mixed integer programme by HiGHS), which places as many pods as can be.
A bound is kept where its rate is free on every link that the hash may put the flow on, given the load and all others.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from collectors.values import Snapshot as NetworkSnapshot
from controller.cluster.cost_map import CostMap, Load
from controller.cluster.cost_map.model import CostModel
from controller.cluster.hardware import WHOLE, Cluster, Node, Request
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.pods import Peer, PendingPod, PodProfile, PodProfileSettings, Snapshot, decide, place_group
from controller.scheduling.pods.values import Mate
from dataplane.topology.families import from_text
from dataplane.topology.values import MediumKind, MemoryMedium

NAMES: Final = ("peer_delay_ratio", "bounds_kept")
NETWORK: Final = frozenset({"network-need", "network-cost"})
_GIB: Final = 1 << 30
_GBPS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Case:
    """A loaded network, its nodes, and pods in the order in which they come; peers by host, or by an earlier pod."""

    costs: CostMap
    cluster: Cluster
    pods: tuple[PendingPod, ...]
    earlier: Mapping[str, tuple[tuple[str, int, int | None], ...]]
    """Earlier peers of each pod, with bandwidth and delay bound."""


def loaded(arity: int, seed: int, heat: float) -> CostMap:
    """Return a fat tree whose hosts send by a demand matrix: all a little, some pairs up to `heat` of their links."""
    rng = random.Random(seed)
    topology = from_text(f"fat-tree:k={arity}")
    costs = CostMap.of(CostModel(topology), NetworkSnapshot(0, {}, {}, {}))
    hosts = list(costs.hosts)
    rate_bps = int(costs.links.rate_bps[costs.model.up].min())
    loads = [Load(src, rng.choice(hosts), int(rate_bps * rng.uniform(0.02, 0.1))) for src in hosts]
    senders, receivers = rng.sample(hosts, len(hosts) // 2), rng.sample(hosts, len(hosts) // 2)
    loads += [
        Load(src, dst, int(rate_bps * rng.uniform(0.5, heat)))
        for src, dst in zip(senders, receivers, strict=True)
        if src != dst
    ]
    return costs.with_loads(loads)


def nodes_of(costs: CostMap, cores: int) -> Cluster:
    """Return the hosts as nodes with this many cores."""
    memory = (MemoryMedium(MediumKind.DRAM, 64 * _GIB),)
    return Cluster.of(Node(host, cores * WHOLE, memory) for host in costs.hosts)


def delay_case(arity: int, seed: int) -> Case:
    """Return a loaded fat tree with one storage host per switch, and pods that read there or from earlier pods."""
    rng, costs = random.Random(seed), loaded(arity, seed, 0.9)
    storage = list(costs.hosts[:: arity // 2])
    cluster = nodes_of(costs, 8)
    cluster = Cluster.of(node for name, node in cluster.nodes.items() if name not in storage)
    pods: list[PendingPod] = []
    earlier: dict[str, tuple[tuple[str, int, int | None], ...]] = {}
    for number in range(2 * len(cluster.nodes)):
        name = f"p{number}"
        rate_bps, bound_ns = rng.randrange(10, 100) * _GBPS // 1000, rng.choice((None, 200_000, 500_000))
        peers = [Peer(rng.choice(storage), min_bps=rate_bps, max_delay_ns=bound_ns)]
        if pods and rng.random() < 0.4:
            earlier[name] = ((rng.choice(pods).name, rate_bps, bound_ns),)
        pods.append(PendingPod(name, Request(cpu_milli=rng.choice((1000, 2000))), peers=tuple(peers)))
    return Case(costs, cluster, tuple(pods), earlier)


def placed(case: Case, profile: PodProfile, *, reserves: bool) -> dict[str, str]:
    """Return where a profile puts a case's pods, one after the other; pods that it refuses are left out."""
    placements: dict[str, str] = {}
    snapshot = Snapshot.of(case.cluster, case.costs)
    for pod in case.pods:
        case_now = with_earlier(case, pod, placements)
        choice = decide(profile, case_now, snapshot)
        if not choice.is_placed:
            continue
        placements[pod.name] = snapshot.columns.names[choice.candidate]
        shares = snapshot.shares(choice.candidate, pod.request)
        snapshot = snapshot.taking(choice.candidate, shares, pod.group, case_now.peers if reserves else ())
    return placements


def with_earlier(case: Case, pod: PendingPod, where: Mapping[str, str]) -> PendingPod:
    """Return a pod whose peers that came before are known by their hosts."""
    more = (
        Peer(where[name], min_bps=rate_bps, max_delay_ns=delay_ns)
        for name, rate_bps, delay_ns in case.earlier.get(pod.name, ())
        if name in where
    )
    return replace(pod, peers=(*pod.peers, *more))


def peer_delays_ns(case: Case, where: Mapping[str, str], pods: Iterable[str]) -> list[float]:
    """Return the delay between each of some pods and its peers, mean of both ways, with all pods' traffic added."""
    flows = [
        (pod.name, where[pod.name], peer)
        for pod in case.pods
        if pod.name in where
        for peer in with_earlier(case, pod, where).peers
    ]
    costs = case.costs.with_loads(
        Load(src, dst, peer.min_bps)
        for _, node, peer in flows
        for src, dst in ((node, peer.host), (peer.host, node))
        if src != dst
    )
    kept = set(pods)
    number, delay_ns = costs.model.host_number, costs.pairs.delay_ns
    return [
        0.0
        if node == peer.host
        else (int(delay_ns[number[node], number[peer.host]]) + int(delay_ns[number[peer.host], number[node]])) / 2
        for name, node, peer in flows
        if name in kept
    ]


def blind_profiles() -> dict[str, PodProfile]:
    """Return the default profile without its network policies, and others that know nothing of the network."""
    default = PodProfileSettings()
    filters = tuple(entry for entry in default.filters if entry.policy not in NETWORK)
    own = tuple(entry for entry in default.scores if entry.policy not in NETWORK)
    variants = {"default": own} | {
        name: (PolicySettings(policy=name),) for name in ("least-used", "most-used", "spread")
    }
    return {name: PodProfile.of(replace_scores(default, filters, scores)) for name, scores in variants.items()}


def replace_scores(
    settings: PodProfileSettings, filters: Sequence[PolicySettings], scores: Sequence[PolicySettings]
) -> PodProfileSettings:
    """Return settings with other policies."""
    return PodProfileSettings(name="blind", filters=tuple(filters), scores=tuple(scores), seed=settings.seed)


def delay_ratio(arities: Sequence[int], seeds: int) -> float:
    """Return the mean delay between peers without the network, in its best variant, over the default profile's."""
    ours: list[float] = []
    blind: dict[str, list[float]] = {name: [] for name in blind_profiles()}
    for arity, seed in product(arities, range(seeds)):
        case = delay_case(arity, seed)
        mine = placed(case, PodProfile.of(PodProfileSettings()), reserves=True)
        others = {name: placed(case, profile, reserves=False) for name, profile in blind_profiles().items()}
        # Delays are compared of pods that all of them place.
        common = set(mine).intersection(*others.values())
        ours += peer_delays_ns(case, mine, common)
        for name, where in others.items():
            blind[name] += peer_delays_ns(case, where, common)
    return min(statistics.fmean(delays) for delays in blind.values()) / statistics.fmean(ours)


def group_case(seed: int, *, size: int = 5) -> Case:
    """Return a loaded small fat tree and a group of pods that state bandwidth, to storage and to one another."""
    rng, costs = random.Random(seed), loaded(4, seed, 0.8)
    storage, workers = list(costs.hosts[::2]), list(costs.hosts[1::2])
    cluster = Cluster.of(node for name, node in nodes_of(costs, 4).nodes.items() if name in workers)
    pods = []
    for number in range(size):
        peers = (Peer(rng.choice(storage), min_bps=rng.randrange(2, 30) * _GBPS // 10),)
        mates: tuple[Mate, ...] = ()
        if number and rng.random() < 0.6:
            mates = (Mate(f"g-{rng.randrange(number)}", min_bps=rng.randrange(1, 20) * _GBPS // 10),)
        request = Request(cpu_milli=rng.choice((1000, 2000, 3000)))
        pods.append(PendingPod(f"g-{number}", request, peers=peers, mates=mates))
    return Case(costs, cluster, tuple(pods), {})


def exact(case: Case) -> dict[str, str] | None:
    """Return a placement of a group that keeps all bounds, None if there is none: a mixed integer programme.

    x[p, n]: pod p is on node n; y[p, n, q, m] >= x[p, n] + x[q, m] - 1: so is a communicating pair.
    """
    nodes, pods = list(case.cluster.nodes), case.pods
    numbers = {pod.name: number for number, pod in enumerate(pods)}
    talks = [(p, numbers[mate.pod], mate.min_bps) for p, pod in enumerate(pods) for mate in pod.mates]
    chosen = len(pods) * len(nodes)
    columns = chosen + len(talks) * len(nodes) ** 2
    links = len(case.costs.links.rate_bps)
    rows = len(pods) + len(nodes) + links + len(talks) * len(nodes) ** 2
    matrix, least, most = lil_matrix((rows, columns)), np.full(rows, -np.inf), np.full(rows, np.inf)
    free = case.costs.links.available_bps / _GBPS
    for p, pod in enumerate(pods):
        matrix[p, p * len(nodes) : (p + 1) * len(nodes)] = 1
        least[p] = most[p] = 1
        for n, node in enumerate(nodes):
            matrix[len(pods) + n, p * len(nodes) + n] = pod.request.cpu_milli
            for peer in pod.peers:
                for row in ways(case.costs, node, peer.host):
                    matrix[len(pods) + len(nodes) + row, p * len(nodes) + n] += peer.min_bps / _GBPS
    most[len(pods) : len(pods) + len(nodes)] = [case.cluster.nodes[node].cpu_milli for node in nodes]
    most[len(pods) + len(nodes) : len(pods) + len(nodes) + links] = free + 1e-9
    for t, (p, q, rate_bps) in enumerate(talks):
        for (n, node), (m, other) in product(enumerate(nodes), enumerate(nodes)):
            column = chosen + (t * len(nodes) + n) * len(nodes) + m
            both = rows - len(talks) * len(nodes) ** 2 + column - chosen
            matrix[both, column], matrix[both, p * len(nodes) + n], matrix[both, q * len(nodes) + m] = 1, -1, -1
            least[both] = -1
            for row in ways(case.costs, node, other):
                matrix[len(pods) + len(nodes) + row, column] += rate_bps / _GBPS
    integrality = np.array([1] * chosen + [0] * (columns - chosen))
    solution = milp(
        np.zeros(columns),
        integrality=integrality,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix.tocsr(), least, most),
    )
    if not solution.success:
        return None
    x = np.rint(solution.x[:chosen]).reshape(len(pods), len(nodes))
    return {pod.name: nodes[int(x[p].argmax())] for p, pod in enumerate(pods)}


def ways(costs: CostMap, src: str, dst: str) -> list[int]:
    """Return the links that flows between two hosts may take, both ways; none within one."""
    if src == dst:
        return []
    model, rows = costs.model, list[int]()
    for a, b in ((src, dst), (dst, src)):
        start, other = model.number(a), model.number(b)
        rows += [*costs.routing.shares(start, other), model.up.start + start, model.down.start + other]
    return rows


def bounds_of(case: Case) -> int:
    """Return how many bounds a case's pods state."""
    return sum(len(pod.peers) + len(pod.mates) for pod in case.pods)


def kept(case: Case, where: Mapping[str, str]) -> int:
    """Return how many bounds are kept: their rate is free on every link, given the load and all others."""
    added = np.zeros(len(case.costs.links.rate_bps), np.int64)
    flows = [
        (where[pod.name], other, rate_bps)
        for pod in case.pods
        if pod.name in where
        for other, rate_bps in (
            *((peer.host, peer.min_bps) for peer in pod.peers),
            *((where.get(mate.pod), mate.min_bps) for mate in pod.mates),
        )
    ]
    for node, other, rate_bps in flows:
        for row in () if other is None else ways(case.costs, node, other):
            added[row] += rate_bps
    full = added > case.costs.links.available_bps
    return sum(other is not None and not full[ways(case.costs, node, other)].any() for node, other, _ in flows)


def bounds_kept(seeds: int, profile: PodProfile | None = None, *, size: int = 5) -> tuple[int, int]:
    """Return how many bounds of groups are kept that `place_group` places, and how many all that can be placed have."""
    ours = feasible = 0
    profile = profile or PodProfile.of(PodProfileSettings())
    for seed in range(seeds):
        case = group_case(seed, size=size)
        best, snapshot = exact(case), Snapshot.of(case.cluster, case.costs)
        placements = place_group(profile, case.pods, snapshot)
        where = {
            choice.subject.name: snapshot.columns.names[choice.candidate]
            for choice in placements.choices
            if choice.is_placed
        }
        where = where if placements.is_placed else {}
        assert kept(case, where) == (bounds_of(case) if where else 0), f"seed {seed}: a bound is broken"
        if best is not None:
            assert kept(case, best) == bounds_of(case), f"seed {seed}: the exact solution is none"
            feasible += bounds_of(case)
            ours += kept(case, where)
        else:
            assert not where, f"seed {seed}: placed what cannot be"
    return ours, feasible


def figures(quick: bool, data: Path) -> Mapping[str, float]:
    """Return the figures of `NAMES`."""
    del data
    ours, feasible = bounds_kept(40 if quick else 200)
    return {
        "peer_delay_ratio": delay_ratio((4,) if quick else (4, 6, 8), 5 if quick else 8),
        "bounds_kept": ours / feasible,
    }
