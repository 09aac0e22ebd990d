"""What a scheduler is asked to place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller.cluster.hardware.requests import Request

MOST_POINTS: Final = 1000
"""The points of the best node; scores give 0 to so many."""


NOTHING_ASKED: Final = Request()


@dataclass(frozen=True, slots=True)
class Peer:
    """A host of the topology that a pod reads from, or talks to, and how many bytes that are."""

    host: str
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that waits for a node.

    `locations` are the nodes that its user stated, all if there are none; `group` is what it is to be spread over
    nodes with. A larger `priority` comes first.
    """

    name: str
    request: Request = NOTHING_ASKED
    priority: int = 0
    locations: tuple[str, ...] = ()
    peers: tuple[Peer, ...] = ()
    group: str = ""
