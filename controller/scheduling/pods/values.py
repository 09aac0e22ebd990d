"""Pods that a scheduler places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from controller.apiserver.resources.task import OperatorCount
from controller.cluster.hardware.requests import Request
from controller.scheduling.framework.deciding import Choice
from dataplane.topology.values import DeviceKind

NOTHING_ASKED: Final = Request()


@dataclass(frozen=True, slots=True)
class Peer:
    """A host of the topology that a pod reads from or talks to, with the number of bytes.

    `min_bps` and `max_delay_ns` are requirements on the path, in both directions; 0 and None: no requirement.
    """

    host: str
    nbytes: int = 0
    min_bps: int = 0
    max_delay_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Mate:
    """Another pod of the same group that a pod talks to; becomes a `Peer` once its node is known."""

    pod: str
    nbytes: int = 0
    min_bps: int = 0
    max_delay_ns: int | None = None

    def at(self, host: str) -> Peer:
        """Return it as a peer on a host."""
        return Peer(host, self.nbytes, self.min_bps, self.max_delay_ns)


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that waits for a node.

    `locations` are the nodes that its user stated, all if empty; `labels` and `device_kind` are required of a node,
    `device` is the number of the device to use. Pods of a `group` are spread over nodes; if `is_reduced`, they reduce
    gradients in the network, one pod per node. A larger `priority` comes first. `images` are those of its containers.
    """

    name: str
    request: Request = NOTHING_ASKED
    priority: int = 0
    locations: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    device_kind: DeviceKind | None = None
    peers: tuple[Peer, ...] = ()
    group: str = ""
    device: int | None = None
    images: tuple[str, ...] = ()
    is_reduced: bool = False
    mates: tuple[Mate, ...] = ()
    companions: int = 0
    """For a pod of a group: how many more of its pods will be placed after this one."""
    operators: tuple[OperatorCount, ...] = field(default=(), hash=False)
    """Known operators that it computes."""


PodChoice = Choice[PendingPod]
"""The node for a pod."""
