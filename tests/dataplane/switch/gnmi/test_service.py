"""gNMI over gRPC, on the P4Runtime server's own address, driven by finsy's client and by the bare stubs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from finsy import P4Client
from finsy import Switch as Switch_
from finsy.gnmiclient import GNMIClient, GNMIClientError
from finsy.gnmipath import GNMIPath
from finsy.proto import gnmi, gnmi_grpc, p4r

from dataplane.clock import MonotonicClock
from dataplane.local.deadline import local_timeout
from dataplane.switch.gnmi import service as service_module
from dataplane.switch.gnmi.core import GnmiCore
from dataplane.switch.gnmi.service import GnmiService
from dataplane.switch.p4runtime import P4RuntimeCore, P4RuntimeServer
from dataplane.switch.ports.states import OperStatus
from dataplane.switch.switch import PortSettings, Switch
from tests.waiting import until

BOUND_S = 20.0
OPER = "interfaces/interface[name=1]/state/oper-status"
MS = 1_000_000
END = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it
SMALL_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 4_096))


class Served:
    """A switch behind both services."""

    def __init__(self, address: str, ports: int = 4) -> None:
        self.address = address
        self.switch = Switch(1, [PortSettings(number) for number in range(1, ports + 1)], MonotonicClock())
        self.gnmi = GnmiCore(self.switch)
        self.server = P4RuntimeServer(P4RuntimeCore(self.switch), [address], beside=[GnmiService(self.gnmi)])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(f"unix:{tmp_path / 's.sock'}")
    with made.server:
        yield made


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with local_timeout(BOUND_S, "a test"):
            await work()

    asyncio.run(bounded())


@asynccontextmanager
async def stub_of(address: str, *options: tuple[str, int]) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield gnmi_grpc.gNMIStub(channel)


def subscribe(*paths: str, **more: Any) -> gnmi.SubscribeRequest:
    subscriptions = [gnmi.Subscription(path=GNMIPath(path).path, mode=gnmi.ON_CHANGE) for path in paths]
    return gnmi.SubscribeRequest(subscribe=gnmi.SubscriptionList(subscription=subscriptions, **more))


async def refusal(call: Awaitable[object]) -> tuple[str, str]:
    with pytest.raises(GNMIClientError) as caught:
        await call
    return caught.value.code.name, caught.value.message


async def drain(stream: Any) -> None:
    while await stream.read() is not END:
        pass


async def status(stream: Any) -> tuple[grpc.StatusCode, str]:
    """Return a stream's final status, discarding its messages."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await drain(stream)
    return caught.value.code(), caught.value.details() or ""


def test_finsy_reads_sets_and_follows_a_port(served: Served) -> None:
    async def work() -> None:
        async with GNMIClient(served.address) as client:
            assert (await client.capabilities()).gNMI_version == "0.10.0"
            (oper,) = await client.get(GNMIPath(OPER))
            assert (oper.path, oper.value) == (GNMIPath(OPER), "UP")
            following = client.subscribe()
            following.on_change(GNMIPath("interfaces/interface[name=*]/state/admin-status"))
            first = [update async for update in following.synchronize()]
            assert [update.path["name"] for update in first] == ["1", "2", "3", "4"]
            assert {update.value for update in first} == {"UP"}  # finsy says nothing of encodings
            news = following.updates()
            enabled = GNMIPath("interfaces/interface[name=1]/config/enabled")
            assert await client.set(update=[(enabled, False)]) > 0
            update = await anext(news)
            assert (update.path["name"], update.value) == ("1", "DOWN")
            following.cancel()

    run(work)
    assert not served.switch.port_states()[1].admin_up


def test_finsy_subscribes_once(served: Served) -> None:
    async def work() -> None:
        async with GNMIClient(served.address) as client:
            once = client.subscribe(prefix=GNMIPath("interfaces", target="s1"))
            once.once(GNMIPath("interface/state/oper-status"), GNMIPath("interface/state/id"))
            updates = [update async for update in once.synchronize()]
            assert len(updates) == 8

    run(work)


def test_what_is_wrong_is_said_in_one_line(served: Served) -> None:
    async def work() -> None:
        async with GNMIClient(served.address) as client:
            assert await refusal(client.get(GNMIPath("interfaces/interface[name=9]"))) == (
                "NOT_FOUND",
                "/interfaces/interface[name=9]: no such node",
            )
            assert await refusal(client.get(GNMIPath("system/clock"))) == (
                "UNIMPLEMENTED",
                "/system/clock: no such path is served here",
            )
            assert await refusal(client.set(update=[(GNMIPath(OPER), "UP")])) == (
                "INVALID_ARGUMENT",
                f"/{OPER}: read-only",
            )
            bad = client.subscribe()
            bad.on_change(GNMIPath("interfaces/interface/state/counters"))
            code, _ = await refusal(anext(bad.synchronize()))
            assert code == "INVALID_ARGUMENT"

    run(work)


def test_p4runtime_answers_on_the_same_address(served: Served) -> None:
    async def work() -> None:
        async with P4Client(served.address) as client:
            assert (await client.request(p4r.CapabilitiesRequest())).p4runtime_api_version
        async with GNMIClient(served.address) as other:
            assert await other.get(GNMIPath(OPER))

    run(work)


def test_finsys_switch_follows_ports_by_itself(tmp_path: Path) -> None:
    served = Served(f"unix:{tmp_path / 's.sock'}", ports=100)

    async def work() -> None:
        async with Switch_("s1", served.address) as switch:
            assert [port.id for port in switch.ports] == list(range(1, 101))
            await asyncio.to_thread(served.switch.set_oper, 77, OperStatus.LOWER_LAYER_DOWN)
            await until(lambda: not switch.ports["77"].up)
            assert [port.id for port in switch.ports if not port.up] == [77]

    with served.server:
        run(work)


def test_once_ends_the_call_and_poll_answers_each_poll(served: Served) -> None:
    async def work() -> None:
        async with stub_of(served.address) as stub:
            once = stub.Subscribe(iter([subscribe(OPER, mode=gnmi.SubscriptionList.ONCE)]))
            kinds = [message.WhichOneof("response") async for message in once]
            assert kinds == ["update", "sync_response"]
            poll = stub.Subscribe()
            await poll.write(subscribe(OPER, mode=gnmi.SubscriptionList.POLL))
            for _ in range(3):
                assert [(await poll.read()).WhichOneof("response") for _ in range(2)] == ["update", "sync_response"]
                await poll.write(gnmi.SubscribeRequest(poll=gnmi.Poll()))
            await poll.done_writing()
            assert [(await poll.read()).WhichOneof("response") for _ in range(2)] == ["update", "sync_response"]
            assert await poll.read() is END

    run(work)


@pytest.mark.parametrize(
    ("requests", "text"),
    [
        ([gnmi.SubscribeRequest(poll=gnmi.Poll())], "begins with a SubscriptionList"),
        ([gnmi.SubscribeRequest()], "begins with a SubscriptionList"),
        ([], "begins with a SubscriptionList"),
        ([subscribe(OPER), subscribe(OPER)], "cannot be changed"),
        ([subscribe(OPER), gnmi.SubscribeRequest(poll=gnmi.Poll())], "not in mode POLL"),
        ([subscribe(OPER, mode=gnmi.SubscriptionList.POLL), subscribe(OPER)], "cannot be changed"),
    ],
)
def test_a_stream_out_of_order_is_ended(served: Served, requests: list[gnmi.SubscribeRequest], text: str) -> None:
    async def work() -> None:
        async with stub_of(served.address) as stub:
            code, details = await status(stub.Subscribe(iter(requests)))
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert text in details

    run(work)


def test_a_client_that_says_no_more_still_hears(served: Served) -> None:
    async def work() -> None:
        async with stub_of(served.address) as stub:
            stream = stub.Subscribe(iter([subscribe(OPER)]))
            for _ in range(2):
                await stream.read()
            await asyncio.to_thread(served.switch.set_oper, 1, OperStatus.DOWN)
            assert (await stream.read()).update.update[0].val.string_val == "DOWN"

    run(work)


def test_samples_come_by_themselves(served: Served) -> None:
    async def work() -> None:
        async with GNMIClient(served.address) as client:
            sampled = client.subscribe()
            sampled.sample(GNMIPath("interfaces/interface[name=1]/state/counters/in-pkts"), sample_interval=100 * MS)
            first = [update async for update in sampled.synchronize()]
            news = sampled.updates()
            samples = [await anext(news) for _ in range(3)]
            assert {update.value for update in (*first, *samples)} == {0}
            sampled.cancel()

    run(work)


async def flood(served: Served, changes: int) -> None:
    """Let a port come and go."""
    for turn in range(changes):
        served.switch.set_oper(1, OperStatus.DOWN if turn % 2 == 0 else OperStatus.UP)
        if turn % 100 == 0:
            await asyncio.sleep(0)


def test_who_does_not_read_is_ended_and_counted(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "MAX_QUEUED", 16)

    async def work() -> None:
        async with stub_of(served.address) as stub:
            stream = stub.Subscribe(iter([subscribe("interfaces")]))
            while (await stream.read()).WhichOneof("response") != "sync_response":
                pass
            while not served.gnmi.drops["gnmi_slow_subscriber"]:
                await asyncio.to_thread(asyncio.run, flood(served, 1_000))
            assert (await status(stream))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
            again = stub.Subscribe(iter([subscribe(OPER)]))
            assert (await again.read()).WhichOneof("response") == "update"

    run(work)


def test_a_write_that_nobody_reads_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "LONGEST_WRITE_S", 0.2)
    served = Served(f"unix:{tmp_path / 's.sock'}", ports=250)

    async def work() -> None:
        async with stub_of(served.address, *SMALL_WINDOW) as stub:
            stream = stub.Subscribe()
            await stream.write(subscribe("", mode=gnmi.SubscriptionList.POLL))
            polling = asyncio.create_task(poll_for_ever(stream))
            await until(lambda: served.gnmi.drops["gnmi_slow_subscriber"] > 0)
            polling.cancel()
            stream.cancel()

    with served.server:
        run(work)


async def poll_for_ever(stream: Any) -> None:
    while True:
        await stream.write(gnmi.SubscribeRequest(poll=gnmi.Poll()))


def test_a_client_that_goes_leaves_nothing_behind(served: Served) -> None:
    async def work() -> None:
        async with stub_of(served.address) as stub:
            streams = [stub.Subscribe(iter([subscribe(OPER)])) for _ in range(64)]
            for stream in streams:
                await stream.read()
            one_more = stub.Subscribe(iter([subscribe(OPER)]))
            assert (await status(one_more))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        async with stub_of(served.address) as stub:
            while True:  # the server hears of it in its own time
                stream = stub.Subscribe(iter([subscribe(OPER)]))
                try:
                    await stream.read()
                except grpc.aio.AioRpcError:
                    continue
                break

    run(work)


def test_a_switch_that_stops_says_so(tmp_path: Path) -> None:
    served = Served(f"unix:{tmp_path / 's.sock'}")
    served.server.start()

    async def work() -> None:
        async with stub_of(served.address) as stub:
            stream = stub.Subscribe(iter([subscribe(OPER)]))
            for _ in range(2):
                await stream.read()
            await asyncio.to_thread(served.server.stop)
            assert await status(stream) == (grpc.StatusCode.UNAVAILABLE, "the switch is stopping")

    run(work)
