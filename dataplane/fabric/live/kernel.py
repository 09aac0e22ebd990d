"""A long-running fabric in the kernel: namespaces and switch processes; switches that die are restarted.

The collector's host runs no collector: a socket in its namespace receives the reports and relays them to the collector,
which runs in the namespace of the process that started this. So either can outlive the other.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from ipaddress import IPv4Address
from logging import getLogger
from pathlib import Path
from typing import Final

from dataplane.clock import NS_PER_S
from dataplane.errors import FabricError
from dataplane.fabric.hosts import Flow
from dataplane.fabric.kernel.agents import HostAgents
from dataplane.fabric.kernel.fabric import KernelFabric, KernelSettings
from dataplane.fabric.kernel.namespaces import RUN_NETNS
from dataplane.fabric.live.reports import ReportRelay
from dataplane.fabric.live.settings import FabricMetrics, FabricSettings
from dataplane.fabric.live.stats import switch_socket, write_stats
from dataplane.fabric.live.traffic import demands_of
from dataplane.fabric.live.values import FabricCounters, ReportCounters
from dataplane.linux import ask_receive_buffer
from dataplane.local.deadline import LocalDeadline
from dataplane.running import ignore_hangup
from dataplane.switch.counters import SwitchFigures
from dataplane.topology.values import CollectorAddress, Topology

LOGGER: Final = getLogger("millrace.fabric")
READY_S: Final = 60.0
READY_S_A_SWITCH: Final = 5.0
_TURN_S: Final = 0.2
_STATS_S: Final = 1.0
_BURST: Final = 256
_BUFFER_BYTES: Final = 8 << 20
_REPORT_BYTES: Final = 1 << 16
_START_S: Final = 0.3
_WITHOUT_END_NS: Final = 100 * 365 * 86_400 * NS_PER_S


def run_kernel(settings: FabricSettings, topology: Topology, on_ready: Callable[[str], None]) -> None:
    """Run until SIGTERM or SIGINT, which raise SystemExit and KeyboardInterrupt; raise FabricError."""
    counters = FabricCounters(os.getpid(), time.monotonic_ns(), len(topology.switches))
    demands = demands_of(settings, topology)
    signal.signal(signal.SIGHUP, ignore_hangup)
    with KernelFabric(topology, KernelSettings(seed=settings.seed)) as fabric, ExitStack() as stack:
        for node in topology.switches:
            target = Path(fabric.p4runtime_address(node.name).removeprefix("unix:"))
            stack.enter_context(linked(switch_socket(settings, node.name), target))
        if settings.namespaces is not None:
            stack.enter_context(linked_namespaces(Path(settings.namespaces), fabric))
        if topology.collector is not None:
            stack.enter_context(relaying(fabric, topology.collector, settings.reports, counters.reports))
        metrics = "" if settings.metrics is None else serve(fabric, counters, settings.metrics, stack)
        fabric.wait_ready(READY_S + READY_S_A_SWITCH * len(topology.switches))
        where = f"at unix:{settings.switches}/{metrics}"
        on_ready(f"{len(topology.switches)} switches of {topology.name} in the kernel, {where}")
        if demands:
            sent = defaultdict[str, list[Flow]](list)
            for demand in demands:
                sent[demand.src].append(replace(demand.flow, stop_ns=_WITHOUT_END_NS))
            agents = stack.enter_context(HostAgents(fabric, forget=True))
            start_agents(fabric, agents, sent, settings.seed)
        while True:
            watch(fabric, counters)
            count_traffic(fabric, counters)
            counters.time_ns = time.monotonic_ns()
            write_stats(settings, counters)
            time.sleep(_STATS_S)


def serve(fabric: KernelFabric, counters: FabricCounters, endpoint: FabricMetrics, stack: ExitStack) -> str:
    """Serve the metrics of a fabric and its switches until `stack` ends; return the end of the ready line."""
    from dataplane.fabric.live.metrics import FabricCollector  # noqa: PLC0415 - loads Prometheus's client
    from dataplane.metrics_server import registry_with, serve_metrics  # noqa: PLC0415

    registry = registry_with(FabricCollector(counters, lambda: written(fabric)))
    return serve_metrics(registry, endpoint, stack, FabricError)


def written(fabric: KernelFabric) -> dict[str | None, SwitchFigures]:
    """Return what switches wrote last, by name; a newly started one has written nothing yet."""
    figures = dict[str | None, SwitchFigures]()
    for node in fabric.topology.switches:
        with suppress(FabricError):
            figures[node.name] = fabric.read_figures(node.name)
    return figures


@contextmanager
def linked(link: Path, target: Path) -> Iterator[None]:
    """Hold a symbolic link while the block lasts, replacing whatever was there; raise FabricError."""
    draft = link.with_name(f".{link.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        draft.symlink_to(target)
        draft.replace(link)
    except OSError as error:
        raise FabricError(f"{link}: {error.strerror or error}") from error
    try:
        yield
    finally:
        with suppress(OSError):  # replaced by another process, or gone
            if link.readlink() == target:
                link.unlink()


@contextmanager
def linked_namespaces(folder: Path, fabric: KernelFabric) -> Iterator[None]:
    """Link host names to their namespaces, whose own names differ from fabric to fabric; raise FabricError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FabricError(f"namespaces: {folder}: {error.strerror or error}") from error
    with ExitStack() as stack:
        for host in fabric.topology.hosts:
            stack.enter_context(linked(folder / host.name, RUN_NETNS / fabric.namespace(host.name)))
        yield


def watch(fabric: KernelFabric, counters: FabricCounters) -> None:
    """Restart switches that ended unexpectedly; their namespaces and cables still exist."""
    for name, how in fabric.ended().items():
        LOGGER.warning("switch %s: %s; starts again", name, how)
        fabric.start_switch(name)
        counters.restarts += 1


def start_agents(fabric: KernelFabric, agents: HostAgents, sent: dict[str, list[Flow]], seed: int) -> None:
    """Make hosts send without end, once all of them can receive."""
    addresses = {str(host.ipv4): host.name for host in fabric.topology.hosts}
    received = defaultdict[str, list[int]](list)
    for flow in (flow for flows in sent.values() for flow in flows):
        received[addresses[str(flow.dst)]].append(flow.dst_port)
    for host in fabric.topology.hosts:
        if sent[host.name] or received[host.name]:
            agents.start(
                host.name,
                send=tuple(sent[host.name]),
                receive_ports=tuple(received[host.name]),
                end_ns=_WITHOUT_END_NS,
                seed=seed,
            )
    deadline = LocalDeadline(READY_S, "the start of the hosts")
    while waiting := agents.waiting():
        if deadline.has_passed():
            raise FabricError(f"hosts {', '.join(waiting)} are not ready after {READY_S:.0f} s")
        time.sleep(_TURN_S)
    agents.begin(time.monotonic_ns() + round(_START_S * NS_PER_S))


def count_traffic(fabric: KernelFabric, counters: FabricCounters) -> None:
    """Count the packets that hosts sent and received, as seen by the switch ports they are attached to."""
    sent = received = 0
    collector = fabric.topology.collector
    for host, end in fabric.topology.attachment.items():
        with suppress(FabricError, KeyError):  # a newly started switch has written nothing yet
            port = fabric.read_stats(end.node)["ports"][str(end.port)]
            sent += port["rx_frames"]
            received += 0 if collector is not None and host == collector.host else port["tx_frames"]
    counters.traffic.sent, counters.traffic.received = sent, received


@contextmanager
def relaying(
    fabric: KernelFabric, collector: CollectorAddress, address: str | None, counters: ReportCounters
) -> Iterator[None]:
    """Relay what arrives at the collector's host, on a thread, while the block lasts."""
    source = fabric.call_in(collector.host, lambda: _listen(collector.udp_port))
    relay, stop = ReportRelay(fabric.topology, address, counters), threading.Event()
    thread = threading.Thread(target=_relay, args=(source, relay, stop), name="reports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        relay.close()
        source.close()


def _listen(port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setblocking(False)
    ask_receive_buffer(opened, _BUFFER_BYTES)
    opened.bind(("", port))
    return opened


def _relay(source: socket.socket, relay: ReportRelay, stop: threading.Event) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        while not stop.is_set():
            if not selector.select(_TURN_S):
                continue
            for _ in range(_BURST):
                try:
                    payload, (address, _) = source.recvfrom(_REPORT_BYTES)
                except OSError:
                    break
                relay.forward(payload, IPv4Address(address))
