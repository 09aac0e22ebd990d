"""The service moves units between holders over a real API server, across restarts."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller.apiserver.client import ApiClient
from controller.apiserver.client.asynchronous import Resources
from controller.apiserver.resources import Decision, Metadata, Node, UnitPool
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.unit_pool import (
    Claim,
    ControlRule,
    HolderStatus,
    PoolControl,
    UnitHolding,
    UnitPoolSpec,
)
from controller.balance.process import serve
from controller.balance.serving.driver import BalanceService
from controller.balance.settings import BalanceSettings, HistorySettings, MovingSettings
from controller.common.errors import InvalidError, StaleError
from dataplane.local.deadline import local_timeout
from tests.controller.apiserver.api_server import serving, settings_in
from tests.waiting import until

WAIT_S = 20.0
PLATFORM = PoolControl(rule=ControlRule.PLATFORM)


@dataclass(slots=True)
class Cloud:
    """The API server, and holders of units played by the test."""

    client: ApiClient
    socket: str
    folder: Path

    async def add(self, name: str, shares: dict[str, int], **spec: object) -> UnitPool:
        claims = tuple(Claim(holder=holder) for holder in shares)
        given = {"units": sum(shares.values()), "claims": claims} | spec
        await self.client.of(UnitPool).create(
            UnitPool(metadata=Metadata(name=name), spec=UnitPoolSpec(**given))  # type: ignore[arg-type]
        )
        holdings = tuple(UnitHolding(holder=holder, units=units) for holder, units in shares.items() if units)
        return await self.client.share_units(name, holdings)

    async def report(self, pool: str, holder: str, **status: object) -> UnitPool:
        return await self.client.report_units(pool, HolderStatus(holder=holder, **status))  # type: ignore[arg-type]

    async def when(self, name: str, holds: Callable[[UnitPool], bool]) -> UnitPool:
        """Return a pool once a condition holds."""
        async for told in self.client.of(UnitPool).follow(fields=f"name={name}"):
            pools = told.items if hasattr(told, "items") else (told.resource,)
            for pool in pools:
                if pool is not None and holds(pool):
                    return pool
        raise AssertionError("the watch ended")

    @asynccontextmanager
    async def served(self, **settings: object) -> AsyncIterator[BalanceService]:
        """Run the management service until the block ends."""
        services, stop = asyncio.Queue[BalanceService](), asyncio.Event()
        history = HistorySettings(file=str(self.folder / "balance.sqlite"))
        given = {"api": self.socket, "interval_s": 0.02, "history": history} | settings
        task = asyncio.create_task(serve(BalanceSettings(**given), stop, on_service=services.put_nowait))  # type: ignore[arg-type]
        try:
            yield await services.get()
        finally:
            stop.set()
            await task


Play = Callable[[Callable[[Cloud], Awaitable[None]]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(act: Callable[[Cloud], Awaitable[None]]) -> None:
        async def main() -> None:
            async with local_timeout(WAIT_S, "a test"), serving(settings_in(tmp_path), tmp_path) as served:
                await act(Cloud(served.client, served.socket, tmp_path))

        asyncio.run(main())

    return run


def units(pool: UnitPool) -> dict[str, int]:
    return {share.holder: share.units for share in pool.shares}


def test_the_worked_example_over_the_api(play: Play) -> None:
    """I frees 50 of its 100 units, II asks for 100 more and gets those 50; its residual error goes to the clock."""

    async def act(cloud: Cloud) -> None:
        await cloud.add("vgpus", {"i": 100, "ii": 100}, control=PLATFORM)
        async with cloud.served():
            await cloud.report("vgpus", "i", bus=1.0, load=0.5, precision="int8", frequency_mhz=1000)
            await cloud.report("vgpus", "ii", bus=0.5, load=1.0, precision="int8", frequency_mhz=1000)
            balanced = await cloud.when("vgpus", lambda pool: units(pool) == {"i": 50, "ii": 150})
            assert balanced.shares_version <= 3
            await cloud.report("vgpus", "i", bus=1.0, load=1.0)
            await cloud.report("vgpus", "ii", bus=0.75, load=1.0, precision="int8", frequency_mhz=1000)
            balanced = await cloud.when(
                "vgpus", lambda pool: any(control.error == -0.25 for control in pool.status.control)
            )
            assert units(balanced) == {"i": 50, "ii": 150}
            first, second = balanced.status.control
            assert (first.error, first.wants, first.frequency_mhz) == (0.0, 0, 0.0)
            assert (second.error, second.wants, second.frequency_mhz) == (-0.25, 50, 300.0)
            assert second.reason == "short of 50"
            assert balanced.status.shadow_price == second.price > 0
        decisions = (await cloud.client.of(Decision).list()).items
        assert {decision.spec.subjects for decision in decisions} == {("vgpus",)}
        assert "50 from free units to ii" in " ".join(decision.spec.reason for decision in decisions)

    play(act)


def test_requests_of_holders_move_units(play: Play) -> None:
    async def act(cloud: Cloud) -> None:
        await cloud.add("vgpus", {"i": 10, "ii": 10})
        async with cloud.served():
            await cloud.report("vgpus", "i", wants=-4)
            await cloud.report("vgpus", "ii", wants=3)
            moved = await cloud.when("vgpus", lambda pool: units(pool) == {"i": 6, "ii": 13})
            assert sum(units(moved).values()) == 19

    play(act)


def test_a_unit_goes_on_only_once_its_holder_has_let_go_of_it(play: Play) -> None:
    async def act(cloud: Cloud) -> None:
        await cloud.add("vgpus", {"i": 10, "ii": 10}, lease_s=1000)
        async with cloud.served():
            await cloud.report("vgpus", "i", wants=-4, holds=10)
            await cloud.report("vgpus", "ii", wants=4, holds=10)
            asked = await cloud.when("vgpus", lambda pool: pool.shares[0].leaving == 4)
            assert units(asked) == {"i": 10, "ii": 10}
            await cloud.when(
                "vgpus", lambda pool: "asked to give back 4" in {control.reason for control in pool.status.control}
            )
            await cloud.report("vgpus", "i", wants=0, holds=6)
            settled = await cloud.when("vgpus", lambda pool: units(pool) == {"i": 6, "ii": 14})
            assert settled.shares[0].leaving == 0

    play(act)


def test_silent_holder_keeps_its_units_until_its_lease_ends(play: Play) -> None:
    async def act(cloud: Cloud) -> None:
        claims = (Claim(holder="i", least=2), Claim(holder="ii"))
        await cloud.add("vgpus", {"i": 10, "ii": 10}, lease_s=1.0, claims=claims)
        async with cloud.served(stale_s=0.1):
            silent = await cloud.report("vgpus", "i", holds=10)
            found = silent

            async def has_lost() -> bool:
                nonlocal found
                found = await cloud.report("vgpus", "ii", wants=8, holds=10)
                return units(found)["i"] < 10

            await until(has_lost, "the silent holder keeps its units", poll_s=0.05)
            assert units(found)["i"] == 2
            reported_ns = silent.status.holders[0].reported_ns
            assert reported_ns is not None
            assert found.shares[0].since_ns - reported_ns >= 1e9

    play(act)


def test_controllers_resume_after_a_restart(play: Play) -> None:
    async def act(cloud: Cloud) -> None:
        control = PoolControl(rule=ControlRule.PLATFORM, ki=0.25, kp=0.5, form="PI")  # type: ignore[arg-type]
        await cloud.add("vgpus", {"i": 10, "ii": 10}, control=control, paused=True)
        async with cloud.served():
            await cloud.report("vgpus", "i", bus=0.5, load=1.0)
            first = await cloud.when(
                "vgpus", lambda pool: any(control.output is not None for control in pool.status.control)
            )
            assert first.status.control[0].output == pytest.approx(-0.375)
        async with cloud.served():
            await cloud.report("vgpus", "i", bus=0.5, load=1.0)
            again = await cloud.when("vgpus", lambda pool: pool.status.control[0].output == -0.5)
            assert units(again) == {"i": 10, "ii": 10}
            assert again.status.reason == "paused: nothing moves"

    play(act)


def test_controller_memory_is_saved_before_its_output_is_seen(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Resources.replace_status

    async def unanswered(to: Resources[UnitPool], pool: UnitPool) -> UnitPool:
        after = await write(to, pool)
        if any(control.output is not None for control in pool.status.control):
            await asyncio.Event().wait()
        return after

    async def act(cloud: Cloud) -> None:
        control = PoolControl(rule=ControlRule.PLATFORM, ki=0.25, kp=0.5, form="PI")  # type: ignore[arg-type]
        await cloud.add("vgpus", {"i": 10, "ii": 10}, control=control, paused=True)
        with monkeypatch.context() as patch:
            patch.setattr(Resources, "replace_status", unanswered)
            async with cloud.served():
                await cloud.report("vgpus", "i", bus=0.5, load=1.0)
                await cloud.when(
                    "vgpus", lambda pool: any(control.output is not None for control in pool.status.control)
                )
        async with cloud.served():
            await cloud.report("vgpus", "i", bus=0.5, load=1.0)
            await cloud.when("vgpus", lambda pool: pool.status.control[0].output == -0.5)

    play(act)


def test_failing_write_is_logged_once_per_reason_and_on_recovery(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, reasons, tried = Resources.replace_status, ["no key `a`", "no key `b`", ""], list[str]()
    rounds = 5

    async def refusing(to: Resources[UnitPool], pool: UnitPool) -> UnitPool:
        tried.append(reason := reasons[min(len(tried) // rounds, 2)])
        if reason:
            raise InvalidError(reason)
        return await write(to, pool)

    monkeypatch.setattr(Resources, "replace_status", refusing)
    caplog.set_level(logging.INFO, logger="millrace.balance")

    def status_lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "its status" in record.getMessage()]

    async def act(cloud: Cloud) -> None:
        await cloud.add("vgpus", {"i": 10}, paused=True)
        async with cloud.served() as service:
            await cloud.when("vgpus", lambda pool: bool(pool.status.reason))
            await until(lambda: any("again" in line for line in status_lines()), "the status is not written again")
            assert service._metrics.failures._value.get() == 2 * rounds
        assert status_lines() == [
            "pool vgpus: cannot write its status: no key `a`",
            "pool vgpus: cannot write its status: no key `b`",
            "pool vgpus: its status can be written again",
        ]

    play(act)


def test_refused_shares_do_not_use_up_the_moving_rate(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, write = list[int](), ApiClient.share_units

    async def overtaken(client: ApiClient, pool: str, shares: tuple[UnitHolding, ...], **given: Any) -> UnitPool:
        if given.get("shares_version") is not None:
            writes.append(len(shares))
            if len(writes) == 1:
                raise StaleError("its shares are of version 2")
        return await write(client, pool, shares, **given)

    async def act(cloud: Cloud) -> None:
        monkeypatch.setattr(ApiClient, "share_units", overtaken)
        await cloud.add("vgpus", {"a": 0, "b": 0}, units=40)
        async with cloud.served(moving=MovingSettings(burst=40, units_per_s=1e-6)):
            await cloud.report("vgpus", "a", wants=40)
            await cloud.when("vgpus", lambda pool: units(pool) == {"a": 40})
        assert len(writes) == 2

    play(act)


def test_ended_watch_of_nodes_does_not_block_decisions(play: Play) -> None:
    async def act(cloud: Cloud) -> None:
        await cloud.add("vgpus", {"a": 40})
        async with cloud.served() as service:
            await cloud.report("vgpus", "a", wants=0)
            await cloud.when("vgpus", lambda pool: bool(pool.status.control))
            await asyncio.sleep(0.2)  # let the watch of pools deliver pending events
            service.note_away("waiting 0.1 s: the watch has ended")
            await cloud.client.of(Node).create(Node(metadata=Metadata(name="h1"), spec=NodeSpec()))
            await until(lambda: "h1" in service.nodes, "the new node is not seen")
            assert not service._is_away

    play(act)


def test_unreadable_memories_are_dropped(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def act(cloud: Cloud) -> None:
        await cloud.add("vgpus", {"i": 100, "ii": 100}, control=PLATFORM)
        async with cloud.served():
            await cloud.report("vgpus", "i", bus=0.5, load=0.5)
            await cloud.when("vgpus", lambda pool: any(control.error == 0.0 for control in pool.status.control))
        with closing(sqlite3.connect(cloud.folder / "balance.sqlite")) as database:
            assert database.execute("UPDATE memories SET data = x'c1'").rowcount == 1
            database.commit()
        async with cloud.served():
            await cloud.report("vgpus", "i", wants=-40)
            await cloud.report("vgpus", "ii", wants=40)
            await cloud.when("vgpus", lambda pool: units(pool) == {"i": 60, "ii": 140})
        assert "memories of pool vgpus" in caplog.text

    play(act)
