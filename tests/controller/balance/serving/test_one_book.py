"""Scheduler, workload controller and pool service share one account of a node's devices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.placements import Release, ReleaseRequest
from controller.apiserver.registry.pools.shares import UnitShares, room_of, share
from controller.apiserver.resources import Metadata, Node, Pod, UnitPool
from controller.apiserver.resources.hardware import DeviceNeed, DeviceShare, Hardware, Request
from controller.apiserver.resources.node import NodeSpec, NodeStatus, Share
from controller.apiserver.resources.pod import Container, Phase, PodSpec
from controller.apiserver.resources.unit_pool import Claim, HolderStatus, UnitHolding, UnitPoolSpec
from controller.balance import process as balance
from controller.balance.settings import BalanceSettings
from controller.common.errors import StaleError
from controller.scheduling import process as scheduler
from controller.scheduling.settings import QueueSettings, SchedulerSettings
from controller.workloads.centres.engines.containers.settings import ContainerUnit
from controller.workloads.centres.engines.containers.units import room
from controller.workloads.placement import process as placement
from controller.workloads.placement.settings import PlacementSettings
from dataplane.local.deadline import local_timeout
from dataplane.topology.values import DeviceKind
from tests.controller.apiserver.api_server import serving, settings_in
from tests.controller.scheduling.pods.clusters import node

WAIT_S = 60.0
QUICK = QueueSettings(first_wait_ns=1_000_000, longest_wait_ns=60_000_000_000)


@asynccontextmanager
async def daemons(api: str) -> AsyncIterator[None]:
    """Run the three daemons that assign the node's devices."""
    stop = asyncio.Event()
    running = [
        asyncio.create_task(scheduler.serve(SchedulerSettings(api=api, queue=QUICK), stop)),
        asyncio.create_task(placement.serve(PlacementSettings(api=api), stop)),
        asyncio.create_task(balance.serve(BalanceSettings(api=api, interval_s=0.02), stop)),
    ]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*running)


async def prepare(client: ApiClient) -> None:
    """Create a node with two GPUs, and a pool of tenths of them."""
    hardware = Hardware.of(node("h1", cores=4, gpus=("A100", "A100")))
    made = Node(metadata=Metadata(name="h1"), spec=NodeSpec(lease_s=1000.0), status=NodeStatus())
    await client.of(Node).create(made)
    reported = Node(metadata=Metadata(name="h1"), status=NodeStatus(ready=True, hardware=hardware))
    await client.of(Node).replace_status(reported)
    spec = UnitPoolSpec(units=20, node="h1", unit_thousandths=100, claims=(Claim(holder="i"),))
    await client.of(UnitPool).create(UnitPool(metadata=Metadata(name="tenths"), spec=spec))


async def pool_when(client: ApiClient, holds: Callable[[UnitPool], bool]) -> UnitPool:
    async for told in client.of(UnitPool).follow():
        pools = told.items if hasattr(told, "items") else (told.resource,)
        for pool in pools:
            if pool is not None and holds(pool):
                return pool
    raise AssertionError("the watch ended")


async def pod_when(client: ApiClient, holds: Callable[[Pod], bool]) -> Pod:
    async for told in client.of(Pod).follow(fields="name=p"):
        pods = told.items if hasattr(told, "items") else (told.resource,)
        for pod in pods:
            if pod is not None and holds(pod):
                return pod
    raise AssertionError("the watch ended")


async def ask(client: ApiClient, wants: int) -> None:
    await client.report_units("tenths", HolderStatus(holder="i", wants=wants))


def check(node: Node) -> None:
    """Check that pods and pool together do not exceed any device."""
    assert node.value is not None
    node.value.check(node.held)


def test_pool_and_pods_never_hold_the_same_device(tmp_path: Path) -> None:
    async def act(client: ApiClient) -> None:
        await ask(client, 15)
        await pool_when(client, lambda pool: pool.held == 15)
        need = DeviceNeed(kind=DeviceKind.GPU)
        container = Container(name="main", image="image")
        spec = PodSpec(containers=(container,), request=Request(cpu_milli=100, devices=(need,)))
        await client.of(Pod).create(Pod(metadata=Metadata(name="p"), spec=spec))
        waiting = await pod_when(client, lambda pod: bool(pod.status.reasons))
        assert (waiting.status.node, waiting.status.phase) == (None, Phase.PENDING)
        await ask(client, -10)
        bound = await pod_when(client, lambda pod: pod.status.node == "h1")
        (device,) = bound.status.devices
        (share,) = (await client.of(UnitPool).get("tenths")).shares
        assert (share.units, [device.number for device in share.devices], device.number) == (5, [0], 1)
        await ask(client, 15)
        await pool_when(client, lambda pool: pool.held == 10 and pool.status.control[0].reason == "short of 10")
        check(await client.of(Node).get("h1"))
        released = Release(pod="p", phase=Phase.SUCCEEDED)
        await client.release(ReleaseRequest(releases=(released,)))
        await ask(client, 10)
        await pool_when(client, lambda pool: pool.held == 20)
        node = await client.of(Node).get("h1")
        check(node)
        assert [(device.number, device.thousandths) for device in node.pools[0].devices] == [(0, 1000), (1, 1000)]
        assert node.shares == ()

    async def main() -> None:
        async with local_timeout(WAIT_S, "a test"), serving(settings_in(tmp_path), tmp_path) as served:
            await prepare(served.client)
            async with daemons(served.socket):
                await act(served.client)

    asyncio.run(main())


INSTANCE = "A100 MIG 1g.5gb"


def units_of(model: str, thousandths: int = 1000) -> ContainerUnit:
    """Return a unit type of a centre that runs containers."""
    need = DeviceNeed(kind=DeviceKind.GPU, thousandths=thousandths, models=(model,))
    return ContainerUnit(request=Request(devices=(need,)))


def pool_of(name: str, model: str, units: int, thousandths: int = 1000) -> UnitPool:
    spec = UnitPoolSpec(units=units, node="h1", model=model, unit_thousandths=thousandths, claims=(Claim(holder="i"),))
    return UnitPool(metadata=Metadata(name=name), spec=spec)


def test_item_17_instances_and_shares_are_in_one_book() -> None:
    """A whole device in shares and two instances of another one, of pools, a pod and a centre."""
    hardware = Hardware.of(node("h1", cores=4, gpus=("A100", INSTANCE, INSTANCE)))
    held = Share(pod="p", uid="u", epoch=1, devices=(DeviceShare(number=0, thousandths=250),))
    book = Node(metadata=Metadata(name="h1"), status=NodeStatus(ready=True, hardware=hardware), shares=(held,))
    for pool, units in ((pool_of("instances", INSTANCE, 2), 1), (pool_of("quarters", "A100", 4, 250), 2)):
        _, changed = share(pool, book, UnitShares(shares=(UnitHolding(holder="i", units=units),)), 1)
        assert changed is not None
        book = changed
    check(book)
    assert {each.pool: [part.number for part in each.devices] for each in book.pools} == {
        "instances": [1],
        "quarters": [0],
    }
    assert room(units_of(INSTANCE), book, others_of=()) == 1
    assert room(units_of("A100", 250), book, others_of=()) == 1
    with pytest.raises(StaleError, match="Node h1 has room for 1 units of pool more, not 2"):
        share(pool_of("more", INSTANCE, 2), book, UnitShares(shares=(UnitHolding(holder="i", units=2),)), 1)


def test_a_device_that_is_gone_gives_no_units() -> None:
    hardware = Hardware.of(node("h1", cores=4, gpus=(INSTANCE, INSTANCE)))
    devices = (replace(hardware.devices[0], gone=True), *hardware.devices[1:])
    status = NodeStatus(ready=True, hardware=replace(hardware, devices=devices))
    book = Node(metadata=Metadata(name="h1"), status=status)
    assert room(units_of(INSTANCE), book) == 1
    assert room_of(pool_of("instances", INSTANCE, 2), book).total == 1
