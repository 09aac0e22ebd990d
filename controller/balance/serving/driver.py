"""The running service: follows pools and nodes, decides in rounds, and writes shares and status.

It keeps no books: shares are in the pools. If two services decide about one pool, one of them loses each conflict.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.apiserver.client import ApiClient
from controller.apiserver.client.values import Event, Listing
from controller.apiserver.registry.events import EventType
from controller.apiserver.registry.placements import NewDecision
from controller.apiserver.resources import Node, UnitPool
from controller.apiserver.resources.base import MAX_NAME, R
from controller.apiserver.resources.decision import DecisionSpec, Outcome
from controller.balance.errors import HistoryError
from controller.balance.serving.deciding import Round, decide
from controller.balance.serving.history import History
from controller.balance.serving.wanting import Memory
from controller.balance.settings import BalanceSettings, MovingSettings
from controller.common.errors import ApiError, NotFoundError, StaleError, UnavailableError
from dataplane.clock import NS_PER_S, Clock


class Metrics:
    """Counters in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of_pool, of_holder = ["pool"], ["pool", "holder"]
        self.moves = Counter(
            "millrace_balance_moved_units",
            "Units moved or asked back.",
            of_pool,
            registry=self.registry,
        )
        self.reports = Counter(
            "millrace_balance_reports", "Holders' reports processed.", of_pool, registry=self.registry
        )
        self.conflicts = Counter(
            "millrace_balance_conflicts",
            "Writes of shares that conflicted and were decided again.",
            registry=self.registry,
        )
        self.failures = Counter(
            "millrace_balance_failures", "Writes that failed for other reasons.", registry=self.registry
        )
        self.pools = Gauge("millrace_balance_pools", "Known pools.", registry=self.registry)
        self.silent = Gauge(
            "millrace_balance_silent_holders", "Holders that have stopped reporting.", of_pool, registry=self.registry
        )
        self.capacity = Gauge(
            "millrace_balance_capacity_units",
            "Units to share out.",
            of_pool,
            registry=self.registry,
        )
        self.price = Gauge(
            "millrace_balance_shadow_price",
            "Worth of one more unit.",
            of_pool,
            registry=self.registry,
        )
        self.units = Gauge("millrace_balance_units", "Units held.", of_holder, registry=self.registry)
        self.error = Gauge(
            "millrace_balance_error", "Bus minus load in the last report.", of_holder, registry=self.registry
        )
        self.output = Gauge("millrace_balance_output", "The controller's output u.", of_holder, registry=self.registry)
        self.seconds = Histogram(
            "millrace_balance_round_seconds",
            "Duration of a round of decisions, without its writes.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
            registry=self.registry,
        )

    def show(self, pools: tuple[UnitPool, ...], silent: dict[str, int], capacity: dict[str, int]) -> None:
        """Set the gauges to the present state; remove those of deleted pools and holders."""
        for gauge in (self.silent, self.capacity, self.price, self.units, self.error, self.output):
            gauge.clear()
        self.pools.set(len(pools))
        for pool in pools:
            name = pool.metadata.name
            self.silent.labels(name).set(silent.get(name, 0))
            self.capacity.labels(name).set(capacity.get(name, 0))
            self.price.labels(name).set(pool.status.shadow_price or 0.0)
            for share in pool.shares:
                self.units.labels(name, share.holder).set(share.units)
            for made in pool.status.control:
                if made.error is not None:
                    self.error.labels(name, made.holder).set(made.error)
                if made.output is not None:
                    self.output.labels(name, made.holder).set(made.output)


LOGGER: Final = logging.getLogger("millrace.balance")
_FORGET_EVERY_NS: Final = 600 * NS_PER_S
_LINE: Final = 1024
_SHARES: Final = "shares"
_STATUS: Final = "status"


@dataclass(slots=True)
class Budget:
    """Rate limit of a pool's moves: a number of units per second, after an initial burst."""

    left: float
    at_ns: int

    def refill(self, settings: MovingSettings, now_ns: int) -> int:
        """Return how many units may move now."""
        added = settings.units_per_s * (now_ns - self.at_ns) / NS_PER_S
        self.left, self.at_ns = min(self.left + added, float(settings.burst)), now_ns
        return max(int(self.left), 0)


@dataclass(slots=True)
class _PoolState:
    """State kept about a pool beyond the resource."""

    budget: Budget
    memories: dict[str, Memory] = field(default_factory=dict[str, Memory])
    silent: tuple[str, ...] = ()
    capacity: int = 0
    logged_reason: str = ""
    problems: dict[str, str] = field(default_factory=dict[str, str])
    """Reasons for failed writes; empty if all is well."""


class BalanceService:
    """Shares units out. `run` works until it is cancelled; `now_ns` is the time since 1970 by the server's clock."""

    def __init__(
        self,
        client: ApiClient,
        settings: BalanceSettings,
        *,
        clock: Clock,
        metrics: Metrics,
        history: History | None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.pools: dict[str, UnitPool] = {}
        self.nodes: dict[str, Node] = {}
        self._client, self._settings, self._clock, self._now_ns = client, settings, clock, now_ns
        self._metrics, self._history = metrics, history
        self._states: dict[str, _PoolState] = {}
        self._changed = asyncio.Event()
        self._is_away, self._forgot_ns, self._heard_ns = False, 0, now_ns()

    async def run(self) -> None:
        """Follow, decide and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_pools())
            group.create_task(self._follow_nodes())
            group.create_task(self._work())

    def note_away(self, line: str) -> None:
        """Record that the API server is unreachable; only the first watch logs it."""
        if not self._is_away:
            LOGGER.warning("%s", line)
        self._is_away = True

    async def _follow_pools(self) -> None:
        async for change in self._client.of(UnitPool).follow():
            self._back()
            _take(self.pools, change)
            self._changed.set()

    async def _follow_nodes(self) -> None:
        async for change in self._client.of(Node).follow():
            self._back()  # perhaps only this watch was waiting
            _take(self.nodes, change)
            if any(pool.spec.node is not None for pool in self.pools.values()):
                self._changed.set()

    def _back(self) -> None:
        if self._is_away:
            # Holders could not report either: count their silence from now.
            self._heard_ns = self._now_ns()
            LOGGER.info("the API server answers again; restarting the count of holders' silence")
        self._is_away = False

    async def _work(self) -> None:
        """Decide once in each interval; never while holders cannot be heard, since they could not report either."""
        while True:
            begun_ns = self._clock.now_ns()
            self._changed.clear()
            if not self._is_away:
                await self._round()
            passed_s = (self._clock.now_ns() - begun_ns) / NS_PER_S
            await asyncio.sleep(max(self._settings.interval_s - passed_s, 0.0))

    async def _round(self) -> None:
        # If the clock was set back, silence must not go undetected until it has caught up.
        self._heard_ns = min(self._heard_ns, self._now_ns())
        for name in self._states.keys() - self.pools.keys():
            del self._states[name]
            self._keep(partial(History.forget_pool, pool=name))
        for name in sorted(self.pools):
            if (pool := self.pools.get(name)) is not None:
                await self._serve(pool)
        self._metrics.show(
            tuple(self.pools.values()),
            {name: len(state.silent) for name, state in self._states.items()},
            {name: state.capacity for name, state in self._states.items()},
        )
        self._keep(self._forget_old)

    async def _serve(self, pool: UnitPool) -> None:
        """Decide about a pool and write the result."""
        name, state = pool.metadata.name, self._state_of(pool)
        begun_ns = self._clock.now_ns()
        node = None if pool.spec.node is None else self.nodes.get(pool.spec.node)
        moves = state.budget.refill(self._settings.moving, begun_ns)
        made = decide(pool, node, state.memories, self._now_ns(), self._settings, moves=moves, heard_ns=self._heard_ns)
        self._metrics.seconds.observe((self._clock.now_ns() - begun_ns) / NS_PER_S)
        self._note(pool, state, made)
        if made.shares is not None:
            await self._write(pool, state, made)
        if made.status != pool.status:
            await self._say(name, state, made)

    def _state_of(self, pool: UnitPool) -> _PoolState:
        """Return the state kept about a pool; for a new one, the state from before a restart."""
        name = pool.metadata.name
        if name not in self._states:
            memories: dict[str, Memory] = {}
            self._keep(lambda history: memories.update(history.memories(name)))
            burst = float(self._settings.moving.burst)
            self._states[name] = _PoolState(Budget(burst, self._clock.now_ns()), memories)
        return self._states[name]

    def _note(self, pool: UnitPool, state: _PoolState, made: Round) -> None:
        """Adopt a round's results, and add the new ones to the history."""
        before = state.memories
        new = [
            name
            for name, memory in made.memories.items()
            if memory.reported_ns != (before[name].reported_ns if name in before else 0)
        ]
        state.memories, state.capacity = dict(made.memories), made.capacity
        for holder in sorted(set(made.silent) - set(state.silent)):
            LOGGER.warning("pool %s: %s", pool.metadata.name, _silence(made, holder))
        state.silent = made.silent
        if made.status.reason and made.status.reason != state.logged_reason:
            LOGGER.warning("pool %s: %s", pool.metadata.name, made.status.reason)
        state.logged_reason = made.status.reason
        self._metrics.reports.labels(pool.metadata.name).inc(len(new))
        if new:
            shown, memories = replace(pool, status=made.status), {name: made.memories[name] for name in new}
            self._keep(lambda history: history.note_reports(shown, new))
            self._keep(lambda history: history.note_memories(pool.metadata.name, memories))
            # Commit before the results are visible: a service that stops in between would resume without them.
            self._keep(History.commit)

    async def _write(self, pool: UnitPool, state: _PoolState, made: Round) -> None:
        name, shares = pool.metadata.name, made.shares or ()
        reason = "; ".join(map(str, made.moves))
        decision = _decision(name, reason, self._now_ns()) if reason else None
        try:
            after = await self._client.share_units(name, shares, shares_version=pool.shares_version, decision=decision)
        except (StaleError, NotFoundError) as error:
            self._metrics.conflicts.inc()
            LOGGER.info("pool %s: conflict, will decide again: %s", name, error)
            return
        except ApiError as error:
            state.budget.left -= made.moved  # they may have moved nevertheless
            self._failed(name, state, _SHARES, error)
            return
        state.budget.left -= made.moved
        _works(name, state, _SHARES)
        self._metrics.moves.labels(name).inc(made.moved)
        LOGGER.info(
            "pool %s: %s",
            name,
            ", ".join(f"{holding.holder} {_units(holding.units, holding.leaving)}" for holding in shares),
        )
        self._keep(lambda history: history.note_changes(pool, after.shares, self._now_ns()))
        self._seen(after)

    async def _say(self, name: str, state: _PoolState, made: Round) -> None:
        """Write the evaluation of the reports; the reports themselves stay unchanged."""
        pool = self.pools.get(name)
        if pool is None:
            return
        metadata = replace(pool.metadata, revision=0)
        try:
            after = await self._client.of(UnitPool).replace_status(replace(pool, metadata=metadata, status=made.status))
        except NotFoundError:
            return
        except ApiError as error:
            self._failed(name, state, _STATUS, error)
            return
        _works(name, state, _STATUS)
        self._seen(after)

    def _seen(self, pool: UnitPool) -> None:
        """Adopt a written resource, unless the watch has brought a newer one."""
        current = self.pools.get(pool.metadata.name)
        if current is not None and current.metadata.revision < pool.metadata.revision:
            self.pools[pool.metadata.name] = pool

    def _failed(self, name: str, state: _PoolState, what: str, error: ApiError) -> None:
        """Count a failed write, and log it once for each reason: it is retried in each round."""
        self._metrics.failures.inc()
        if self._is_away and isinstance(error, UnavailableError):
            return
        if state.problems.get(what) != str(error):
            LOGGER.warning("pool %s: cannot write its %s: %s", name, what, error)
        state.problems[what] = str(error)

    def _keep(self, act: Callable[[History], None]) -> None:
        """Run an operation of the history; if it fails, units still move."""
        if self._history is None:
            return
        try:
            act(self._history)
        except HistoryError as error:
            self._metrics.failures.inc()
            LOGGER.warning("%s", error)
            with suppress(HistoryError):
                self._history.rollback()

    def _forget_old(self, history: History) -> None:
        """Commit new records, and delete old ones."""
        now_ns = self._now_ns()
        if self._settings.history is not None and now_ns - self._forgot_ns >= _FORGET_EVERY_NS:
            self._forgot_ns = now_ns
            history.forget(now_ns - round(self._settings.history.keep_s * NS_PER_S))
        history.commit()


def _take(resources: dict[str, R], change: Listing[R] | Event[R]) -> None:
    """Take a watch's resource, unless a write's answer was newer."""
    if isinstance(change, Listing):
        resources.clear()
        resources.update({resource.metadata.name: resource for resource in change.items})
    elif change.type is EventType.DELETE:
        resources.pop(change.name, None)
    elif change.resource is not None:
        before = resources.get(change.resource.metadata.name)
        if before is None or before.metadata.revision <= change.resource.metadata.revision:
            resources[change.resource.metadata.name] = change.resource


def _works(name: str, state: _PoolState, what: str) -> None:
    """Log the recovery of a failed write."""
    if state.problems.pop(what, None) is not None:
        LOGGER.info("pool %s: its %s can be written again", name, what)


def _silence(made: Round, holder: str) -> str:
    reason = next((control.reason for control in made.status.control if control.holder == holder), "silent")
    return f"{holder} is {reason}"


def _units(units: int, leaving: int) -> str:
    return f"{units}, {leaving} of them asked back" if leaving else str(units)


def _decision(pool: str, reason: str, now_ns: int) -> NewDecision:
    """Return the decision behind a change of shares."""
    name = f"{pool[: MAX_NAME - 17]}-{secrets.token_hex(8)}"
    spec = DecisionSpec(
        subject_kind="unitpool",
        subjects=(pool,),
        outcome=Outcome.MOVED,
        scheduler="balance",
        reason=reason[:_LINE],
        decided_ns=now_ns,
    )
    return NewDecision(name=name, spec=spec)
