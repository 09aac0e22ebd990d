"""A long-running virtual fabric: its switches' services and its events alternate in one thread."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from dataplane.clock import MonotonicClock, VirtualClock
from dataplane.errors import WireError
from dataplane.fabric.live.pacing import TURN_NS, Pacer
from dataplane.fabric.live.reports import ReportRelay
from dataplane.fabric.live.settings import FabricSettings
from dataplane.fabric.live.stats import switch_socket, write_stats
from dataplane.fabric.live.traffic import VirtualTraffic, demands_of
from dataplane.fabric.live.values import FabricCounters, PaceCounters, ReportCounters
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.program.loader import load_program
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.compiled.program import CompiledProgram, compile_program
from dataplane.switch.gnmi import GnmiCore, GnmiService
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.topology.values import CollectorAddress, Topology
from dataplane.wire.packet import decode_udp_frame

if TYPE_CHECKING:
    from prometheus_client.core import Metric

P = ParamSpec("P")
T = TypeVar("T")


class InlineExecutor(Executor):
    """Runs each call immediately, in the thread that submits it."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Return a future that is already done."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the awaiter of the future gets it
            future.set_exception(error)
        return future


LOGGER: Final = logging.getLogger("millrace.fabric")
STATS_S: Final = 1.0
SAY_S: Final = 10.0
"""Minimum interval between log lines about a fabric that is late."""
RECENT_S: Final = 10.0
"""Time over which the share of late events is taken: another program delays events for a moment only."""
STARTING_S: Final = 15.0
"""Time after its start in which the share is not taken: all daemons start at once."""


class LiveVirtualFabric:
    """A topology in virtual time paced by the clock; construct and use it inside a running event loop."""

    def __init__(self, settings: FabricSettings, topology: Topology) -> None:
        self._settings, self._topology = settings, topology
        self._code = _compiled(settings)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._changed = asyncio.Event()
        clock = MonotonicClock()
        # Reports carry the machine's time, as those of a fabric in the kernel do.
        self.fabric = VirtualFabric(
            topology,
            seed=settings.seed,
            clock=VirtualClock(clock.now_ns()),
            pipeline_factory=compiled_pipeline,
            post=self._post,
        )
        self._pacer = Pacer.of(self.fabric, clock)
        self.counters = FabricCounters(os.getpid(), clock.now_ns(), len(topology.switches), pace=self._pacer.counters)
        self._relay = ReportRelay(topology, settings.reports, self.counters.reports)
        traffic = VirtualTraffic(self.fabric, lambda: self._pacer.behind_ns, self.counters.traffic)
        if topology.collector is not None:
            arrived = ReportsOnly(topology.collector, self._relay, self.counters.reports)
            self.fabric.host(topology.collector.host).on_frame(arrived)
        traffic.start(demands_of(settings, topology, self.fabric.now_ns))

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve and advance until cancelled; raise SwitchError for an address that cannot be bound, FabricError."""
        try:
            async with asyncio.TaskGroup() as group:
                started = [asyncio.Event() for _ in self._topology.switches]
                for node, is_started in zip(self._topology.switches, started, strict=True):
                    group.create_task(self._serve(node.name, is_started.set))
                group.create_task(self._move())
                for event in started:
                    await event.wait()
                group.create_task(self._report())
                on_ready()
        finally:
            self._relay.close()

    def families(self) -> Iterator[Metric]:
        """Yield the metrics of the fabric and its switches; call it in the event loop's thread."""
        from dataplane.fabric.live.metrics import fabric_families  # noqa: PLC0415 - loads Prometheus's client

        names = [node.name for node in self._topology.switches]
        return fabric_families(self.counters, {name: self.fabric.figures(name) for name in names})

    async def _serve(self, switch: str, on_started: Callable[[], None]) -> None:
        inline = InlineExecutor()
        gnmi = GnmiCore(self.fabric.switch(switch), epoch_ns=time.time_ns)
        server = P4RuntimeServer(
            self.fabric.p4runtime(switch),
            [f"unix:{switch_socket(self._settings, switch)}"],
            beside=[GnmiService(gnmi, inline)],
            in_order=inline,
        )
        await server.serve(on_started)

    async def _move(self) -> None:
        """Alternate with the services: a request may give the fabric something to do at once."""
        while True:
            idle_ns = self._pacer.take_turn()
            self._changed.clear()
            if idle_ns <= 0:
                await asyncio.sleep(0)
                continue
            with suppress(TimeoutError):
                # Keep sleeps short, so that the fabric's time is current when a request arrives.
                async with asyncio.timeout(min(idle_ns, TURN_NS) / 1e9):
                    await self._changed.wait()

    def _post(self, call: Callable[[], None]) -> None:
        if threading.get_ident() == self._thread:
            call()
            self._changed.set()
        else:
            self._loop.call_soon_threadsafe(self._post, call)

    async def _report(self) -> None:
        """Write the counters, and log when the fabric was late or lost reports."""
        reported, said_at = replace(self._pacer.counters), self._loop.time()
        began_at = said_at
        past = deque([reported], maxlen=1 + round(RECENT_S / STATS_S))
        while True:
            if self._loop.time() - began_at < STARTING_S:
                past.clear()
            note_recent(self._pacer.counters, past)
            self.counters.time_ns = time.monotonic_ns()
            write_stats(self._settings, self.counters)
            if self._loop.time() - said_at >= SAY_S:
                self._say(reported, self._pacer.counters)
                reported, said_at = replace(self._pacer.counters), self._loop.time()
                self._pacer.counters.worst_late_ns = 0
            await asyncio.sleep(STATS_S)

    def _say(self, before: PaceCounters, now: PaceCounters) -> None:
        late, slipped_ns = now.late_events - before.late_events, now.slipped_ns - before.slipped_ns
        if late:
            LOGGER.warning(
                "%d of %d events more than 20 ms late, by %d ms at most%s; %d packets left out so far",
                late,
                now.events - before.events,
                now.worst_late_ns // 1_000_000,
                f", and time stood still for {slipped_ns // 1_000_000} ms" if slipped_ns else "",
                self.counters.traffic.skipped,
            )


def note_recent(now: PaceCounters, past: deque[PaceCounters]) -> None:
    """Set the counts of the last seconds from earlier counters, the oldest first, and add the current ones to them."""
    past.append(replace(now))
    now.recent_events = now.events - past[0].events
    now.recent_late_events = now.late_events - past[0].late_events


def _compiled(settings: FabricSettings) -> CompiledProgram | None:
    """Compile the program that will be pushed: while the result is held, pushing needs no compiler."""
    if settings.program is None or settings.p4info is None:
        return None
    return compile_program(load_program(Path(settings.program), Path(settings.p4info)))


class ReportsOnly:
    """Passes on the frames that a collector's host receives on the collector's port."""

    def __init__(self, collector: CollectorAddress, relay: ReportRelay, counters: ReportCounters) -> None:
        self._port, self._relay, self._counters = collector.udp_port, relay, counters

    def __call__(self, frame: bytes, _now_ns: int) -> None:
        """Process a frame that has arrived."""
        try:
            datagram = decode_udp_frame(frame)
        except WireError:
            datagram = None
        if datagram is None or datagram.dst_port != self._port:
            self._counters.ignored += 1
        else:
            self._relay.forward(datagram.payload, datagram.ip.src)
