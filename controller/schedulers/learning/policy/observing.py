"""What an agent sees of a pod that waits and of the cluster: the pool's six features, and the network's two."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from controller.cluster.cost_map import UNREACHABLE_NS
from controller.schedulers.framework.columns import Ids
from controller.schedulers.framework.snapshot import Snapshot
from controller.schedulers.framework.values import PendingPod
from controller.schedulers.learning.values import Floats, Observation

_LOG_BITS: Final = 64
"""Logarithmic features are log2(1 + figure) over this, as in the environment."""
_PAGE_BYTES: Final = 4096


def observe(pod: PendingPod, snapshot: Snapshot, nodes: Ids, *, has_network: bool) -> Observation:
    """Return what is seen of a pod for which `nodes` (rows of the snapshot) are possible; an action is a row.

    Utilisation is the held share of all cores; the size is what the pod reads of its peers, a page of them at least,
    and of a pod without peers the memory that it asks for; free is a node's free share of memory; similarity is the
    share of those bytes that lie on the node's host. Operations and writes are not known of pods: 0. Delay and
    bandwidth are the longest and the least to peers elsewhere, the latter as a part of the fastest; nothing known of
    the network counts as nothing between.
    """
    columns, free = snapshot.columns, snapshot.free
    candidates = np.zeros(len(columns.nodes), np.bool_)
    candidates[nodes] = True
    wanted = [max(peer.nbytes, _PAGE_BYTES) for peer in pod.peers]
    local = np.zeros(len(columns.nodes))
    for peer, nbytes in zip(pod.peers, wanted, strict=True):
        local += [nbytes * (snapshot.host_name(row) == peer.host) for row in range(len(local))]
    nbytes = sum(wanted) or pod.request.memory_bytes
    delay, bandwidth = _ways(pod, snapshot)
    return Observation.of(
        utilisation=1 - int(free.cpu_milli.sum()) / max(int(columns.cpu_milli.sum()), 1),
        operations=0.0,
        size=float(_logarithmic(-(-nbytes // _PAGE_BYTES))),
        is_write=0.0,
        free=free.memory_bytes / np.maximum(columns.memory_bytes, 1),
        similarity=local / max(sum(wanted), 1),
        candidates=candidates,
        delay=delay if has_network else None,
        bandwidth=bandwidth if has_network else None,
    )


def _ways(pod: PendingPod, snapshot: Snapshot) -> tuple[Floats, Floats]:
    """Return the longest delay and the least bandwidth from peers elsewhere to each node, as features."""
    count = len(snapshot.columns.nodes)
    delay, bandwidth = np.zeros(count, np.float32), np.ones(count, np.float32)
    if snapshot.costs is None:
        return delay, bandwidth
    pairs, known, to = snapshot.costs.pairs, snapshot.costs.model.host_number, snapshot.host
    among = pairs.available_bps[np.ix_(to[to >= 0], to[to >= 0])]
    fastest = max(int(among[~np.eye(len(among), dtype=np.bool_)].max(initial=1)), 1)
    for peer in pod.peers:
        if (row := known.get(peer.host)) is None:
            continue
        delay_ns, free_bps = pairs.delay_ns[row, to], pairs.available_bps[row, to]
        is_open = (to >= 0) & (delay_ns != UNREACHABLE_NS) & (free_bps > 0)
        far = to != row
        longest = np.where(is_open, _logarithmic(np.maximum(delay_ns, 0)), 1)
        least = np.where(is_open, np.minimum(free_bps / fastest, 1), 0)
        delay = np.where(far, np.maximum(delay, longest), delay).astype(np.float32)
        bandwidth = np.where(far, np.minimum(bandwidth, least), bandwidth).astype(np.float32)
    return delay, bandwidth


def _logarithmic(figures: npt.ArrayLike) -> Floats:
    found: Floats = (np.log2(1 + np.asarray(figures, np.float64)) / _LOG_BITS).astype(np.float32)
    return found
