"""Digests, idle entries and long batches between a running server and its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import finsy as fy
import grpc
import pytest
from finsy.proto import p4r, p4r_grpc, rpc_status

from dataplane.local.deadline import local_timeout
from dataplane.switch.p4runtime import Code, P4RuntimeServer
from dataplane.switch.p4runtime.core import DROPS
from dataplane.switch.pipeline import DigestMessage
from tests.waiting import until

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

PROGRAMS = Path(__file__).parents[2] / "programs"
DEVICE = 7
OPTIONS = fy.SwitchOptions(
    p4info=PROGRAMS / "p4rt_entities.p4info.txtpb", p4blob=PROGRAMS / "p4rt_entities.json", device_id=DEVICE
)


def run(job: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with local_timeout(20, "a test"):
            await job()

    asyncio.run(limited())


@pytest.mark.usefixtures("server")
def test_finsy_learns_and_is_told_of_idle_entries(switch: FakeSwitch, address: str) -> None:
    async def job() -> None:
        async with fy.Switch("sw1", address, OPTIONS) as sw:
            config = fy.P4DigestEntry("learned_t", max_list_size=9, max_timeout_ns=1_000_000, ack_timeout_ns=10**15)
            aging = fy.P4TableEntry(
                "aging_table",
                match=fy.Match(src=1),
                action=fy.Action("forward_metered", port=2),
                meter_config=fy.P4MeterConfig(cir=1, cburst=2, pir=3, pburst=4),
                idle_timeout_ns=1_000_000,
                metadata=b"mine",
            )
            await sw.write([+config, +aging])
            reader: Any = sw
            assert [item async for item in reader.read([fy.P4DigestEntry("learned_t")])] == [config]
            lists, idle = aiter(sw.read_digests("learned_t")), aiter(sw.read_idle_timeouts())
            first, told = asyncio.ensure_future(anext(lists)), asyncio.ensure_future(anext(idle))
            await asyncio.sleep(0)  # the queues exist from their first await on
            switch.digests(DigestMessage("learned_t", (0xAA, 1)))
            switch.time_ns = 5_000_000  # the server looks at this clock by itself
            digest = await first
            assert digest.data == [{"address": 0xAA, "port": 1}]
            assert [(item.table_id, item.metadata) for item in (await told).table_entry] == [("aging_table", b"mine")]
            second = asyncio.ensure_future(anext(lists))
            await sw.write([digest.ack()])

            def learn_again() -> bool:
                switch.digests(DigestMessage("learned_t", (0xAA, 1)))
                switch.time_ns += 1_000_000
                return second.done()

            await until(learn_again)  # held back until the server has seen the acknowledgement
            assert (await second).data == digest.data

    run(job)


def test_long_batches_and_what_becomes_of_their_errors(
    server: P4RuntimeServer, switch: FakeSwitch, shell: Shell
) -> None:
    entities = [
        shell.entry(
            "lpm_table",
            [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=value.to_bytes(2, "big")))],
            action=shell.action("drop"),
        )
        for value in range(1_000)
    ]
    request = shell.request(p4r.Update.INSERT, *entities)
    packet = p4r.PacketOut(payload=b"x")
    for field_id in (1, 2):
        packet.metadata.add(metadata_id=field_id, value=b"\x00")

    async def job() -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.ports[1]}") as channel:
            stub: Any = p4r_grpc.P4RuntimeStub(channel)
            long = asyncio.ensure_future(stub.Write(request))
            await stub.GetForwardingPipelineConfig(p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE))
            await long
            answers = [item async for item in stub.Read(p4r.ReadRequest(device_id=DEVICE, entities=[wanted]))]
            assert sum(len(item.entities) for item in answers) == 1_000
            del request.updates[150:]
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Write(request)
            trailer: Any = dict(caught.value.trailing_metadata() or ())  # type: ignore[arg-type]  # pairs
            status = rpc_status.Status.FromString(trailer["grpc-status-details-bin"])
            details = [p4r.Error() for _ in status.details]
            for detail, packed in zip(details, status.details, strict=True):
                assert packed.Unpack(detail)
            assert [detail.canonical_code for detail in details] == [Code.ALREADY_EXISTS] * 150

    wanted = shell.entry("lpm_table")
    run(job)


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (p4r.StreamMessageResponse(packet=p4r.PacketIn()), "packet_in_slow_client"),
        (p4r.StreamMessageResponse(digest=p4r.DigestList()), "digest_slow_client"),
        (
            p4r.StreamMessageResponse(idle_timeout_notification=p4r.IdleTimeoutNotification()),
            "idle_notification_slow_client",
        ),
        (p4r.StreamMessageResponse(error=p4r.StreamError()), "stream_error_slow_client"),
    ],
)
def test_what_a_slow_client_loses_has_a_name(shell: Shell, message: p4r.StreamMessageResponse, name: str) -> None:
    shell.core.count_slow(message)
    assert shell.core.drops == dict.fromkeys(DROPS, 0) | {name: 1}
