"""The loop of one unit: measure, decide, move; hold without data, release when silent, rest what fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from controller.balance.control.controller import Controller
from controller.balance.control.pid import Blocked
from controller.balance.errors import LeverError, RuleError, SampleError
from controller.balance.levers.pool import PoolUnits
from controller.balance.levers.values import Moved
from controller.balance.rules import Rule
from controller.balance.running.board import Board, Move
from controller.balance.running.meters import Meter
from controller.balance.running.silence import SilenceSettings, Watch, watch
from controller.balance.values import Change, LeverKind, Sample, UnitState
from dataplane.clock import NS_PER_S, Clock

_KEEP: Final = Change()


class Source(Protocol):
    """Source of a unit's samples."""

    def begin(self, now_ns: int) -> None:
        """Begin an interval; raise SampleError if nothing can be measured."""
        ...

    def sample(self, now_ns: int) -> Sample:
        """Return the newest sample; raise SampleError with the reason if there is none."""
        ...


class Metered:
    """Samples measured on this machine: a meter of the bus and one of the cores."""

    def __init__(self, unit: str, bus: Meter, load: Meter) -> None:
        self._unit, self._bus, self._load = unit, bus, load

    def begin(self, now_ns: int) -> None:
        """Begin both."""
        self._bus.begin(now_ns)
        self._load.begin(now_ns)

    def sample(self, now_ns: int) -> Sample:
        """Return both readings of the interval."""
        return Sample(now_ns / NS_PER_S, self._bus.share(now_ns), self._load.share(now_ns), self._unit)


@dataclass(frozen=True, slots=True)
class Tick:
    """Inputs and actions of one turn of the loop; `problem` says why there is no sample or no decision.

    The sample covers the time in which the levers were at `before`; from then on they are at `state`.
    """

    time_s: float
    watch: Watch
    sample: Sample | None
    output: float
    change: Change
    moves: tuple[Move, ...]
    before: UnitState
    state: UnitState
    problem: str = ""

    @property
    def has_moved(self) -> bool:
        """True if any lever has changed its position."""
        return any(move.moved.done for move in self.moves)


class Loop:
    """One unit's loop; `tick` is called once per interval, and does everything."""

    def __init__(
        self, source: Source, control: Controller, rule: Rule, board: Board, *, silence: SilenceSettings, clock: Clock
    ) -> None:
        self._source, self._control, self._rule, self._board = source, control, rule, board
        self._silence, self._clock = silence, clock
        self._memory = control.start()
        self._blocked = Blocked.NO
        self._last_s = clock.now_ns() / NS_PER_S
        self._is_released = False
        self._problem = self._begin()

    @property
    def problem(self) -> str:
        """Reason why the present interval cannot be measured, '' if it can."""
        return self._problem

    def tick(self) -> Tick:
        """Measure the interval that ends now, decide and move; never raises for errors of sensors or levers."""
        now_ns = self._clock.now_ns()
        sample, problem = self._measured(now_ns)
        moves = self._board.read()
        before = self._board.state
        output, change = 0.0, _KEEP
        state = watch(self._silence, self._last_s, now_ns / NS_PER_S)
        if state is Watch.RELEASED:
            moves += self._release()
        elif sample is not None and state is Watch.FRESH:
            self._is_released = False
            output, change, problem = self._decided(sample)
            done = self._board.apply(change, sample)
            self._blocked = _blocked(output, change, done)
            moves += done
        if not self._is_released:
            moves += self._tell(sample, moves)
        self._problem = self._begin()
        return Tick(
            time_s=now_ns / NS_PER_S,
            watch=state,
            sample=sample,
            output=output,
            change=change,
            moves=tuple(moves),
            before=before,
            state=self._board.state,
            problem=problem or self._problem,
        )

    def release(self) -> tuple[Move, ...]:
        """Release the unit at the end of the loop."""
        return tuple(self._release())

    def _measured(self, now_ns: int) -> tuple[Sample | None, str]:
        """Return the sample if it is newer than the last, else why there is none."""
        if self._problem:
            return None, self._problem
        try:
            sample = self._source.sample(now_ns)
        except SampleError as error:
            return None, str(error)
        if sample.time_s <= self._last_s:
            age_s = now_ns / NS_PER_S - sample.time_s
            return None, f"unit {sample.unit}: no sample newer than {age_s:.1f} s"
        self._last_s = sample.time_s
        return sample, ""

    def _decided(self, sample: Sample) -> tuple[float, Change, str]:
        try:
            self._memory, output = self._control.step(self._memory, sample, self._blocked)
            return output.u, self._rule.change(output.u, sample, self._board.state), ""
        except (SampleError, RuleError) as error:
            return 0.0, _KEEP, str(error)

    def _release(self) -> list[Move]:
        """Release the levers once; the controller restarts with the next sample."""
        if self._is_released:
            return []
        self._is_released = True
        self._memory, self._blocked = self._control.start(), Blocked.NO
        return self._board.release()

    def _tell(self, sample: Sample | None, moves: list[Move]) -> list[Move]:
        """Report to the pool of the units, if there is one; withdraw requests that no longer apply."""
        lever = self._board.levers.get(LeverKind.SUB_UNITS)
        if not isinstance(lever, PoolUnits):
            return []
        try:
            if all(move.kind is not LeverKind.SUB_UNITS for move in moves):
                lever.move(0.0)
            state, others = self._board.state, self._board.levers
            precision = state.precision.value if LeverKind.PRECISION in others else ""
            lever.tell(sample, precision, state.frequency_mhz if LeverKind.FREQUENCY in others else None)
        except LeverError as error:
            return [Move(lever.name, lever.kind, 0.0, Moved(0.0, 0.0, str(error)), failed=True)]
        return []

    def _begin(self) -> str:
        """Begin the next interval after the levers were moved, so that none spans a move; return any problem."""
        try:
            self._source.begin(self._clock.now_ns())
        except SampleError as error:
            return str(error)
        return ""


def _blocked(output: float, change: Change, moves: list[Move]) -> Blocked:
    """Return the direction in which no lever moves any more: that of an output that none of them could follow."""
    if change.keeps or any(move.moved.done or move.moved.between for move in moves):
        return Blocked.NO
    return Blocked.UP if output > 0 else Blocked.DOWN
