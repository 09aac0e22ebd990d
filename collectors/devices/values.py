"""Hardware of a machine and its load: frozen values with the time, and what could not be measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dataplane.cgroups import Limits, Usage
from dataplane.topology.values import Device, DeviceKind, MediumKind, MemoryMedium


@dataclass(frozen=True, slots=True)
class Processors:
    """Processors of a machine: `cpus` are those that programs are scheduled on (threads, where cores have several).

    `online` are their numbers. `model` is '' and `sockets`, `cores` are None if the machine does not report them.
    """

    model: str
    online: frozenset[int]
    sockets: int | None
    cores: int | None
    max_hz: int | None

    @property
    def cpus(self) -> int:
        """Number of programs that can run at the same time."""
        return len(self.online)


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """An accelerator: `device` describes it as a topology file does, the other fields locate it.

    `address` is its PCI address (0000:c1:00.0), or its name in the device tree; `uuid` its maker's name for it; '' and
    None for what is unknown. A part of a divided device (MIG) has the device's address in `part_of`, and its own with
    the numbers of its GPU and compute instances behind it (0000:c1:00.0/7/0).
    """

    device: Device
    address: str
    driver: str = ""
    numa_node: int | None = None
    uuid: str = ""
    part_of: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """Hardware of a machine, and the share of it that control groups leave to the calling process.

    `notes` say, a line each, what could not be found out and why.
    """

    processors: Processors
    memory: tuple[MemoryMedium, ...]
    devices: tuple[FoundDevice, ...]
    limits: Limits
    notes: tuple[str, ...] = ()

    @property
    def cpu_milli(self) -> int:
        """Thousandths of CPUs that this process may use: those it may run on, and no more than its quota."""
        cpus = self.processors.online if self.limits.cpus is None else self.processors.online & self.limits.cpus
        quota = self.limits.cpu_milli
        return 1000 * len(cpus) if quota is None else min(1000 * len(cpus), quota)

    @property
    def cores(self) -> int | None:
        """Whole CPUs that this process may use, as a topology file has them; None for less than one."""
        return self.cpu_milli // 1000 or None

    @property
    def allowed_memory(self) -> tuple[MemoryMedium, ...]:
        """The media, of DRAM no more than this process's control groups allow."""
        left, media = self.limits.memory_bytes, list[MemoryMedium]()
        for medium in self.memory:
            if left is None or medium.kind is not MediumKind.DRAM:
                media.append(medium)
            elif (some := min(left, medium.capacity_bytes)) > 0:
                media.append(replace(medium, capacity_bytes=some))
                left -= some
        return tuple(media)

    @property
    def grouped_devices(self) -> tuple[Device, ...]:
        """The processors' sockets and the devices, equal ones as one with their number, as a topology file has them."""
        count = Counter(device.device for device in self.devices)
        sockets, model = self.processors.sockets, self.processors.model
        processors = (Device(DeviceKind.CPU, sockets or 1, model),) if model else ()
        return (*processors, *(replace(device, count=many) for device, many in count.items()))


@dataclass(frozen=True, slots=True)
class Pressure:
    """The share of the last ten seconds in which some, and in which all, tasks waited for a resource (0 to 1)."""

    some: float
    full: float | None


@dataclass(frozen=True, slots=True)
class HostSample:
    """Load of a machine at `time_ns`; None for what could not be measured, with the reason in `missing`.

    `cpu_busy` is the share of all CPUs' time since the previous sample (0 to 1), `clock_hz` the mean over CPUs. Used
    memory is all but what the kernel calls available. `usage` is that of this process's control group. `power_w` is the
    power drawn by the processors' packages since the previous sample.
    """

    time_ns: int
    cpu_busy: float | None
    clock_hz: int | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    pressure: Mapping[str, Pressure]
    usage: Usage
    missing: Mapping[str, str]
    power_w: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """Load of a device at `time_ns`; None for what could not be measured, with the reason in `missing`.

    `utilisation` is the share of time in which it computed (0 to 1), over the driver's last period, or since the
    previous sample. `pcie_rx_bytes_per_s` is towards the device; `pcie_link_bytes_per_s` is the capacity of its link in
    each direction at the current speed, before headers. Network bytes are counters of a device that has ports.
    `processes` are the shares of its compute time by process id, lately, without idle ones and where they are counted.
    """

    time_ns: int
    address: str
    utilisation: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    clock_hz: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    pcie_rx_bytes_per_s: int | None = None
    pcie_tx_bytes_per_s: int | None = None
    pcie_link_bytes_per_s: int | None = None
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    processes: Mapping[int, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def pcie_share(self) -> float | None:
        """Utilisation of the PCIe link in the busier direction; None if a direction or the link is unknown."""
        both = self.pcie_rx_bytes_per_s, self.pcie_tx_bytes_per_s
        if both[0] is None or both[1] is None or not self.pcie_link_bytes_per_s:
            return None
        return max(both[0], both[1]) / self.pcie_link_bytes_per_s


@dataclass(frozen=True, slots=True)
class InterfaceSample:
    """A network device's counters, as Linux keeps them, and its link's rate if it reports one."""

    name: str
    time_ns: int
    rx_bytes: int
    tx_bytes: int
    rx_packets: int
    tx_packets: int
    rx_errors: int = 0
    tx_errors: int = 0
    rx_drops: int = 0
    tx_drops: int = 0
    link_rate_bps: int | None = None

    @property
    def counters(self) -> tuple[int, ...]:
        """Counters that never decrease."""
        return (self.rx_bytes, self.tx_bytes, self.rx_packets, self.tx_packets, self.rx_drops, self.tx_drops)


@dataclass(frozen=True, slots=True)
class InterfaceRates:
    """Bytes per second that a network device received and sent on the wire in the interval that ended at `time_ns`."""

    name: str
    time_ns: int
    interval_ns: int
    rx_bps: int
    tx_bps: int
    rx_drops: int
    tx_drops: int
    link_rate_bps: int | None

    @property
    def rx_share(self) -> float | None:
        """Receive share of the link's rate; may exceed 1, as counters are read a moment apart."""
        return None if self.link_rate_bps is None else self.rx_bps / self.link_rate_bps

    @property
    def tx_share(self) -> float | None:
        """Transmit share of the link's rate; may exceed 1, as counters are read a moment apart."""
        return None if self.link_rate_bps is None else self.tx_bps / self.link_rate_bps


@dataclass(frozen=True, slots=True)
class GroupSample:
    """CPU time used by a control group, and its quota per second (thousandths of a CPU).

    `quota_milli` is the smallest quota of its levels, or all CPUs if there is none. `throttled_ns` is None if it is not
    counted.
    """

    group: str
    time_ns: int
    cpu_ns: int
    quota_milli: int
    throttled_ns: int | None = None


@dataclass(frozen=True, slots=True)
class GroupRates:
    """CPU time that a control group used in the interval that ended at `time_ns`."""

    group: str
    time_ns: int
    interval_ns: int
    cpu_milli: float
    quota_milli: int

    @property
    def load(self) -> float:
        """Share of the quota used; slightly above 1 if the interval cuts the quota's periods."""
        return self.cpu_milli / self.quota_milli


@dataclass(frozen=True, slots=True)
class EnergySample:
    """A counter of energy: that of a processor's package; it starts again after `range_uj`."""

    name: str
    time_ns: int
    energy_uj: int
    range_uj: int


@dataclass(frozen=True, slots=True)
class DiskSample:
    """A disk's counters, as Linux keeps them; `busy_ns` is how long it had anything to do."""

    name: str
    time_ns: int
    read_bytes: int
    written_bytes: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class DiskRates:
    """Rates at which a disk read and wrote in the interval that ended at `time_ns`, and its share of busy time."""

    name: str
    time_ns: int
    interval_ns: int
    read_bytes_per_s: int
    written_bytes_per_s: int
    busy: float
