"""Queues that a process polls, as a manager sees and drives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, get_args

from dataplane.errors import PortError
from dataplane.nic.managed.messages import KindName, ModeName, QueueState
from dataplane.nic.modes import Mode
from dataplane.nic.nic import Nic
from dataplane.nic.ports.drops import missed, not_sent
from dataplane.nic.ports.nic_port import NicPort
from dataplane.nic.ports.queue import PortKind, PortQueue

MODE_NAMES: Final[dict[Mode, ModeName]] = {
    Mode.WAITING: "waiting",
    Mode.POLLING: "polling",
    Mode.HYBRID: "hybrid",
}
_KIND_NAMES: Final[dict[PortKind, KindName]] = {PortKind[name.upper()]: name for name in get_args(KindName)}


class PolledQueues(Protocol):
    """The polled queues of a process; callable from any thread."""

    def read(self) -> Sequence[QueueState]:
        """Return all queues with their current counters."""
        ...

    def set_mode(self, device: str, queue: int | None, mode: Mode) -> None:
        """Change the mode of a queue's thread, or of all threads on a device; raise PortError if that is impossible."""
        ...


class NicQueues:
    """The queues of a Nic."""

    def __init__(self, nic: Nic) -> None:
        self._nic = nic

    def read(self) -> Sequence[QueueState]:
        """Return the queues, each with the polls of its thread."""
        nic = self._nic
        if (kind := _KIND_NAMES.get(nic.info.kind)) is None:
            return ()  # memory and sockets are no devices
        statistics = nic.read_statistics()
        threads = {number: at for at, thread in enumerate(statistics.threads) for number in thread.queues}
        settable = tuple(name for mode, name in MODE_NAMES.items() if nic.can_wake or mode is not Mode.WAITING)
        return [
            QueueState(
                device=nic.name,
                index=nic.info.index,
                queue=queue.number,
                kind=kind,
                thread=nic.thread_ids[threads[queue.number]] if nic.thread_ids else 0,
                mode=MODE_NAMES[nic.modes[threads[queue.number]]],
                modes=settable,
                received=queue.received,
                received_bytes=queue.received_bytes,
                sent=queue.sent,
                sent_bytes=queue.sent_bytes,
                dropped=sum(queue.missed.values()) + sum(queue.not_sent.values()),
                polls=statistics.threads[threads[queue.number]].polls,
                empty_polls=statistics.threads[threads[queue.number]].empty_polls,
            )
            for queue in statistics.queues
        ]

    def set_mode(self, device: str, queue: int | None, mode: Mode) -> None:
        """Change the mode of the queue's thread, or of all threads."""
        if device != self._nic.name:
            raise PortError(f"interface {device}: this process polls {self._nic.name}")
        self._nic.set_mode(mode, queue)


def state_of(
    port: NicPort, number: int, *, thread: int, mode: Mode, modes: Sequence[Mode] = (), polls: tuple[int, int] | None
) -> QueueState | None:
    """Return the state of a port's queue that a loop of its own polls; None if the port is no device.

    `polls`: polls and empty polls of its thread, if they are counted.
    """
    queue: PortQueue = port.queues[number]
    if (kind := _KIND_NAMES.get(PortKind(queue.kind))) is None:
        return None
    return QueueState(
        device=port.name,
        index=port.device_index or 0,
        queue=number,
        kind=kind,
        thread=thread,
        mode=MODE_NAMES[mode],
        modes=tuple(MODE_NAMES[each] for each in modes),
        received=queue.rx_frames,
        received_bytes=queue.rx_bytes,
        sent=queue.tx_frames,
        sent_bytes=queue.tx_bytes,
        dropped=sum(missed(queue).values()) + sum(not_sent(queue).values()),
        polls=None if polls is None else polls[0],
        empty_polls=None if polls is None else polls[1],
    )


def mode_named(name: ModeName) -> Mode:
    """Return the mode of a name."""
    return Mode[name.upper()]
