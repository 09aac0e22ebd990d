"""Settings of a unit's levers; each is read-only unless `set: true`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from controller.apiserver.resources.base import Name
from controller.balance.values import LeverKind
from dataplane.cgroup_limits import PERIOD_US
from dataplane.config import Settings, Strict

Positive = Annotated[float, Meta(gt=0, le=1e9)]
Seconds = Annotated[float, Meta(gt=0, le=1e6)]
GroupPath = Annotated[str, Meta(pattern=r"^/[^\n]{1,1000}$(?!\n)")]
PciAddress = Annotated[str, Meta(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$(?!\n)")]
ZoneName = Annotated[str, Meta(pattern=r"^[a-z][a-z-]{0,30}(:\d{1,3}){1,3}$(?!\n)")]
PolicyName = Annotated[str, Meta(pattern=r"^policy\d{1,5}$(?!\n)")]


class QuotaLever(Settings, frozen=True):
    """The CPU time of an existing control group."""

    group: GroupPath
    milli: Positive = 10.0
    """Thousandths of a CPU per sub-unit, or per MHz."""
    kind: LeverKind = LeverKind.SUB_UNITS
    """sub-units or frequency."""
    low: Annotated[float, Meta(ge=0)] = 1.0
    high: Positive | None = None
    period_us: Annotated[int, Meta(ge=1000, le=1_000_000)] = PERIOD_US
    set: bool = False

    def __post_init__(self) -> None:
        if self.kind not in {LeverKind.SUB_UNITS, LeverKind.FREQUENCY}:
            raise ValueError("kind: a quota must be sub-units or frequency")


class ClockLever(Strict, frozen=True):
    """The clock cap of CPUs."""

    policies: tuple[PolicyName, ...] = ()
    """Policies of cpufreq, such as policy0; none: all."""
    set: bool = False


class GpuClockLever(Strict, frozen=True):
    """The clock cap of a device of NVIDIA, AMD or Intel."""

    device: PciAddress
    set: bool = False


class GpuInstancesLever(Strict, frozen=True):
    """Instances of a partitioned NVIDIA device (MIG)."""

    device: PciAddress
    slices: Annotated[int, Meta(ge=1, le=8)] = 1
    low: Annotated[int, Meta(ge=0, le=7)] = 0
    set: bool = False


class PoolLever(Settings, frozen=True):
    """Units of a pool; a quota or instances configured with it follow the pool's books."""

    pool: Name
    holder: Name
    api: str | None = None
    """The API server; null: the environment's, else the user's own socket."""
    token_file: str | None = None
    patience_s: Seconds = 30.0
    """Time after which units asked for but not given are requested from the next lever."""
    set: bool = False


class PowerCapLever(Strict, frozen=True):
    """The cap of the power of processors, or of a device."""

    zone: ZoneName | None = None
    """A zone of powercap (RAPL), such as intel-rapl:0, a processor's package."""
    device: PciAddress | None = None
    """Instead: a device, by NVML or by its driver in /sys."""
    low_w: Positive | None = None
    """Lowest cap; null: the driver's, or half of the highest where it states none."""
    set: bool = False

    def __post_init__(self) -> None:
        if (self.zone is None) == (self.device is None):
            raise ValueError("exactly one of zone, device needed")


class ProgramLever(Strict, frozen=True):
    """Precision and concurrency of a running program, which uses `dataplane.balance`."""

    socket: Annotated[str, Meta(pattern=r"^/[^\n]{1,100}$(?!\n)")] | None = None
    """Socket for the program; null: unit-NAME.sock in the user's own folder."""
    user: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    """The user of the program, if not this one, with a `socket` in a folder that they can enter; root may always."""
    precision: bool = True
    """Its precision is a lever."""
    concurrency: bool = True
    """Its concurrency is a lever."""
    set: bool = False

    def __post_init__(self) -> None:
        if self.user is not None and self.socket is None:
            raise ValueError("user: another user cannot enter this one's folder: set `socket`")


class LeverSettings(Strict, frozen=True):
    """The unit's levers; each is read-only unless `set: true`."""

    cpu_quota: QuotaLever | None = None
    cpu_clock: ClockLever | None = None
    gpu_clock: GpuClockLever | None = None
    gpu_instances: GpuInstancesLever | None = None
    power_cap: PowerCapLever | None = None
    pool: PoolLever | None = None
    program: ProgramLever | None = None

    def __post_init__(self) -> None:
        quota_kind = None if self.cpu_quota is None else self.cpu_quota.kind
        clocks = [self.cpu_clock, self.gpu_clock, quota_kind if quota_kind is LeverKind.FREQUENCY else None]
        units = [self.gpu_instances, quota_kind if quota_kind is LeverKind.SUB_UNITS else None]
        for kind, levers in (("frequency", clocks), ("sub-units", units)):
            if sum(lever is not None for lever in levers) > 1:
                raise ValueError(f"a unit has at most one {kind} lever")

    @property
    def moves_here(self) -> bool:
        """True if any lever of this machine may be set."""
        here = (self.cpu_quota, self.cpu_clock, self.gpu_clock, self.gpu_instances, self.power_cap)
        return any(lever is not None and lever.set for lever in here)
