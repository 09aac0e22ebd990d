"""The native switch: from ring to ring in machine code; Python controls, reads counters and gets its own packets.

The twin of `dataplane.switch.switch.Switch`, on real time and real ports. Every frame is accounted for: what came in,
and every copy that the program made, was sent, waits, or was dropped and counted under a name; this holds exactly
whenever the switch is paused.
"""

from __future__ import annotations

import ctypes
import logging
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dataplane.clock import MonotonicClock
from dataplane.errors import SwitchError
from dataplane.native import kernel_library, pointer_to
from dataplane.native.doorbell import Bell, ring
from dataplane.nic import Mode, NicPort
from dataplane.program.model import Program
from dataplane.switch.compiled.activity import Activity, Forwarding, mode_of
from dataplane.switch.compiled.cpu_port import CpuPort
from dataplane.switch.compiled.frame_tap import FrameTap
from dataplane.switch.compiled.hellos import NativeHellos
from dataplane.switch.compiled.instance import ProgramInstance
from dataplane.switch.compiled.loop.discard import run_without_program
from dataplane.switch.compiled.loop.loop import rest
from dataplane.switch.compiled.memory.hello_state import NEVER
from dataplane.switch.compiled.memory.pool import BUFFER_BYTES, BlockPool
from dataplane.switch.compiled.memory.port_table import PortTable
from dataplane.switch.compiled.memory.traffic import clear
from dataplane.switch.compiled.memory.worker import BURST_FRAMES, Worker
from dataplane.switch.compiled.port_control import PortControl
from dataplane.switch.compiled.program import Purpose, compile_program
from dataplane.switch.compiled.reporter import Reporter, program_log
from dataplane.switch.compiled.threads import WorkerThreads
from dataplane.switch.counters import CPU_QUEUE_FRAMES, DEFAULT_CPU_PORT, SwitchCounters
from dataplane.switch.devices import first_states
from dataplane.switch.pipeline import DigestMessage, PreparedProgram
from dataplane.switch.ports.board import PortBoard, UsableWatch
from dataplane.switch.ports.states import HelloSettings, OperStatus, PortCounters, PortListener, PortState
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tables.native.kernel_calls import WRITERS
from dataplane.switch.tracing.live.tracer import LiveTracer
from dataplane.switch.traffic import PortSettings, deflect_session_of
from dataplane.switch.v1model import PRIORITIES

FRAMES = 65_536
"""Blocks for frames on cables and between Python and the workers."""
BLOCKS_IN_HAND = 4_096
"""Blocks for packets beyond the capacity of the queues, which bounds a program's output from one burst."""


class NativeSwitch:
    """A switch whose workers forward on their own between `start` and `close`; a `SwitchControl`.

    Each of `devices` is lent to the switch until `close`; worker n uses the n-th queue of each. Packets that a `tracer`
    wants are copied for it, and explained on a separate thread. Every method may be called from any thread. Receivers
    are called on a thread of the switch.
    """

    def __init__(
        self,
        device_id: int,
        ports: Iterable[PortSettings],
        devices: Mapping[int, NicPort],
        *,
        cpu_port: int = DEFAULT_CPU_PORT,
        seed: int = 0,
        deflect_session: int | None = None,
        forwarding: Forwarding | None = None,
        tracer: LiveTracer | None = None,
    ) -> None:
        self.device_id, self.cpu_port = device_id, cpu_port
        self.ports, self.devices = tuple(ports), dict(devices)
        self._forwarding = forwarding or Forwarding()
        if any(port.number == cpu_port for port in self.ports):
            raise SwitchError(f"switch {device_id}: port {cpu_port} is the CPU port")
        self._table = PortTable((*self.ports, PortSettings(cpu_port, queue_frames=CPU_QUEUE_FRAMES)), seed=seed)
        self._table.traffic.deflect_session = deflect_session_of(deflect_session)
        self._seed = seed
        self._clock = MonotonicClock()
        self._lock = threading.RLock()
        # Innermost of all, also inside `paused`: guards the running program, and the counts of its predecessors.
        self._leaf = threading.Lock()
        self._instance: ProgramInstance | None = None
        self._drops: Counter[str] = Counter()
        self._parser_errors: Counter[str] = Counter()
        library = kernel_library(ring, clear, rest, run_without_program)
        # Now rather than while a client waits for its first program: the first call takes seconds.
        kernel_library(*WRITERS)
        self._ring: Callable[[Bell], None] = library.bind(ring)
        self._clear, self._rest = library.bind(clear), library.bind(rest)
        self._frames = BlockPool(FRAMES, 0)
        self._reports = _bell()
        self._bells = [_bell() for _ in range(self._forwarding.threads)]
        self._cpu_port = CpuPort(self._frames, self._bells[0], self._reports)
        self._workers = [self._make_worker(number) for number in range(self._forwarding.threads)]
        self._tap = None if tracer is None else FrameTap(self._frames, tracer, self._depth)
        if self._tap is not None:
            self._tap.attach(self._workers)
        self._threads = WorkerThreads(self._workers, self._bells, library.bind(run_without_program), self._ring)
        first = first_states(self.ports, self.devices, self._clock.now_ns())
        self._board = PortBoard(device_id, first, self._clock.now_ns)
        self._port_control = PortControl(
            self._board,
            NativeHellos(device_id, seed, self._workers, self._ring_workers),
            table=self._table,
            devices=self.devices,
            clock=self._clock,
            lock=self._lock,
            state=lambda: self.state,
        )
        self._reporter = Reporter(
            device_id,
            self._reports,
            cpu_port=self._cpu_port,
            ports=self._port_control,
            running=lambda: self._instance,
        )
        self._is_closed = False

    def _make_worker(self, number: int) -> Worker:
        """Return a worker with its queue of each port that has that many."""
        worker = Worker()
        queues = [self._queue_address(port.number, number) for port in self.ports]
        polled = [address for address in queues if address]
        worker.traffic = self._table.traffic
        worker.queues = pointer_to((ctypes.c_uint64 * (len(queues) + 1))(*queues, 0))
        worker.polled = pointer_to((ctypes.c_uint64 * (len(polled) + 1))(*polled))
        worker.polled_count = len(polled)
        worker.bell, worker.other, worker.reports = self._bells[number], self._bells[0], self._reports
        worker.frames = pointer_to((ctypes.c_uint64 * BURST_FRAMES)())
        worker.lengths = pointer_to((ctypes.c_uint32 * BURST_FRAMES)())
        worker.scratch = pointer_to((ctypes.c_uint8 * BUFFER_BYTES)())
        if number == 0:
            worker.injected = self._cpu_port.injected
        worker.cpu_port = self._table[self.cpu_port]
        worker.packets_in = self._cpu_port.packets_in
        worker.number, worker.hello_due_ns = number, NEVER
        worker.spin_ns = 1000 * self._forwarding.spin_us
        worker.core[0].frames[0].pool = self._frames.pool
        return worker

    def _queue_address(self, port: int, worker: int) -> int:
        device = self.devices.get(port)
        if device is None:
            raise SwitchError(f"switch {self.device_id}: port {port} has no device")
        queues = device.queues
        return queues[worker].address if worker < len(queues) else 0

    def _ring_workers(self) -> None:
        for bell in self._bells:
            self._ring(bell)

    # ---- life

    def start(self) -> None:
        """Start forwarding."""
        self._threads.start()
        self._reporter.start()
        if self._tap is not None:
            self._tap.start()

    def close(self) -> None:
        """Stop forwarding and give the devices back, still open; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._threads.close()
        if self._tap is not None:
            self._tap.close()
        self._cpu_port.close()
        self._reporter.close()
        with self._lock:
            self._clear_queues()
            before = self._exchange(None)
            if before is not None:
                self._reporter.hand_over_events(before)
                before.release()
            for bell in (*self._bells, self._reports):
                os.close(bell.fd)

    def __enter__(self) -> NativeSwitch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- control

    @property
    def program(self) -> Program | None:
        """The running program, or None before the first `install`."""
        instance = self._instance
        return None if instance is None else instance.program

    @property
    def state(self) -> ForwardingState | None:
        """The running program's tables; None before the first `install`."""
        instance = self._instance
        return None if instance is None else instance.state

    def prepare(self, program: Program) -> PreparedProgram:
        """Compile a program over fresh state, or take it from the cache, while the present one continues to run.

        Raises ProgramError if it cannot be compiled.
        """
        threads = self._forwarding.threads
        compiled = compile_program(program, Purpose.FORWARDING, threads=threads)
        state = ForwardingState(program)
        rng = random.Random(f"{self._seed}/{self.device_id}")
        seeds = [rng.getrandbits(64) for _ in range(threads)]
        blocks = BLOCKS_IN_HAND + sum(port.limit * PRIORITIES for port in self._table.all)
        return PreparedProgram(program, state, ProgramInstance(compiled, state, blocks, self._frames, seeds))

    def install(self, prepared: PreparedProgram) -> None:
        """Run a prepared program from now on; waiting packets are dropped as `program_replaced`."""
        instance: ProgramInstance = prepared.executable
        with self._lock:
            for port in self._board.unusable():
                prepared.state.set_port_status(port, False)
            instance.set_log_enabled(program_log.isEnabledFor(logging.INFO))
            wanted = () if self._tap is None else self._tap.prepare(prepared.program, prepared.state)
            with self._threads.paused():
                if self._tap is not None:
                    self._tap.look_for(wanted)
                self._clear_queues()
                instance.attach(self._workers)
                self._threads.exchange_run(instance.run)
                before = self._exchange(instance)
            if before is not None:
                self._reporter.hand_over_events(before)
                before.release()

    def _exchange(self, instance: ProgramInstance | None) -> ProgramInstance | None:
        """Replace the running program; return the previous one, whose counts are kept."""
        with self._leaf:
            before, self._instance = self._instance, instance
            if before is not None:
                self._drops.update(before.drops)
                self._parser_errors.update(before.parser_errors)
        return before

    def commit(self, program: Program, fill: Callable[[ForwardingState], None] | None = None) -> ForwardingState:
        """Prepare a program, let `fill` write its state, and install it; return the state."""
        prepared = self.prepare(program)
        if fill is not None:
            fill(prepared.state)
        self.install(prepared)
        return prepared.state

    def _clear_queues(self) -> None:
        """Drop waiting packets; no worker keeps a block of their pool."""
        for port in self._table.all:
            self._clear(port, self._workers[0].core[0])
        for worker in self._workers:
            self._rest(worker)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold packets between bursts; the same thread may nest it."""
        with self._threads.paused():
            yield

    def set_mode(self, mode: Mode, worker: int | None = None) -> None:
        """Change what a worker, or each of them, does while nothing is due; frames stay in their rings meanwhile.

        Raises SwitchError if there is no such worker.
        """
        if worker is not None and not 0 <= worker < len(self._workers):
            raise SwitchError(f"switch {self.device_id} has {len(self._workers)} workers, so none of number {worker}")
        spin_ns = self._forwarding.spin_ns(mode)
        # Held, as a worker that returns from a sleep writes how long it will spin.
        with self._threads.paused():
            for each in self._workers if worker is None else (self._workers[worker],):
                each.spin_ns = each.spin_now_ns = spin_ns

    def now_ns(self) -> int:
        """Return nanoseconds on the machine's monotonic clock, which the workers read."""
        return self._clock.now_ns()

    def has_port(self, port: int) -> bool:
        """Return whether the switch has such a port; the CPU port is one."""
        return port in self._table

    def port_states(self) -> Mapping[int, PortState]:
        """Return the current state of all ports except the CPU port."""
        return self._port_control.read()

    def port_counters(self) -> Mapping[int, PortCounters]:
        """Return the counters of all ports."""
        return self._table.counters()

    def set_admin(self, port: int, up: bool) -> None:
        """Take a port out of use or put it back; raise SwitchError if there is no such port."""
        self._port_control.set_admin(port, up)

    def set_hello(self, port: int, settings: HelloSettings | None) -> None:
        """Start or stop hellos on a port; raise SwitchError if there is no such port."""
        self._port_control.set_hello(port, settings)

    def take_leave(self) -> None:
        """Announce by hellos, if any, to all neighbours that this switch stops; return once that was sent.

        Does not wait long for a port whose device takes nothing.
        """
        self._port_control.take_leave()

    def add_port_listener(self, listener: PortListener) -> Callable[[], None]:
        """Call `listener` with a port's new state at each change; return a function that ends that."""
        return self._board.add_listener(listener)

    def set_oper(self, port: int, oper: OperStatus) -> None:
        """Record the state of a port's device; raise SwitchError if there is no such port.

        Frames from and to a port that is not open are dropped as `port_down`.
        """
        self._port_control.set_oper(port, oper)

    def set_not_joined(self, port: int, reason: str) -> None:
        """Record why a port does not join TCP segments, "" if it does; raise SwitchError if there is no such port."""
        self._board.set_not_joined(port, reason)
        self._board.notify()

    def look_at_devices(self) -> None:
        """Read the devices' states soon; called when one has changed."""
        self._port_control.expect_device_change()
        self._reporter.wake()

    def set_port_status(self, port: int, up: bool) -> None:
        """Record that a port's device went down or came back."""
        self.set_oper(port, OperStatus.UP if up else OperStatus.DOWN)

    @property
    def traffic(self) -> PortTable:
        """The ports' queues; hold packets (`paused`) to change them."""
        return self._table

    def packet_out(self, payload: bytes) -> None:
        """Receive a frame, with its packet-out header, on the CPU port."""
        self._cpu_port.inject(payload)

    # ---- output of the workers for Python

    def on_packet_in(self, receiver: Callable[[bytes], None]) -> None:
        """Pass frames that leave by the CPU port to `receiver`."""
        self._reporter.packet_in_receiver = receiver
        for worker in self._workers:
            worker.takes_packets_in = 1

    def on_digests(self, receiver: Callable[[Sequence[DigestMessage]], None]) -> None:
        """Pass the program's digests to `receiver`; without one they are counted as lost."""
        self._reporter.digest_receiver = receiver

    def on_port_status(self, receiver: Callable[[int, bool], None]) -> None:
        """Call `receiver` with a port and whether it is usable at each change, and now for each unusable port."""
        with self._lock:
            watch = UsableWatch(receiver, self._board.unusable())
            self._board.add_listener(watch)
        watch.begin()

    # ---- readings

    def counters(self) -> SwitchCounters:
        """Return all current counters; they are consistent while the switch is paused."""
        with self._leaf:
            drops = Counter(self._drops)
            if self._instance is not None:
                drops.update(self._instance.drops)
        for more in (self._table.drops, self._cpu_port.drops, self._reporter.drops):
            drops.update(more)
        return SwitchCounters(self._table.counters(), dict(drops))

    @property
    def parser_errors(self) -> Mapping[str, int]:
        """Packets by the name of their parser error."""
        with self._leaf:
            errors = Counter(self._parser_errors)
            if self._instance is not None:
                errors.update(self._instance.parser_errors)
        return errors

    @property
    def copies(self) -> int:
        """Packets that programs made of others: clones and replicas, including those dropped for lack of room."""
        return sum(_signed(worker.core[0].copies) for worker in self._workers)

    @property
    def activity(self) -> tuple[Activity, ...]:
        """Each worker's activity since the start."""
        return tuple(Activity(worker.turns, worker.idle_turns, worker.sleeps) for worker in self._workers)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Behaviour of each worker while nothing is due."""
        return tuple(mode_of(worker.spin_ns) for worker in self._workers)

    @property
    def thread_ids(self) -> tuple[int, ...]:
        """The kernel's number of each worker's thread (gettid(2)), 0 before the start."""
        return self._threads.native_ids

    @property
    def packets_in_use(self) -> int:
        """Packets that have a block: exactly those waiting in queues while the switch is paused."""
        with self._leaf:
            return 0 if self._instance is None else self._instance.packets_in_use(self._workers)

    @property
    def in_flight(self) -> int:
        """Frames on the cables."""
        return self._table.in_flight

    def occupancy(self, port: int) -> tuple[int, ...]:
        """Return how many frames wait at a port, by priority 0 to 7; raise SwitchError if there is no such port."""
        self._require(port)
        return self._table.occupancy(port)

    def _depth(self, port: int, priority: int) -> int:
        return self._table.occupancy(port)[priority] if port in self._table and priority < PRIORITIES else 0

    def _require(self, port: int) -> None:
        if port not in self._table:
            raise SwitchError(f"switch {self.device_id} has no port {port}")


def _bell() -> Bell:
    return Bell(fd=os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), waiting=1)


def _signed(word: int) -> int:
    """Return a count that may have become negative."""
    return word - (1 << 64) if word >> 63 else word
