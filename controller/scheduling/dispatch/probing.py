"""When to probe: which probe goes to which offer now, and why; pure.

Probes are ordinary tasks on units that are free: one at a centre at a time, so many of a type and in all, never two
same ones at once, and within a share of what the type's tasks take. All that this rests on is kept at the API
server, so that a scheduler that starts anew goes on where the last one stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta

from controller.scheduling.dispatch.values import CentreState, Offer
from dataplane.config import Strict

_NS: Final = 1_000_000_000
Key = tuple[str, str, str]
"""A probe task, a centre, and a unit type."""


class ProbingSettings(Strict, frozen=True):
    """When centres are probed, and how much that may cost."""

    counts: Annotated[tuple[Annotated[int, Meta(ge=1, le=1 << 20)], ...], Meta(min_length=1, max_length=64)] = (
        *(1, 2, 4, 8),
        16,
    )
    """Numbers of units that probes run on, as far as they are free."""
    repetitions: Annotated[int, Meta(ge=1, le=1000)] = 3
    overhead: Annotated[float, Meta(gt=0, le=1)] = 0.02
    """Unit-seconds of probes of a type, of those that its tasks take: the first ones go before these are known."""
    most_at_once: Annotated[int, Meta(ge=1, le=10_000)] = 16
    most_of_type: Annotated[int, Meta(ge=1, le=10_000)] = 4
    """Probes of one type under way at a time."""
    first: Annotated[int, Meta(ge=1, le=10_000)] = 3
    """Centres that a type never seen is probed at before the overhead counts."""
    most_tries: Annotated[int, Meta(ge=1, le=100)] = 3
    """Probes that fail one after the other in a place, until it is left alone for `period_s`."""
    retry_s: Annotated[float, Meta(gt=0, le=1e6)] = 10.0
    """Before a probe that has failed goes again; it doubles with each failure."""
    patience_s: Annotated[float, Meta(gt=0, le=1e6)] = 120.0
    """A task of a type never seen waits so long for the first probes of it; then it goes by those that are there."""
    period_s: Annotated[float, Meta(gt=0, le=1e9)] | None = 21_600.0
    """A result as old as this is measured anew, of types in use within `used_s`; null: never."""
    used_s: Annotated[float, Meta(gt=0, le=1e9)] = 86_400.0
    fresh_s: Annotated[float, Meta(gt=0, le=1e9)] = 86_400.0
    """A result older than this counts as history."""
    expected_s: Annotated[float, Meta(gt=0, le=1e6)] = 5.0
    """What a probe is taken to hold its units for, when tasks are planned after it."""
    limit_s: Annotated[float, Meta(gt=0, le=1e6)] = 120.0
    """A probe that runs for longer is stopped, and has failed."""


class Reason(StrEnum):
    """Why a probe goes."""

    FIRST_SEEN = "first-seen"
    GAINED = "gained"
    FINISHED = "finished"
    PERIOD = "period"
    DEMAND = "demand"


@dataclass(frozen=True, slots=True)
class Need:
    """A type whose probes may have to go.

    `probes` by name with their kernels; `waiting` tasks, the oldest since `since_ns`; `used_ns` is when one came or
    ended last; `finished_at` are places, centre and unit, where tasks of it have run. `work_unit_s` are the
    unit-seconds that its tasks take as far as is known, `spent_unit_s` those that its probes have taken.
    """

    task_type: str
    probes: Mapping[str, frozenset[str]]
    counts: tuple[int, ...] = ()
    waiting: int = 0
    since_ns: int = 0
    used_ns: int = 0
    finished_at: frozenset[tuple[str, str]] = frozenset()
    work_unit_s: float = 0.0
    spent_unit_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Known:
    """What became of a probe in a place: when each number of units was measured last, failures since, who is at it.

    `number` is the highest of its tasks, `tried_ns` when the last one was made.
    """

    measured_ns: Mapping[int, int] = field(default_factory=dict)
    failures: int = 0
    tried_ns: int = 0
    number: int = 0
    is_underway: bool = False
    problem: str = ""


NOTHING: Final = Known()


@dataclass(frozen=True, slots=True)
class Order:
    """A probe that is to go now: onto so many units of a type, one run for each."""

    probe: str
    task_type: str
    centre: str
    unit: str
    counts: tuple[int, ...]
    reason: Reason
    number: int


@dataclass(frozen=True, slots=True)
class Place:
    """An offer, and how many of its units are free."""

    offer: Offer
    free: int
    wants_probe: bool = False
    """Its centre has gained resources, and asks."""


def probes_due(
    needs: Iterable[Need],
    places: Sequence[Place],
    centres: Mapping[str, CentreState],
    known: Mapping[Key, Known],
    *,
    settings: ProbingSettings,
    now_ns: int,
) -> tuple[Order, ...]:
    """Return the probes that go now: of types that tasks wait for first, the oldest of them first."""
    deciding = _Deciding(places, centres, known, settings, now_ns)
    for need in sorted(needs, key=lambda one: (not one.waiting, one.since_ns, one.task_type)):
        deciding.take(need)
    return tuple(deciding.orders)


class _Deciding:
    """One round, with what it has given out already."""

    def __init__(
        self,
        places: Sequence[Place],
        centres: Mapping[str, CentreState],
        known: Mapping[Key, Known],
        settings: ProbingSettings,
        now_ns: int,
    ) -> None:
        self._places = [place for place in places if not centres[place.offer.centre].problem]
        self._known, self._settings, self._now_ns = known, settings, now_ns
        self._at = {centre for (_, centre, _), one in known.items() if one.is_underway}
        self._of_probe = Counter(probe for (probe, _, _), one in known.items() if one.is_underway)
        self._all = sum(self._of_probe.values())
        self.orders: list[Order] = []

    def take(self, need: Need) -> None:
        """Order the probes that a type needs, as far as bounds let."""
        asking = sorted(self._places, key=lambda place: (-place.free, place.offer.key))
        for probe, kernels in need.probes.items():
            cost_left = self._cost_left(need)
            for place in asking:
                if not self._has_room(need) or cost_left <= 0:
                    return
                order = self._order(need, probe, kernels, place)
                if order is not None:
                    cost_left -= self._cost_of(need)
                    self._at.add(order.centre)
                    self._of_probe[probe] += 1
                    self._all += 1
                    self.orders.append(order)

    def _has_room(self, need: Need) -> bool:
        of_type = sum(self._of_probe[probe] for probe in need.probes)
        return self._all < self._settings.most_at_once and of_type < self._settings.most_of_type

    def _measured(self, need: Need) -> int:
        """Return in how many places probes of a type have run, or run."""
        return sum(
            1
            for (probe, _, _), one in self._known.items()
            if probe in need.probes and (one.measured_ns or one.is_underway)
        )

    def _cost_of(self, need: Need) -> float:
        """Return what one more probe of a type is expected to take, as the ones before; 0 for the first."""
        ran = self._measured(need)
        return need.spent_unit_s / ran if ran else 0.0

    def _cost_left(self, need: Need) -> float:
        """Return how many unit-seconds probes of a type may still take; the first centres are not counted."""
        if self._measured(need) < self._settings.first:
            return float("inf")
        return self._settings.overhead * need.work_unit_s - need.spent_unit_s - self._cost_of(need)

    def _order(self, need: Need, probe: str, kernels: frozenset[str], place: Place) -> Order | None:
        offer = place.offer
        known = self._known.get((probe, *offer.key), NOTHING)
        if offer.centre in self._at or place.free < 1 or not kernels <= offer.operators or self._must_rest(known):
            return None
        found = self._why(need, known, place)
        if found is None:
            return None
        reason, counts = found
        return Order(probe, need.task_type, *offer.key, counts, reason, known.number + 1)

    def _must_rest(self, known: Known) -> bool:
        """Return whether a place is left alone after probes that failed."""
        if known.is_underway:
            return True
        if not known.failures:
            return False
        waits_s = self._settings.retry_s * 2.0 ** min(known.failures - 1, 40)
        if known.failures >= self._settings.most_tries:
            waits_s = max(waits_s, self._settings.period_s or float("inf"))
        return self._now_ns < known.tried_ns + waits_s * _NS

    def _why(self, need: Need, known: Known, place: Place) -> tuple[Reason, tuple[int, ...]] | None:
        """Return why a probe goes to a place, and on how many units it runs; None if it need not."""
        wanted = sorted({*self._settings.counts, *need.counts})
        possible = tuple(units for units in wanted if units <= min(place.free, place.offer.count))
        lacking = tuple(units for units in possible if units not in known.measured_ns)
        if need.waiting and lacking:
            return Reason.FIRST_SEEN, lacking
        if place.wants_probe and possible and self._is_used(need):
            return Reason.GAINED, possible
        if place.offer.key in need.finished_at and not known.measured_ns and lacking:
            return Reason.FINISHED, lacking
        period_s, oldest_ns = self._settings.period_s, min(known.measured_ns.values(), default=None)
        if period_s is None or oldest_ns is None or not self._is_used(need):
            return None
        old = tuple(units for units in possible if self._is_older(known.measured_ns.get(units), period_s))
        return (Reason.PERIOD, old) if old else None

    def _is_older(self, measured_ns: int | None, age_s: float) -> bool:
        return measured_ns is not None and self._now_ns >= measured_ns + age_s * _NS

    def _is_used(self, need: Need) -> bool:
        return bool(need.waiting) or self._now_ns < need.used_ns + self._settings.used_s * _NS
