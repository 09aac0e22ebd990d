"""Use of a unit's bus and cores in an interval, from the machine's sensors: shares from 0 to 1.

The bus is PCIe, or a network device: the host's own counters cover the way from a host to its switch, the network's
telemetry (the cost map) the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, Protocol

from collectors.devices.groups import group_rates, read_group
from collectors.devices.interfaces import interface_rates, read_interfaces
from collectors.devices.root import Root
from collectors.devices.sampling import Sampler
from collectors.devices.values import DeviceSample, GroupSample, InterfaceSample
from collectors.errors import CollectorError
from controller.balance.errors import LeverError, SampleError
from controller.balance.levers.running_program import ProgramLink
from controller.cluster.cost_map import CostMap
from controller.common.errors import CostMapError
from dataplane.balance.messages import State

MOST_SHARE: Final = 1.5
"""Plausible maximum of a share: counters are read a moment apart, and bursts pass; more means a wrong rate."""


class Direction(StrEnum):
    """Direction of a network device that is the bus."""

    SENT = "sent"
    RECEIVED = "received"


class Meter(Protocol):
    """A meter of the used share of an interval of a unit's bus or cores."""

    def begin(self, now_ns: int) -> None:
        """Begin the interval now; raise SampleError if nothing can be measured."""
        ...

    def share(self, now_ns: int) -> float:
        """Return the share of the interval so far; raise SampleError with the reason if it is unknown."""
        ...


class GroupLoad:
    """The load of a control group: its processes' use of their quota of CPU time."""

    def __init__(self, unit: str, group: str, root: Root) -> None:
        self._unit, self._group, self._root = unit, group, root
        self._before: GroupSample | None = None

    def begin(self, now_ns: int) -> None:
        """Read the CPU time used so far."""
        self._before = self._read(now_ns)

    def share(self, now_ns: int) -> float:
        """Return the used share of the quota since."""
        rates = None if self._before is None else group_rates(self._before, self._read(now_ns))
        if rates is None:
            raise SampleError(self._unit, f"control group {self._group}: its quota changed while it was measured")
        return _bounded(self._unit, f"control group {self._group}", rates.load)

    def _read(self, now_ns: int) -> GroupSample:
        try:
            return read_group(self._root, self._group, now_ns)
        except CollectorError as error:
            raise SampleError(self._unit, str(error)) from error


class InterfaceUse:
    """A network device's use of its link in one direction, by the host's own counters.

    `process` is one in the device's network namespace; `rate_bps` returns the link's current rate, None if unknown.
    """

    def __init__(  # noqa: PLR0917 - where the figures are read
        self,
        unit: str,
        interface: str,
        direction: Direction,
        rate_bps: Callable[[], int | None],
        root: Root,
        process: str = "self",
    ) -> None:
        self._unit, self._interface, self._direction, self._rate_bps = unit, interface, direction, rate_bps
        self._root, self._process = root, process
        self._before: tuple[InterfaceSample, int] | None = None

    def begin(self, now_ns: int) -> None:
        """Read the bytes sent and received so far, and the link's rate."""
        self._before = self._read(now_ns)

    def share(self, now_ns: int) -> float:
        """Return the bytes sent (received) since, as a share of the link's capacity."""
        after, rate_bps = self._read(now_ns)
        before, rate_before_bps = self._before or (after, rate_bps)
        what = f"network device {self._interface}"
        if rate_before_bps != rate_bps:
            raise SampleError(self._unit, f"{what}: its link's rate changed while it was measured")
        rates = interface_rates(before, after, rate_bps)
        if rates is None:
            raise SampleError(self._unit, f"{what}: its counters were reset")
        used_bps = rates.tx_bps if self._direction is Direction.SENT else rates.rx_bps
        return _bounded(self._unit, what, used_bps / rate_bps)

    def _read(self, now_ns: int) -> tuple[InterfaceSample, int]:
        what = f"network device {self._interface}"
        interfaces = read_interfaces(self._root, now_ns, self._process)
        sample = next((interface for interface in interfaces if interface.name == self._interface), None)
        if sample is None:
            raise SampleError(self._unit, f"{what} not found")
        try:
            rate_bps = self._rate_bps() or sample.link_rate_bps
        except CollectorError as error:
            raise SampleError(self._unit, str(error)) from error
        if not rate_bps:
            raise SampleError(self._unit, f"{what} reports no link rate: set `rate`")
        return sample, rate_bps


class ReceivedByTelemetry:
    """Use of the link from its switch by a host's traffic, from the network's telemetry.

    `costs` returns the current cost map. A figure that telemetry lacks, or an old one, is no sample.
    """

    def __init__(self, unit: str, host: str, costs: Callable[[], CostMap]) -> None:
        self._unit, self._host, self._costs = unit, host, costs

    def begin(self, now_ns: int) -> None:
        """Do nothing: switches measure continuously."""

    def share(self, now_ns: int) -> float:  # noqa: ARG002 - telemetry has a time of its own
        """Return the recently received rate, as a share of the link's capacity."""
        try:
            use = self._costs().received(self._host)
        except CostMapError as error:
            raise SampleError(self._unit, str(error)) from error
        if use.share is None:
            raise SampleError(self._unit, f"no telemetry of the link towards host {self._host}")
        return _bounded(self._unit, f"the link towards host {self._host}", use.share)


class DeviceUse:
    """A device's figures, read once for bus and load: its PCIe link, and the share of time in which it computed."""

    def __init__(self, unit: str, address: str, sampler: Sampler) -> None:
        self._unit, self._address, self._sampler = unit, address, sampler
        self._last: tuple[int, DeviceSample] | None = None

    def sample(self, now_ns: int) -> DeviceSample:
        """Return the device's current figures; raise SampleError if it is missing."""
        if self._last is None or self._last[0] != now_ns:
            device = next((device for device in self._sampler.devices() if device.address == self._address), None)
            if device is None:
                raise SampleError(self._unit, f"device {self._address} not found")
            self._last = now_ns, device
        return self._last[1]

    def figure(self, now_ns: int, value: Callable[[DeviceSample], float | None], *names: str) -> float:
        """Return one share of the figures; raise SampleError with the driver's reason if it is missing."""
        sample = self.sample(now_ns)
        share = value(sample)
        if share is None:
            why = next((sample.missing[name] for name in names if name in sample.missing), "no reason given")
            raise SampleError(self._unit, f"device {self._address}: {names[0]}: {why}")
        return _bounded(self._unit, f"device {self._address}: {names[0]}", share)


class DeviceBus:
    """Use of a device's PCIe link, in the direction that carries more."""

    def __init__(self, use: DeviceUse) -> None:
        self._use = use

    def begin(self, now_ns: int) -> None:
        """Read once, as some drivers count since the last reading."""
        self._use.sample(now_ns)

    def share(self, now_ns: int) -> float:
        """Return the driver's recent measurement; it does not count the part of the link taken by PCIe headers."""
        names = ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "pcie_link_bytes_per_s")
        return self._use.figure(now_ns, lambda sample: sample.pcie_share, *names)


class DeviceLoad:
    """The share of time in which a device computed."""

    def __init__(self, use: DeviceUse) -> None:
        self._use = use

    def begin(self, now_ns: int) -> None:
        """Read once, as some drivers count since the last reading."""
        self._use.sample(now_ns)

    def share(self, now_ns: int) -> float:
        """Return the driver's recent measurement."""
        return self._use.figure(now_ns, lambda sample: sample.utilisation, "utilisation")


class ProgramUse:
    """Counters of a running program, asked once for bus and load."""

    def __init__(self, unit: str, link: ProgramLink) -> None:
        self._unit, self._link = unit, link
        self._last: tuple[int, State] | None = None

    def state(self, now_ns: int) -> State:
        """Return the program's current counters; raise SampleError if it does not answer."""
        if self._last is None or self._last[0] != now_ns:
            try:
                self._last = now_ns, self._link.ask()
            except LeverError as error:
                raise SampleError(self._unit, str(error)) from error
        return self._last[1]


class _ProgramMeter:
    """A share of an interval by the program's own counters and its own readings of the clock."""

    def __init__(self, unit: str, use: ProgramUse) -> None:
        self._unit, self._use = unit, use
        self._before: State | None = None

    def begin(self, now_ns: int) -> None:
        """Read the counters."""
        self._before = None
        self._before = self._use.state(now_ns)

    def _since(self, now_ns: int) -> tuple[State, State]:
        """Return both ends of the interval; raise SampleError if they do not belong together."""
        after, before = self._use.state(now_ns), self._before
        if before is None or after.now_ns <= before.now_ns:
            raise SampleError(self._unit, "the program has not run since the last reading")
        if after.moving_ns < before.moving_ns or after.computing_ns < before.computing_ns:
            raise SampleError(self._unit, "another program has connected since the last reading")
        return before, after


class ProgramBus(_ProgramMeter):
    """The share of time in which a program moves data, by any of its threads."""

    def share(self, now_ns: int) -> float:
        """Return the share since the interval began."""
        before, after = self._since(now_ns)
        return min((after.moving_ns - before.moving_ns) / (after.now_ns - before.now_ns), 1.0)


class ProgramLoad(_ProgramMeter):
    """The share of time in which a program computes, as the mean over what it may run at once."""

    def share(self, now_ns: int) -> float:
        """Return the share since the interval began."""
        before, after = self._since(now_ns)
        return min((after.computing_ns - before.computing_ns) / (after.now_ns - before.now_ns) / after.concurrency, 1.0)


def _bounded(unit: str, what: str, share: float) -> float:
    if not 0 <= share <= MOST_SHARE:
        raise SampleError(unit, f"{what} was used to {share:.0%} of its capacity: its rate or quota is wrong")
    return min(share, 1.0)
