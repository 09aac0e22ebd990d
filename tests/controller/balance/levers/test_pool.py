"""Units of a pool as a lever, against the API server's own bookkeeping, without HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from controller.apiserver.registry.pools.shares import UnitShares, report, share
from controller.apiserver.resources import Metadata, UnitPool
from controller.apiserver.resources.unit_pool import Claim, HolderStatus, UnitHolding, UnitPoolSpec
from controller.balance.errors import LeverError
from controller.balance.levers.pool import PoolUnits
from controller.balance.levers.settings import LeverSettings, PoolLever, QuotaLever
from controller.balance.running.finding import Host, levers_of
from controller.balance.values import Sample
from controller.common.errors import ApiError, StaleError, UnavailableError
from dataplane.clock import VirtualClock
from tests.controller.balance.running.parts import Machine

SAMPLE = Sample(1.0, 0.75, 0.25, "u")


class Books:
    """A pool of 100 units, where `gpu0` has 50 and may have 10 to 80; reports change it as on the server."""

    def __init__(self, clock: VirtualClock) -> None:
        claims = (Claim(holder="gpu0", least=10, most=80), Claim(holder="gpu1"))
        spec = UnitPoolSpec(units=100, claims=claims, lease_s=10.0)
        shares = (UnitHolding(holder="gpu0", units=50), UnitHolding(holder="gpu1", units=50))
        self.clock, self.pool = clock, UnitPool(metadata=Metadata(name="p"), spec=spec, shares=shares)
        self.is_away = False
        self.quota: Callable[[], str] = str
        self.quotas: list[tuple[int | None, str]] = []

    def report_units(self, pool: str, status: HolderStatus) -> UnitPool:
        """Take a report; record the local quota at that time."""
        self.quotas.append((status.holds, self.quota()))
        if self.is_away:
            raise UnavailableError("API at unix:api.sock: it is away")
        self.pool = report(self.pool, status, self.clock.now_ns())
        return self.pool

    def share(self, units: int, leaving: int = 0) -> None:
        """Give `gpu0` these units, some of them to be returned, and the rest to the other holder."""
        other = next(share for share in self.pool.shares if share.holder == "gpu1")
        shares = (UnitHolding(holder="gpu0", units=units, leaving=leaving), other)
        self.pool, _ = share(self.pool, None, UnitShares(shares=shares), self.clock.now_ns())

    @property
    def reported(self) -> HolderStatus:
        """Return the last status of `gpu0`."""
        return next(holder for holder in self.pool.status.holders if holder.holder == "gpu0")


class Unit:
    """A holder with a local quota that follows its share: 10 thousandths of a CPU per unit."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder)
        self.books = Books(self.machine.clock)
        self.lever = PoolUnits(
            self.books, "p", "gpu0", self.machine.clock, local=self.machine.units(low=1), patience_s=30, may_set=True
        )

        self.books.quota = self.machine.quota

    def tell(self) -> None:
        self.lever.tell(SAMPLE, "int8", 1000.0)


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    return Unit(tmp_path)


def test_it_reads_its_share_between_the_ends_of_its_claim(unit: Unit) -> None:
    standing = unit.lever.read()
    assert (standing.value, standing.low, standing.high) == (50, 10, 80)


def test_local_quota_is_no_lever_while_its_pool_is_away(unit: Unit) -> None:
    unit.books.is_away = True
    settings = LeverSettings(
        cpu_quota=QuotaLever(group="/unit", set=True), pool=PoolLever(pool="p", holder="gpu0", set=True)
    )
    host = Host(unit.machine.root, unit.machine.clock, "NVML: not queried")
    levers, absent = levers_of(settings, host, lambda _: unit.books)
    assert levers == []
    assert any("it is away" in line for line in absent)


def test_freed_units_are_promised_once_unused(unit: Unit) -> None:
    assert unit.lever.move(-2).done == -2
    unit.tell()
    reported = unit.books.reported
    assert (reported.wants, reported.holds, reported.bus, reported.load) == (-2, 50, 0.75, 0.25)
    with pytest.raises(StaleError, match="gpu0 uses 50 units, it cannot have 48"):
        unit.books.share(48)
    unit.books.share(50, leaving=2)
    unit.tell()
    assert unit.machine.quota() == "48000"
    assert unit.books.quotas[-1] == (48, "48000")  # not used before the promise
    unit.books.share(48)
    assert unit.lever.units == 48


def test_more_units_are_used_only_once_the_books_have_them(unit: Unit) -> None:
    unit.lever.move(+3)
    unit.tell()
    assert (unit.books.reported.wants, unit.machine.quota()) == (3, "50000")
    shares = (UnitHolding(holder="gpu0", units=50), UnitHolding(holder="gpu1", units=47))
    unit.machine.pass_s(11)  # longer than the lease of the other holder, which is silent
    unit.books.pool, _ = share(unit.books.pool, None, UnitShares(shares=shares), unit.machine.clock.now_ns())
    unit.books.share(53)
    unit.tell()
    assert unit.machine.quota() == "53000"
    assert unit.books.quotas[-1] == (53, "50000")  # not used before the promise was accepted


def test_units_that_came_meanwhile_are_not_requested_again(unit: Unit) -> None:
    unit.lever.move(-20)
    unit.tell()
    unit.lever.move(-20)  # the loop does not know the outcome of the first yet
    unit.books.share(50, leaving=20)
    unit.tell()
    assert (unit.books.reported.wants, unit.books.reported.holds) == (0, 30)


def test_ungranted_request_is_handed_on_and_kept(unit: Unit) -> None:
    assert unit.lever.move(+3).left == 0
    unit.tell()
    unit.machine.pass_s(31)
    assert unit.lever.read().high == 50
    moved = unit.lever.move(+3)
    assert (moved.done, moved.left, moved.reason) == (0, 3, "none arrived within 30 s")
    unit.tell()
    assert unit.books.reported.wants == 3
    unit.lever.move(0)
    unit.tell()
    assert (unit.books.reported.wants, unit.lever.read().high) == (0, 80)


def test_unanswered_unit_lowers_its_quota_before_its_lease_ends(unit: Unit) -> None:
    unit.books.is_away = True
    for after_s, quota in ((3, "50000"), (3, "1000"), (3, "1000")):
        unit.machine.pass_s(after_s)
        with pytest.raises(LeverError, match=r"lever units of pool p: API at unix:api.sock: it is away"):
            unit.tell()
        assert unit.machine.quota() == quota
    unit.books.is_away = False
    unit.tell()
    assert unit.machine.quota() == "50000"


def test_released_it_keeps_its_least_share_and_promises_that(unit: Unit) -> None:
    unit.lever.release()
    assert unit.machine.quota() == "10000"
    assert (unit.books.reported.wants, unit.books.reported.holds) == (-40, 10)
    unit.books.share(10)


def test_units_in_use_are_not_promised_away(unit: Unit) -> None:
    unit.tell()
    unit.books.share(50, leaving=45)
    unit.lever.tell(SAMPLE, "int8", 1000.0)
    assert unit.books.reported.holds == 5
    stuck = PoolUnits(
        unit.books, "p", "gpu0", unit.machine.clock, local=unit.machine.units(low=20, may_set=True), may_set=True
    )
    unit.books.share(5, leaving=2)
    with pytest.raises(LeverError, match="it has 3 units, but cpu quota of /unit: at its limit of 20"):
        stuck.tell(SAMPLE, "int8", 1000.0)
    assert unit.books.reported.holds == 5


def test_silent_pool_or_unclaimed_holder_is_an_error_at_start(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    books = Books(machine.clock)
    with pytest.raises(LeverError, match="lever units of pool p: UnitPool p: gpu7 has neither a claim nor units"):
        PoolUnits(books, "p", "gpu7", machine.clock)
    books.is_away = True
    with pytest.raises(LeverError, match="it is away"):
        PoolUnits(books, "p", "gpu0", machine.clock)
    assert issubclass(UnavailableError, ApiError)


def test_it_only_looks_unless_settings_say_otherwise(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    books = Books(machine.clock)
    lever = PoolUnits(books, "p", "gpu0", machine.clock)
    assert lever.move(-2).reason == "its settings lack set: true"
    lever.tell(SAMPLE, "int8", 1000.0)
    assert books.reported.wants == 0
