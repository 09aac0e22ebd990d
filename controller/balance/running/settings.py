"""Settings of one unit's loop: what measures it, what moves it, and how long it may be silent."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from controller.api.resources.base import Name
from controller.balance.control.controller import ControlSettings
from controller.balance.rules import IntervalRule, PlatformRule, Rule
from controller.balance.running.meters import Direction
from controller.balance.running.silence import SilenceSettings
from controller.balance.values import LeverKind
from controller.network_state.settings import NetworkStateSettings
from dataplane.cgroup_limits import PERIOD_US
from dataplane.config import Strict
from dataplane.topology.units import parse_rate_bps

Positive = Annotated[float, Meta(gt=0, le=1e9)]
Seconds = Annotated[float, Meta(gt=0, le=1e6)]
GroupPath = Annotated[str, Meta(pattern=r"^/[^\n]{1,1000}$(?!\n)")]
PciAddress = Annotated[str, Meta(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$(?!\n)")]
PolicyName = Annotated[str, Meta(pattern=r"^policy\d{1,5}$(?!\n)")]


class InterfaceBus(Strict, frozen=True):
    """A network device as the bus, by this host's own counters."""

    interface: Annotated[str, Meta(min_length=1, max_length=15)]
    direction: Direction = Direction.SENT
    """Towards the unit: sent, where this host feeds it; received, where the unit is on this host."""
    rate: str | None = None
    """What the link carries, such as "10 Gbit/s"; null: the token bucket at the device's root, else its own speed."""
    namespace: str | None = None
    """Where the device is, if not here: a path, a name of `ip netns`, or FABRIC:HOST."""

    def __post_init__(self) -> None:
        if self.rate is not None:
            parse_rate_bps(self.rate)


class TelemetryBus(Strict, frozen=True):
    """The link from its switch to the unit's host as the bus, by what the switches measure."""

    host: Name
    topology: str
    """The fabric's topology file, name or family."""
    network_state: NetworkStateSettings = NetworkStateSettings()


class BusSettings(Strict, frozen=True):
    """What tells how much the unit's bus is used: one of these."""

    interface: InterfaceBus | None = None
    telemetry: TelemetryBus | None = None
    pcie: PciAddress | None = None
    """A device's PCIe link, by the device's address."""

    def __post_init__(self) -> None:
        _one_of(interface=self.interface, telemetry=self.telemetry, pcie=self.pcie)


class LoadSettings(Strict, frozen=True):
    """What tells how busy the unit's cores are: one of these."""

    group: GroupPath | None = None
    """A control group, against its quota of CPU time."""
    device: PciAddress | None = None
    """A device, by what its driver says."""

    def __post_init__(self) -> None:
        _one_of(group=self.group, device=self.device)


class QuotaLever(Strict, frozen=True):
    """The CPU time of a control group that is there."""

    group: GroupPath
    milli: Positive = 10.0
    """Thousandths of a CPU that are one sub-unit, or one MHz."""
    kind: LeverKind = LeverKind.SUB_UNITS
    """sub-units or frequency."""
    low: Annotated[float, Meta(ge=0)] = 1.0
    high: Positive | None = None
    period_us: Annotated[int, Meta(ge=1000, le=1_000_000)] = PERIOD_US
    set: bool = False

    def __post_init__(self) -> None:
        if self.kind is LeverKind.PRECISION:
            raise ValueError("kind: a quota is sub-units or frequency")


class ClockLever(Strict, frozen=True):
    """The highest clock of CPUs."""

    policies: tuple[PolicyName, ...] = ()
    """Of cpufreq, such as policy0; none: all."""
    set: bool = False


class GpuClockLever(Strict, frozen=True):
    """The highest clock of an NVIDIA device."""

    device: PciAddress
    set: bool = False


class GpuInstancesLever(Strict, frozen=True):
    """Instances of an NVIDIA device that is divided (MIG)."""

    device: PciAddress
    slices: Annotated[int, Meta(ge=1, le=8)] = 1
    low: Annotated[int, Meta(ge=0, le=7)] = 0
    set: bool = False


class PoolLever(Strict, frozen=True):
    """Units of a pool; a quota or instances beside it follow what the pool's books say."""

    pool: Name
    holder: Name
    api: str | None = None
    """The service access point; null: the environment's, else the user's own socket."""
    token_file: str | None = None
    patience_s: Seconds = 30.0
    """What was asked for and did not come for so long, the next lever is asked for."""
    set: bool = False


class LeverSettings(Strict, frozen=True):
    """The unit's levers; each is only read unless it says `set: true`."""

    cpu_quota: QuotaLever | None = None
    cpu_clock: ClockLever | None = None
    gpu_clock: GpuClockLever | None = None
    gpu_instances: GpuInstancesLever | None = None
    pool: PoolLever | None = None

    def __post_init__(self) -> None:
        quota_kind = None if self.cpu_quota is None else self.cpu_quota.kind
        clocks = [self.cpu_clock, self.gpu_clock, quota_kind if quota_kind is LeverKind.FREQUENCY else None]
        units = [self.gpu_instances, quota_kind if quota_kind is LeverKind.SUB_UNITS else None]
        for kind, found in (("frequency", clocks), ("sub-units", units)):
            if sum(one is not None for one in found) > 1:
                raise ValueError(f"a unit has one lever of the kind {kind}, here are several")


class RunSettings(Strict, frozen=True):
    """What `millrace balance drive` is given."""

    unit: Name
    """How the unit is called in messages."""
    bus: BusSettings
    load: LoadSettings
    levers: LeverSettings = LeverSettings()
    control: ControlSettings = ControlSettings()
    table: IntervalRule | None = None
    """The rule of the interval table; null, and no `platform` either: the specification's, all levers."""
    platform: PlatformRule | None = None
    """The platform's rule, n' = n P_d / P_p, instead."""
    interval_s: Seconds = 1.0
    """Time that each sample is of."""
    silence: SilenceSettings = SilenceSettings()
    rest_s: Seconds = 30.0
    """A lever that failed is tried again after so long."""
    record: str | None = None
    """A CSV file to which each turn is added, as `millrace balance learn` reads it; null: none."""

    def __post_init__(self) -> None:
        if self.table is not None and self.platform is not None:
            raise ValueError("table and platform are two rules: one is wanted")
        if self.silence.stale_s < 2 * self.interval_s:
            raise ValueError(f"silence.stale_s is to be at least two intervals, {2 * self.interval_s:g} s")

    @property
    def rule(self) -> Rule:
        """The rule that counts."""
        return self.platform or self.table or IntervalRule()


def _one_of(**choices: object) -> None:
    given = [name for name, value in choices.items() if value is not None]
    if len(given) != 1:
        raise ValueError(f"one of {', '.join(choices)} is wanted, here are {' and '.join(given) or 'none'}")
