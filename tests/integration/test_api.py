"""Every service of ours to a client that knows nothing of Millrace: it discovers all by gRPC reflection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from collectors.collector import Collector
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from controller.network.paths.service.process import serve
from controller.network.paths.settings import DecideSettings, ManagedFlow, PathServerSettings, RecordSettings
from dataplane.clock import UtcClock, VirtualClock
from dataplane.switch.gnmi import GnmiCore, GnmiService
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.switch import PortSettings, Switch
from dataplane.topology.families import leaf_spine
from tests.controller.network.aggregation.service.serving_jobs import run_service
from tests.waiting import finish_within

BOUND_S = 60.0
TOPOLOGY = leaf_spine(2, 2, 1)


class Stranger:
    """A client without Millrace code: it learns services and messages from the server."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self._known = ProtoReflectionDescriptorDatabase(self.channel)
        self._pool = DescriptorPool(self._known)

    def services(self) -> set[str]:
        return set(self._known.get_services())

    def ask(self, service: str, name: str, **request: Any) -> dict[str, Any]:
        """Return the answer of a call, of a stream the first one, as JSON has it."""
        method = self._pool.FindServiceByName(service).FindMethodByName(name)
        body = GetMessageClass(method.input_type)(**request).SerializeToString()
        path = f"/{service}/{name}"
        if method.server_streaming:
            stream: Any = self.channel.unary_stream(path, None, None)(body, timeout=BOUND_S)
            data = next(iter(stream))
            stream.cancel()
        else:
            data = self.channel.unary_unary(path, None, None)(body, timeout=BOUND_S)
        return MessageToDict(GetMessageClass(method.output_type).FromString(data))

    def is_serving(self, service: str) -> bool:
        request = health_pb2.HealthCheckRequest(service=service)
        answer = health_pb2_grpc.HealthStub(self.channel).Check(request, timeout=BOUND_S)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def query_all(address: str, service: str, scene: Callable[[Stranger], None]) -> None:
    """Let a foreign client query a service, and all others served there."""
    stranger = Stranger(address)
    with stranger.channel:
        assert {service, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= stranger.services()
        assert stranger.is_serving("")
        assert stranger.is_serving(service)
        scene(stranger)


@asynccontextmanager
async def collecting(folder: Path) -> AsyncIterator[FeedServer]:
    feed = FeedServer(Collector(TOPOLOGY, UtcClock()), FeedSettings(address=f"unix:{folder}/collector.sock"))
    await feed.start()
    try:
        yield feed
    finally:
        await feed.stop()


def test_a_stranger_reads_the_collector(tmp_path: Path) -> None:
    def scene(stranger: Stranger) -> None:
        snapshot = stranger.ask("millrace.collectors.v2.Feed", "WatchSnapshots", interval_ns=10**9)
        names = snapshot["links"]["links"]["nodes"]
        assert {node.name for node in TOPOLOGY.switches} <= set(names)
        assert "takenNs" in stranger.ask("millrace.collectors.v2.Feed", "GetStatus")

    async def run() -> None:
        async with collecting(tmp_path) as feed:
            await asyncio.to_thread(query_all, feed.address, "millrace.collectors.v2.Feed", scene)

    asyncio.run(finish_within(run(), BOUND_S))


def test_foreign_client_reads_paths_and_is_refused_in_words(tmp_path: Path) -> None:
    src, dst = TOPOLOGY.hosts[0].name, TOPOLOGY.hosts[1].name
    service = "millrace.paths.v1.Paths"

    def scene(stranger: Stranger) -> None:
        while "lastStepNs" not in (status := stranger.ask(service, "GetStatus")):
            pass
        assert status["flows"] == "1"
        told = stranger.ask(service, "Explain", src_host=src, dst_host=dst)
        assert told["flow"] == {"srcHost": src, "dstHost": dst}
        assert len(told["present"]["switches"]) == 3
        assert set(stranger.ask(service, "WatchRoutes")) <= {"version", "names", "routes", "weighted", "pins"}
        with pytest.raises(grpc.RpcError) as caught:
            stranger.ask(service, "Explain", src_host=dst, dst_host=src)
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert error.details() == f"flow {dst}->{src} is not managed: it is not listed in the settings"

    async def run() -> None:
        stop, ready = asyncio.Event(), asyncio.Event()
        settings = PathServerSettings(
            topology="unused",
            listen=f"unix:{tmp_path}/paths.sock",
            flows=(ManagedFlow(src=src, dst=dst, rate_bps=1_000_000),),
            decide=DecideSettings(),
            records=RecordSettings(database=str(tmp_path / "paths.db")),
        )
        async with collecting(tmp_path) as feed, FeedClient(FeedClientSettings(address=feed.address)) as client:
            serving = serve(settings, TOPOLOGY, client, UtcClock(), stop, on_ready=lambda _: ready.set())
            task = asyncio.create_task(serving)
            await ready.wait()
            try:
                await asyncio.to_thread(query_all, settings.listen, service, scene)
            finally:
                stop.set()
                await task

    asyncio.run(finish_within(run(), BOUND_S))


def test_a_stranger_sees_jobs(tmp_path: Path) -> None:
    def scene(stranger: Stranger) -> None:
        (job,) = stranger.ask("millrace.jobs.v1.Jobs", "ListJobs")["jobs"]
        assert (job["name"], job["state"], job["workers"]) == ("resnet", "running", 2)
        assert [(member["host"], member["state"]) for member in job["members"]] == [
            ("h1", "working"),
            ("h2", "working"),
        ]
        stranger.ask("millrace.jobs.v1.Jobs", "EndJob", job="resnet", reason="a stranger asks for it")

    with run_service(tmp_path) as here:
        here.together("h1", "h2", job="resnet")
        query_all(here.address, "millrace.jobs.v1.Jobs", scene)


def test_a_stranger_finds_p4runtime_and_gnmi(tmp_path: Path) -> None:
    def scene(stranger: Stranger) -> None:
        assert stranger.ask("p4.v1.P4Runtime", "Capabilities")["p4runtimeApiVersion"].startswith("1.")
        assert stranger.is_serving("gnmi.gNMI")
        assert "JSON_IETF" in stranger.ask("gnmi.gNMI", "Capabilities")["supportedEncodings"]

    switch = Switch(1, [PortSettings(1)], VirtualClock())
    address = f"unix:{tmp_path}/switch.sock"
    with P4RuntimeServer(P4RuntimeCore(switch), [address], beside=[GnmiService(GnmiCore(switch))]):
        query_all(address, "p4.v1.P4Runtime", scene)
