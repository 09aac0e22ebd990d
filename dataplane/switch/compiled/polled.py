"""The queues of a native switch's devices, as its node's manager sees and drives them."""

from __future__ import annotations

from collections.abc import Sequence

from dataplane.errors import PortError, SwitchError
from dataplane.nic import Mode
from dataplane.nic.managed.messages import QueueState
from dataplane.nic.managed.polled import state_of
from dataplane.switch.compiled.switch import NativeSwitch


class WorkerQueues:
    """Queue n of every device is polled by worker n; `PolledQueues`."""

    def __init__(self, switch: NativeSwitch) -> None:
        self._switch = switch

    def read(self) -> Sequence[QueueState]:
        """Return the queues of all ports that are network devices; polls are turns of the worker over all ports."""
        switch = self._switch
        activity, modes, threads = switch.activity, self._modes, switch.thread_ids
        settable = () if switch.program is None else tuple(Mode)
        states = []
        for port in switch.devices.values():
            port.read_counters()  # updates the kernel's drops
            for number in range(min(len(port.queues), len(modes))):
                polls = (activity[number].turns, activity[number].idle_turns)
                states.append(
                    state_of(port, number, thread=threads[number], mode=modes[number], modes=settable, polls=polls)
                )
        return [state for state in states if state is not None]

    @property
    def _modes(self) -> tuple[Mode, ...]:
        modes = self._switch.modes
        return modes if self._switch.program is not None else (Mode.WAITING,) * len(modes)

    def set_mode(self, device: str, queue: int | None, mode: Mode) -> None:
        """Change the mode of the worker that polls the queue, and with it that of its queues of other devices."""
        if self._switch.program is None:
            raise PortError(f"interface {device}: a switch without a program only waits")
        ports = [port for port in self._switch.devices.values() if port.name == device]
        if not ports:
            raise PortError(f"interface {device}: this switch does not poll it")
        if queue is not None and queue >= len(ports[0].queues):
            raise PortError(f"interface {device}: it has {len(ports[0].queues)} queues, so none of number {queue}")
        try:
            self._switch.set_mode(mode, queue)
        except SwitchError as error:
            raise PortError(str(error)) from None
