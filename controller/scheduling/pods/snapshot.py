"""The cluster state behind a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import Cluster, Request, Shares, choose
from controller.scheduling.framework.policies import Flags, Floats, Ids
from controller.scheduling.pods.columns import FreeColumns, NodeColumns
from controller.scheduling.pods.reservations import loads_of
from controller.scheduling.pods.values import Peer
from controller.scheduling.pods.workload import Workload


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Nodes, their free resources, which are ready, the network between them, and the placed pods of groups.

    `ready` is by node; `groups` count a group's pods on each node (by number). Without `costs` the network is unknown.
    `host_names` are the nodes' hosts in the topology, in their order; without them a node's host has the node's name.
    `device_busy` is each device's measured load, 0 to 1, NaN if not measured; `images` gives the nodes with an image,
    and its bytes; `workload` the general distribution of requests. A snapshot is valid for one moment: if its source
    changes, take a new one for the next decision.
    """

    columns: NodeColumns
    free: FreeColumns
    ready: Flags
    costs: CostMap | None = None
    groups: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    host_names: tuple[str, ...] | None = None
    device_busy: Floats | None = None
    images: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    workload: Workload | None = None
    unnarrowed: FreeColumns | None = None
    """Free resources of all devices, when `free` hides those that a pod may not get."""
    pods: Ids | None = None
    """Number of pods that hold shares of each node, None if unknown."""
    starting: Ids | None = None
    """Number of those that have not started yet."""

    def __len__(self) -> int:
        return len(self.columns.nodes)

    @classmethod
    def of(cls, cluster: Cluster, costs: CostMap | None = None, *, not_ready: frozenset[str] = frozenset()) -> Snapshot:
        """Return the snapshot of a cluster; all its nodes are ready except those named."""
        columns = NodeColumns.of(tuple(cluster.nodes.values()))
        ready = np.array([name not in not_ready for name in columns.names], np.bool_)
        return cls(columns, FreeColumns.of(columns, cluster), ready, costs)

    @cached_property
    def host(self) -> Ids:
        """The number of each node's host in the cost map, -1 if it has none."""
        numbers = {} if self.costs is None else self.costs.model.host_number
        return np.array([numbers.get(name, -1) for name in self.host_names or self.columns.names], np.int64)

    def keep_hosts(self, before: Snapshot) -> None:
        """Reuse the host numbers of an earlier snapshot of the same nodes and costs."""
        if "host" in before.__dict__:
            self.__dict__["host"] = before.host

    def host_name(self, node: int) -> str:
        """Return the name of a node's host in the topology."""
        return (self.host_names or self.columns.names)[node]

    def shares(self, node: int, request: Request) -> Shares:
        """Return the shares of a node for a request; raise HardwareError if it does not fit."""
        if not request.devices:
            return Shares(request.cpu_milli, request.memory_bytes)
        if len(request.devices) == 1 and (devices := self.free.fewest_left(self.columns, node, request.devices[0])):
            return Shares(request.cpu_milli, request.memory_bytes, devices)
        return choose(self.columns.nodes[node], self.free.held_of(self.columns, node), request)

    def narrowed(self, usable: Flags) -> Snapshot:
        """Return the snapshot in which nothing is free on devices that are not usable."""
        return replace(self, free=self.free.narrowed(usable), unnarrowed=self.unnarrowed or self.free)

    def taking(self, node: int, shares: Shares, group: str = "", peers: Sequence[Peer] = ()) -> Snapshot:
        """Return the snapshot in which a pod also holds these shares and the bandwidth to its peers."""
        groups = self.groups
        if group:
            counts = groups.get(group, {})
            groups = {**groups, group: {**counts, node: counts.get(node, 0) + 1}}
        costs = self.costs
        if costs is not None and (loads := loads_of(self.host_name(node), peers)):
            costs = costs.with_reservations(loads)
        pods, starting = (_with_one_more(count, node) for count in (self.pods, self.starting))
        free = self.free.taking(self.columns, node, shares)
        return replace(self, free=free, groups=groups, costs=costs, pods=pods, starting=starting)


def _with_one_more(count: Ids | None, node: int) -> Ids | None:
    if count is None:
        return None
    counts = count.copy()
    counts[node] += 1
    return counts
