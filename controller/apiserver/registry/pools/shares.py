"""Shares of unit pools and reports of their holders, given the state in the storage; no storage access.

A unit is never in two places: shares never sum to more than the total; a node's pool shares its devices with pods; and
if holders report, a unit leaves one only after it has promised to stop using it, or has been silent for the pool's
lease.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.registry.placements import NewDecision
from controller.apiserver.registry.pools.devices import Room, placed, together
from controller.apiserver.resources import Node, UnitPool
from controller.apiserver.resources.base import Count
from controller.apiserver.resources.node import PoolShare
from controller.apiserver.resources.unit_pool import MOST_HOLDERS, HolderStatus, UnitHolding, UnitPoolStatus
from controller.cluster.hardware.errors import HardwareError
from controller.common.errors import InvalidError, NotFoundError, StaleError
from dataplane.clock import NS_PER_S
from dataplane.config import Strict


class UnitShares(Strict, frozen=True):
    """New holders of a pool's units, if its shares are still at a version; reports do not change that version."""

    shares: Annotated[tuple[UnitHolding, ...], Meta(max_length=MOST_HOLDERS)]
    shares_version: Count | None = None
    decision: NewDecision | None = None


def share(pool: UnitPool, node: Node | None, request: UnitShares, now_ns: int) -> tuple[UnitPool, Node | None]:
    """Return pool and node after a request; raise StaleError if it is not possible, or not yet."""
    name = pool.metadata.name
    _check_names(request.shares)
    if request.shares_version is not None and request.shares_version != pool.shares_version:
        raise StaleError(
            f"shares of UnitPool {name} are at version {pool.shares_version}, not {request.shares_version}"
        )
    held = sum(holding.units for holding in request.shares)
    if held > pool.spec.units:
        raise StaleError(f"UnitPool {name} has {pool.spec.units} units, not {held}")
    _check_claims(pool, request.shares)
    status = _after_lowering(pool, request.shares, now_ns)
    stamped = tuple(_stamped(pool, holding, now_ns) for holding in request.shares)
    if pool.spec.node is None:
        return replace(pool, shares=stamped, shares_version=pool.shares_version + 1, status=status), None
    if node is None:
        raise StaleError(f"UnitPool {name}: there is no Node {pool.spec.node}")
    stamped = _on_devices(pool, node, stamped)
    made = replace(pool, shares=stamped, shares_version=pool.shares_version + 1, status=status)
    return made, _with_pool(node, made)


def report(pool: UnitPool, status: HolderStatus, now_ns: int) -> UnitPool:
    """Return a pool with a holder's report; raise StaleError for a promise of more units than it has."""
    name, holder = pool.metadata.name, status.holder
    if holder not in pool.holders:
        raise NotFoundError(f"UnitPool {name}: {holder} has neither a claim nor units")
    units = next((holding.units for holding in pool.shares if holding.holder == holder), 0)
    before = next((holder_report for holder_report in pool.status.holders if holder_report.holder == holder), None)
    holds = status.holds if status.holds is not None or before is None else before.holds
    if holds is not None and holds > units:
        raise StaleError(f"UnitPool {name}: {holder} has {units} units, not {holds}")
    made = replace(status, holds=holds, reported_ns=now_ns)
    by_holder = {
        holder_report.holder: holder_report
        for holder_report in pool.status.holders
        if holder_report.holder in pool.holders
    } | {holder: made}
    shares = tuple(_not_after(holding, now_ns) for holding in pool.shares)
    return replace(pool, shares=shares, status=replace(pool.status, holders=tuple(by_holder.values())))


def room_of(pool: UnitPool, node: Node) -> Room:
    """Return the pool's capacity on each device of its node; raise StaleError if the node's hardware is unknown."""
    value = node.value
    if value is None:
        raise StaleError(f"Node {node.metadata.name} has not reported its devices")
    own = replace(node, pools=tuple(pool_share for pool_share in node.pools if pool_share.pool != pool.metadata.name))
    try:
        others = own.held
    except HardwareError as error:
        raise StaleError(f"Node {node.metadata.name}: {error}") from None
    return Room.of(pool.spec, value, others)


def silent_s(pool: UnitPool, share: UnitHolding, now_ns: int) -> float:
    """Return how long a holder has been silent (s)."""
    reported = next(
        (holder_report for holder_report in pool.status.holders if holder_report.holder == share.holder), None
    )
    last_ns = share.since_ns if reported is None or reported.reported_ns is None else reported.reported_ns
    return max(now_ns - last_ns, 0) / NS_PER_S


def _check_names(shares: Iterable[UnitHolding]) -> None:
    counts = Counter(holding.holder for holding in shares)
    twice = next((holder for holder, count in counts.items() if count > 1), None)
    if twice is not None:
        raise InvalidError(f"holder {twice} is given twice")
    wrong = next((holding for holding in shares if holding.leaving > holding.units), None)
    if wrong is not None:
        raise InvalidError(f"holder {wrong.holder}: {wrong.leaving} of {wrong.units} units cannot leave")


def _check_claims(pool: UnitPool, shares: Iterable[UnitHolding]) -> None:
    """Raise StaleError for more units than a holder may have; it may keep those it has already."""
    before = {holding.holder: holding.units for holding in pool.shares}
    claims = {claim.holder: claim for claim in pool.spec.claims}
    for holding in shares:
        if not claims or holding.units <= before.get(holding.holder, 0):
            continue
        claim = claims.get(holding.holder)
        if claim is None:
            raise StaleError(f"UnitPool {pool.metadata.name}: {holding.holder} has no claim")
        if claim.most is not None and holding.units > claim.most:
            raise StaleError(
                f"UnitPool {pool.metadata.name}: {holding.holder} may have at most {claim.most} units,"
                f" not {holding.units}"
            )


def _after_lowering(pool: UnitPool, shares: Iterable[UnitHolding], now_ns: int) -> UnitPoolStatus:
    """Return the status with promises cut to what is left; raise StaleError if a holder must promise first."""
    after = {holding.holder: holding.units for holding in shares}
    reports = {holder_report.holder: holder_report for holder_report in pool.status.holders}
    for share in pool.shares:
        left, reported = after.get(share.holder, 0), reports.get(share.holder)
        holds = share.units if reported is None or reported.holds is None else reported.holds
        if left >= share.units or holds <= left:
            continue
        if pool.spec.lease_s and silent_s(pool, share, now_ns) < pool.spec.lease_s:
            raise StaleError(f"UnitPool {pool.metadata.name}: {share.holder} uses {holds} units, it cannot have {left}")
        if reported is not None and reported.holds is not None:
            reports[share.holder] = replace(reported, holds=left)
    return replace(pool.status, holders=tuple(reports.values()))


def _stamped(pool: UnitPool, wanted: UnitHolding, now_ns: int) -> UnitHolding:
    """Return a holding with updated change times and, for now, its previous devices."""
    before = next((holding for holding in pool.shares if holding.holder == wanted.holder), None)
    if before is None:
        return replace(wanted, since_ns=now_ns, grown_ns=now_ns, devices=())
    if before.units == wanted.units:
        return replace(before, leaving=wanted.leaving)
    grown_ns = now_ns if wanted.units > before.units else before.grown_ns
    return replace(before, units=wanted.units, leaving=wanted.leaving, since_ns=now_ns, grown_ns=grown_ns)


def _not_after(share: UnitHolding, now_ns: int) -> UnitHolding:
    """Return a holding whose changes precede a report made now, even if the clock was set back since."""
    before_ns = max(now_ns - 1, 0)
    if max(share.since_ns, share.grown_ns) < now_ns:
        return share
    return replace(share, since_ns=min(share.since_ns, before_ns), grown_ns=min(share.grown_ns, before_ns))


def _on_devices(pool: UnitPool, node: Node, shares: tuple[UnitHolding, ...]) -> tuple[UnitHolding, ...]:
    room = room_of(pool, node)
    on_devices = placed(room, pool.shares, shares)
    if on_devices is None:
        held = sum(holding.units for holding in shares)
        where = f"Node {node.metadata.name} has room for {room.total} units of pool {pool.metadata.name}"
        raise StaleError(f"{where}, not {held}")
    return on_devices


def _with_pool(node: Node, pool: UnitPool) -> Node:
    """Return a node with the pool's current shares."""
    devices, name = together(pool.shares), pool.metadata.name
    own = (PoolShare(pool=name, devices=devices),) if devices else ()
    made = tuple(
        sorted(
            (*(pool_share for pool_share in node.pools if pool_share.pool != name), *own),
            key=lambda pool_share: pool_share.pool,
        )
    )
    return node if made == node.pools else replace(node, pools=made, shares_version=node.shares_version + 1)
