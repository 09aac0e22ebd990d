"""etcd fails and recovers: reads continue with their age, writes fail at once, and nothing is half done."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apiserver.client import ApiClient, Event
from controller.apiserver.client.calls import Call
from controller.apiserver.registry.events import EventType
from controller.apiserver.registry.placements import Binding, BindingRequest
from controller.apiserver.resources import Node, Pod
from controller.apiserver.resources.pod import Phase
from controller.apiserver.settings import StoragePlace
from controller.common.errors import ApiError, NotFoundError, UnavailableError
from dataplane.leases.place import EtcdPlace
from dataplane.local.deadline import local_timeout
from dataplane.rpc.access import Role
from tests.controller.apiserver.api_server import Served, serving, settings_in
from tests.controller.apiserver.storage.etcd_process import Etcd
from tests.controller.apiserver.test_resources_over_http import node, pod
from tests.waiting import until

WAIT_S = 90.0


async def until_status(status: str, client: ApiClient) -> None:
    """Wait until the server reports a status."""

    async def is_reported() -> bool:
        return (await client.health()).status == status

    await until(is_reported, f"the server does not become {status}", poll_s=0.05)


async def read_and_be_refused(client: ApiClient, user: ApiClient, made: Pod) -> int:
    """Read with age, and try each kind of write; return the number of refusals."""
    pods = client.of(Pod)
    listing = await pods.list()
    assert listing.items == (made,)
    assert listing.age_s is not None
    assert await pods.get("a") == made
    with pytest.raises(NotFoundError, match="there is no Pod x"):
        await pods.get("x")
    assert (await user.of(Node).list()).age_s is not None  # tokens remain valid
    writes = (
        pods.create(pod("b")),
        pods.replace(replace(made, spec=replace(made.spec, priority=1))),
        pods.delete("a"),
        client.bind(BindingRequest(bindings=(Binding(pod="a", node="h1"),))),
    )
    for write in writes:
        started = time.monotonic()
        with pytest.raises(UnavailableError, match="the storage does not answer, writes are refused"):
            await write
        assert time.monotonic() - started < 5
    return len(writes)


async def act(served: Served, etcd: Etcd, away_s: float = 0.0) -> int:
    """Stop etcd for at least `away_s`; return the number of writes refused meanwhile."""
    client = served.client
    pods, nodes = client.of(Pod), client.of(Node)
    made = await pods.create(pod("a"))
    await nodes.create(node("h1"))
    async with (
        await served.client_of(Role.USER) as user,
        aclosing(pods.watch(made.metadata.revision)) as events,
    ):
        assert (await anext(events)).type is EventType.BOOKMARK
        await asyncio.to_thread(etcd.__exit__)
        await until_status("degraded", client)
        with pytest.raises(ApiError, match="503"):
            await client.answer(Call("GET", "/readyz"))
        stopped, refused = time.monotonic(), 0
        while refused == 0 or time.monotonic() - stopped < away_s:
            refused += await read_and_be_refused(client, user, made)

        await asyncio.to_thread(etcd.__enter__)
        await until_status("ok", client)
        now = await pods.list()
        assert (now.items, now.age_s) == ((made,), None)  # nothing was half done
        await client.bind(BindingRequest(bindings=(Binding(pod="a", node="h1"),)))
        seen: Event[Pod] = await anext(events)
        while seen.type is EventType.BOOKMARK:
            seen = await anext(events)
        assert seen.resource is not None
        assert (seen.name, seen.resource.status.phase) == ("a", Phase.BOUND)
        return refused


@pytest.mark.slow
def test_etcd_goes_away_and_comes_back(tmp_path: Path) -> None:
    etcd = Etcd(tmp_path / "etcd")

    async def main() -> None:
        with etcd as address:
            storage = StoragePlace(etcd=EtcdPlace(addresses=(address,), timeout_s=2.0))
            async with local_timeout(WAIT_S, "a test"), serving(settings_in(tmp_path, storage), tmp_path) as served:
                await act(served, etcd)

    (tmp_path / "etcd").mkdir()
    asyncio.run(main())
