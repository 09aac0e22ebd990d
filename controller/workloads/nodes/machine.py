"""A node's hardware and load: from the topology, or from the machine itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from collectors.devices.discovery import discover
from collectors.devices.interfaces import interface_rates, read_interfaces
from collectors.devices.nvml import Nvml
from collectors.devices.root import Root
from collectors.devices.sampling import Sampler
from collectors.devices.values import DeviceSample, FoundDevice, InterfaceRates, InterfaceSample
from controller.apiserver.agents.access import namespace_of
from controller.apiserver.resources.hardware import Hardware, Load
from controller.apiserver.resources.node import DeviceLoad, HostLink
from controller.cluster.hardware.nodes import node_of, node_of_machine
from controller.cluster.hardware.values import Node as NodeValue
from controller.workloads.nodes.deciding.idle import DeviceActivity
from controller.workloads.nodes.errors import NodeError
from controller.workloads.nodes.numbering import NumberedDevice, numbered
from controller.workloads.nodes.settings import NodeSettings
from dataplane.clock import Clock
from dataplane.errors import FabricError
from dataplane.topology.file import load_topology
from dataplane.topology.values import DeviceKind, Topology

_NOT_FOUND: Final = "it was not found when the manager started"
MACHINE: Final = Root(Path("/"))
"""The files of this machine."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware of a node. `addresses` are those of devices by number; empty if the hardware is the topology's.

    `handles` are NVIDIA's names of devices by number, where numbers do not mean the same to its library: some are parts
    of a divided device (MIG), or gone. `notes` say what could not be found out and why.
    """

    hardware: Hardware
    is_stated: bool
    addresses: tuple[str, ...] = ()
    link_rate_bps: int | None = None
    notes: tuple[str, ...] = ()
    handles: Mapping[int, str] = field(default_factory=dict)
    gone: Mapping[int, str] = field(default_factory=dict)
    """Devices of an earlier manager that were not found, with the reason."""

    def hardware_without(self, gone: Collection[int]) -> Hardware:
        """Return the hardware with these devices marked as gone; they keep their numbers."""
        if not gone:
            return self.hardware
        devices = tuple(replace(device, gone=device.number in gone) for device in self.hardware.devices)
        return replace(self.hardware, devices=devices)


@dataclass(frozen=True, slots=True)
class Figures:
    """Load of a node; `rates` are those of its network device in its network namespace.

    `activities` are the uses of devices by their numbers, `gone` the reasons why some are not there any more.
    """

    load: Load | None = None
    devices: tuple[DeviceLoad, ...] = ()
    rates: InterfaceRates | None = None
    activities: Mapping[int, DeviceActivity] = field(default_factory=dict)
    gone: Mapping[int, str] = field(default_factory=dict)


def machine_of(
    settings: NodeSettings, nvml: Nvml | str, root: Root = MACHINE, *, folder: Path | None = None
) -> Machine:
    """Return a node's hardware, with the devices' numbers in `folder`.

    Raise NodeError for a host missing from the topology, and for an unreadable file of numbers.
    """
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
    discovered = discover(root, nvml)
    found = Hardware.of(node_of_machine(settings.node, discovered))
    pairs = zip(discovered.devices, found.devices, strict=True)
    devices = numbered([NumberedDevice(each.address, device) for each, device in pairs], folder)
    return Machine(
        replace(found, devices=tuple(each.device for each in devices)),
        is_stated=False,
        addresses=tuple(each.address for each in devices),
        link_rate_bps=rate_bps,
        notes=discovered.notes,
        handles=_handles(discovered.devices, devices),
        gone={each.device.number: f"{each.address}: {_NOT_FOUND}" for each in devices if each.device.gone},
    )


def _handles(found: Sequence[FoundDevice], devices: Sequence[NumberedDevice]) -> Mapping[int, str]:
    are_in_order = [device.address for device in found] == [each.address for each in devices]
    if are_in_order and not any(device.part_of for device in found):
        return {}  # numbers mean the same to its library
    uuids = {device.address: device.uuid for device in found}
    return {each.device.number: uuid for each in devices if (uuid := uuids.get(each.address, ""))}


class Gauges:
    """Reads a node's load; keeps counters, as rates need two readings. Reading takes some ms.

    `cgroup` is the parent of its pods' control groups, by which processes on devices are attributed to pods.
    """

    def __init__(
        self,
        settings: NodeSettings,
        machine: Machine,
        clock: Clock,
        nvml: Nvml | str,
        *,
        cgroup: str = "",
        root: Root = MACHINE,
    ) -> None:
        self._settings, self._machine, self._clock = settings, machine, clock
        self._cgroup, self._root = cgroup, root
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
        samples = self._samples()
        activities = {number: self._activity(sample) for number, sample in samples.items()}
        load = Load(busy=busy, memory_free_bytes=free)
        return Figures(load, self._devices(samples), self._rates(), activities, self._gone())

    def _gone(self) -> Mapping[int, str]:
        addresses = {address: number for number, address in enumerate(self._machine.addresses)}
        gone = ((addresses.get(address), address, reason) for address, reason in self._sampler.gone.items())
        lost = {number: f"{address}: {reason}" for number, address, reason in gone if number is not None}
        return {**self._machine.gone, **lost}

    def _activity(self, sample: DeviceSample) -> DeviceActivity:
        pods, others = dict[str, float](), 0.0
        for process, share in sample.processes.items():
            if (pod := self._pod_of(process)) is None:
                others += share
            else:
                pods[pod] = pods.get(pod, 0.0) + share
        return DeviceActivity(sample.utilisation, pods, others)

    def _pod_of(self, process: int) -> str | None:
        """Return the name of the node's pod that a process belongs to; None for others, and if it has ended."""
        for line in (self._root.text("proc", str(process), "cgroup") or "").splitlines():
            # Containers' own groups lie below their pod's; the manager itself may run in a container.
            _, separator, rest = line.partition(f"{self._cgroup}/pod-")
            if separator:
                return rest.partition("/")[0]
        return None

    def _samples(self) -> Mapping[int, DeviceSample]:
        """Return samples of devices with known numbers: those found here."""
        samples = {sample.address: sample for sample in self._sampler.devices()} if self._machine.addresses else {}
        gone = self._sampler.gone
        by_number = ((number, samples.get(address)) for number, address in enumerate(self._machine.addresses))
        return {number: sample for number, sample in by_number if sample is not None and sample.address not in gone}

    def _devices(self, samples: Mapping[int, DeviceSample]) -> tuple[DeviceLoad, ...]:
        loads = []
        for number, sample in samples.items():
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
