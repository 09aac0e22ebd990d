"""Clients without our code: one from the .proto files, one that asks the server by reflection."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from collectors.collector import Collector
from collectors.feed.server import FeedServer, FeedSettings
from collectors.values import Snapshot
from dataplane.clock import VirtualClock
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.waiting import HANG_S, finish_within

ROOT = Path(__file__).parents[3]
FEED = "millrace.collectors.v2.Feed"
DESCRIPTORS = "from pathlib import Path; from sys import argv; from grpc_tools import protoc; "
MAKE = "protoc.main(['protoc', f'-I{argv[1]}', f'-o{argv[2]}', '--include_imports', 'collectors/feed/feed.proto'])"


@pytest.fixture
def address() -> Iterator[str]:
    with TemporaryDirectory(prefix="feed") as folder:
        yield f"unix:{Path(folder) / 'socket'}"


def by_the_files(_: grpc.Channel, folder: Path) -> DescriptorPool:
    """Return what the .proto files describe."""
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")
    made = folder / "feed.bin"
    subprocess.run([sys.executable, "-c", DESCRIPTORS + MAKE, ROOT, made], check=True, cwd=ROOT, timeout=HANG_S)
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(made.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def by_reflection(channel: grpc.Channel, _: Path) -> DescriptorPool:
    """Return what the server says of itself, as grpcurl asks for it."""
    return DescriptorPool(ProtoReflectionDescriptorDatabase(channel))


def first_answer(channel: grpc.Channel, pool: DescriptorPool, method: str, **request: Any) -> Any:
    """Return the first message that a method answers."""
    described = pool.FindServiceByName(FEED).methods_by_name[method]
    call = channel.unary_stream(
        f"/{FEED}/{method}",
        request_serializer=GetMessageClass(described.input_type).SerializeToString,
        response_deserializer=GetMessageClass(described.output_type).FromString,
    )
    return next(iter(call(GetMessageClass(described.input_type)(**request), timeout=10)))


def query(address: str, describe: Callable[[grpc.Channel, Path], DescriptorPool], folder: Path) -> tuple[Any, Any]:
    """Return a snapshot and the status, as messages."""
    with grpc.insecure_channel(address) as channel:
        pool = describe(channel, folder)
        snapshot = first_answer(channel, pool, "WatchSnapshots", interval_ns=10**9)
        return snapshot, first_answer(channel, pool, "GetStatus")


@pytest.mark.parametrize("describe", [by_the_files, by_reflection])
def test_the_state_is_read_as_the_proto_says(
    address: str, describe: Callable[[grpc.Channel, Path], DescriptorPool], tmp_path: Path
) -> None:
    async def scenario() -> tuple[Snapshot, Any, Any]:
        collector = Collector(build_topology(), VirtualClock())
        collector.receive(Reporter().stacked(long_way()))
        server = FeedServer(collector, FeedSettings(address=address))
        await server.start()
        try:
            return collector.snapshot(), *await asyncio.to_thread(query, address, describe, tmp_path)
        finally:
            await server.stop()

    wanted, snapshot, status = asyncio.run(finish_within(scenario(), 30))
    counters = dict(status.counters)
    assert counters.pop("feed bytes") > 0
    assert counters == {"reports": 1, "records": 3}
    links, names = snapshot.links, snapshot.links.links
    rows = range(len(names.src))
    assert len(rows) == len(wanted.links)

    def column(name: str, kind: str = "i") -> list[Any]:
        data = getattr(links, name)
        return list(np.frombuffer(data, f"<{kind}{len(data) // len(rows)}").tolist())

    p99_ns, age_ns, sources = column("delay_p99_ns"), column("age_ns"), column("source")
    utilisation, losses = column("utilisation", "f"), column("loss", "f") if links.loss else [math.nan] * len(rows)
    for row in rows:
        ends = names.nodes[names.src[row]], names.nodes[names.dst[row]]
        (state,) = [state for key, state in wanted.links.items() if (key.src, key.dst) == ends]
        assert p99_ns[row] == state.delay_p99_ns
        assert utilisation[row] == state.utilisation
        assert age_ns[row] == (-1 if state.age_ns is None else state.age_ns)
        assert math.isnan(losses[row]) if state.loss is None else losses[row] == state.loss
        source = links.DESCRIPTOR.file.enum_types_by_name["DelaySource"].values_by_number[sources[row]].name
        assert source == "DELAY_SOURCE_" + state.source.name
    (path,) = wanted.paths.values()
    routes = snapshot.paths.routes
    assert [routes.switches[hop] for hop in routes.hops] == list(path.switches)
    assert snapshot.paths.flows.rows == 1
    assert snapshot.paths.flows.addresses[snapshot.paths.flows.src[0]] == path.flow.src.packed
