"""A node's hardware and load: from the topology, or from the machine itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collectors.devices.discovery import discover
from collectors.devices.interfaces import interface_rates, read_interfaces
from collectors.devices.nvml import Nvml
from collectors.devices.root import Root
from collectors.devices.sampling import Sampler
from collectors.devices.values import InterfaceRates, InterfaceSample
from controller.apiserver.agents.access import namespace_of
from controller.apiserver.resources.hardware import Hardware, Load
from controller.apiserver.resources.node import DeviceLoad, HostLink
from controller.cluster.hardware.nodes import node_of, node_of_machine
from controller.cluster.hardware.values import Node as NodeValue
from controller.workloads.nodes.errors import NodeError
from controller.workloads.nodes.settings import NodeSettings
from dataplane.clock import Clock
from dataplane.errors import FabricError
from dataplane.topology.file import load_topology
from dataplane.topology.values import DeviceKind, Topology


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware of a node. `addresses` are those of devices by number; empty if the hardware is the topology's.

    `notes` say what could not be found out and why.
    """

    hardware: Hardware
    is_stated: bool
    addresses: tuple[str, ...] = ()
    link_rate_bps: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figures:
    """Load of a node; `rates` are those of its network device in its network namespace."""

    load: Load | None = None
    devices: tuple[DeviceLoad, ...] = ()
    rates: InterfaceRates | None = None


def machine_of(settings: NodeSettings, nvml: Nvml | str) -> Machine:
    """Return a node's hardware; raise NodeError for a host missing from the topology."""
    rate_bps = None
    if settings.topology is not None:
        topology = load_topology(settings.topology)
        host = next((host for host in topology.hosts if host.name == settings.node), None)
        if host is None:
            raise NodeError(f"topology {topology.name}: has no host {settings.node}")
        rate_bps = _access_rate_bps(topology, settings.node)
        if host.cores or host.memory or host.devices:
            value: NodeValue = node_of(host, settings.labels)
            return Machine(Hardware.of(value), is_stated=True, link_rate_bps=rate_bps)
    discovered = discover(Root(Path("/")), nvml)
    addresses = tuple(device.address for device in discovered.devices)
    hardware = Hardware.of(node_of_machine(settings.node, discovered))
    return Machine(hardware, is_stated=False, addresses=addresses, link_rate_bps=rate_bps, notes=discovered.notes)


class Gauges:
    """Reads a node's load; keeps counters, as rates need two readings. Reading takes some ms."""

    def __init__(self, settings: NodeSettings, machine: Machine, clock: Clock, nvml: Nvml | str) -> None:
        self._settings, self._machine, self._clock = settings, machine, clock
        self._root = Root(Path("/"))
        self._sampler = Sampler(self._root, clock, None if isinstance(nvml, str) else nvml)
        self._namespace = namespace_of(settings.network_namespace)
        self._before: InterfaceSample | None = None
        self.problem = ""
        """Reason why network counters cannot be read; empty if they can."""

    def read(self) -> Figures:
        """Return the node's current load."""
        host = self._sampler.host()
        free = None
        if host.memory_used_bytes is not None and host.memory_total_bytes is not None:
            free = host.memory_total_bytes - host.memory_used_bytes
        busy = None if host.cpu_busy is None else min(max(host.cpu_busy, 0.0), 1.0)
        return Figures(Load(busy=busy, memory_free_bytes=free), self._devices(), self._rates())

    def _devices(self) -> tuple[DeviceLoad, ...]:
        """Return the load of devices with known numbers: those found here."""
        samples = {sample.address: sample for sample in self._sampler.devices()} if self._machine.addresses else {}
        loads = []
        for number, address in enumerate(self._machine.addresses):
            if (sample := samples.get(address)) is None:
                continue
            used, total = sample.memory_used_bytes, sample.memory_total_bytes
            load = Load(
                busy=None if sample.utilisation is None else min(max(sample.utilisation, 0.0), 1.0),
                memory_free_bytes=None if used is None or total is None else max(total - used, 0),
                power_w=sample.power_w,
            )
            loads.append(DeviceLoad(number=number, load=load))
        return tuple(loads)

    def _rates(self) -> InterfaceRates | None:
        before = self._before
        try:
            self._before, self.problem = self._interface(), ""
        except (FabricError, OSError) as error:
            self._before, self.problem = None, f"network counters: {error}"
            return None
        if before is None or self._before is None or before.name != self._before.name:
            return None
        rate = self._settings.link_rate_bps or self._machine.link_rate_bps
        return interface_rates(before, self._before, rate)

    def _interface(self) -> InterfaceSample | None:
        """Return the counters of the host's device; None if the device is unknown."""
        now_ns = self._clock.now_ns()
        if self._namespace is None:
            samples = read_interfaces(self._root, now_ns) if self._settings.interface is not None else ()
        else:
            from dataplane.fabric.kernel import namespaces  # noqa: PLC0415 - needs Linux's netlink

            # A thread that has entered a namespace sees its counters as its own.
            samples = namespaces.call(str(self._namespace), lambda: read_interfaces(self._root, now_ns, "thread-self"))
        wanted = self._settings.interface
        named = [sample for sample in samples if wanted is None or sample.name == wanted]
        return named[0] if len(named) == 1 else None


def link_of(rates: InterfaceRates | None, now_ns: int) -> HostLink | None:
    """Return the load of the host's link from its network device's rates; None if nothing was measured."""
    if rates is None:
        return None
    age_ns = max(0, now_ns - rates.time_ns)
    return HostLink(sent_bps=rates.tx_bps, received_bps=rates.rx_bps, rate_bps=rates.link_rate_bps, age_ns=age_ns)


def by_number(devices: Mapping[int, tuple[str, ...]], hardware: Hardware) -> Mapping[int, DeviceKind]:
    """Return the kinds of a node's devices; raise NodeError for files of a device that it lacks."""
    kinds = {device.number: device.kind for device in hardware.devices}
    stranger = next((number for number in sorted(devices) if number not in kinds), None)
    if stranger is not None:
        raise NodeError(f"devices: {stranger}: this node has no device of that number")
    return kinds


def _access_rate_bps(topology: Topology, host: str) -> int | None:
    rates = [link.rate_bps for link in topology.links if host in (link.a.node, link.b.node)]
    return rates[0] if len(rates) == 1 else None
