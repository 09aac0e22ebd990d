"""Observation of a waiting pod and the cluster: the pool's six features, and the network's two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.apiserver.resources.task import OperatorCount
from controller.cluster.cost_map import UNREACHABLE_NS
from controller.cluster.hardware import Node
from controller.cluster.operators import Operator, OperatorError, work_of
from controller.learning.policy.scales import PAGE_BYTES, logarithmic, shared, timed
from controller.learning.values import Bools, Floats, Observation
from controller.scheduling.framework.policies import Ids
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import PendingPod
from dataplane.topology.values import NumberFormat

_UNKNOWN_BPS: Final = 1_000_000_000
"""Assumed data rate of an unknown network."""


def observe(
    pod: PendingPod, snapshot: Snapshot, nodes: Ids, *, has_network: bool, has_load: bool = False
) -> Observation:
    """Return the observation of a pod for which `nodes` (rows of the snapshot) are possible; an action is a row.

    Utilisation is the held share of all cores. A pod's data are its images, as far as some node has them, and what it
    reads from its peers, a page of each at least: the size is their bytes, or for a pod without either the memory that
    it requests. Free is a node's free share of memory; similarity is the share of the data on the node. Operations are
    those of its stated operators, as far as their kinds are known. Writes of pods are unknown: 0. Delay and bandwidth
    are the longest and the least to peers elsewhere, the latter relative to the fastest; an unknown network counts as
    nothing between.
    """
    columns, free = snapshot.columns, snapshot.free
    candidates = np.zeros(len(columns.nodes), np.bool_)
    candidates[nodes] = True
    local, nbytes = _data(pod, snapshot)
    size, operations = nbytes or pod.request.memory_bytes, operations_of(pod.operators)
    ways = _ways(pod, snapshot)
    return Observation.of(
        utilisation=1 - int(free.cpu_milli.sum()) / max(int(columns.cpu_milli.sum()), 1),
        operations=float(logarithmic(operations)),
        size=float(logarithmic(-(-size // PAGE_BYTES))),
        is_write=0.0,
        free=free.memory_bytes / np.maximum(columns.memory_bytes, 1),
        similarity=local / max(nbytes, 1),
        candidates=candidates,
        delay=ways.delay if has_network else None,
        bandwidth=ways.bandwidth if has_network else None,
        load=_loads(snapshot, candidates, operations, nbytes - local, ways) if has_load else (),
    )


def _loads(
    snapshot: Snapshot, candidates: Bools, operations: int, missing: npt.NDArray[np.float64], ways: _Ways
) -> tuple[Floats, ...]:
    """Return six figures of each node's load: 0 for those unknown for pods, and 1 for impossible ones.

    Queued are a node's pods over its cores; wait is that for those which have not started; compute is the operations at
    the peak of the node's processors; fetching is the missing data over the bandwidth to the peers. The occupation of
    ports is unknown.
    """
    columns = snapshot.columns
    cores = np.maximum(columns.cpu_milli / 1000, 1e-3)
    none = np.zeros(len(cores))
    pods = none if snapshot.pods is None else snapshot.pods
    starting = none if snapshot.starting is None else snapshot.starting
    peaks = np.array([_peak(node) for node in columns.nodes], np.float64)
    computing_ns = np.divide(1e9 * operations, peaks, out=np.zeros(len(cores)), where=peaks > 0)
    rates = ways.bandwidth * ways.fastest_bps
    fetching_ns = np.divide(8e9 * missing, rates, out=np.full(len(cores), np.inf), where=rates > 0)
    impossible = np.where(candidates, 0.0, 1.0)
    return (
        shared(pods / cores),
        np.maximum(shared(starting / cores), impossible).astype(np.float32),
        np.maximum(timed(computing_ns), impossible).astype(np.float32),
        none.astype(np.float32),
        none.astype(np.float32),
        np.maximum(timed(np.where(missing > 0, fetching_ns, 0)), impossible).astype(np.float32),
    )


@lru_cache(maxsize=4096)
def _peak(node: Node) -> int:
    """Return the peak operations per second of a node's processors in single precision, 0 if unknown."""
    return sum(processor.peak_ops_per_s(NumberFormat.FP32) or 0 for processor in node.processors)


class _Stated:
    """Operators as the same tuple of them: their operations are computed once."""

    __slots__ = ("operators",)

    def __init__(self, operators: tuple[OperatorCount, ...]) -> None:
        self.operators = operators

    def __hash__(self) -> int:
        return id(self.operators)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stated) and other.operators is self.operators


def operations_of(operators: tuple[OperatorCount, ...]) -> int:
    """Return the total number of operations of stated operators; those with uncountable work count as 0."""
    return _operations(_Stated(operators)) if operators else 0


@lru_cache(maxsize=1024)
def _operations(stated: _Stated) -> int:
    return sum(operator.count * _operations_of_one(operator) for operator in stated.operators)


def _operations_of_one(operator: OperatorCount) -> int:
    try:
        work = work_of(
            Operator.of(operator.name, operator.operator, operator.sizes, number_format=operator.number_format)
        )
    except OperatorError:
        return 0
    return 0 if work is None or work.operations is None else work.operations


def _data(pod: PendingPod, snapshot: Snapshot) -> tuple[npt.NDArray[np.float64], int]:
    """Return how many bytes of a pod's data lie on each node, and how many there are."""
    local, nbytes = np.zeros(len(snapshot.columns.nodes)), 0
    for image in set(pod.images):
        having = snapshot.images.get(image, {})
        for row, size in having.items():
            local[row] += size
        nbytes += max(having.values(), default=0)
    hosts = np.array(snapshot.host_names or snapshot.columns.names) if pod.peers else None
    for peer in pod.peers:
        size = max(peer.nbytes, PAGE_BYTES)
        local[hosts == peer.host] += size
        nbytes += size
    return local, nbytes


@dataclass(frozen=True, slots=True)
class _Ways:
    """The longest delay and the least bandwidth from peers elsewhere to each node, as features; and the fastest way."""

    delay: Floats
    bandwidth: Floats
    fastest_bps: int


def _ways(pod: PendingPod, snapshot: Snapshot) -> _Ways:
    count = len(snapshot.columns.nodes)
    delay, bandwidth = np.zeros(count, np.float32), np.ones(count, np.float32)
    if snapshot.costs is None:
        return _Ways(delay, bandwidth, _UNKNOWN_BPS)
    pairs, numbers, to = snapshot.costs.pairs, snapshot.costs.model.host_number, snapshot.host
    among = pairs.available_bps[np.ix_(to[to >= 0], to[to >= 0])]
    fastest = max(int(among[~np.eye(len(among), dtype=np.bool_)].max(initial=1)), 1)
    for peer in pod.peers:
        if (row := numbers.get(peer.host)) is None:
            continue
        delay_ns, free_bps = pairs.delay_ns[row, to], pairs.available_bps[row, to]
        is_open = (to >= 0) & (delay_ns != UNREACHABLE_NS) & (free_bps > 0)
        far = to != row
        longest = np.where(is_open, logarithmic(np.maximum(delay_ns, 0)), 1)
        least = np.where(is_open, np.minimum(free_bps / fastest, 1), 0)
        delay = np.where(far, np.maximum(delay, longest), delay).astype(np.float32)
        bandwidth = np.where(far, np.minimum(bandwidth, least), bandwidth).astype(np.float32)
    return _Ways(delay, bandwidth, fastest)
