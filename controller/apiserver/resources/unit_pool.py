"""UnitPool: equal sub-units of compute that several holders share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.resources.base import Count, Line, Name, Priority, Resource, Seconds, TimeNs
from controller.apiserver.resources.hardware import DeviceNumber, DeviceShares
from controller.apiserver.resources.kind import Kind, Own, Rights, Server, Strategy, Verb, check_no_holders
from controller.common.errors import StaleError
from dataplane.config import Strict
from dataplane.rpc.access import Principal, Role
from dataplane.topology.values import DeviceKind

MOST_HOLDERS: Final = 1024
_FIXED: Final = ("node", "devices", "unit_thousandths", "device_kind", "model")
"""Location and type of the units."""
Share01 = Annotated[float, Meta(ge=0, le=1)]
Signed = Annotated[float, Meta(ge=-1e9, le=1e9)]


class Claim(Strict, frozen=True):
    """A holder's minimum and maximum number of units."""

    holder: Name
    least: Count = 0
    most: Count | None = None
    priority: Priority = 0
    weight: Annotated[float, Meta(gt=0, le=1e9)] = 1.0


class ControlForm(StrEnum):
    """Terms of the controller in use."""

    P = "P"
    PI = "PI"
    PD = "PD"
    PID = "PID"


class ControlScheme(StrEnum):
    """Source of the controller's gains."""

    FIXED = "fixed"
    EXPERT = "expert"
    FUZZY = "fuzzy"


class ControlRule(StrEnum):
    """Conversion of the controller's output to units."""

    TABLE = "table"
    """By the interval table: a few units per step."""
    PLATFORM = "platform"
    """At once to n' = n P_d / P_p, which brings the error to 0 if both loads scale with the units."""


class PoolControl(Strict, frozen=True):
    """Control of a holder's number of units from its bus and load, unless the holder states a number."""

    form: ControlForm = ControlForm.P
    kp: Annotated[float, Meta(ge=0, le=1e3)] = 1.0
    ki: Annotated[float, Meta(ge=0, le=1e3)] = 0.0
    kd: Annotated[float, Meta(ge=0, le=1e3)] = 0.0
    scheme: ControlScheme = ControlScheme.FIXED
    """fixed: these gains; expert: varied around them by ranges of the error; fuzzy: the same, adapted per report."""
    rule: ControlRule = ControlRule.TABLE
    dead_band: Share01 = 0.1
    """Errors within it request nothing."""
    asks_from_load: Share01 = 0.0
    """Request more only if the cores are at least this busy; 0: at any load."""
    frees_to_load: Share01 = 0.0
    """Free units of idle cores until the rest are this busy, even if nobody needs them; 0: only as the error demands.
    Must be below `asks_from_load`, or else freed units would be requested again.
    """
    settle_s: Seconds = 0.0
    """Ignore reports until this long after the last change of the holder's units: earlier ones mix old and new."""

    def __post_init__(self) -> None:
        if self.frees_to_load and self.frees_to_load >= self.asks_from_load:
            raise ValueError("frees_to_load must be below asks_from_load: freed units would be requested again")


class UnitPoolSpec(Strict, frozen=True):
    """Number and type of the units, and the holders that may have them.

    A pool of a `node` consists of its devices: held units are shares of that node, like its pods' shares.
    """

    units: Annotated[int, Meta(ge=0, le=1_000_000)]
    device_kind: DeviceKind = DeviceKind.GPU
    model: Line = ""
    node: Name | None = None
    devices: Annotated[tuple[DeviceNumber, ...], Meta(max_length=256)] = ()
    """Devices of the node that provide units; empty: all of its kind and model."""
    unit_thousandths: Annotated[int, Meta(ge=1, le=1000)] = 1000
    """Part of a device of the node that each unit takes."""
    claims: Annotated[tuple[Claim, ...], Meta(max_length=MOST_HOLDERS)] = ()
    hold_s: Seconds = 0.0
    """A unit that has moved stays for at least this long."""
    lease_s: Seconds = 0.0
    """A holder silent for this long has stopped using its units. One that reports must first say that it gives them up.

    0: holders do not report, and units move as soon as the shares are written.
    """
    paused: bool = False
    """Move nothing."""
    control: PoolControl = PoolControl()

    def __post_init__(self) -> None:
        names = [claim.holder for claim in self.claims]
        twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if twice is not None:
            raise ValueError(f"claims: holder {twice} is given twice")
        wrong = next((claim for claim in self.claims if claim.most is not None and claim.most < claim.least), None)
        if wrong is not None:
            raise ValueError(f"claims: holder {wrong.holder}: least {wrong.least} exceeds most {wrong.most}")
        if self.node is None and (self.devices or self.unit_thousandths != 1000):
            raise ValueError("devices and unit_thousandths belong to a node: set `node`")


class UnitHolding(Strict, frozen=True):
    """Units of a holder; the server sets `devices`, for a pool of a node."""

    holder: Name
    units: Annotated[int, Meta(ge=1, le=1_000_000)]
    since_ns: TimeNs = 0
    """Time of its last change, by the server's clock."""
    grown_ns: TimeNs = 0
    """Time of its last increase."""
    leaving: Count = 0
    """Units asked back: they remain the holder's until it reports that it uses no more than the rest."""
    devices: DeviceShares = ()
    """Devices of the units."""


class HolderStatus(Strict, frozen=True):
    """A holder's report on its units: occupancy of the bus and load of the cores, 0 to 1."""

    holder: Name
    wants: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None = None
    """Number of additional units needed; negative: fewer. None: derive it from bus and load."""
    holds: Count | None = None
    """A promise to use no more units than this, until it promises another number."""
    bus: Share01 | None = None
    load: Share01 | None = None
    precision: Annotated[str, Meta(max_length=32)] = ""
    """Current setting of its own controls."""
    frequency_mhz: Seconds | None = None
    reported_ns: TimeNs | None = None
    """By the server's clock."""


class HolderControl(Strict, frozen=True):
    """Result for a holder's report; changes of precision and frequency are advice for its own controls."""

    holder: Name
    error: Signed | None = None
    output: Signed | None = None
    wants: int = 0
    precision_steps: int = 0
    frequency_mhz: Signed = 0.0
    price: Annotated[float, Meta(ge=0)] = 0.0
    """Value of one more unit to it; 0 if it needs none."""
    reason: Line = ""


class UnitPoolStatus(Strict, frozen=True):
    """Reports: each holder writes its own in `holders`; whoever assigns the units writes the rest."""

    holders: Annotated[tuple[HolderStatus, ...], Meta(max_length=MOST_HOLDERS)] = ()
    control: Annotated[tuple[HolderControl, ...], Meta(max_length=MOST_HOLDERS)] = ()
    shadow_price: Annotated[float, Meta(ge=0)] | None = None
    """Value of one more unit in the pool."""
    reason: Line = ""


class UnitPool(Resource, frozen=True):
    """Equal sub-units; `shares` record each holder's number, and only their own subresource writes them."""

    spec: UnitPoolSpec
    status: UnitPoolStatus = UnitPoolStatus()
    shares: Annotated[tuple[UnitHolding, ...], Meta(max_length=MOST_HOLDERS)] = ()
    shares_version: Count = 0
    kind: Literal["UnitPool"] = "UnitPool"

    @property
    def held(self) -> int:
        """Number of units held."""
        return sum(share.units for share in self.shares)

    @property
    def holders(self) -> tuple[str, ...]:
        """All holders that may hold units, or do."""
        return tuple(
            dict.fromkeys([claim.holder for claim in self.spec.claims] + [share.holder for share in self.shares])
        )


class UnitPoolStrategy(Strategy[UnitPool]):
    """Unit pools: the spec covers the held units, and each holder's reports are its own."""

    def validate(self, current: UnitPool | None, wanted: UnitPool) -> None:
        """Refuse a spec that contradicts the held units."""
        if current is None:
            return
        name, held = current.metadata.name, current.held
        if held > wanted.spec.units:
            raise StaleError(f"UnitPool {name} has {held} held units, more than {wanted.spec.units}")
        fixed = [part for part in _FIXED if getattr(current.spec, part) != getattr(wanted.spec, part)]
        if held and fixed:
            raise StaleError(f"UnitPool {name} has {held} held units: its {' and '.join(fixed)} cannot change")

    def prepare_status(self, current: UnitPool, wanted: UnitPool, principal: Principal, server: Server) -> UnitPool:
        """Keep the holders' reports."""
        return replace(wanted, status=replace(wanted.status, holders=current.status.holders))

    def may_delete(self, current: UnitPool) -> None:
        """Refuse a pool whose units are held."""
        check_no_holders("UnitPool", current.metadata.name, [share.holder for share in current.shares])


UNIT_POOL = Kind(
    "UnitPool",
    "unitpools",
    UnitPool,
    fields={"node": lambda pool: pool.spec.node, "holder": lambda pool: pool.holders},
    initial=("shares", "shares_version"),
    columns={
        "units": lambda pool: pool.spec.units,
        "held": lambda pool: sum(share.units for share in pool.shares),
        "holders": lambda pool: " ".join(f"{share.holder}={share.units}" for share in pool.shares),
    },
    rights=Rights(
        own={Role.HOLDER: Own("holder", frozenset({Verb.READ}))},
        roles={Role.BALANCE: frozenset({Verb.READ, Verb.STATUS})},
    ),
    strategy=UnitPoolStrategy(),
)
