"""The two drivers of a switch process behind one interface: self-forwarding machine code, and the interpreter."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Final, Protocol

from dataplane.clock import NS_PER_S, MonotonicClock
from dataplane.nic import Port
from dataplane.nic.devices.link_events import LinkEvents
from dataplane.nic.managed.polled import PolledQueues
from dataplane.nic.ports.join_watch import JoinWatch
from dataplane.nic.ports.kernels.waiting import RETRY_NS
from dataplane.program.model import Program
from dataplane.switch.arguments import SwitchSettings
from dataplane.switch.attachments import is_device, open_attachments, watch_joining
from dataplane.switch.compiled.activity import Forwarding
from dataplane.switch.compiled.memory.port_table import CABLE_FULL
from dataplane.switch.compiled.polled import WorkerQueues
from dataplane.switch.compiled.switch import NativeSwitch
from dataplane.switch.counters import SwitchCounters
from dataplane.switch.devices import read_oper
from dataplane.switch.forwarding import Forwarder
from dataplane.switch.ports.log import PortLog
from dataplane.switch.ports.polled import LoopQueues
from dataplane.switch.ports.states import PortCounters
from dataplane.switch.runtime_api.control import RuntimeControl
from dataplane.switch.switch import Switch
from dataplane.switch.tracing.live.options import TraceSettings
from dataplane.switch.tracing.live.tapped import tapped_factory
from dataplane.switch.tracing.live.tracer import LiveTracer
from dataplane.switch.v1model import PRIORITIES
from dataplane.switch.waiting import Waiter

LONGEST_LEAVE_S: Final = 0.25
"""Longest time that a switch's last announcements may take to cross its cables."""
_LEAVE_POLL_S = 0.001


class SwitchDriver(Protocol):
    """A switch with its ports, as the process holds it."""

    @property
    def control(self) -> RuntimeControl:
        """The switch as the control plane's services see it."""
        ...

    @property
    def polled(self) -> PolledQueues:
        """The queues of its devices, for the node's manager."""
        ...

    def commit(self, program: Program) -> None:
        """Load the program that the switch starts with; raise ProgramError."""
        ...

    def start(self, waiter: Waiter) -> None:
        """Start forwarding; `waiter` watches whatever `step` needs to be called for."""
        ...

    def step(self, ready: Sequence[int]) -> None:
        """Do what is due, and handle these ready descriptors."""
        ...

    def next_due_ns(self) -> int | None:
        """Return the time of `step`'s next work, if it depends on the time."""
        ...

    def take_leave(self) -> None:
        """Announce by hellos, if any, that this switch stops, so that no neighbour has to detect the silence."""
        ...

    def counters(self) -> SwitchCounters:
        """Return the counters of ports and drops, from any thread."""
        ...

    def read_stats(self, control_drops: Mapping[str, int]) -> dict[str, object]:
        """Return every counter of switch and ports as JSON-ready values, including the control plane's drops."""
        ...


def make_driver(stack: ExitStack, settings: SwitchSettings) -> SwitchDriver:
    """Open the ports and return the driver that the settings request; the stack closes it. Raises PortError."""
    return (NativeDriver if settings.driver.pipeline == "compiled" else InterpreterDriver)(stack, settings)


class NativeDriver:
    """Workers that forward without Python; this thread only reads counters."""

    def __init__(self, stack: ExitStack, settings: SwitchSettings) -> None:
        self._tracer = _tracer(stack, settings, exact=False)
        ports = open_attachments(stack, settings)
        self._joining = watch_joining(stack, settings, ports)
        self.control = NativeSwitch(
            settings.device_id,
            [port.settings for port in settings.ports],
            ports,
            cpu_port=settings.cpu_port,
            seed=settings.seed,
            deflect_session=settings.deflect_session,
            forwarding=Forwarding(settings.driver.threads, settings.driver.spin_us),
            tracer=self._tracer,
        )
        stack.callback(self.control.close)
        self.polled: PolledQueues = WorkerQueues(self.control)
        self._events = _watch(stack, self.control)
        longest_ns = max((port.settings.delay_ns + port.settings.jitter_ns for port in settings.ports), default=0)
        self._cables_s = min(longest_ns / NS_PER_S, LONGEST_LEAVE_S)

    def commit(self, program: Program) -> None:
        """Load the first program."""
        if self._tracer is not None:
            self._tracer.check(program)
        self.control.commit(program)

    def start(self, waiter: Waiter) -> None:
        """Start forwarding."""
        _start_joining(self.control, *self._joining)
        self.control.start()
        waiter.watch(self._events.fileno())
        self.control.look_at_devices()

    def step(self, ready: Sequence[int]) -> None:
        """Check devices that have changed."""
        if self._events.fileno() in ready and self._events.take():
            self.control.look_at_devices()

    def next_due_ns(self) -> int | None:
        """Return None: the workers keep track."""
        return None

    def take_leave(self) -> None:
        """Make the workers send it, and give it time to cross the cables."""
        self.control.take_leave()
        if any(state.hello is not None for state in self.control.port_states().values()):
            time.sleep(self._cables_s)

    def counters(self) -> SwitchCounters:
        """Return the counters of ports and drops."""
        return self.control.counters()

    def read_stats(self, control_drops: Mapping[str, int]) -> dict[str, object]:
        """Return all counters."""
        switch = self.control
        counters = switch.counters()
        drops = {CABLE_FULL: 0, **counters.drops, **control_drops}
        stats = _stats(counters.ports, drops, switch.parser_errors, switch.in_flight, switch.devices)
        stats |= _states(switch)
        return stats | {"copies": switch.copies, "workers": [asdict(activity) for activity in switch.activity]}


class InterpreterDriver:
    """The interpreter: a `Switch` and a `Forwarder`, stepped whenever a port is readable or an event is due."""

    def __init__(self, stack: ExitStack, settings: SwitchSettings) -> None:
        ports = open_attachments(stack, settings)
        self._joining = watch_joining(stack, settings, ports)
        clock = MonotonicClock()
        self._tracer = _tracer(stack, settings, exact=True)
        factory = None if self._tracer is None else tapped_factory(self._tracer, self._depth, clock.now_ns)
        self.control = Switch(
            settings.device_id,
            [port.settings for port in settings.ports],
            clock,
            cpu_port=settings.cpu_port,
            seed=settings.seed,
            deflect_session=settings.deflect_session,
            pipeline_factory=factory,
            devices=ports,
        )
        self._ports = ports
        self.polled: PolledQueues = LoopQueues(ports)
        self._forwarder = Forwarder(self.control, ports, clock, seed=settings.seed)
        self._numbers = {port.fileno(): number for number, port in ports.items()}
        # The kernel reports changes of devices; for other attachments only their use shows them.
        self._others = {port.settings.number for port in settings.ports if not is_device(port.device)}
        self._down: dict[int, bool] = {}
        self._events = _watch(stack, self.control)

    def commit(self, program: Program) -> None:
        """Load the first program."""
        if self._tracer is not None:
            self._tracer.check(program)
        self.control.commit(program)

    def start(self, waiter: Waiter) -> None:
        """Watch the ports."""
        _start_joining(self.control, *self._joining)
        self.control.on_wakeup(waiter.wake)
        for descriptor in (*self._numbers, self._events.fileno()):
            waiter.watch(descriptor)
        self._note_ports(look=True)

    def step(self, ready: Sequence[int]) -> None:
        """Take bursts from readable ports, send what is due."""
        self._forwarder.step([self._numbers[descriptor] for descriptor in ready if descriptor in self._numbers])
        for port in self._ports.values():
            if port.has_waiting:
                port.send(())
        self._note_ports(look=self._events.fileno() in ready and self._events.take())

    def next_due_ns(self) -> int | None:
        """Return when a packet leaves next, or when to retry a device that had no room."""
        due_ns = self._forwarder.next_due_ns()
        if any(port.has_waiting for port in self._ports.values()):
            retry_ns = time.monotonic_ns() + RETRY_NS
            return retry_ns if due_ns is None else min(due_ns, retry_ns)
        return due_ns

    def take_leave(self) -> None:
        """Send it, together with everything already on the cables."""
        self.control.take_leave()
        deadline = time.monotonic() + LONGEST_LEAVE_S
        self._forwarder.step(())
        while self._forwarder.in_flight and time.monotonic() < deadline:
            time.sleep(_LEAVE_POLL_S)
            self._forwarder.step(())

    def counters(self) -> SwitchCounters:
        """Return the counters of ports and drops."""
        return self.control.counters()

    def read_stats(self, control_drops: Mapping[str, int]) -> dict[str, object]:
        """Return all counters."""
        counters = self.control.counters()
        drops = {CABLE_FULL: self._forwarder.cable_full, **counters.drops, **control_drops}
        in_flight = self._forwarder.in_flight
        stats = _stats(counters.ports, drops, self.control.parser_errors, in_flight, self._ports)
        return stats | _states(self.control)

    def _depth(self, port: int, priority: int) -> int:
        return self.control.occupancy(port)[priority] if self.control.has_port(port) and priority < PRIORITIES else 0

    def _note_ports(self, *, look: bool) -> None:
        """Record which ports were found down or up again when used; `look`: read the state of all of them."""
        for number, port in self._ports.items():
            if look or (number in self._others and port.is_down is not self._down.get(number, False)):
                self._down[number] = port.is_down
                self.control.set_oper(number, read_oper(port))


def _tracer(stack: ExitStack, settings: SwitchSettings, *, exact: bool) -> LiveTracer | None:
    """Return the tracer, if packets are to be explained; the stack closes it."""
    wanted = settings.trace or (TraceSettings() if settings.log_level == "trace" else None)
    return None if wanted is None else stack.enter_context(LiveTracer(wanted, exact=exact))


def _watch(stack: ExitStack, control: Switch | NativeSwitch) -> LinkEvents:
    """Log port changes; return what reports that a device has changed."""
    control.add_port_listener(PortLog(dict(control.port_states())))
    events = LinkEvents()
    stack.callback(events.close)
    return events


def _start_joining(control: Switch | NativeSwitch, watch: JoinWatch | None, reasons: Mapping[int, str]) -> None:
    """Make ports join TCP segments where allowed, and tell the switch why others do not."""
    for port, reason in reasons.items():
        control.set_not_joined(port, reason)
    if watch is not None:
        watch.start(control.set_not_joined)


def _states(control: Switch | NativeSwitch) -> dict[str, object]:
    return {"port_states": {str(number): asdict(state) for number, state in control.port_states().items()}}


def _stats(
    ports: Mapping[int, PortCounters],
    drops: Mapping[str, int],
    parser_errors: Mapping[str, int],
    in_flight: int,
    devices: Mapping[int, Port],
) -> dict[str, object]:
    return {
        "ports": {str(number): asdict(port) for number, port in ports.items()},
        "drops": dict(drops),
        "parser_errors": dict(parser_errors),
        "in_flight": in_flight,
        "devices": {
            str(number): {"device": port.name, "down": port.is_down} | asdict(port.read_counters())
            for number, port in devices.items()
        },
    }
