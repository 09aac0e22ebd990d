"""The `millrace balance drive` process: the loop of one unit, until it is stopped."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import AsyncIterator, Callable, Set
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final, TextIO, TypeVar

from collectors.devices.nvml import open_nvml
from collectors.devices.root import Root
from controller.apiserver.agents.access import api_place
from controller.apiserver.client import SyncApiClient
from controller.balance.control.controller import Controller
from controller.balance.errors import LeverError
from controller.balance.levers.pool import LEASE_SHARE, PoolUnits, Reporter
from controller.balance.levers.running_program import ProgramLink
from controller.balance.levers.settings import PoolLever
from controller.balance.levers.values import Lever
from controller.balance.running.board import Board
from controller.balance.running.finding import Costs, Host, levers_of, single_instance, source_of
from controller.balance.running.guard import Guard, GuardOrder
from controller.balance.running.loop import Loop, Tick
from controller.balance.running.settings import BusSettings, RunSettings
from controller.balance.values import LeverKind
from controller.cluster.cost_map import CostModel
from controller.cluster.network_state.follower import follow
from dataplane.clock import MonotonicClock
from dataplane.daemon import Daemon, Lifecycle
from dataplane.errors import ConfigError
from dataplane.running import run_until
from dataplane.topology.file import load_topology

_TRIES = 1
"""A failed report is repeated in the next turn."""
RECORDED: Final = (
    *("time_s", "unit", "bus", "load", "precision", "frequency_mhz", "sub_units", "output"),
    *("concurrency", "power_w"),  # last: records of earlier versions, which are continued, have none
)
"""Columns of a recorded turn; levers as they were while bus and load were measured."""

T = TypeVar("T")
OnTick = Callable[[Tick], None]
OnReady = Callable[[str], None]


def driver(on_tick: OnTick, turns: int | None = None) -> Daemon[RunSettings]:
    """Return the daemon that runs the loop, for this many turns or until it is stopped; then it releases the levers."""

    async def serve(settings: RunSettings, lifecycle: Lifecycle[RunSettings]) -> None:
        await run_until(drive(settings, lifecycle.ready, on_tick, turns), lifecycle.stop)

    return Daemon("balance drive", RunSettings, serve)


async def drive(settings: RunSettings, on_ready: OnReady, on_tick: OnTick, turns: int | None = None) -> None:
    """Run the loop, for this many turns or until it is cancelled; the levers are released at the end.

    `on_ready` gets a line, `on_tick` each turn. Raise LeverError if the machine has none of the levers, or another
    process drives the same holder of a pool, PathError for a host missing from the topology.
    """
    async with AsyncExitStack() as stack:
        host = Host(Root(), MonotonicClock(), stack.enter_context(open_nvml()), _link(stack, settings))
        costs = await stack.enter_async_context(_costs(settings.bus))
        if (pool := settings.levers.pool) is not None:
            stack.enter_context(single_instance(pool.pool, pool.holder, api_place(pool.api, pool.token_file).address))
        levers, absent = await asyncio.to_thread(levers_of, settings.levers, host, _reporter(stack))
        if absent and not levers:
            raise LeverError(f"of unit {settings.unit}", f"none available: {'; '.join(absent)}")
        board = Board(levers, host.clock, rest_s=settings.rest_s)
        record = None if settings.record is None else _Record(stack, settings.record, settings.unit, set(board.levers))
        loop = await asyncio.to_thread(  # it already measures, and netlink has its own event loop
            Loop,
            source_of(settings, host, costs),
            Controller(settings.control),
            settings.rule,
            board,
            silence=settings.silence,
            clock=host.clock,
        )
        guard = await asyncio.to_thread(_guard, stack, settings, levers)
        observers = [each for each in (guard, None if record is None else record.write, on_tick) if each is not None]
        lines = [f"unit {settings.unit}", *(_described(lever) for lever in levers), *absent, loop.problem]
        on_ready("; ".join(filter(None, lines)))
        try:
            for _ in range(turns) if turns is not None else count():
                await asyncio.sleep(settings.interval_s)
                tick = await _whole(loop.tick)
                for observe in observers:
                    observe(tick)
        finally:
            failed = loop.release()
        if failed:
            raise LeverError(failed[0].lever, failed[0].moved.reason)


def _link(stack: AsyncExitStack, settings: RunSettings) -> ProgramLink | None:
    """Open the socket for the unit's program, which keeps its settings as long without this loop as a guard would."""
    if settings.levers.program is None:
        return None
    return stack.enter_context(ProgramLink(settings.unit, settings.levers.program, settings.silence.release_s))


def _guard(stack: AsyncExitStack, settings: RunSettings, levers: list[Lever]) -> OnTick | None:
    """Return a callback that reports each turn to the guard of this machine's levers; None if none of them may be set.

    Raise LeverError if a pool's lease is too short for the turns.
    """
    if not settings.levers.moves_here:
        return None
    hold_s = settings.silence.release_s
    pool = next((lever for lever in levers if isinstance(lever, PoolUnits)), None)
    if pool is not None and pool.lease_s:
        hold_s = pool.lease_s * LEASE_SHARE
        if hold_s < 2 * settings.interval_s:
            need_s = 2 * settings.interval_s / LEASE_SHARE
            raise LeverError(pool.name, f"its lease is {pool.lease_s:g} s: turns of this length need {need_s:g} s")
    guard = stack.enter_context(Guard(GuardOrder(levers=settings.levers, hold_s=hold_s)))
    if pool is None:
        guard.beat()
        return lambda _: guard.beat()
    guard.beat(pool.until_ns)
    pool.tell_answers(guard.beat)
    return lambda _: guard.beat(pool.until_ns)


def _described(lever: Lever) -> str:
    """Return a short description of a lever at the start."""
    standing = lever.read()
    how = "" if standing.may_set else f", read-only: {standing.why_not}"
    return f"{lever.name}: {lever.kind} at {standing.value:g} of {standing.low:g} to {standing.high:g}{how}"


@asynccontextmanager
async def _costs(settings: BusSettings) -> AsyncIterator[Costs | None]:
    """Yield a function that returns the current cost map, if the bus is measured by telemetry."""
    if settings.telemetry is None:
        yield None
        return
    model = CostModel(load_topology(settings.telemetry.topology))
    model.number(settings.telemetry.host)
    async with follow(model, settings.telemetry.network_state) as follower:
        yield lambda: follower.current().costs


class _Record:
    """A file of turns, in the columns that `millrace balance learn` reads; turns are appended.

    Positions of kinds that the unit does not have are empty.
    """

    def __init__(self, stack: AsyncExitStack, name: str, unit: str, kinds: Set[LeverKind]) -> None:
        self._name, self._unit, self._kinds = name, unit, kinds
        try:
            text = Path(name).open("a", encoding="utf-8", buffering=1, newline="")  # noqa: SIM115 - the stack's to close
            stack.callback(_close, text)
            self._rows = csv.writer(text)
            if not text.tell():
                self._rows.writerow(RECORDED)
        except OSError as error:
            raise ConfigError(error.strerror or "cannot be written", file=name) from error

    def write(self, tick: Tick) -> None:
        """Append a turn with a sample; raise ConfigError on a failed write."""
        if (sample := tick.sample) is None:
            return
        stood = {
            LeverKind.PRECISION: tick.before.precision.value,
            LeverKind.FREQUENCY: tick.before.frequency_mhz,
            LeverKind.SUB_UNITS: tick.before.sub_units,
            LeverKind.CONCURRENCY: tick.before.concurrency,
            LeverKind.POWER: tick.before.power_w,
        }
        needed = {*self._kinds, LeverKind.SUB_UNITS}  # there is at least the unit itself
        first, later = list(stood)[:3], list(stood)[3:]
        levers, more = ([stood[kind] if kind in needed else "" for kind in kinds] for kinds in (first, later))
        row = (f"{tick.time_s:.3f}", self._unit, sample.bus, sample.load, *levers, tick.output, *more)
        try:
            self._rows.writerow(row)
        except OSError as error:
            raise ConfigError(error.strerror or "cannot be written", file=self._name) from error


def _close(text: TextIO) -> None:
    with suppress(OSError):  # failed writes were already reported
        text.close()


async def _whole(function: Callable[[], T]) -> T:
    """Return the result of a function run in a thread; if cancelled, wait until it is done, as it moves levers."""
    task = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _reporter(stack: AsyncExitStack) -> Callable[[PoolLever], Reporter]:
    def make(settings: PoolLever) -> Reporter:
        return stack.enter_context(SyncApiClient(api_place(settings.api, settings.token_file), tries=_TRIES))

    return make
