"""One round about one pool: the allocation, the shares to write now, and the explanation; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from msgspec.structs import replace as changed

from controller.apiserver.registry.pools.shares import room_of, silent_s
from controller.apiserver.resources import Node, UnitPool
from controller.apiserver.resources.unit_pool import Claim, HolderControl, HolderStatus, UnitHolding, UnitPoolStatus
from controller.balance.allocation import Allocation, Claimant, Handover, Limits, Move, allocate, hand_over
from controller.balance.serving.wanting import NOTHING, Memory, advice, blocked_by, look
from controller.balance.settings import BalanceSettings
from controller.balance.values import Change
from controller.common.errors import StaleError
from dataplane.clock import NS_PER_S

_DIGITS: Final = 4
_LINE: Final = 1024


@dataclass(frozen=True, slots=True)
class Round:
    """The decision; `shares` is None if nothing moves. `moved` counts against the rate limit."""

    status: UnitPoolStatus
    memories: Mapping[str, Memory]
    shares: tuple[UnitHolding, ...] | None = None
    moves: tuple[Move, ...] = ()
    moved: int = 0
    capacity: int = 0
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Holder:
    """A holder as this round sees it."""

    claimant: Claimant
    handover: Handover
    report: HolderStatus
    memory: Memory
    reason: str
    is_silent: bool = False


def decide(
    pool: UnitPool,
    node: Node | None,
    memories: Mapping[str, Memory],
    now_ns: int,
    settings: BalanceSettings,
    *,
    moves: int,
    heard_ns: int = 0,
) -> Round:
    """Return a round's decision, in which at most this many units move; `node` is the pool's, if it has one.

    Before `heard_ns` no holder could be heard: silence counts from then.
    """
    reports, look_at = (
        {report.holder: report for report in pool.status.holders},
        _Look(pool, now_ns, heard_ns, settings),
    )
    holders = {name: _holder(look_at, name, reports.get(name), memories.get(name)) for name in pool.holders}
    after = {name: holder.memory for name, holder in holders.items()}
    try:
        capacity = _capacity(pool, node)
    except StaleError as error:
        return Round(_status(look_at, holders, None, f"{error}"), after)
    if pool.spec.paused:
        return Round(_status(look_at, holders, None, "paused: nothing moves"), after, capacity=capacity)
    limits = Limits(moves=moves, margin=settings.moving.margin)
    allocation = allocate(capacity, [holder.claimant for holder in holders.values()], limits)
    holdings = hand_over(capacity, {name: holder.handover for name, holder in holders.items()}, allocation)
    shares = tuple(
        UnitHolding(holder=holding.holder, units=holding.units, leaving=holding.leaving) for holding in holdings
    )
    moved = _moved(pool, shares)
    return Round(
        _status(look_at, {name: _after(holder, shares) for name, holder in holders.items()}, allocation, ""),
        {name: _remembering(holder, allocation) for name, holder in holders.items()},
        shares if moved or _differs(pool, shares) else None,
        allocation.moves,
        moved,
        capacity,
        tuple(name for name, holder in holders.items() if holder.is_silent),
    )


def _after(holder: _Holder, shares: tuple[UnitHolding, ...]) -> _Holder:
    """Return a holder with its units after the shares are written."""
    name = holder.claimant.holder
    share = next((holding for holding in shares if holding.holder == name), None)
    units, leaving = (0, 0) if share is None else (share.units, share.leaving)
    return replace(
        holder,
        claimant=replace(holder.claimant, units=units - leaving),
        handover=replace(holder.handover, units=units),
    )


def _capacity(pool: UnitPool, node: Node | None) -> int:
    """Return the number of units to share out; raise StaleError if the node does not state it."""
    if pool.spec.node is None:
        return pool.spec.units
    if node is None:
        raise StaleError(f"Node {pool.spec.node} does not exist")
    return min(pool.spec.units, room_of(pool, node).total)


@dataclass(frozen=True, slots=True)
class _Look:
    """A pool, the time of the round, and the time since when its holders could be heard."""

    pool: UnitPool
    now_ns: int
    heard_ns: int
    settings: BalanceSettings

    def quiet_s(self, name: str, share: UnitHolding | None) -> float:
        """Return for how long a reachable holder has not reported."""
        silence_s = silent_s(self.pool, share or UnitHolding(holder=name, units=1), self.now_ns)
        return min(silence_s, max(self.now_ns - self.heard_ns, 0) / NS_PER_S)

    def is_held(self, share: UnitHolding | None) -> bool:
        """Return whether a holder's recently received units stay for a while."""
        return share is not None and self.now_ns < share.grown_ns + round(self.pool.spec.hold_s * NS_PER_S)


def _holder(look_at: _Look, name: str, report: HolderStatus | None, memory: Memory | None) -> _Holder:
    """Return a holder's state: a silent one keeps its units, and after the lease its minimum share."""
    pool, share = look_at.pool, next((holding for holding in look_at.pool.shares if holding.holder == name), None)
    memory = memory or NOTHING
    if report is not None:
        settings = look_at.settings
        memory = look(pool, report, memory, full_load=settings.moving.full_load, table=settings.table)
    units = 0 if share is None else share.units
    claimant = _claimant(pool, name, share, memory)
    handover = Handover(name, units, _promised(pool, report, units))
    quiet_s, lease_s = look_at.quiet_s(name, share), pool.spec.lease_s
    is_reporter = report is not None and report.reported_ns is not None
    report = report or HolderStatus(holder=name)
    if lease_s and quiet_s >= lease_s and units:
        claimant = replace(claimant, wanted=claimant.least, may_give=True)
        reason = f"silent beyond its lease of {lease_s:g} s: it keeps {claimant.least} units"
        return _Holder(claimant, replace(handover, promised=0), report, memory, reason, is_silent=True)
    if is_reporter and quiet_s > look_at.settings.stale_s:
        reason = "silent: its units are held" if units else "silent"
        return _Holder(replace(claimant, is_fixed=True), handover, report, memory, reason, is_silent=True)
    if not is_reporter and lease_s:
        return _Holder(replace(claimant, is_fixed=True), handover, report, memory, "has not reported yet")
    claimant = replace(claimant, busy=memory.busy, may_give=not look_at.is_held(share))
    return _Holder(claimant, handover, report, memory, memory.problem)


def _claimant(pool: UnitPool, name: str, share: UnitHolding | None, memory: Memory) -> Claimant:
    claims = {claim.holder: claim for claim in pool.spec.claims}
    none = Claim(holder=name, most=0) if claims else Claim(holder=name)
    claim, units = claims.get(name, none), 0 if share is None else share.units - share.leaving
    wanted = units if memory.wanted is None else memory.wanted
    return Claimant(name, units, wanted, claim.least, claim.most, claim.priority, claim.weight)


def _promised(pool: UnitPool, report: HolderStatus | None, units: int) -> int:
    """Return how many units a holder may still use, regardless of what is written."""
    if not pool.spec.lease_s:
        return 0
    return units if report is None or report.holds is None else report.holds


def _differs(pool: UnitPool, shares: tuple[UnitHolding, ...]) -> bool:
    before = {holding.holder: (holding.units, holding.leaving) for holding in pool.shares}
    return before != {holding.holder: (holding.units, holding.leaving) for holding in shares}


def _moved(pool: UnitPool, shares: tuple[UnitHolding, ...]) -> int:
    """Return the number of units that move, or are asked back."""
    before = {holding.holder: holding.units - holding.leaving for holding in pool.shares}
    after = {holding.holder: holding.units - holding.leaving for holding in shares}
    names = before.keys() | after.keys()
    gained = sum(max(after.get(name, 0) - before.get(name, 0), 0) for name in names)
    return max(gained, sum(max(before.get(name, 0) - after.get(name, 0), 0) for name in names))


def _remembering(holder: _Holder, allocation: Allocation) -> Memory:
    """Return a holder's memory, with outputs that its units could not follow, so that its integral does not grow."""
    claimant, target = holder.claimant, allocation.units[holder.claimant.holder]
    if claimant.is_fixed:
        return holder.memory
    blocked = blocked_by(holder.report, claimant.units, claimant.wanted, low=claimant.least, high=target)
    return replace(holder.memory, blocked=blocked)


def _status(
    look_at: _Look, holders: Mapping[str, _Holder], allocation: Allocation | None, reason: str
) -> UnitPoolStatus:
    pool, most = look_at.pool, look_at.settings.table.most
    control = tuple(_control(holder, allocation, most) for holder in holders.values())
    price = None if allocation is None else round(allocation.shadow_price, _DIGITS)
    return changed(pool.status, control=control, shadow_price=price, reason=reason[:_LINE])


def _control(holder: _Holder, allocation: Allocation | None, most: Change) -> HolderControl:
    claimant, memory = holder.claimant, holder.memory
    name, wants = claimant.holder, claimant.wanted - claimant.units
    target = claimant.units if allocation is None else allocation.units[name]
    if claimant.is_fixed:
        change = memory.change
    else:
        high = target if target < claimant.wanted else claimant.ceiling + max(claimant.units, 1)
        low = min(claimant.least, target)
        change = advice(holder.report, memory, claimant.units, low=low, high=high, most=most)
    return HolderControl(
        holder=name,
        error=_rounded(memory.error),
        output=_rounded(memory.output),
        wants=0 if claimant.is_fixed else wants,
        precision_steps=change.precision_steps,
        frequency_mhz=round(change.frequency_mhz, 1),
        price=0.0 if allocation is None else round(allocation.prices[name], _DIGITS),
        reason=(holder.reason or _reason(claimant, target, holder.handover))[:_LINE],
    )


def _reason(claimant: Claimant, target: int, handover: Handover) -> str:
    """Return the reason for a holder's units, if it wants a different number."""
    if handover.units > claimant.units:
        return f"asked to give back {handover.units - claimant.units}"
    if target > claimant.units:
        return f"gets {target - claimant.units} once they are free"
    if claimant.ceiling > target:
        return f"short of {claimant.ceiling - target}"
    if claimant.most is not None and claimant.wanted > claimant.most:
        return f"at its maximum of {claimant.most}"
    if claimant.units > claimant.ceiling:
        return "keeps recently moved units"
    return ""


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
