"""Number of units that a holder would like, from its last report; pure.

A holder states it itself (`wants`), or it is computed from its bus and load by the pool's controller and rule. A report
counts once, and only if it was made after the holder's units last changed: an older one is about former units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from controller.apiserver.resources import UnitPool
from controller.apiserver.resources.unit_pool import ControlRule, HolderStatus, PoolControl, UnitHolding
from controller.balance.allocation import busy_units, within_load
from controller.balance.control.controller import Controller, ControllerState, ControlSettings, Scheme
from controller.balance.control.pid import Blocked, PidSettings
from controller.balance.errors import BalanceError
from controller.balance.rules import TABLE, IntervalRule, IntervalTable, Limits, PlatformRule, Rule, hand_on
from controller.balance.values import Change, Form, LeverKind, Precision, Sample, UnitState
from dataplane.clock import NS_PER_S

_NOMINAL_MHZ: Final = 1000.0
_LEAST_MHZ: Final = 1e-3
_MOST_MHZ: Final = 1e6


@dataclass(frozen=True, slots=True)
class Memory:
    """State kept about a holder between rounds; `reported_ns` is of the last report that was processed."""

    controller: ControllerState = field(default_factory=ControllerState)
    control: PoolControl = field(default_factory=PoolControl)
    """The control settings behind the controller's state."""
    reported_ns: int = 0
    wanted: int | None = None
    """Wanted units in total; None: the present ones."""
    busy: int | None = None
    """Units that suffice for the reported load; None: all."""
    error: float | None = None
    output: float | None = None
    change: Change = field(default_factory=Change)
    blocked: Blocked = Blocked.NO
    """Outputs that moved nothing: the pool had no more units, or the holder has no more to give."""
    problem: str = ""


NOTHING: Final = Memory()


def look(
    pool: UnitPool, report: HolderStatus, before: Memory, *, full_load: float, table: IntervalTable = TABLE
) -> Memory:
    """Return a holder's state after its report; units at a load of `full_load` are all busy."""
    # An earlier timestamp is new, too: the server's clock was set back. Pools always arrive in order.
    if report.reported_ns is None or report.reported_ns == before.reported_ns:
        return before
    share = next((holding for holding in pool.shares if holding.holder == report.holder), None)
    error = None if report.bus is None or report.load is None else report.bus - report.load
    seen = replace(before, reported_ns=report.reported_ns, problem="", error=error, output=None)
    units = 0 if share is None else share.units - share.leaving
    settled_ns = 0 if share is None else share.since_ns + round(pool.spec.control.settle_s * NS_PER_S)
    if report.reported_ns <= settled_ns:
        return replace(seen, wanted=None, output=before.output, change=Change())
    seen = replace(seen, busy=None if report.load is None else busy_units(units, report.load, full_load))
    if report.wants is not None:
        return replace(seen, wanted=max(units + report.wants, 0), change=Change(sub_units=report.wants))
    if report.bus is None or report.load is None:
        return replace(seen, wanted=None, change=Change())
    if share is None or not units:
        some = 1 if report.bus > 0 or report.load > 0 else 0
        return replace(seen, wanted=some, busy=None, change=Change(sub_units=some))
    try:
        return _controlled(pool, report, share, seen, table)
    except BalanceError as problem:
        return replace(seen, wanted=None, change=Change(), problem=str(problem))


def advice(
    report: HolderStatus, memory: Memory, units: int, *, low: int, high: int, most: Change = TABLE.most
) -> Change:
    """Return the change of a holder's levers within the bounds of its units.

    The rest goes to the clock and then to the precision, if the holder reports their positions, and at most by `most`
    at once.
    """
    if memory.output is None or memory.wanted is None or units < 1:
        return memory.change
    change = replace(memory.change, sub_units=memory.wanted - units)
    limits = Limits(sub_units_low=max(low, 1), sub_units_high=max(high, low, 1))
    try:
        state, sample = _state(report, units), None
        if report.bus is not None and report.load is not None:
            sample = Sample(0.0, report.bus, report.load, report.holder)
        return hand_on(change, state, limits, order=_levers(report), most=most, sample=sample).change
    except BalanceError:
        return memory.change


def blocked_by(report: HolderStatus, units: int, wanted: int, *, low: int, high: int) -> Blocked:
    """Return the outputs that units cannot follow; none if the holder has other levers for the rest."""
    if len(_levers(report)) > 1:
        return Blocked.NO
    if wanted > units >= high:
        return Blocked.DOWN
    return Blocked.UP if wanted < units <= low else Blocked.NO


@lru_cache(maxsize=1024)
def controller_of(control: PoolControl) -> Controller:
    """Return the controller for a pool's control settings; raise GainsError for invalid gains."""
    law = PidSettings(
        form=Form(control.form.value), kp=control.kp, ki=control.ki, kd=control.kd, threshold=control.dead_band
    )
    return Controller(ControlSettings(pid=law, scheme=Scheme(control.scheme.value)))


def rule_of(control: PoolControl, levers: tuple[LeverKind, ...], table: IntervalTable = TABLE) -> Rule:
    """Return the rule for a pool's control settings and these levers."""
    if control.rule is ControlRule.PLATFORM:
        return PlatformRule(threshold=control.dead_band, asks_from_load=control.asks_from_load)
    return IntervalRule(table=table, levers=levers, asks_from_load=control.asks_from_load)


def _controlled(pool: UnitPool, report: HolderStatus, share: UnitHolding, seen: Memory, table: IntervalTable) -> Memory:
    """Return the controller's result for a report with bus and load; raise BalanceError for an invalid one."""
    assert report.bus is not None
    assert report.load is not None
    control, units = pool.spec.control, share.units - share.leaving
    controller, state = controller_of(control), seen.controller
    if seen.control != control:
        controller, state = controller_of(seen.control).changed(state, controller.settings)
    sample = Sample(seen.reported_ns / NS_PER_S, report.bus, report.load, report.holder)
    state, output = controller.step(_before(state, sample.time_s), sample, seen.blocked)
    change = rule_of(control, _levers(report), table).change(output.u, sample, _state(report, units))
    return replace(
        seen,
        controller=state,
        control=control,
        wanted=within_load(max(units + change.sub_units, 0), units, report.load, control.frees_to_load),
        error=sample.error,
        output=output.u,
        change=change,
    )


def _before(state: ControllerState, time_s: float) -> ControllerState:
    """Return a state that is older than a sample: after the server's clock was set back, timestamps are unreliable.

    The size of the difference is irrelevant: controllers of pools count samples, not time.
    """
    if state.pid.time_s is None or state.pid.time_s < time_s:
        return state
    return replace(state, pid=replace(state.pid, time_s=math.nextafter(time_s, -math.inf)))


def _levers(report: HolderStatus) -> tuple[LeverKind, ...]:
    """Return the levers with positions reported by a holder, in the order of handover."""
    more = (LeverKind.FREQUENCY,) if _clock_mhz(report) is not None else ()
    return (LeverKind.SUB_UNITS, *more, *((LeverKind.PRECISION,) if report.precision else ()))


def _state(report: HolderStatus, units: int) -> UnitState:
    precision = Precision.INT8
    if report.precision:
        try:
            precision = Precision(report.precision)
        except ValueError:
            precisions = ", ".join(Precision)
            raise BalanceError(
                f"holder {report.holder}: unknown precision {report.precision!r}; known: {precisions}"
            ) from None
    return UnitState(precision, _clock_mhz(report) or _NOMINAL_MHZ, units)


def _clock_mhz(report: HolderStatus) -> float | None:
    """Return a holder's reported clock, None if it is not one that a device could have."""
    mhz = report.frequency_mhz
    return mhz if mhz is not None and _LEAST_MHZ <= mhz <= _MOST_MHZ else None
