"""Processes that are connected to the node's manager, and what they reported."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field

from controller.workloads.nodes.deciding.queues import Poller
from controller.workloads.nodes.nic.kernel import Examination
from dataplane.nic.managed.messages import Outcome, QueueState


@dataclass(slots=True, eq=False)
class Peer:
    """A connected process."""

    connection: socket.socket
    poller: Poller
    namespace: int | None
    seen_ns: int
    states: tuple[QueueState, ...] = ()
    left_out: int = 0
    claims: dict[tuple[str, int], str] = field(default_factory=dict)
    """Granted queues, with the job that they were granted for."""
    examination: Examination | None = None
    examined_ns: int = 0
    second: int = 0
    messages: int = 0
    orders: dict[int, asyncio.Future[Outcome]] = field(default_factory=dict)
