"""Rows of polled queues: what processes report of them, and what the kernel says of their threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from controller.apiserver.resources.nic import MOST_QUEUES, NicMode, PolledQueue
from controller.workloads.nodes.nic.kernel import ThreadReading, inode_of, processor_shares, read_thread
from controller.workloads.nodes.nic.peers import Peer
from dataplane.nic.managed.messages import QueueState


class QueueRows:
    """Makes rows of the queues in a network namespace and of others."""

    def __init__(self, namespace: Path) -> None:
        self._namespace = namespace
        self._before: Mapping[tuple[int, int], tuple[int, int]] = {}

    def all(self, peers: Sequence[Peer], now_ns: int) -> tuple[PolledQueue, ...]:
        """Return the rows of all queues, with the threads' processor time since the last call."""
        readings = _read_threads(peers)
        now = {key: (now_ns, reading.cpu_ns) for key, reading in readings.items()}
        shares, self._before = processor_shares(self._before, now), now
        rows = (self._row(peer, state, readings, shares) for peer in peers for state in peer.states)
        return tuple(sorted(rows, key=lambda row: (row.device, row.queue, row.process)))[:MOST_QUEUES]

    def of(self, peer: Peer, states: Iterable[QueueState]) -> tuple[PolledQueue, ...]:
        """Return the rows of some queues of one process."""
        readings = _read_threads([peer])
        return tuple(self._row(peer, state, readings, {}) for state in states)

    def _row(
        self,
        peer: Peer,
        state: QueueState,
        readings: Mapping[tuple[int, int], ThreadReading],
        shares: Mapping[tuple[int, int], float],
    ) -> PolledQueue:
        poller = peer.poller
        key = (poller.process, state.thread)
        if key not in readings:
            key = (poller.process, 0)
        reading = readings.get(key)
        confirmed = frozenset() if peer.examination is None else peer.examination.confirmed
        claim = peer.claims.get((state.device, state.queue))
        return PolledQueue(
            device=state.device,
            queue=state.queue,
            kind=state.kind,
            network_namespace=None if peer.namespace == inode_of(self._namespace) else peer.namespace,
            program=poller.program,
            process=poller.process,
            user=poller.user,
            is_confirmed=(state.device, state.kind) in confirmed,
            is_granted=claim is not None,
            job=claim or "",
            thread=key[1] or None,
            core=None if reading is None else reading.core,
            mode=NicMode(state.mode),
            modes=tuple(map(NicMode, state.modes)),
            received=state.received,
            received_bytes=state.received_bytes,
            sent=state.sent,
            sent_bytes=state.sent_bytes,
            dropped=state.dropped,
            polls=state.polls,
            empty_polls=state.empty_polls,
            cpu_share=shares.get(key),
        )


def _read_threads(peers: Iterable[Peer]) -> dict[tuple[int, int], ThreadReading]:
    """Return what the kernel says of each polling thread; of the process if it has no such thread."""
    readings: dict[tuple[int, int], ThreadReading] = {}
    for peer in peers:
        process = peer.poller.process
        for thread in {state.thread for state in peer.states}:
            if (reading := read_thread(process, thread)) is not None:
                readings[process, thread] = reading
            elif (whole := read_thread(process, 0)) is not None:
                readings[process, 0] = whole
    return readings
