"""The packet engine: one worker's items over UDP, all in machine code and without the interpreter's lock."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.errors import CorruptedError, NoResultError, RefusedError, SaturatedError
from dataplane.allreduce.formats import BLOCK, headroom
from dataplane.allreduce.kernels import layouts
from dataplane.allreduce.kernels.layouts import (
    AGREED_GROUPS,
    BURST,
    KNOWN_EPOCHS,
    PACKET_BYTES,
    STRIDE,
    EngineState,
    Reading,
    Seeking,
    Sent,
    Slot,
    Status,
)
from dataplane.allreduce.kernels.loss_recovery import LEAST_REORDERING, NEVER
from dataplane.allreduce.kernels.pacing import PACKET
from dataplane.allreduce.kernels.receive import adopt_epoch
from dataplane.allreduce.kernels.running import offer_kept, run_engine, seek_call
from dataplane.allreduce.kernels.send_schedule import CLASSES, EXPONENTS
from dataplane.allreduce.next_hop import NextHop, find_next_hop
from dataplane.allreduce.schedule import GROUP
from dataplane.allreduce.transports import RingTransport, Transport, UdpTransport, open_granted, open_rings, zeros
from dataplane.allreduce.turns import POLL_S, Poll
from dataplane.clock import NS_PER_S
from dataplane.closing import Closing
from dataplane.errors import AllReduceError
from dataplane.native import Array, Library, kernel_library
from dataplane.nic.ports.queue import PortKind
from dataplane.wire.aggregation import UDP_PORT, Aggregation, Reason, decode

_FIRST_TIMEOUT_S: Final = 0.05
_INTEGERS: Final = np.dtype(np.int32)
_FLOATS: Final = np.dtype(np.float32)


@dataclass(frozen=True, slots=True)
class Rings:
    """Frames through our own rings on a device, instead of the kernel's UDP; needs root."""

    kind: PortKind = PortKind.PACKET_V2
    """PACKET_V2 or PACKET_V3 share the device with the kernel; XDP and DPDK take it exclusively."""
    next_hop: NextHop | None = None
    """Device and MAC addresses; None: those in the kernel's routing and neighbour tables."""


@dataclass(frozen=True, slots=True)
class Granted:
    """Rings or AF_XDP where this node's manager grants queues, else a UDP socket; the log says which, and why."""

    job: str = ""
    """The job's name, which the manager's grants may require."""


TransportName: TypeAlias = Literal["auto", "udp", "rings", "xdp"]
"""Name of a transport: "auto" stands for `Granted`, "rings" and "xdp" for `Rings` without asking a manager."""


def rings_of(transport: str, job: str) -> Rings | Granted | None:
    """Return the settings that a transport's name stands for; raise AllReduceError for another name."""
    match transport:
        case "auto":
            return Granted(job)
        case "udp":
            return None
        case "rings":
            return Rings()
        case "xdp":
            return Rings(PortKind.XDP)
    raise AllReduceError(f"transport {transport!r} is not auto, udp, rings or xdp")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """A worker's view of its job, as configured by the controller."""

    aggregator: str
    """The aggregator's IPv4 address."""
    job: int
    window: int
    """Maximum number of items in flight: half of the job's cells, a power of two."""
    capacity: int
    """Maximum number of workers in the job, which determines the precision of floats."""
    epoch: int
    nonce: int = field(default=0, repr=False)
    """The job's 64-bit random number: packets with another one do not belong to the job."""
    contributors: int | None = None
    """Number of contributors in this epoch: a result of fewer is rejected; None: unknown, up to `capacity`."""
    first_item: int = 0
    first_all_reduce: int = 0
    """All-reduces that the others had completed when this worker joined."""
    port: int = UDP_PORT
    local: tuple[str, int] = ("", 0)
    """The address and UDP port to send from; empty and 0 leave the choice to the kernel."""
    rings: Rings | Granted | None = None
    """None: a kernel UDP socket."""
    patience_s: float = 30.0
    """Time without a result after which an all-reduce fails."""
    least_timeout_s: float = 0.001
    longest_timeout_s: float = 0.2
    """Bounds of the time without a result after which a packet is resent; a packet deemed lost is resent sooner."""
    first_window: int = 16
    """Packets sent before the first result arrives."""
    hears_refusals: bool = True
    """Adopt a newer epoch as soon as a switch reports it. False where a service sets it (`set_epoch`).

    A worker taken for dead must not send for its host in an epoch in which another worker does.
    """


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """Counters of an engine since its creation."""

    sent: int
    repeated: int
    received: int
    results: int
    useless: int
    malformed: int
    forged: int
    """Packets with a nonce other than the job's."""
    corrupt: int
    """Results that failed their check, or were not of all workers; none was used."""
    congested: int
    cuts: int
    """Cuts of the congestion window, because of marks and presumed losses."""
    undone: int
    """Cuts that were undone, because nothing had been lost."""
    spurious: int
    """Retransmissions of packets that had not been lost."""
    stalls: int
    """Retransmissions because nothing arrived any more."""
    round_trip_ns: int
    """Smoothed; measured until the slowest worker has contributed."""
    congestion_window: float
    """In packets."""


class Engine(Closing):
    """All-reduces of one worker, one at a time, each run by the thread that calls `all_reduce`."""

    def __init__(self, settings: EngineSettings, transport: Transport | None = None) -> None:
        """Open the transport unless one is given; the engine owns it from here on. Raises AllReduceError."""
        self._check(settings)
        self.settings = settings
        self._native = _library()
        self._run, self._adopt = self._native.bind(run_engine), self._native.bind(adopt_epoch)
        self._offer, self._seek = self._native.bind(offer_kept), self._native.bind(seek_call)
        self._has_met = False
        self._transport = transport or _open(settings)
        self._rings = self._transport if isinstance(self._transport, RingTransport) else None
        _connect(self._transport, settings)
        self._epochs = threading.Lock()
        self._state = self._prepare(settings)
        self._note_contributors(settings.epoch, settings.contributors)

    @staticmethod
    def _check(settings: EngineSettings) -> None:
        window = settings.window
        if window < 1 or window & (window - 1) or window > 1 << 16:
            raise AllReduceError(f"job {settings.job}: a window of {window} items is not a power of two up to 65,536")
        headroom(settings.capacity)

    def _prepare(self, settings: EngineSettings) -> EngineState:
        window = settings.window
        state = EngineState(
            job=settings.job,
            epoch=settings.epoch,
            nonce=settings.nonce,
            wanted_epoch=settings.epoch,
            hears_refusals=int(settings.hears_refusals),
            window=window,
            headroom=headroom(settings.capacity),
            capacity=settings.capacity,
            next_item=settings.first_item,
            congestion_window=min(settings.first_window, window) * PACKET,
            slow_start_until=window * PACKET,
            timeout_ns=int(_FIRST_TIMEOUT_S * NS_PER_S),
            floor_ns=int(settings.least_timeout_s * NS_PER_S),
            least_timeout_ns=int(settings.least_timeout_s * NS_PER_S),
            longest_timeout_ns=int(settings.longest_timeout_s * NS_PER_S),
            loss_at_ns=NEVER,
            probe_at_ns=NEVER,
            reordering=LEAST_REORDERING,
            order_mask=4 * window - 1,
            patience_ns=int(settings.patience_s * NS_PER_S),
            pause_at_ns=NEVER,
        )
        state.slots = zeros(window * ctypes.sizeof(Slot))
        state.order = zeros(4 * window * ctypes.sizeof(Sent))
        state.packets = zeros(2 * window * STRIDE)
        state.recent = zeros(2 * window * STRIDE)
        state.pending, state.tx_items, state.scratch = zeros(4 * window), zeros(4 * BURST), zeros(4 * BLOCK)
        state.agreed, state.settled = zeros(AGREED_GROUPS * GROUP * 4), zeros(AGREED_GROUPS * 4)
        state.contributors = zeros(4 * KNOWN_EPOCHS)
        state.saved_classes = zeros(GROUP * (layouts.VALUE_BYTES + 4))
        self._transport.attach(state)
        return state

    @property
    def local_address(self) -> tuple[str, int]:
        """Return the address and UDP port that other programs know this worker by."""
        return self._transport.local_address

    @property
    def epoch(self) -> int:
        """Return the epoch that the worker is in."""
        wanted = self._state.wanted_epoch
        return wanted if is_newer(wanted, self._state.epoch) else self._state.epoch

    @property
    def next_item(self) -> int:
        """Return the number that the next all-reduce begins with, if none is running."""
        return self._state.next_item

    @property
    def statistics(self) -> EngineStatistics:
        """Return the current counters."""
        state = self._state
        names = [each.name for each in fields(EngineStatistics)][:-1]
        counts = {name: int(getattr(state, name)) for name in names}
        return EngineStatistics(**counts, congestion_window=state.congestion_window / PACKET)

    def all_reduce(
        self,
        values: NDArray[np.float32] | NDArray[np.int32],
        target: NDArray[np.generic],
        *,
        mean: bool = False,
        final: bool = False,
        call: bool = False,
        poll: Poll | None = None,
    ) -> None:
        """Write sums, or means of floats, over all workers to `target`, which may be `values`.

        Both are contiguous, of the same type and size; `final` sums also go to the main server. `call`: a single item,
        zero everywhere, where the workers wait for it (`meet`). `poll` is called every POLL_S. Raises AllReduceError,
        and what `poll` raises. With SaturatedError the results are written, clamped at the bounds, and the next
        all-reduce may follow; after any other error the engine is unusable.
        """
        self._begin(values, target, mean=mean)
        self._state.is_final, self._state.is_call, self._state.reading = int(final), int(call), Reading.NO
        self._finish(poll)

    def read(
        self,
        target: NDArray[np.float32] | NDArray[np.int32],
        *,
        mean: bool = False,
        distributed: bool = False,
        poll: Poll | None = None,
    ) -> None:
        """Read the sums of the current or last all-reduce into `target` without contributing, as the main server does.

        The all-reduce begins with `next_item`. Results of final ones arrive unrequested; of others, the switch keeps
        the last 2 W items. `distributed`: as a worker, read what the main server distributes. Raises AllReduceError.
        """
        self._begin(target, target, mean=mean)
        self._state.reading, self._state.distributed = Reading.LISTENING, int(distributed)
        self._finish(poll)

    def distribute(self, values: NDArray[np.int32], *, poll: Poll | None = None) -> None:
        """Send a contiguous array to all workers, as their main server, in at most `window` items.

        Returns once the aggregator has it; an item of all workers must follow, before the next. Raises AllReduceError.
        """
        self._begin(values, np.empty_like(values), mean=False)
        self._state.reading, self._state.distributed = Reading.NO, 1
        self._finish(poll)

    def meet(self, *, poll: Poll | None = None) -> None:
        """Wait, as the main server, until all workers wait for it at an item, and continue behind that item."""
        self._state.seeking = Seeking.AHEAD if self._has_met else Seeking.ANYWHERE
        self._drive(self._seek, poll)
        self._has_met = True

    def _finish(self, poll: Poll | None = None) -> None:
        self._drive(self._run, poll)

    def _drive(self, run: Callable[[EngineState], None], poll: Poll | None) -> None:
        self._adopt_epoch(self._state.wanted_epoch)
        if self._rings is not None:
            self._rings.thread = threading.get_native_id()
        while True:
            self._state.pause_at_ns = NEVER if poll is None else time.monotonic_ns() + int(POLL_S * NS_PER_S)
            run(self._state)
            status = Status(self._state.status)
            if status is Status.DONE:
                return
            if status is Status.EPOCH:
                self._adopt_epoch(self._state.new_epoch)
            elif status is Status.PAUSED and poll is not None:
                poll()
            else:
                raise self._error(status)

    def offer_again(self, item: int) -> None:
        """Resend a few contributions to items before this one, different ones each time; call it between all-reduces.

        A switch that has restarted adds them up again for workers without the results; other switches answer, and the
        answers are ignored.
        """
        self._offer(self._state, item)

    def stop(self) -> None:
        """Make `all_reduce` in another thread fail soon."""
        self._state.stop = 1

    def set_epoch(self, epoch: int, contributors: int | None = None) -> None:
        """Continue in this epoch, with this many contributors, if it is newer; callable from any thread at any time."""
        with self._epochs:
            if is_newer(epoch, self.epoch):
                self._note_contributors(epoch, contributors)
                self._state.wanted_epoch = epoch

    def move(self, settings: EngineSettings) -> None:
        """Continue with another aggregator, number, nonce, epoch or contributors; everything else stays the same.

        No all-reduce may be running. Raises AllReduceError.
        """
        _connect(self._transport, settings)
        self.settings, epoch = settings, settings.epoch
        with self._epochs:
            ctypes.memset(self._state.contributors.address, 0, 4 * KNOWN_EPOCHS)
            self._note_contributors(epoch, settings.contributors)
            self._state.job, self._state.nonce = settings.job, settings.nonce
            self._state.epoch, self._state.wanted_epoch = epoch, epoch

    def hold(self, until_ns: int) -> None:
        """Tolerate any delay until then, and then give up; 0: return to the patience of the settings.

        Any thread may call this at any time; the time is that of the machine's monotonic clock.
        """
        self._state.held_until_ns = until_ns

    def close(self) -> None:
        """Close the transport; no all-reduce may be running."""
        self._transport.close()

    def recent(self, item: int) -> Aggregation | None:
        """Return the result of an item if it is recent: two windows of results are kept."""
        index = item & (2 * self.settings.window - 1)
        data = ctypes.string_at(self._state.recent.address + index * STRIDE, PACKET_BYTES)
        if not data[0]:
            return None
        packet = decode(data)
        return packet if packet.item == item else None

    def _adopt_epoch(self, epoch: int) -> None:
        with self._epochs:
            if is_newer(epoch, self._state.epoch):
                self._adopt(self._state, epoch)
            if is_newer(self._state.epoch, self._state.wanted_epoch):
                self._state.wanted_epoch = self._state.epoch

    def _note_contributors(self, epoch: int, contributors: int | None) -> None:
        self._state.contributors[epoch % KNOWN_EPOCHS] = 0 if contributors is None else epoch << 16 | contributors

    def _begin(self, values: NDArray[np.generic], target: NDArray[np.generic], *, mean: bool) -> None:
        if values.dtype not in (_FLOATS, _INTEGERS) or target.dtype != values.dtype or target.size != values.size:
            raise AllReduceError(
                f"{values.size} values of {values.dtype} into {target.size} of {target.dtype}: "
                "both must be float32 or int32, and as many"
            )
        if not (values.flags.c_contiguous and target.flags.c_contiguous and target.flags.writeable):
            raise AllReduceError("values must be contiguous, and where the sums go, writable")
        state = self._state
        state.is_integer, state.mean = int(values.dtype == _INTEGERS), int(mean)
        state.values = values.size
        state.source, state.target = pointer_of(values), pointer_of(target)
        state.blocks = -(-values.size // BLOCK)
        state.groups = -(-state.blocks // GROUP)
        state.asked = state.group = state.stage = state.cursor = state.saturated = 0
        state.error = state.is_final = state.is_call = state.distributed = state.seeking = 0
        ctypes.memset(state.settled.address, 0, AGREED_GROUPS * 4)
        state.last_result_ns = state.patient_from_ns = time.monotonic_ns()

    def _error(self, status: Status) -> AllReduceError:
        state = self._state
        who = f"job {self.settings.job}, epoch {state.epoch}"
        if status is Status.STOPPED:
            return AllReduceError(f"{who}: stopped with {state.unfinished} items without a result")
        if status is Status.SATURATED:
            return SaturatedError(f"{who}: sums of {self._what(state.bad_item)} overflowed int32")
        if status is Status.REFUSED:
            return RefusedError(
                f"{who}: {self._what(state.bad_item)} was refused ({Reason(state.bad_reason).name.lower()}): "
                "workers do not reduce the same sizes and types in the same order"
            )
        if status is Status.CORRUPT:
            return CorruptedError(
                f"{who}: {self._what(state.bad_item)} from {self._where()} is not what the workers sent: "
                f"{self._slot(state.bad_item).corrupt} results did not fit their check"
            )
        if status is Status.SOCKET:
            carrier = "the socket" if isinstance(self._transport, UdpTransport) else "rings"
            return AllReduceError(f"{who}: {carrier} to {self._where()} failed: {os.strerror(state.error)}")
        slot = self._slot(state.bad_item)
        if status is Status.HELD:
            return AllReduceError(
                f"{who}: the service held all-reduces and did not release them in time; "
                f"{self._what(state.bad_item)} has no result, {state.unfinished} items wait"
            )
        waited = (state.now_ns - state.last_result_ns) / NS_PER_S
        trouble = f"; last error: {os.strerror(state.error)}" if state.error else ""
        return NoResultError(
            f"{who}: {self._what(state.bad_item)} got no result from {self._where()} and nothing came for "
            f"{waited:.1f} s; sent {slot.repeats + 1} times, {state.unfinished} items wait{trouble}"
        )

    def _slot(self, item: int) -> Slot:
        at = (item & (self.settings.window - 1)) * ctypes.sizeof(Slot)
        return Slot.from_address(self._state.slots.address + at)

    def _what(self, item: int) -> str:
        slot = self._slot(item)
        if slot.what == EXPONENTS:
            return f"item {item} (exponents of blocks {slot.at * GROUP} on)"
        return f"item {item} ({'classes' if slot.what == CLASSES else 'sums'} of block {slot.at})"

    def _where(self) -> str:
        return f"{self.settings.aggregator}:{self.settings.port}"


def is_newer(epoch: int, than: int) -> bool:
    """Return whether an epoch comes after another, modulo 2^16."""
    return 0 < (epoch - than) % 2**16 < 2**15


@cache
def load() -> None:
    """Load the machine code now, so that processes forked later share it."""
    _library()


def _library() -> Library:
    return kernel_library(run_engine, adopt_epoch, offer_kept, seek_call)


def _open(settings: EngineSettings) -> Transport:
    rings, program = settings.rings, f"worker of job {settings.job}"
    try:
        if rings is None:
            return UdpTransport(settings.local)
        if isinstance(rings, Granted):
            return open_granted(settings.aggregator, settings.local, rings.job, program)
        next_hop = rings.next_hop or find_next_hop(settings.aggregator, settings.local[0])
        return open_rings(rings.kind, next_hop, settings.local[1], program=program)
    except AllReduceError as error:
        raise AllReduceError(f"job {settings.job}: {error}") from None


def _connect(transport: Transport, settings: EngineSettings) -> None:
    try:
        transport.connect(settings.aggregator, settings.port)
    except AllReduceError as error:
        transport.close()
        raise AllReduceError(f"job {settings.job}: {error}") from None


def pointer_of(values: NDArray[np.generic]) -> Array[Any]:
    """Return a pointer to an array's first value."""
    return Array(ctypes.c_uint32, values.ctypes.data, values)
