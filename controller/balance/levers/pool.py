"""Units of a pool as a lever: a holder asks for more or promises fewer; only the pool's service moves them.

The holder's local resources follow its share: a local lever (a quota, instances) is lowered before fewer units are
promised, and raised only for units that the books already show. A holder that cannot reach the service for the pool's
lease must have stopped using its units by then, as the service relies on that: here after half of it, counted from the
sending of the last answered report, so that the other half is the margin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from controller.apiserver.resources import UnitPool
from controller.apiserver.resources.unit_pool import HolderStatus
from controller.balance.errors import LeverError
from controller.balance.levers.values import Lever, Moved, Standing, moved, refused
from controller.balance.values import LeverKind, Sample
from controller.common.errors import ApiError
from dataplane.clock import NS_PER_S, Clock

LEASE_SHARE: Final = 0.5
"""Share of the lease without an answer after which units are released: the rest is for work still running on them."""


class Reporter(Protocol):
    """Receiver of reports: the client of the API."""

    def report_units(self, pool: str, status: HolderStatus) -> UnitPool:
        """Report a holder's units; return the pool with its current holding; raise ApiError."""
        ...


class PoolUnits:
    """A holder's units of a pool. `move` asks, `tell` reports and takes what was given.

    Units asked for and not given within `patience_s` count as unavailable: the lever then hands over to the next one,
    and keeps asking. Raises LeverError if the pool cannot be reached at the start, or the holder has no claim on it.
    """

    def __init__(
        self,
        reporter: Reporter,
        pool: str,
        holder: str,
        clock: Clock,
        *,
        local: Lever | None = None,
        patience_s: float = 30.0,
        may_set: bool = False,
    ) -> None:
        self.kind, self.name = LeverKind.SUB_UNITS, f"units of pool {pool}"
        self._reporter, self._pool_name, self._holder, self._clock = reporter, pool, holder, clock
        self._local, self._patience_s, self._may_set = local, patience_s, may_set
        self._target: int | None = None
        self._asking_since_ns: int | None = None
        self._is_fenced = False
        self._answered_ns = clock.now_ns()
        self._on_answer: Callable[[int], None] | None = None
        self._pool = self._report(HolderStatus(holder=holder))

    @property
    def lease_s(self) -> float:
        """Time without a report after which the pool's service gives the units away; 0: never."""
        return self._pool.spec.lease_s

    @property
    def until_ns(self) -> int:
        """Time until which its units may be used without another answer of the service; 0 without a lease."""
        return self._answered_ns + round(LEASE_SHARE * self.lease_s * NS_PER_S) if self.lease_s else 0

    def tell_answers(self, on_answer: Callable[[int], None]) -> None:
        """Call `on_answer` for each answer, before anything is moved by it, with the time until which units are usable.

        An exception from `on_answer` ends the report: nothing is moved by it.
        """
        self._on_answer = on_answer

    @property
    def units(self) -> int:
        """Usable units: those it has, minus those that are asked back."""
        share = next((holding for holding in self._pool.shares if holding.holder == self._holder), None)
        return 0 if share is None else share.units - share.leaving

    def read(self) -> Standing:
        """Return the number of usable units, between the claim's bounds; no more while none arrive."""
        claim = next((claim for claim in self._pool.spec.claims if claim.holder == self._holder), None)
        low = 0 if claim is None else claim.least
        most = self._pool.spec.units if claim is None or claim.most is None else claim.most
        high = self.units if self._waits_in_vain() else most
        why_not = "" if self._may_set else "its settings lack set: true"
        return Standing(self.units, low, max(high, low), 1.0, self._may_set, why_not)

    def move(self, by: float) -> Moved:
        """Ask for this many more units (give back this many) with the next report."""
        standing = self.read()
        self._target = None
        if (nothing := refused(standing, by)) is not None:
            self._asking_since_ns = None
            return nothing
        target = standing.place(standing.value + by)
        # Ask for the full amount even if none are free: units may become free.
        self._target = round(standing.value + by if by > 0 else target)
        if by < 0:
            self._asking_since_ns = None
        elif self._asking_since_ns is None:
            self._asking_since_ns = self._clock.now_ns()
        if self._waits_in_vain():
            return Moved(0.0, by, f"none arrived within {self._patience_s:g} s")
        return moved(standing, by, target)

    def tell(self, sample: Sample | None, precision: str = "", frequency_mhz: float | None = None) -> None:
        """Report the measurement and the wanted units, move the local lever to the share, and promise at most that.

        Without an answer for half of the lease the local lever moves to its low end; raise LeverError then, and
        whenever the service does not answer.
        """
        status = HolderStatus(
            holder=self._holder,
            wants=self._wants,
            bus=None if sample is None else sample.bus,
            load=None if sample is None else sample.load,
            precision=precision,
            frequency_mhz=frequency_mhz,
        )
        before, wanted = self.units, self._wants
        try:
            self._pool = self._report(status)
        except LeverError:
            self._fence()
            raise
        self._is_fenced = False
        if self.units > before:
            self._asking_since_ns = None
        self._follow(status, is_outdated=self._wants != wanted)

    @property
    def _wants(self) -> int:
        """Units still missing from the last request; units that came meanwhile are not requested again."""
        return 0 if self._target is None else self._target - self.units

    def release(self, *, always: bool = False) -> None:  # noqa: ARG002 - no other process moves it
        """Give back all but the claim's minimum, as nothing controls the unit any more."""
        standing = self.read()
        least = min(round(standing.low), self.units)
        if not self._may_set:
            return
        self._lower_local(least)
        self._pool = self._report(HolderStatus(holder=self._holder, wants=least - self.units, holds=least))

    def _follow(self, status: HolderStatus, *, is_outdated: bool) -> None:
        """Move the local lever to match the books: down before fewer units are promised, up once more are accepted."""
        units = self.units
        local = None if self._local is None else self._local.read().value
        if local is not None and units < local:
            self._set_local(units)
        booked = next((status for status in self._pool.status.holders if status.holder == self._holder), None)
        if booked is None or booked.holds != units or is_outdated:
            self._pool = self._report(_promising(status, units, self._wants))
        if local is not None and local < units == self.units and not self._is_over():
            self._set_local(units)

    def _set_local(self, units: int) -> None:
        assert self._local is not None
        result = self._local.move(units - self._local.read().value)
        if result.left:
            raise LeverError(self.name, f"it has {units} units, but {self._local.name}: {result.reason}")

    def _fence(self) -> None:
        if not self._is_fenced and self._is_over():
            self._lower_local(0)
            self._is_fenced = True

    def _is_over(self) -> bool:
        """Return whether the last answer is too old to use units by, as after a suspension of the process."""
        return bool(self.lease_s) and self._clock.now_ns() >= self.until_ns

    def _lower_local(self, units: int) -> None:
        if self._local is not None:
            standing = self._local.read()
            self._local.move(min(units - standing.value, 0.0))

    def _waits_in_vain(self) -> bool:
        since_ns = self._asking_since_ns
        return since_ns is not None and self._clock.now_ns() - since_ns >= self._patience_s * NS_PER_S

    def _report(self, status: HolderStatus) -> UnitPool:
        asked_ns = self._clock.now_ns()
        try:
            pool = self._reporter.report_units(self._pool_name, status)
        except ApiError as error:
            raise LeverError(self.name, str(error)) from error
        self._answered_ns = asked_ns
        self._pool = pool  # the lease may have changed
        if self._on_answer is not None:
            self._on_answer(self.until_ns)
        return pool


def _promising(status: HolderStatus, units: int, wants: int) -> HolderStatus:
    return HolderStatus(
        holder=status.holder,
        wants=wants,
        holds=units,
        bus=status.bus,
        load=status.load,
        precision=status.precision,
        frequency_mhz=status.frequency_mhz,
    )
