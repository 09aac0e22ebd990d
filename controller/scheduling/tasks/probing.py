"""Probe decisions: which probe goes to which offer now, and why; pure.

Probes are ordinary tasks on free units: one at a centre at a time, a limited number per type and in total, never two
identical ones at once, and within a share of what the type's tasks take. All state is kept at the API server, so that a
restarted scheduler continues where the previous one stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta

from controller.scheduling.tasks.values import CentreState, Offer
from dataplane.clock import NS_PER_S
from dataplane.config import Settings

Key = tuple[str, str, str]
"""A probe task, a centre, and a unit type."""


class ProbingSettings(Settings, frozen=True):
    """Settings of probing: its occasions and its budget."""

    counts: Annotated[tuple[Annotated[int, Meta(ge=1, le=1 << 20)], ...], Meta(min_length=1, max_length=64)] = (
        *(1, 2, 4, 8),
        16,
    )
    """Unit counts that probes run on, if that many are free."""
    repetitions: Annotated[int, Meta(ge=1, le=1000)] = 3
    overhead: Annotated[float, Meta(gt=0, le=1)] = 0.02
    """Maximum unit-seconds of a type's probes, relative to its tasks'; the first probes run before these are known."""
    most_at_once: Annotated[int, Meta(ge=1, le=10_000)] = 16
    most_of_type: Annotated[int, Meta(ge=1, le=10_000)] = 4
    """Probes of one type in progress at a time."""
    first: Annotated[int, Meta(ge=1, le=10_000)] = 3
    """Number of centres where a new type is probed before the overhead counts."""
    most_tries: Annotated[int, Meta(ge=1, le=100)] = 3
    """Number of consecutive failures at a place after which it is not probed for `period`."""
    retry_s: Annotated[float, Meta(gt=0, le=1e6)] = 10.0
    """Delay before a failed probe is retried; it doubles with each failure."""
    patience_s: Annotated[float, Meta(gt=0, le=1e6)] = 120.0
    """Time for which a task of a new type waits for the type's first probes; then it uses those that exist."""
    builds: bool = True
    """False leaves building the probes of new types to `millrace probe builder serve`."""
    period_s: Annotated[float, Meta(gt=0, le=1e9)] | None = 21_600.0
    """Age at which a result is measured again, for types in use within `used`; null: never."""
    used_s: Annotated[float, Meta(gt=0, le=1e9)] = 86_400.0
    network_period_s: Annotated[float, Meta(gt=0, le=1e9)] | None = 3600.0
    """Interval of the network check at each centre that offers its kernel, whatever tasks there are; null: never."""
    fresh_s: Annotated[float, Meta(gt=0, le=1e9)] = 86_400.0
    """A result older than this counts as history."""
    expected_s: Annotated[float, Meta(gt=0, le=1e6)] = 5.0
    """Time for which a probe is assumed to hold its units, when tasks are planned after it."""
    limit_s: Annotated[float, Meta(gt=0, le=1e6)] = 120.0
    """A probe that runs longer is stopped and counts as failed."""


class Reason(StrEnum):
    """Reason for a probe."""

    FIRST_SEEN = "first-seen"
    GAINED = "gained"
    FINISHED = "finished"
    PERIOD = "period"
    DEMAND = "demand"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Need:
    """A type that may need probes.

    `probes` are by name with their kernels; `waiting` counts tasks, the oldest since `since_ns`; `used_ns` is when a
    task last arrived or ended; `finished_at` are places, centre and unit, where its tasks have run. `work_unit_s` are
    the known unit-seconds of its tasks, `spent_unit_s` those of its probes.

    The network check is a type without tasks (`checks_network`): it takes one unit of each centre for a moment.
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
    checks_network: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """State of a probe at a place: last measurement by unit count, failures since, and whether one is running.

    `number` is the highest of its tasks, `tried_ns` when the last one was created.
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
    """A probe to start now, on these numbers of units of a type, one run for each."""

    probe: str
    task_type: str
    centre: str
    unit: str
    counts: tuple[int, ...]
    reason: Reason
    number: int


@dataclass(frozen=True, slots=True)
class Place:
    """An offer and the number of its free units."""

    offer: Offer
    free: int
    wants_probe: bool = False
    """Its centre has gained resources and asks for a probe."""


def probes_due(
    needs: Iterable[Need],
    places: Sequence[Place],
    centres: Mapping[str, CentreState],
    known: Mapping[Key, Known],
    *,
    settings: ProbingSettings,
    now_ns: int,
) -> tuple[Order, ...]:
    """Return the probes to start now: types with waiting tasks first, the oldest task first."""
    deciding = _Deciding(places, centres, known, settings, now_ns)
    for need in sorted(needs, key=lambda need: (not need.waiting, need.since_ns, need.task_type)):
        deciding.take(need)
    return tuple(deciding.orders)


class _Deciding:
    """One round, with the probes that it has ordered so far."""

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
        self._at = {centre for (_, centre, _), state in known.items() if state.is_underway}
        self._of_probe = Counter(probe for (probe, _, _), state in known.items() if state.is_underway)
        self._all = sum(self._of_probe.values())
        self.orders: list[Order] = []

    def take(self, need: Need) -> None:
        """Order the probes that a type needs, within the limits."""
        if need.checks_network:
            self._check_networks(need)
            return
        asking = sorted(self._places, key=lambda place: (-place.free, place.offer.key))
        for probe, kernels in need.probes.items():
            cost_left = self._cost_left(need)
            for place in asking:
                if not self._has_room(need) or cost_left <= 0:
                    return
                order = self._order(need, probe, kernels, place)
                if order is not None:
                    cost_left -= self._cost_of(need)
                    self._add(order)

    def _check_networks(self, need: Need) -> None:
        """Order the checks that are due, each on the unit type of a centre that has most free units."""
        period_s = self._settings.network_period_s
        if period_s is None:
            return
        for probe, kernels in need.probes.items():
            measured_ns: dict[str, int] = {}
            for (name, centre, _), state in self._known.items():
                if name == probe:
                    measured_ns[centre] = max(measured_ns.get(centre, 0), 0, *state.measured_ns.values())
            for place in sorted(self._places, key=lambda place: (place.offer.centre, -place.free, place.offer.key)):
                offer = place.offer
                state = self._known.get((probe, *offer.key), NOTHING)
                is_due = self._is_older(measured_ns.get(offer.centre, 0), period_s) and not self._must_rest(state)
                is_possible = offer.centre not in self._at and place.free >= 1 and kernels <= offer.operators
                if is_due and is_possible and self._all < self._settings.most_at_once:
                    number = state.number + 1
                    self._add(Order(probe, need.task_type, *offer.key, (1,), Reason.NETWORK, number))

    def _add(self, order: Order) -> None:
        self._at.add(order.centre)
        self._of_probe[order.probe] += 1
        self._all += 1
        self.orders.append(order)

    def _has_room(self, need: Need) -> bool:
        of_type = sum(self._of_probe[probe] for probe in need.probes)
        return self._all < self._settings.most_at_once and of_type < self._settings.most_of_type

    def _measured(self, need: Need) -> int:
        """Return the number of places where probes of a type have run or are running."""
        return sum(
            1
            for (probe, _, _), state in self._known.items()
            if probe in need.probes and (state.measured_ns or state.is_underway)
        )

    def _cost_of(self, need: Need) -> float:
        """Return the expected cost of one more probe of a type, from earlier ones; 0 for the first."""
        place_count = self._measured(need)
        return need.spent_unit_s / place_count if place_count else 0.0

    def _cost_left(self, need: Need) -> float:
        """Return the unit-seconds left for probes of a type; the first centres do not count."""
        if self._measured(need) < self._settings.first:
            return float("inf")
        return self._settings.overhead * need.work_unit_s - need.spent_unit_s - self._cost_of(need)

    def _order(self, need: Need, probe: str, kernels: frozenset[str], place: Place) -> Order | None:
        offer = place.offer
        state = self._known.get((probe, *offer.key), NOTHING)
        if offer.centre in self._at or place.free < 1 or not kernels <= offer.operators or self._must_rest(state):
            return None
        choice = self._reason(need, state, place)
        if choice is None:
            return None
        reason, counts = choice
        return Order(probe, need.task_type, *offer.key, counts, reason, state.number + 1)

    def _must_rest(self, state: Known) -> bool:
        """Return whether a place is skipped after failed probes."""
        if state.is_underway:
            return True
        if not state.failures:
            return False
        # Bound the exponent: 2.0 ** 1024 raises OverflowError.
        waits_s = self._settings.retry_s * 2.0 ** min(state.failures - 1, 40)
        if state.failures >= self._settings.most_tries:
            waits_s = max(waits_s, self._settings.period_s or float("inf"))
        return self._now_ns < state.tried_ns + waits_s * NS_PER_S

    def _reason(self, need: Need, state: Known, place: Place) -> tuple[Reason, tuple[int, ...]] | None:
        """Return why a probe goes to a place, and its numbers of units; None if it is not needed."""
        wanted = sorted({*self._settings.counts, *need.counts})
        possible = tuple(units for units in wanted if units <= min(place.free, place.offer.count))
        lacking = tuple(units for units in possible if units not in state.measured_ns)
        if need.waiting and lacking:
            return Reason.FIRST_SEEN, lacking
        if place.wants_probe and possible and self._is_used(need):
            return Reason.GAINED, possible
        if place.offer.key in need.finished_at and not state.measured_ns and lacking:
            return Reason.FINISHED, lacking
        period_s, oldest_ns = self._settings.period_s, min(state.measured_ns.values(), default=None)
        if period_s is None or oldest_ns is None or not self._is_used(need):
            return None
        old = tuple(units for units in possible if self._is_older(state.measured_ns.get(units), period_s))
        return (Reason.PERIOD, old) if old else None

    def _is_older(self, measured_ns: int | None, age_s: float) -> bool:
        return measured_ns is not None and self._now_ns >= measured_ns + age_s * NS_PER_S

    def _is_used(self, need: Need) -> bool:
        return bool(need.waiting) or self._now_ns < need.used_ns + self._settings.used_s * NS_PER_S
