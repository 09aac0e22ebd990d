"""Settings of one unit's loop: its meters, its levers, and how long it may be silent."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from controller.apiserver.resources.base import Name
from controller.balance.control.controller import ControlSettings
from controller.balance.levers.settings import GroupPath, LeverSettings, PciAddress, Seconds
from controller.balance.rules import IntervalRule, PlatformRule, Rule
from controller.balance.running.meters import Direction
from controller.balance.running.silence import SilenceSettings
from controller.cluster.network_state.settings import NetworkStateSettings
from dataplane.config import Settings, Strict
from dataplane.topology.units import parse_rate_bps

LOOPBACK: Final = "lo"
"""Linux's name of the loopback device in every network namespace."""


class InterfaceBus(Strict, frozen=True):
    """A network device as the bus, by this host's own counters."""

    interface: Annotated[str, Meta(min_length=1, max_length=15)]
    direction: Direction = Direction.SENT
    """Towards the unit: sent, if this host feeds it; received, if the unit is on this host."""
    rate: str | None = None
    """Rate of the link, such as "10 Gbit/s"; null: the token bucket at the device's root, else its own speed."""
    namespace: str | None = None
    """Network namespace of the device, if not this one: a path, a name of `ip netns`, or FABRIC:HOST."""

    def __post_init__(self) -> None:
        if self.interface == LOOPBACK:
            raise ValueError(f"{LOOPBACK} cannot be a bus: loopback has no link to fill")
        if self.rate is not None:
            parse_rate_bps(self.rate)


class TelemetryBus(Strict, frozen=True):
    """The link from its switch to the unit's host as the bus, measured by the switches."""

    host: Name
    topology: str
    """The fabric's topology file, name or family."""
    network_state: NetworkStateSettings = NetworkStateSettings()


class ProgramMeter(Strict, frozen=True):
    """The program's own measurement, over the socket of `levers.program`."""


class BusSettings(Strict, frozen=True):
    """Meter of the unit's bus: one of these."""

    interface: InterfaceBus | None = None
    telemetry: TelemetryBus | None = None
    pcie: PciAddress | None = None
    """A device's PCIe link, by the device's address."""
    program: ProgramMeter | None = None
    """The share of time in which the program moves data."""

    def __post_init__(self) -> None:
        _one_of(interface=self.interface, telemetry=self.telemetry, pcie=self.pcie, program=self.program)


class LoadSettings(Strict, frozen=True):
    """Meter of the unit's cores: one of these."""

    group: GroupPath | None = None
    """A control group, relative to its quota of CPU time."""
    device: PciAddress | None = None
    """A device, according to its driver."""
    program: ProgramMeter | None = None
    """The share of time in which the program computes, of all that it may run at once."""

    def __post_init__(self) -> None:
        _one_of(group=self.group, device=self.device, program=self.program)


class RunSettings(Settings, frozen=True):
    """Settings of `millrace balance drive`."""

    unit: Name
    """Name of the unit in messages."""
    bus: BusSettings
    load: LoadSettings
    levers: LeverSettings = LeverSettings()
    control: ControlSettings = ControlSettings()
    table: IntervalRule | None = None
    """The rule of the interval table; null, and no `platform` either: the specification's, all levers."""
    platform: PlatformRule | None = None
    """The platform's rule, n' = n P_d / P_p, instead."""
    interval_s: Seconds = 1.0
    """Length of the interval of each sample."""
    silence: SilenceSettings = SilenceSettings()
    rest_s: Seconds = 30.0
    """Time after which a failed lever is tried again."""
    record: str | None = None
    """A CSV file to which each turn is appended, as `millrace balance learn` reads it; null: none."""

    def __post_init__(self) -> None:
        if self.table is not None and self.platform is not None:
            raise ValueError("set table or platform, not both")
        if self.levers.program is None and (self.bus.program is not None or self.load.program is not None):
            raise ValueError("bus or load by the program needs `levers.program`, whose socket it comes by")
        if self.silence.stale_s < 2 * self.interval_s:
            raise ValueError(f"silence.stale must be at least two intervals, {2 * self.interval_s:g} s")

    @property
    def rule(self) -> Rule:
        """The effective rule."""
        return self.platform or self.table or IntervalRule()


def _one_of(**choices: object) -> None:
    given = [name for name, value in choices.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"exactly one of {', '.join(choices)} needed, got {' and '.join(given) or 'none'}")
