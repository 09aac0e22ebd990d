"""A unit's levers together: their positions and ranges, and changes handed over from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.balance.errors import LeverError
from controller.balance.levers.programs import Autocast, BatchSize
from controller.balance.levers.running_program import ProgramPrecision
from controller.balance.levers.values import Lever, Moved, Standing
from controller.balance.rules import ORDER, Limits, hand_on
from controller.balance.rules.capacity import SPEEDS
from controller.balance.rules.limits import part_of, with_part
from controller.balance.rules.table import only
from controller.balance.values import STEPS, Change, LeverKind, Precision, Sample, UnitState
from dataplane.clock import NS_PER_S, Clock

_NONE: Final = Standing(1.0, 1.0, 1.0, may_set=False, why_not="no such lever")
"""Position of a kind without a lever."""


@dataclass(frozen=True, slots=True)
class Move:
    """A lever's request and result; `failed` means that it could not be read or moved."""

    lever: str
    kind: LeverKind
    asked: float
    moved: Moved
    failed: bool = False


class Board:
    """A unit's levers, at most one of a kind. One that fails rests for `rest_s`, and others do its part meanwhile.

    A change for a kind that the unit does not have is dropped: only the rest of an existing lever is handed over.
    `guarded`: no change may push a sample's error past 0 and further away than it is, by the worth of levers' moves.
    Raises LeverError for two of a kind.
    """

    def __init__(
        self,
        levers: Sequence[Lever],
        clock: Clock,
        *,
        order: Sequence[LeverKind] = ORDER,
        most: Change | None = None,
        rest_s: float = 30.0,
        guarded: bool = True,
    ) -> None:
        self.levers = {lever.kind: lever for lever in levers}
        twice = next((lever for lever in levers if self.levers[lever.kind] is not lever), None)
        if twice is not None:
            other = self.levers[twice.kind].name
            raise LeverError(twice.name, f"the unit has another lever of the kind {twice.kind}: {other}")
        self._clock, self._most, self._rest_s = clock, most, rest_s
        self._guarded = guarded
        self._order = tuple(kind for kind in order if kind in self.levers)
        self._standings: dict[LeverKind, Standing] = {}
        self._resting: dict[LeverKind, tuple[int, str]] = {}
        self._carried: dict[LeverKind, float] = {}

    def read(self) -> list[Move]:
        """Read the levers' positions; return those that fail."""
        failed = []
        for kind, lever in self.levers.items():
            if self._rests(kind):
                continue
            try:
                self._standings[kind] = lever.read()
            except LeverError as error:
                failed.append(self._fail(kind, 0.0, error))
        return failed

    @property
    def state(self) -> UnitState:
        """The levers' positions at the last reading; a kind that the unit does not have is at 1."""
        clock, units = self._standing(LeverKind.FREQUENCY), self._standing(LeverKind.SUB_UNITS)
        standing = self._standing(LeverKind.PRECISION)
        first, steps = self._precisions()
        at = steps[min(max(round(standing.value - first), 0), len(steps) - 1)]
        return UnitState(
            at,
            max(clock.value, 1e-9),
            max(round(units.value), 1),
            max(round(self._standing(LeverKind.CONCURRENCY).value), 1),
            max(self._standing(LeverKind.POWER).value, 1e-9),
        )

    def apply(self, change: Change, sample: Sample | None = None) -> list[Move]:
        """Move the levers; the rest of one that is exhausted, refuses or fails goes to the next."""
        moves: list[Move] = []
        seen = sample if self._guarded else None
        pending, state = only(change, self._order), self.state
        for turn, kind in enumerate(self._order):
            order = self._order[turn:]
            pending = self._handed_on(pending, state, order, seen)
            seen = None  # the sample is from before the first move: do not apply it again
            asked = part_of(pending, kind)
            if not asked:
                pending = with_part(pending, kind, 0)
                continue
            move = self._move(kind, asked)
            moves.append(move)
            state = self.state
            left = 0.0 if move.moved.between else move.moved.left
            if left:
                self._pin(kind)
                pending = hand_on(
                    with_part(pending, kind, left), state, self._limits(), order=order, most=self._most
                ).change
            pending = with_part(pending, kind, 0)
        return moves

    def release(self) -> list[Move]:
        """Restore all levers' original positions; return those that fail."""
        failed = []
        for kind, lever in self.levers.items():
            try:
                lever.release()
            except LeverError as error:
                failed.append(self._fail(kind, 0.0, error))
        self._carried.clear()
        return failed

    def _move(self, kind: LeverKind, asked: float) -> Move:
        lever = self.levers[kind]
        carried = self._carried.pop(kind, 0.0)
        wanted = asked + carried if carried * asked > 0 else asked
        try:
            result = lever.move(wanted)
        except LeverError as error:
            return self._fail(kind, asked, error)
        if result.between:
            self._carried[kind] = result.left
        standing = self._standing(kind)
        self._standings[kind] = replace(standing, value=standing.value + result.done)
        return Move(lever.name, kind, asked, result)

    def _fail(self, kind: LeverKind, asked: float, error: LeverError) -> Move:
        self._resting[kind] = (self._clock.now_ns() + round(self._rest_s * NS_PER_S), str(error))
        self._pin(kind)
        return Move(self.levers[kind].name, kind, asked, Moved(0.0, asked, str(error)), failed=True)

    def _rests(self, kind: LeverKind) -> bool:
        until_ns, _ = self._resting.get(kind, (0, ""))
        if until_ns and self._clock.now_ns() >= until_ns:
            del self._resting[kind]
        return kind in self._resting

    def _pin(self, kind: LeverKind) -> None:
        """Limit a lever to its position until it is read again."""
        standing = self._standing(kind)
        self._standings[kind] = replace(standing, low=standing.value, high=standing.value)

    def _standing(self, kind: LeverKind) -> Standing:
        return self._standings.get(kind, _NONE)

    def _handed_on(self, change: Change, state: UnitState, order: Sequence[LeverKind], sample: Sample | None) -> Change:
        lever, speeds = self.levers.get(LeverKind.PRECISION), SPEEDS
        if isinstance(lever, BatchSize):
            speeds = {step: lever.ratio**-index for index, step in enumerate(STEPS)}
        return hand_on(change, state, self._limits(), order=order, speeds=speeds, most=self._most, sample=sample).change

    def _precisions(self) -> tuple[float, tuple[Precision, ...]]:
        """Return the index of the precision at the first step, and the steps for the indices from there up."""
        lever, standing = self.levers.get(LeverKind.PRECISION), self._standing(LeverKind.PRECISION)
        if isinstance(lever, (Autocast, ProgramPrecision)):
            return 0, lever.precisions
        spare = max(round(standing.high - standing.low) + 1 - len(STEPS), 0)
        first = standing.low + min(max(round(standing.value - standing.low) - len(STEPS) // 2, 0), spare)
        return first, STEPS[: min(round(standing.high - first) + 1, len(STEPS))]

    def _limits(self) -> Limits:
        state = self.state
        clock, units = self._standing(LeverKind.FREQUENCY), self._standing(LeverKind.SUB_UNITS)
        standing = self._standing(LeverKind.PRECISION)
        pinned = standing.low == standing.high or not standing.may_set
        low, high = _ends(clock)
        power = self._standing(LeverKind.POWER)
        fewest, most = (max(round(end), 1) for end in _ends(units))
        least, concurrent = (max(round(end), 1) for end in _ends(self._standing(LeverKind.CONCURRENCY)))
        low_w, high_w = _ends(power)
        return Limits(
            precisions=(state.precision,) if pinned else self._precisions()[1],
            frequency_low_mhz=max(low, 1e-9),
            frequency_high_mhz=max(high, 1e-9),
            sub_units_low=fewest,
            sub_units_high=max(fewest, most),
            concurrency_low=least,
            concurrency_high=max(least, concurrent),
            power_low_w=max(low_w, 1e-9),
            power_high_w=max(high_w, 1e-9),
        )


def _ends(standing: Standing) -> tuple[float, float]:
    """Return a lever's range; one that may not be set, or is beyond its range, does not go further."""
    if not standing.may_set:
        return standing.value, standing.value
    return standing.low, max(standing.low, standing.high)
