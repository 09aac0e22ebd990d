"""The switch: ports, traffic manager and a P4 pipeline around one clock; no sockets, no threads.

Frames go in with `receive`, time moves with `advance`, which returns departures. The process (kernel) and the virtual
fabric drive the same object; the P4Runtime service reaches it as a `SwitchControl`, possibly from another thread. Every
frame is accounted for: what was received and what the pipeline made of it (clones, replicas) was sent, waits in a
queue, or was dropped and counted under a name.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dataplane.clock import Clock
from dataplane.errors import SwitchError
from dataplane.nic import Port
from dataplane.program.model import Program
from dataplane.switch.counters import (
    CPU_QUEUE_FRAMES,
    DEFAULT_CPU_PORT,
    ENDLESS_LOOP,
    HELLO_FORGED,
    MAX_FRAME_BYTES,
    NO_PACKET_IN_RECEIVER,
    NO_PROGRAM,
    OVERSIZE,
    PORT_DOWN,
    SwitchCounters,
    Tally,
)
from dataplane.switch.devices import first_states
from dataplane.switch.hellos.frames import is_hello
from dataplane.switch.hellos.hellos import Hellos
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import (
    DigestMessage,
    EgressResult,
    Frame,
    Output,
    Pipeline,
    Placement,
    PreparedProgram,
)
from dataplane.switch.ports.board import PortBoard, UsableWatch
from dataplane.switch.ports.states import HelloSettings, OperStatus, PortCounters, PortListener, PortState
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState
from dataplane.switch.traffic import NO_SUCH_PORT, PortSettings, TrafficManager, deflect_session_of

__all__ = [
    "DEFAULT_CPU_PORT",
    "MAX_FRAME_BYTES",
    "Departure",
    "PipelineFactory",
    "PortCounters",
    "PortSettings",
    "Switch",
    "SwitchCounters",
]

_ROUNDS_AT_ONE_INSTANT = 4_096
"""Egress rounds without a nanosecond between them after which copies are dropped: a P4 program that clones its clones
or recirculates without end over ports of infinite rate would otherwise stop the clock."""

PipelineFactory = Callable[[Program, ForwardingState, SplitMix], Pipeline]


@dataclass(frozen=True, slots=True)
class Departure:
    """A frame whose last bit leaves the port at `departs_ns`, excluding the cable's delay.

    A hello is the switch's own: it takes no time on the port and does not count as traffic.
    """

    port: int
    data: bytes
    departs_ns: int
    is_hello: bool = False


class Switch:
    """One switch; `receive` and `advance` belong to one thread, everything else may be called from any.

    The CPU port is a port of infinite rate that the switch adds itself. `seed` seeds the program's random numbers. With
    a `deflect_session`, packets that a full queue refuses go to the egress of that clone session's ports, once it
    exists. `devices` are the ports' devices, if any, named in the ports' states.
    """

    def __init__(
        self,
        device_id: int,
        ports: Iterable[PortSettings],
        clock: Clock,
        *,
        cpu_port: int = DEFAULT_CPU_PORT,
        seed: int = 0,
        deflect_session: int | None = None,
        pipeline_factory: PipelineFactory | None = None,
        devices: Mapping[int, Port] | None = None,
    ) -> None:
        self.device_id = device_id
        self._deflect_session = deflect_session_of(deflect_session)
        self.cpu_port = cpu_port
        self.ports = tuple(ports)
        if any(port.number == cpu_port for port in self.ports):
            raise SwitchError(f"switch {device_id}: port {cpu_port} is the CPU port")
        every = (*self.ports, PortSettings(cpu_port, queue_frames=CPU_QUEUE_FRAMES))
        self._traffic = TrafficManager(every)
        self._tallies = {port.number: Tally() for port in every}
        self._drops: dict[str, int] = {}
        self._clock = clock
        self._seed = seed
        self._make_pipeline = pipeline_factory or _interpreted
        self._program: Program | None = None
        self._state: ForwardingState | None = None
        self._pipeline: Pipeline | None = None
        self._lock = threading.RLock()
        self._latest_ns = 0
        self._departures: list[Departure] = []
        self._packets_in: list[bytes] = []
        self._packet_in_receiver: Callable[[bytes], None] | None = None
        self._digests: list[DigestMessage] = []
        self._digest_receiver: Callable[[Sequence[DigestMessage]], None] | None = None
        self._board = PortBoard(device_id, first_states(self.ports, devices or {}, clock.now_ns()), clock.now_ns)
        self._down: set[int] = set()
        self._hellos = Hellos(device_id, seed)
        self._before_reading: Callable[[], None] | None = None
        self._wake: Callable[[], None] | None = None

    @property
    def program(self) -> Program | None:
        """The running program, or None before the first `commit`."""
        return self._program

    @property
    def state(self) -> ForwardingState | None:
        """The running program's tables; None before the first `commit`."""
        return self._state

    @property
    def pipeline(self) -> Pipeline | None:
        """The running program's pipeline; None before the first `commit`. Hold packets (`paused`) to use it."""
        return self._pipeline

    def on_packet_in(self, receiver: Callable[[bytes], None]) -> None:
        """Pass frames that leave by the CPU port to `receiver`, on the thread that calls `advance`."""
        self._packet_in_receiver = receiver

    def on_digests(self, receiver: Callable[[Sequence[DigestMessage]], None]) -> None:
        """Pass the program's digests to `receiver`, on the thread that calls `advance`; otherwise they are lost."""
        self._digest_receiver = receiver

    def on_port_status(self, receiver: Callable[[int, bool], None]) -> None:
        """Call `receiver` with a port and whether it is usable at each change, and now for each unusable port."""
        with self._burst():
            watch = UsableWatch(receiver, self._board.unusable())
            self._board.add_listener(watch)
        watch.begin()

    def port_states(self) -> Mapping[int, PortState]:
        """Return the current state of all ports except the CPU port."""
        self._bring_up_to_date()
        with self._burst():
            for port, hello in self._hellos.ports.items():
                self._board.set_hello(port, hello.describe())
            return self._board.read()

    def is_open(self, port: int) -> bool:
        """Return whether a port sends and receives, as far as is known; False if there is none."""
        return port in self._tallies and port not in self._down

    def port_counters(self) -> Mapping[int, PortCounters]:
        """Return the counters of all ports."""
        return self.counters().ports

    def set_admin(self, port: int, up: bool) -> None:
        """Take a port out of use or put it back; raise SwitchError if there is no such port."""
        self._bring_up_to_date()
        with self._burst():
            self._follow(self._board.set_admin(port, up))
            self._hellos.set_admin(port, up, self._clock.now_ns())
            self._note_hellos()
        self._board.notify()
        self._wake_up()

    def set_hello(self, port: int, settings: HelloSettings | None) -> None:
        """Start or stop hellos on a port; raise SwitchError if there is no such port."""
        self._bring_up_to_date()
        with self._burst():
            admin_up = self._board[port].admin_up
            self._hellos.set(port, settings, self._clock.now_ns(), admin_up=admin_up)
            if settings is None:
                self._follow(self._board.set_hello(port, None))
            self._note_hellos()
        self._board.notify()
        self._wake_up()

    def take_leave(self) -> None:
        """Announce by hellos, if any, to all neighbours that this switch stops; `advance` sends it."""
        with self._burst():
            for port in self._hellos.ports:
                self._hellos.set_admin(port, False, self._clock.now_ns())
            self._note_hellos()
        self._board.notify()
        self._wake_up()

    @property
    def hellos(self) -> Hellos:
        """The hellos of the ports, for the caller that drives the switch."""
        return self._hellos

    def on_reading(self, bring_up_to_date: Callable[[], None]) -> None:
        """Call this before ports' states are read or set: for a caller that skips hellos that change nothing."""
        self._before_reading = bring_up_to_date

    def _bring_up_to_date(self) -> None:
        if self._before_reading is not None:
            self._before_reading()

    def add_port_listener(self, listener: PortListener) -> Callable[[], None]:
        """Call `listener` with a port's new state at each change; return a function that ends that."""
        return self._board.add_listener(listener)

    def set_oper(self, port: int, oper: OperStatus) -> None:
        """Record the state of a port's device; raise SwitchError if there is no such port.

        Frames from and to a port that is not open are dropped as `port_down`.
        """
        with self._burst():
            self._follow(self._board.set_oper(port, oper))
        self._board.notify()

    def set_not_joined(self, port: int, reason: str) -> None:
        """Record why a port does not join TCP segments, "" if it does; raise SwitchError if there is no such port."""
        self._board.set_not_joined(port, reason)
        self._board.notify()

    def set_port_status(self, port: int, up: bool) -> None:
        """Record that a port's device went down or came back."""
        self.set_oper(port, OperStatus.UP if up else OperStatus.DOWN)

    def _note_hellos(self) -> None:
        for port, hello in self._hellos.take_changed():
            self._follow(self._board.set_hello(port, hello.describe()))

    def _wake_up(self) -> None:
        if self._wake is not None:
            self._wake()

    def _follow(self, state: PortState) -> None:
        (self._down.discard if state.is_open else self._down.add)(state.port)
        if self._state is not None:
            self._state.follow_port(state.port, state.is_usable)

    def has_port(self, port: int) -> bool:
        """Return whether the switch has such a port; the CPU port is one."""
        return port in self._tallies

    def now_ns(self) -> int:
        """Return the clock's time."""
        return self._clock.now_ns()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold packets between bursts; the same thread may nest it."""
        with self._burst():
            yield

    def on_wakeup(self, wake: Callable[[], None]) -> None:
        """Call `wake` after another thread gave the switch work, so that its own thread can advance it."""
        self._wake = wake

    def commit(self, program: Program, fill: Callable[[ForwardingState], None] | None = None) -> ForwardingState:
        """Replace program and tables at once and return the fresh state, empty except for what `fill` puts into it.

        No packet sees the state before it is filled. Packets still waiting were shaped by the old program: they are
        dropped and counted as `program_replaced`. Raises ProgramError if the program cannot be executed, or what `fill`
        raises, and changes nothing.
        """
        prepared = self.prepare(program)
        if fill is not None:
            fill(prepared.state)
        self.install(prepared)
        return prepared.state

    def prepare(self, program: Program) -> PreparedProgram:
        """Make a program ready to run over fresh state, without touching the running one and without a lock.

        Raises ProgramError if the program cannot be executed.
        """
        state = ForwardingState(program)
        rng = SplitMix(random.Random(f"{self._seed}/{self.device_id}").getrandbits(64))
        return PreparedProgram(program, state, self._make_pipeline(program, state, rng))

    def install(self, prepared: PreparedProgram) -> None:
        """Run a prepared program from now on; waiting packets are dropped as `program_replaced`."""
        state = prepared.state
        with self._burst():
            if self._pipeline is not None:
                _add(self._drops, self._pipeline.drops)
            self._traffic.clear()
            self._digests.clear()
            for port in self._board.unusable():
                state.set_port_status(port, False)
            self._program, self._state, self._pipeline = prepared.program, state, prepared.executable
            self._lock = state.lock

    def receive(self, port: int, frames: Sequence[bytes], *, unread: bool = False) -> None:
        """Take frames in at a port at the clock's present time; raise SwitchError if there is no such port.

        While `unread` frames have already arrived, no neighbour's hello counts as missed.
        """
        tally = self._tallies.get(port)
        if tally is None:
            raise SwitchError(f"switch {self.device_id} has no port {port}")
        with self._burst():
            now_ns = max(self._clock.now_ns(), self._latest_ns)
            self._run_until(now_ns)
            frames = self._hellos.take(port, frames, now_ns, unread=unread)
            if not frames:
                return
            tally.rx_frames += len(frames)
            tally.rx_bytes += sum(map(len, frames))
            if port in self._down:
                _count(tally.drops, PORT_DOWN, len(frames))
                return
            self._ingress(port, frames, tally, now_ns)
            self._collect_digests()

    @property
    def traffic(self) -> TrafficManager:
        """The ports' queues; hold packets (`paused`) to change them."""
        return self._traffic

    def packet_out(self, payload: bytes) -> None:
        """Receive a frame, with its packet-out header, on the CPU port."""
        self.receive(self.cpu_port, (payload,))
        self._wake_up()

    def advance(self, now_ns: int) -> list[Departure]:
        """Do everything due up to `now_ns`; return what was sent since the last call, oldest first.

        Events keep their own times however late the call comes, so a late caller changes no reading and no rate.
        """
        with self._burst():
            self._run_until(max(now_ns, self._latest_ns))
            self._say_hello()
            self._collect_digests()
            departures, self._departures = self._departures, []
            packets_in, self._packets_in = self._packets_in, []
            digests, self._digests = self._digests, []
        self._board.notify()
        self._deliver(packets_in)
        if digests and self._digest_receiver is not None:
            self._digest_receiver(digests)
        return departures

    def next_event_ns(self) -> int | None:
        """Return when `advance` next has work, or None while nothing waits; a past time means now."""
        with self._burst():
            if self._departures or self._packets_in or self._digests:
                return self._latest_ns
            event_ns, hello_ns = self._traffic.next_event_ns(), self._hellos.due_ns
        if event_ns is None or hello_ns is None:
            return hello_ns if event_ns is None else event_ns
        return min(event_ns, hello_ns)

    def counters(self) -> SwitchCounters:
        """Return all current counters."""
        with self._burst():
            drops = dict(self._drops)
            _add(drops, self._traffic.drops)
            if self._pipeline is not None:
                _add(drops, self._pipeline.drops)
            ports = {number: self._read_port(number, tally) for number, tally in self._tallies.items()}
        return SwitchCounters(ports, drops)

    @property
    def parser_errors(self) -> Mapping[str, int]:
        """Packets by the name of their parser error since the program was installed."""
        with self._burst():
            return {} if self._pipeline is None else dict(self._pipeline.parser_errors)

    def occupancy(self, port: int) -> tuple[int, ...]:
        """Return how many frames wait at a port, by priority 0 to 7; raise SwitchError if there is no such port."""
        if port not in self._tallies:
            raise SwitchError(f"switch {self.device_id} has no port {port}")
        with self._burst():
            return self._traffic.occupancy(port)

    def _ingress(self, port: int, frames: Sequence[bytes], tally: Tally, now_ns: int) -> None:
        pipeline = self._pipeline
        if pipeline is None:
            _count(tally.drops, NO_PROGRAM, len(frames))
            return
        accepted = [Frame(port, data) for data in frames if len(data) <= MAX_FRAME_BYTES]
        if len(accepted) < len(frames):
            _count(tally.drops, OVERSIZE, len(frames) - len(accepted))
        self._queue(pipeline, pipeline.ingress(accepted, now_ns // 1000), now_ns)

    def _run_until(self, now_ns: int) -> None:
        self._latest_ns = now_ns
        instant_ns, rounds = -1, 0
        while (burst := self._traffic.dequeue(now_ns)) is not None and (pipeline := self._pipeline) is not None:
            rounds = rounds + 1 if burst.start_ns == instant_ns else 0
            instant_ns = burst.start_ns
            result = pipeline.egress(burst.packets, instant_ns // 1000)
            if rounds >= _ROUNDS_AT_ONE_INSTANT and result.placements:
                _count(self._drops, ENDLESS_LOOP, len(result.placements))
                result = EgressResult(result.outputs)
            self._emit(result.outputs, instant_ns)
            self._queue(pipeline, result.placements, instant_ns)

    def _say_hello(self) -> None:
        """Process due hellos of the ports, and record their state."""
        due_ns = self._hellos.due_ns
        if due_ns is not None and due_ns <= self._latest_ns:
            for port, frame in self._hellos.step(self._latest_ns):
                self._departures.append(Departure(port, frame, self._latest_ns, is_hello=True))
        self._note_hellos()

    def _emit(self, outputs: Sequence[Output], start_ns: int) -> None:
        for output in outputs:
            tally = self._tallies.get(output.port)
            if tally is None:
                _count(self._drops, NO_SUCH_PORT, 1)
                continue
            if output.port in self._down:
                _count(tally.drops, PORT_DOWN, 1)
                continue
            if output.port in self._hellos and is_hello(output.data):
                _count(tally.drops, HELLO_FORGED, 1)
                continue
            if output.port == self.cpu_port and self._packet_in_receiver is None:
                _count(tally.drops, NO_PACKET_IN_RECEIVER, 1)
                continue
            tally.tx_frames += 1
            tally.tx_bytes += len(output.data)
            if output.port == self.cpu_port:
                self._packets_in.append(output.data)
            else:
                departs_ns = self._traffic.occupy(output.port, len(output.data), start_ns)
                self._departures.append(Departure(output.port, output.data, departs_ns))

    def _queue(self, pipeline: Pipeline, placements: Sequence[Placement], start_ns: int) -> None:
        refused = [placement for placement in placements if not self._traffic.enqueue(placement, start_ns)]
        if not self._deflect_session:
            return
        for placement in refused:
            depth = 0 if placement.refused_depth else self._traffic.full_depth(placement)
            deflected = pipeline.deflect(placement, self._deflect_session) if depth else []
            for copy in deflected:
                copy.refused_depth = depth
                self._traffic.enqueue(copy, start_ns)

    def _collect_digests(self) -> None:
        if self._pipeline is not None:
            self._digests += self._pipeline.take_digests()

    def _deliver(self, packets_in: Sequence[bytes]) -> None:
        if self._packet_in_receiver is not None:
            for payload in packets_in:
                self._packet_in_receiver(payload)

    def _read_port(self, number: int, tally: Tally) -> PortCounters:
        drops = dict(tally.drops)
        _add(drops, self._traffic.port_drops(number))
        queued = sum(self._traffic.occupancy(number))
        return PortCounters(tally.rx_frames, tally.rx_bytes, tally.tx_frames, tally.tx_bytes, queued, drops)

    @contextmanager
    def _burst(self) -> Iterator[None]:
        """Hold the running state's lock; a `commit` in between replaced the lock, so check again."""
        while True:
            lock = self._lock
            with lock:
                if lock is self._lock:
                    yield
                    return


def _interpreted(program: Program, state: ForwardingState, rng: SplitMix) -> Pipeline:
    return InterpretedPipeline(program, state, rng=rng)


def _add(drops: dict[str, int], more: Mapping[str, int]) -> None:
    for name, number in more.items():
        _count(drops, name, number)


def _count(drops: dict[str, int], name: str, number: int) -> None:
    drops[name] = drops.get(name, 0) + number
