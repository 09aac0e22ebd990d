"""What a scheduler is asked to place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from controller.apiserver.resources.task import OperatorCount
from controller.cluster.hardware.requests import Request
from dataplane.topology.values import DeviceKind

MOST_POINTS: Final = 1000
"""The points of the best node; scores give 0 to so many."""


NOTHING_ASKED: Final = Request()


@dataclass(frozen=True, slots=True)
class Peer:
    """A host of the topology that a pod reads from, or talks to, and how many bytes that are.

    `min_bps` and `max_delay_ns` are what the way must be like, in both directions; 0 and None: like any.
    """

    host: str
    nbytes: int = 0
    min_bps: int = 0
    max_delay_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Mate:
    """Another pod of the same group that a pod talks to; as for `Peer`, once it is known where that one goes."""

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

    `locations` are the nodes that its user stated, all if there are none; `labels` and `device_kind` are what a node
    must have, `device` the number of the one that it is to get. `group` is what it is to be spread over nodes with;
    of one that `is_reduced` the pods add up their gradients in the network, one a node. A larger `priority` comes
    first. `images` are what its containers are made of.
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
    """Of a pod of a group: how many more of it are to be placed after this one."""
    operators: tuple[OperatorCount, ...] = field(default=(), hash=False)
    """What it computes, as far as anybody said."""
