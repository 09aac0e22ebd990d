"""Two path servers over one lease, in one event loop; each has a time of its own for it, which the test moves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from controller.common.errors import LostLeaseError, PathError, StorageError
from controller.common.standby.lease import Lease
from controller.network.intents import RouteSet
from controller.network.paths.records.values import DrainChange, HistoryQuery
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.paths.service.process import serve
from controller.network.paths.settings import DecideSettings, ManagedFlow, PathServerSettings, RecordSettings
from dataplane.clock import VirtualClock
from dataplane.leases.sqlite import SqliteLeases
from dataplane.topology.values import Topology
from tests.controller.common.standby.test_lease import LEASE_NS, Time
from tests.controller.network.paths.service.test_server import PINNED, FakeFeed, congested, play
from tests.waiting import until

MS = 1_000_000


@pytest.fixture(scope="module")
def topology(diamond_of: Callable[..., Topology]) -> Topology:
    """Return the diamond where a-b-d is the only base path from a to d."""
    return diamond_of((5 * MS, 7 * MS, 5 * MS, 7 * MS, 20 * MS))


@dataclass
class Server:
    """A path server of the pair."""

    address: str
    lease: Lease
    time: Time
    feed: FakeFeed

    async def become_active(self) -> None:
        """Take the lease, which is free, and wait until the server has noticed."""
        self.lease.step()
        assert self.lease.token is not None
        async with client_of(self.address) as client:
            await until(lambda: _decides(client))


def client_of(addresses: str) -> RouteClient:
    """Return a client that tries again soon."""
    settings = RouteClientSettings(address=addresses, first_wait_ns=MS, longest_wait_ns=10 * MS)
    return RouteClient(settings, rng=random.Random(1))


@asynccontextmanager
async def running(topology: Topology, folder: Path) -> AsyncIterator[tuple[Server, Server]]:
    """Run two path servers that have computed a round and stand by."""
    async with AsyncExitStack() as stack:
        servers = []
        for name in ("a", "b"):
            storage = stack.enter_context(SqliteLeases(str(folder / "lease"), 10.0, StorageError))
            address, time, feed = f"unix:{folder}/{name}.sock", Time(), FakeFeed()
            lease = Lease(storage, "paths", holder=name, address=address, lease_ns=LEASE_NS, now_ns=time)
            settings = PathServerSettings(
                topology="unused",
                feed="unused",
                listen=address,
                flows=(ManagedFlow(src="ha", dst="hd", rate_bps=1_000_000),),
                decide=DecideSettings(settle_ns=0, hold_down_ns=0, confirm_rounds=1),
                records=RecordSettings(database=str(folder / f"{name}.db")),
            )
            stop, ready = asyncio.Event(), asyncio.Event()
            serving = serve(settings, topology, feed, VirtualClock(), stop, on_ready=_setting(ready), lease=lease)
            task = asyncio.create_task(serving)
            stack.push_async_callback(_ended, task, stop)
            await ready.wait()
            feed.waiting.put_nowait(congested(topology))
            servers.append(Server(address, lease, time, feed))
        for server in servers:
            await until(partial(is_candidate, server))
        yield servers[0], servers[1]


def is_candidate(server: Server) -> bool:
    """Return whether a server has computed its first round."""
    return server.lease._is_candidate


def _setting(event: asyncio.Event) -> Callable[[str], None]:
    return lambda _: event.set()


async def _ended(task: asyncio.Task[None], stop: asyncio.Event) -> None:
    stop.set()
    try:
        await task
    except LostLeaseError:
        return


def test_standby_follows_and_takes_over_all_state(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as (a, b), client_of(f"{a.address},{b.address}") as client:
            sets = client.routes()
            await a.become_active()
            first = await anext(sets)
            assert first.token == a.lease.token
            b.lease.step()
            async with client_of(b.address) as standby:
                with pytest.raises(PathError, match=r"stands by: a at unix:\S+ is active"):
                    await standby.pin(PINNED.flow, PINNED.switches)
                with pytest.raises(PathError, match="stands by"):
                    await standby.current_routes()
                role = (await standby.status()).standby
            assert role is not None
            assert (role.is_active, role.active_holder) == (False, "a")
            await client.pin(PINNED.flow, PINNED.switches)
            await client.drain(DrainChange("b", drained=True))
            last = await _last(sets, lambda routes: bool(routes.pins and routes.drained))
            b.time.pass_ms(1000)
            b.lease.step()
            taken = await _last(sets, lambda routes: routes.token > first.token)
            assert (taken.routes, taken.pins, taken.drained) == (last.routes, last.pins, last.drained)
            assert taken.version > last.version
            history = await client.history(HistoryQuery())
            assert [decision.reason for decision in history.decisions if "pinned" in decision.reason]
            await sets.aclose()

    play(scene())


def test_woken_path_server_changes_nothing(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as (a, b):
            await a.become_active()
            b.lease.step()
            b.time.pass_ms(1000)
            await b.become_active()
            # The time of a stands still: it was stopped right after it had looked.
            assert a.lease.token is not None
            async with client_of(a.address) as stale, client_of(f"{b.address},unix:{tmp_path}/later") as client:
                sets = client.routes()
                before = await anext(sets)
                following = asyncio.ensure_future(anext(sets))
                (tmp_path / "later").symlink_to(tmp_path / "a.sock")
                await until(lambda: client.stale_sets > 0)
                with pytest.raises(PathError, match="lease paths: a does not hold it"):
                    await stale.pin(PINNED.flow, PINNED.switches)
                async with client_of(b.address) as active:
                    assert await active.current_routes() == before
                assert not following.done()
                following.cancel()
                await asyncio.wait([following])
                await sets.aclose()

    play(scene())


async def _decides(client: RouteClient) -> bool:
    try:
        await client.current_routes()
    except PathError:  # it stands by until it has taken everything over
        return False
    return True


async def _last(sets: AsyncIterator[RouteSet], holds: Callable[[RouteSet], bool]) -> RouteSet:
    while True:
        routes = await anext(sets)
        if holds(routes):
            return routes
