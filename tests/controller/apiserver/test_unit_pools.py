"""Units of pools: never held twice, accounted together with pods' devices; holders report only for themselves."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.placements import Binding, BindingRequest, Release, ReleaseRequest
from controller.apiserver.resources import Metadata, Node, Pod, UnitPool
from controller.apiserver.resources.hardware import Device, DeviceNeed, DeviceShare, Hardware, Request
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Container, PodSpec
from controller.apiserver.resources.unit_pool import Claim, HolderStatus, UnitHolding, UnitPoolSpec
from controller.common.errors import ForbiddenError, InvalidError, NotFoundError, StaleError
from dataplane.rpc.access import Role
from dataplane.topology.values import DeviceKind
from tests.controller.apiserver.api_server import Play, Served

GIB = 1 << 30


def pool(name: str = "gpus", **spec: object) -> UnitPool:
    return UnitPool(metadata=Metadata(name=name), spec=UnitPoolSpec(**{"units": 100} | spec))  # type: ignore[arg-type]


def holding(holder: str, units: int, leaving: int = 0) -> UnitHolding:
    return UnitHolding(holder=holder, units=units, leaving=leaving)


def units(pool: UnitPool) -> dict[str, int]:
    return {share.holder: share.units for share in pool.shares}


async def share(client: ApiClient, *shares: UnitHolding, name: str = "gpus") -> UnitPool:
    return await client.share_units(name, shares)


def test_reports_move_no_version_of_shares(play: Play) -> None:
    async def act(served: Served) -> None:
        await served.client.of(UnitPool).create(pool(claims=(Claim(holder="i"),)))
        first = await share(served.client, holding("i", 50))
        after = await served.client.report_units("gpus", HolderStatus(holder="i", bus=0.5, load=0.25, holds=50))
        assert after.metadata.revision > first.metadata.revision
        assert after.shares_version == first.shares_version == 1
        shares = (holding("i", 49),)
        await served.client.share_units("gpus", shares, shares_version=1)
        with pytest.raises(StaleError, match="shares of UnitPool gpus are at version 2, not 1"):
            await served.client.share_units("gpus", shares, shares_version=1)
        (holder,) = (await served.client.of(UnitPool).get("gpus")).status.holders
        assert holder.reported_ns
        assert (holder.bus, holder.load) == (0.5, 0.25)

    play(act)


def test_status_writes_keep_reports_of_holders(play: Play) -> None:
    async def act(served: Served) -> None:
        await served.client.of(UnitPool).create(pool(claims=(Claim(holder="i"),)))
        reported = await served.client.report_units("gpus", HolderStatus(holder="i", bus=1, load=0.5))
        status = replace(reported.status, holders=(), shadow_price=0.25)
        after = await served.client.of(UnitPool).replace_status(replace(reported, status=status))
        assert after.status.shadow_price == 0.25
        assert [holder.holder for holder in after.status.holders] == ["i"]

    play(act)


def test_unit_leaves_its_holder_after_it_promises_not_to_use_it(play: Play) -> None:
    async def act(served: Served) -> None:
        await served.client.of(UnitPool).create(pool(lease_s=1000.0))
        await share(served.client, holding("i", 50), holding("ii", 50))
        await served.client.report_units("gpus", HolderStatus(holder="i", holds=50))
        with pytest.raises(StaleError, match="i uses 50 units, it cannot have 40"):
            await share(served.client, holding("i", 40), holding("ii", 60))
        asked = await share(served.client, holding("i", 50, leaving=10), holding("ii", 50))
        assert asked.shares[0].leaving == 10
        with pytest.raises(StaleError, match="gpus has 100 units, not 110"):
            await share(served.client, holding("i", 50, leaving=10), holding("ii", 60))
        await served.client.report_units("gpus", HolderStatus(holder="i", holds=40))
        assert units(await share(served.client, holding("i", 40), holding("ii", 60))) == {"i": 40, "ii": 60}
        with pytest.raises(StaleError, match="i has 40 units, not 41"):
            await served.client.report_units("gpus", HolderStatus(holder="i", holds=41))

    play(act)


def test_a_silent_holder_has_stopped_after_the_lease(play: Play) -> None:
    async def act(served: Served) -> None:
        await served.client.of(UnitPool).create(pool(lease_s=0.3))
        await share(served.client, holding("i", 50))
        await served.client.report_units("gpus", HolderStatus(holder="i", holds=50))
        freed: UnitPool | None = None
        while freed is None:
            try:
                freed = await share(served.client, holding("ii", 100))
            except StaleError:
                continue
        now_ns, (holder,) = freed.shares[0].since_ns, freed.status.holders
        assert holder.reported_ns is not None
        assert now_ns - holder.reported_ns >= 0.3e9
        assert holder.holds == 0
        with pytest.raises(NotFoundError, match="i has neither a claim nor units"):
            await served.client.report_units("gpus", HolderStatus(holder="i", holds=50))

    play(act)


def test_a_promise_is_never_of_more_than_a_holder_has(play: Play) -> None:
    """Without a lease, shares and promises expire at once: the next report need not carry a promise."""

    async def act(served: Served) -> None:
        await served.client.of(UnitPool).create(pool(claims=(Claim(holder="i"),)))
        await share(served.client, holding("i", 50))
        await served.client.report_units("gpus", HolderStatus(holder="i", holds=50))
        await share(served.client, holding("i", 10))
        reported = await served.client.report_units("gpus", HolderStatus(holder="i", bus=0.5, load=0.5))
        assert reported.status.holders[0].holds == 10

    play(act)


def test_claims_limit_the_units_of_holders(play: Play) -> None:
    async def act(served: Served) -> None:
        await served.client.of(UnitPool).create(pool(claims=(Claim(holder="i", most=60),)))
        with pytest.raises(StaleError, match="ii has no claim"):
            await share(served.client, holding("ii", 1))
        with pytest.raises(StaleError, match="i may have at most 60 units, not 61"):
            await share(served.client, holding("i", 61))
        with pytest.raises(InvalidError, match="2 of 1 units cannot leave"):
            await share(served.client, holding("i", 1, leaving=2))

    play(act)
    with pytest.raises(ValueError, match="holder a is given twice"):
        UnitPoolSpec(units=1, claims=(Claim(holder="a"), Claim(holder="a")))
    with pytest.raises(ValueError, match="holder a: least 3 exceeds most 2"):
        UnitPoolSpec(units=1, claims=(Claim(holder="a", least=3, most=2),))
    with pytest.raises(ValueError, match="set `node`"):
        UnitPoolSpec(units=1, unit_thousandths=100)


def gpu_node() -> Node:
    devices = tuple(Device(number=number, kind=DeviceKind.GPU, memory_bytes=80 * GIB) for number in range(2))
    return Node(metadata=Metadata(name="h1"), spec=NodeSpec(hardware=Hardware(cpu_milli=8000, devices=devices)))


def gpu_pod(name: str, thousandths: int) -> Pod:
    need = DeviceNeed(kind=DeviceKind.GPU, thousandths=thousandths)
    container = Container(name="main", image="busybox")
    spec = PodSpec(containers=(container,), request=Request(cpu_milli=100, devices=(need,)))
    return Pod(metadata=Metadata(name=name), spec=spec)


async def bind(client: ApiClient, name: str, number: int, thousandths: int) -> None:
    devices = (DeviceShare(number=number, thousandths=thousandths),)
    await client.bind(BindingRequest(bindings=(Binding(pod=name, node="h1", devices=devices),)))


def test_pods_and_pools_are_in_one_book(play: Play) -> None:
    async def act(served: Served) -> None:
        client = served.client
        await client.of(Node).create(gpu_node())
        await client.of(UnitPool).create(pool(units=20, node="h1", unit_thousandths=100))
        for name, thousandths in (("a", 700), ("b", 300)):
            await client.of(Pod).create(gpu_pod(name, thousandths))
        made = await share(client, holding("i", 4), holding("ii", 8))
        assert [[(device.number, device.thousandths) for device in some.devices] for some in made.shares] == [
            [(0, 400)],
            [(0, 600), (1, 200)],
        ]
        node = await client.of(Node).get("h1")
        assert [(device.number, device.thousandths) for device in node.pools[0].devices] == [(0, 1000), (1, 200)]
        assert node.pools[0].devices[1].memory_bytes == 16 * GIB
        with pytest.raises(StaleError, match="b does not fit: device 0: invalid share of 1300 thousandths"):
            await bind(client, "b", 0, 300)
        await bind(client, "a", 1, 700)
        with pytest.raises(StaleError, match="Node h1 has room for 13 units of pool gpus, not 14"):
            await share(client, holding("i", 4), holding("ii", 10))
        await client.release(ReleaseRequest(releases=(Release(pod="a"),)))
        with pytest.raises(StaleError, match="held by pool gpus"):
            await client.of(Node).delete("h1")
        await share(client, holding("i", 20))
        with pytest.raises(StaleError, match="its node and unit_thousandths cannot change"):
            await client.of(UnitPool).replace(pool(units=20))
        await share(client)
        assert (await client.of(Node).get("h1")).pools == ()
        await bind(client, "b", 0, 300)

    play(act)


def test_a_holder_reads_its_pools_and_reports_for_itself_alone(play: Play) -> None:
    async def act(served: Served) -> None:
        admin = served.client
        await admin.of(UnitPool).create(pool(claims=(Claim(holder="i"), Claim(holder="ii"))))
        await admin.of(UnitPool).create(pool("others", claims=(Claim(holder="iii"),)))
        async with await served.client_of(Role.HOLDER, "i") as holder:
            await holder.report_units("gpus", HolderStatus(holder="i", wants=5))
            assert (await holder.of(UnitPool).get("gpus")).status.holders[0].wants == 5
            assert len((await holder.of(UnitPool).list(fields="holder=i")).items) == 1
            for refused in (
                holder.report_units("gpus", HolderStatus(holder="ii")),
                holder.of(UnitPool).get("others"),
                holder.of(UnitPool).list(),
                holder.share_units("gpus", ()),
                holder.of(UnitPool).replace(pool()),
                holder.of(UnitPool).replace_status(pool()),
                holder.of(Node).list(),
            ):
                with pytest.raises(ForbiddenError, match=r"i \(holder i\) may not"):
                    await refused

    play(act)


def test_balancer_may_only_share_out_units(play: Play) -> None:
    async def act(served: Served) -> None:
        made = await served.client.of(UnitPool).create(pool(claims=(Claim(holder="i"),)))
        async with await served.client_of(Role.BALANCE) as balance:
            await share(balance, holding("i", 5))
            await balance.of(UnitPool).replace_status(replace(made, metadata=Metadata(name="gpus")))
            await balance.of(Node).list()
            for refused in (
                balance.report_units("gpus", HolderStatus(holder="i")),
                balance.of(UnitPool).replace(pool()),
                balance.of(UnitPool).delete("gpus"),
                balance.of(Pod).list(),
            ):
                with pytest.raises(ForbiddenError, match=r"balance \(balance\) may not"):
                    await refused
        async with await served.client_of(Role.USER) as user:
            assert units(await user.of(UnitPool).get("gpus")) == {"i": 5}
            with pytest.raises(ForbiddenError):
                await user.of(UnitPool).replace(pool())
            with pytest.raises(ForbiddenError):
                await user.report_units("gpus", HolderStatus(holder="i"))

    play(act)


def test_many_holders_report_at_once(play: Play) -> None:
    """Concurrent reports do not conflict, each refusal goes to its own holder, and all are in one pool."""

    async def act(served: Served) -> None:
        names = [f"h{number}" for number in range(60)]
        await served.client.of(UnitPool).create(pool(claims=tuple(Claim(holder=name) for name in names)))

        async def report(name: str) -> str:
            try:
                after = await served.client.report_units("gpus", HolderStatus(holder=name, wants=int(name[1:])))
            except NotFoundError as error:
                return str(error)
            return str(next(holder.wants for holder in after.status.holders if holder.holder == name))

        answers = await asyncio.gather(*(report(name) for name in (*names, "h99")))
        assert answers[:-1] == [str(number) for number in range(60)]
        assert answers[-1] == "UnitPool gpus: h99 has neither a claim nor units"
        after = await served.client.of(UnitPool).get("gpus")
        assert sorted(holder.holder for holder in after.status.holders) == sorted(names)
        with pytest.raises(NotFoundError, match="there is no UnitPool none"):
            await served.client.report_units("none", HolderStatus(holder="h1"))

    play(act)
