"""Traces of reroutes as received over OTLP from the path server and controller daemons."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SentSpan
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from controller.common.errors import ControllerError
from controller.common.tracing import UNTRACED, TraceSettings, traces_of
from controller.network.daemon import Daemon
from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.network.intents import FlowSpec
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.paths.service.process import serve as serve_paths
from controller.network.paths.settings import ManagedFlow, PathServerSettings
from controller.network.process import serve as serve_controller
from dataplane.clock import MonotonicClock, UtcClock
from dataplane.topology.values import Topology
from tests.controller.network.paths.service.test_server import FakeFeed
from tests.controller.network.switch_servers import BuiltIn, address
from tests.waiting import finish_within, until

MS = 1_000_000
BOUND_S = 30.0
RETRY = RetrySettings(first_wait_ns=10 * MS, longest_wait_ns=100 * MS, drain_ns=0)


class Receiver(TraceServiceServicer):
    """Receiver of OTLP over gRPC on a UNIX socket that keeps each service's spans."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[tuple[str, SentSpan]] = []

    def Export(  # noqa: N802
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        del context
        with self._lock:
            for group in request.resource_spans:
                [service] = [
                    attribute.value.string_value for attribute in group.resource.attributes if attribute.key == NAME
                ]
                self._spans += [(service, span) for scope in group.scope_spans for span in scope.spans]
        return ExportTraceServiceResponse()

    def spans(self) -> list[tuple[str, SentSpan]]:
        """Return the received spans."""
        with self._lock:
            return list(self._spans)


NAME = "service.name"


@contextmanager
def receiving(where: str) -> Iterator[Receiver]:
    """Receive traces at an address."""
    receiver, server = Receiver(), grpc.server(ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(where)
    server.start()
    try:
        yield receiver
    finally:
        server.stop(None).wait()


def _settled_version(daemon: Daemon) -> int | None:
    """Return the version of the routes that the switches have; None while they are being written."""
    status = daemon.status()
    return status.wanted_version if status.settled else None


@asynccontextmanager
async def both(topology: Topology, folder: Path, traces: TraceSettings) -> AsyncIterator[tuple[RouteClient, Daemon]]:
    """Run a path server that looks after ha->hd, and a controller of real switches' P4Runtime service."""
    routes = f"unix:{folder}/paths.sock"
    asked = PathServerSettings(
        topology="unused", listen=routes, flows=(ManagedFlow(src="ha", dst="hd"),), traces=traces
    )
    switches = {node.name: address(folder, node.name) for node in topology.switches}
    wanted = DaemonSettings(topology="unused", switches=switches, path_server=routes, retry=RETRY, traces=traces)
    machines = [BuiltIn(node.node_id, switches[node.name]) for node in topology.switches]
    for machine in machines:
        machine.start()
    stop, ready, daemons = asyncio.Event(), asyncio.Event(), list[Daemon]()
    paths = serve_paths(asked, topology, FakeFeed(), UtcClock(), stop, on_ready=lambda _line: ready.set())
    tasks = [asyncio.create_task(paths)]
    try:
        await ready.wait()
        control = serve_controller(wanted, topology, MonotonicClock(), stop, on_daemon=daemons.append)
        tasks.append(asyncio.create_task(control))
        async with RouteClient(RouteClientSettings(address=routes)) as client:
            await until(
                lambda: daemons != [] and _settled_version(daemons[0]) is not None, "the daemon does not settle"
            )
            yield client, daemons[0]
    finally:
        stop.set()
        await asyncio.gather(*tasks)
        for machine in machines:
            machine.stop()


def test_reroute_is_one_trace_from_path_server_to_writes(diamond: Topology, tmp_path: Path) -> None:
    where = f"unix:{tmp_path}/otlp.sock"

    async def scene() -> None:
        async with both(diamond, tmp_path, TraceSettings(address=where)) as (client, daemon):
            await client.pin(FlowSpec("ha", "hd"), ("a", "c", "d"))
            await until(lambda: _settled_version(daemon) == 1, daemon.status)

    with receiving(where) as receiver:
        asyncio.run(finish_within(scene(), BOUND_S))
    [(service, reroute)] = [(service, span) for service, span in receiver.spans() if span.name == "reroute"]
    assert service == "millrace-paths"
    assert {
        attribute.key: attribute.value.string_value or attribute.value.int_value for attribute in reroute.attributes
    } == {
        "millrace.cause": "pin",
        "millrace.moves": 1,
        "millrace.rebalances": 0,
        "millrace.routes.version": 1,
    }
    of_it = [(service, span) for service, span in receiver.spans() if span.trace_id == reroute.trace_id]
    children = {(service, span.name) for service, span in of_it if span.parent_span_id == reroute.span_id}
    assert children == {("millrace-paths", "decide"), ("millrace-controller", "apply routes")}
    [decide] = [span for _, span in of_it if span.name == "decide"]
    [move] = decide.events
    told = {
        attribute.key: attribute.value.string_value
        or [name.string_value for name in attribute.value.array_value.values]
        for attribute in move.attributes
    }
    assert told == {
        "millrace.flow": "ha->hd",
        "millrace.reason": "pinned to a-c-d until it is released",
        "millrace.from": ["a", "b", "d"],
        "millrace.to": ["a", "c", "d"],
    }
    [apply] = [span for _, span in of_it if span.name == "apply routes"]
    writes = [span for _, span in of_it if span.name == "write"]
    assert {span.parent_span_id for span in writes} == {apply.span_id}
    switches = {
        attribute.value.string_value
        for span in writes
        for attribute in span.attributes
        if attribute.key == "millrace.switch"
    }
    assert switches == {"a", "c", "d"}
    # Later events end later, on one clock.
    assert reroute.start_time_unix_nano <= decide.start_time_unix_nano <= decide.end_time_unix_nano
    assert decide.end_time_unix_nano <= apply.start_time_unix_nano
    assert all(apply.start_time_unix_nano <= span.start_time_unix_nano for span in writes)
    assert max(span.end_time_unix_nano for span in writes) <= apply.end_time_unix_nano
    assert all(span.status.code != Status.STATUS_CODE_ERROR for _, span in of_it)


def test_lost_trace_receiver_is_named_once_and_blocks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.common.tracing._EXPORT_S", 0.3)
    where = f"unix:{tmp_path}/nobody.sock"
    caplog.set_level(logging.INFO)
    traces = traces_of(TraceSettings(address=where), "paths", None)
    for _ in range(3):
        traces.begin("reroute", {}).end()
        traces._provider.force_flush()  # type: ignore[attr-defined]
    assert caplog.messages == [f"the trace receiver at {where} does not accept traces: dropping them"]
    with receiving(where) as receiver:
        traces.begin("reroute", {}).end("no")
        traces.close()
    assert caplog.messages[1:] == [f"the trace receiver at {where} accepts traces again"]
    [(_, span)] = receiver.spans()
    assert (span.status.code, span.status.message) == (Status.STATUS_CODE_ERROR, "no")


@pytest.mark.parametrize("parent", ["", "00-0-0-0", "x" * 55, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_invalid_context_is_no_parent(tmp_path: Path, parent: str) -> None:
    where = f"unix:{tmp_path}/otlp.sock"
    with receiving(where) as receiver:
        traces = traces_of(TraceSettings(address=where), "controller", None)
        traces.begin("apply routes", {}, parent=parent).end()
        traces.close()
    [(_, span)] = receiver.spans()
    assert span.parent_span_id == b""


def test_of_no_traces_nothing_is_sent(tmp_path: Path) -> None:
    where = f"unix:{tmp_path}/otlp.sock"
    with receiving(where) as receiver:
        traces = traces_of(TraceSettings(address=where, ratio=0.0), "paths", None)
        reroute = traces.begin("reroute", {})
        traces.begin("apply routes", {}, parent=reroute.traceparent).end()
        reroute.end()
        traces.close()
    assert receiver.spans() == []


def test_unencrypted_remote_address_is_refused() -> None:
    with pytest.raises(
        ControllerError, match=r"^traces\.address: '192\.0\.2\.1:4317' it is not loopback, and there is"
    ):
        traces_of(TraceSettings(address="192.0.2.1:4317"), "paths", None)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    for name in [name for name in sys.modules if name.startswith("opentelemetry.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ControllerError, match=r"traces: sending them needs opentelemetry: pip install .*\[otel\]"):
        traces_of(TraceSettings(), "paths", None)
    assert traces_of(None, "paths", None) is UNTRACED
