"""P4Runtime servers that store what controllers write, and switch nothing: all switches of a topology in one process.

Each switch listens on a socket of its own, `FOLDER/NAME.sock`, and is told apart by its device id. It accepts
arbitration, pipelines, writes and reads as a switch does; reads return what was written. A log has one line of JSON for
each pipeline and each batch of updates, with the monotonic time of its arrival, which is one clock for all processes of
a machine.

    .venv/bin/python tests/benchmarks/chaining/sinks.py fat-tree:k=12 /tmp/sinks --log /tmp/sinks/log
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import grpc
import grpc.aio
from finsy.proto import p4r, p4r_grpc, rpc_code

sys.path.insert(0, str(Path(__file__).parents[3]))  # tests import each other by their full names

from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology

READY = "ready"
"""Line printed by the process once all its switches listen."""

_MESSAGE_BYTES = 256 << 20
_READ_ENTITIES = 1000
"""Entities in one message of an answer to a read."""

_Key: TypeAlias = tuple[str, bytes]
_T = TypeVar("_T", _Key, bytes)
_SHARED: dict[object, object] = {}

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pipeline, or a batch of updates, that a switch has taken; `time_ns` is monotonic."""

    time_ns: int
    switch: str
    updates: int
    """0 for a pipeline."""
    tables: tuple[str, ...]
    """The tables that the batch has entries of."""


@dataclass(slots=True)
class _Stream:
    """A controller's stream, and the election id that it bid with."""

    answers: asyncio.Queue[p4r.StreamMessageResponse]
    bid: int = 0


@dataclass(slots=True)
class SinkSwitch:
    """State written to one switch."""

    name: str
    config: p4r.ForwardingPipelineConfig = field(default_factory=p4r.ForwardingPipelineConfig)
    tables: dict[int, str] = field(default_factory=dict)
    entities: dict[_Key, bytes] = field(default_factory=dict)
    """Entities as written; equal ones of several switches share one object, as a large fabric has many."""
    streams: list[_Stream] = field(default_factory=list)

    @property
    def primary(self) -> _Stream | None:
        """The stream of the highest bid."""
        return max((stream for stream in self.streams if stream.bid), key=lambda stream: stream.bid, default=None)

    def install(self, config: p4r.ForwardingPipelineConfig) -> None:
        """Run another program: nothing is left of what the one before held."""
        self.config = config
        self.tables = {table.preamble.id: table.preamble.alias for table in config.p4info.tables}
        self.entities.clear()

    def write(self, update: p4r.Update) -> tuple[int, str]:
        """Execute an update; return its canonical code and the error."""
        key = _shared(_key(update.entity))
        if update.entity.table_entry.is_default_action:
            if update.type != p4r.Update.MODIFY:
                return rpc_code.INVALID_ARGUMENT, "a default action can only be modified"
        elif (key in self.entities) is (update.type == p4r.Update.INSERT):
            if update.type == p4r.Update.INSERT:
                return rpc_code.ALREADY_EXISTS, "it exists already"
            return rpc_code.NOT_FOUND, "there is no such entity"
        if update.type == p4r.Update.DELETE:
            del self.entities[key]
        else:
            self.entities[key] = _shared(update.entity.SerializeToString(deterministic=True))
        return rpc_code.OK, ""

    def read(self, wanted: p4r.Entity) -> Iterator[p4r.Entity]:
        """Yield what a request selects: all of a kind, or a table's default action."""
        kind = wanted.WhichOneof("entity")
        if kind == "table_entry" and wanted.table_entry.is_default_action:
            stored = self.entities.get(_key(wanted))
            if stored is not None:
                yield p4r.Entity.FromString(stored)
            return
        for (is_kind, _), stored in self.entities.items():
            if is_kind == kind:
                entity = p4r.Entity.FromString(stored)
                if not (kind == "table_entry" and entity.table_entry.is_default_action):
                    yield entity


class SinkService(p4r_grpc.P4RuntimeServicer):
    """P4Runtime of many switches, told apart by device id."""

    def __init__(self, switches: dict[int, SinkSwitch], on_arrival: Callable[[Arrival], None]) -> None:
        self.switches, self._on_arrival = switches, on_arrival

    async def Capabilities(  # noqa: N802
        self, request: p4r.CapabilitiesRequest, context: Context
    ) -> p4r.CapabilitiesResponse:
        """Return the version that is spoken."""
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.4.1")

    async def SetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.SetForwardingPipelineConfigRequest, context: Context
    ) -> p4r.SetForwardingPipelineConfigResponse:
        """Take a program."""
        switch = await self._primary_of(request.device_id, request.election_id, context)
        switch.install(request.config)
        self._on_arrival(Arrival(time.monotonic_ns(), switch.name, 0, ()))
        return p4r.SetForwardingPipelineConfigResponse()

    async def GetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Context
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the program, or only its cookie."""
        config = (await self._switch_of(request.device_id, context)).config
        if request.response_type != p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY:
            return p4r.GetForwardingPipelineConfigResponse(config=config)
        cookie = p4r.ForwardingPipelineConfig()
        if config.HasField("cookie"):
            cookie.cookie.CopyFrom(config.cookie)
        return p4r.GetForwardingPipelineConfigResponse(config=cookie)

    async def Write(self, request: p4r.WriteRequest, context: Context) -> p4r.WriteResponse:  # noqa: N802
        """Store a batch."""
        time_ns = time.monotonic_ns()
        switch = await self._primary_of(request.device_id, request.election_id, context)
        results = [switch.write(update) for update in request.updates]
        problem = next((message for code, message in results if code), "")
        if problem:
            # Without details a controller takes all of the batch as refused; the benchmarks have no use for more.
            await context.abort(grpc.StatusCode.UNKNOWN, f"switch {switch.name}: {problem}")
        ids = {update.entity.table_entry.table_id for update in request.updates}
        tables = tuple(sorted(switch.tables[table] for table in ids if table in switch.tables))
        self._on_arrival(Arrival(time_ns, switch.name, len(results), tables))
        return p4r.WriteResponse()

    async def Read(  # noqa: N802
        self, request: p4r.ReadRequest, context: Context
    ) -> AsyncIterator[p4r.ReadResponse]:
        """Stream the written entities."""
        switch = await self._switch_of(request.device_id, context)
        entities = [entity for wanted in request.entities for entity in switch.read(wanted)]
        for start in range(0, len(entities), _READ_ENTITIES):
            yield p4r.ReadResponse(entities=entities[start : start + _READ_ENTITIES])

    async def StreamChannel(  # noqa: N802
        self, requests: AsyncIterator[p4r.StreamMessageRequest], context: Context
    ) -> AsyncIterator[p4r.StreamMessageResponse]:
        """Answer bids until the controller hangs up."""
        stream = _Stream(asyncio.Queue())
        reader = asyncio.create_task(self._follow(requests, stream))
        answer = asyncio.create_task(stream.answers.get())
        try:
            while not reader.done() or not stream.answers.empty():
                await asyncio.wait((reader, answer), return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    break
                yield answer.result()
                answer = asyncio.create_task(stream.answers.get())
        finally:
            reader.cancel()
            answer.cancel()
            for switch in self.switches.values():
                if stream in switch.streams:
                    switch.streams.remove(stream)

    async def _follow(self, requests: AsyncIterator[p4r.StreamMessageRequest], stream: _Stream) -> None:
        async for request in requests:
            bid = request.arbitration
            if request.WhichOneof("update") != "arbitration" or bid.device_id not in self.switches:
                continue
            switch = self.switches[bid.device_id]
            if stream not in switch.streams:
                switch.streams.append(stream)
            stream.bid = _number(bid.election_id)
            for each in switch.streams:
                each.answers.put_nowait(_arbitration(bid.device_id, switch, each))

    async def _switch_of(self, device_id: int, context: Context) -> SinkSwitch:
        switch = self.switches.get(device_id)
        if switch is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no device {device_id}")
            raise AssertionError("abort raises")
        return switch

    async def _primary_of(self, device_id: int, election_id: p4r.Uint128, context: Context) -> SinkSwitch:
        """Return a switch that the caller controls."""
        switch = await self._switch_of(device_id, context)
        primary = switch.primary
        if primary is None or primary.bid != _number(election_id):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "another controller is the primary")
        return switch


def _arbitration(device_id: int, switch: SinkSwitch, stream: _Stream) -> p4r.StreamMessageResponse:
    primary = switch.primary
    update = p4r.MasterArbitrationUpdate(device_id=device_id)
    if primary is not None:
        update.election_id.high, update.election_id.low = divmod(primary.bid, 1 << 64)
    if primary is not stream:
        update.status.code = rpc_code.ALREADY_EXISTS
    return p4r.StreamMessageResponse(arbitration=update)


def _number(election_id: p4r.Uint128) -> int:
    return election_id.high << 64 | election_id.low


def _shared(value: _T) -> _T:
    """Return an equal existing value, else this one."""
    return cast("_T", _SHARED.setdefault(value, value))


def _key(entity: p4r.Entity) -> _Key:
    """Return an entity's kind and identity."""
    kind = entity.WhichOneof("entity") or ""
    match kind:
        case "table_entry":
            entry = entity.table_entry
            identity = p4r.TableEntry(
                table_id=entry.table_id,
                match=entry.match,
                priority=entry.priority,
                is_default_action=entry.is_default_action,
            )
            return kind, identity.SerializeToString(deterministic=True)
        case "action_profile_member":
            member = entity.action_profile_member
            return kind, b"%d %d" % (member.action_profile_id, member.member_id)
        case "action_profile_group":
            group = entity.action_profile_group
            return kind, b"%d %d" % (group.action_profile_id, group.group_id)
        case "packet_replication_engine_entry":
            replication = entity.packet_replication_engine_entry
            if replication.WhichOneof("type") == "clone_session_entry":
                return kind, b"clone %d" % replication.clone_session_entry.session_id
            return kind, b"multicast %d" % replication.multicast_group_entry.multicast_group_id
        case _:
            return kind, entity.SerializeToString(deterministic=True)


@asynccontextmanager
async def serving(
    topology: Topology, folder: Path, on_arrival: Callable[[Arrival], None]
) -> AsyncIterator[dict[int, SinkSwitch]]:
    """Serve every switch of a topology at `FOLDER/NAME.sock` until the block ends."""
    options = [
        ("grpc.max_receive_message_length", _MESSAGE_BYTES),
        ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ]
    server = grpc.aio.server(options=options)
    switches = {node.node_id: SinkSwitch(node.name) for node in topology.switches}
    p4r_grpc.add_P4RuntimeServicer_to_server(SinkService(switches, on_arrival), server)
    for switch in switches.values():
        server.add_insecure_port(f"unix:{folder / switch.name}.sock")
    await server.start()
    try:
        yield switches
    finally:
        await server.stop(0)


@contextmanager
def sinks(topology: str, folder: Path) -> Iterator[SinkProcess]:
    """Run all switches of a topology, a file or a family's name, as a process until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "arrivals.jsonl"
    command = [sys.executable, __file__, topology, str(folder), "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                raise RuntimeError(f"the sinks of {topology} did not start")
            yield SinkProcess(process.pid, f"unix:{folder}/{{name}}.sock", log)
        finally:
            process.terminate()


@dataclass(frozen=True, slots=True)
class SinkProcess:
    """Sinks that run in a process of their own."""

    pid: int
    switches: str
    """The setting `switches` of a controller of these."""
    log: Path

    def arrivals(self) -> list[Arrival]:
        """Return the arrivals so far, in order."""
        # A line that is being written has no end yet.
        lines = self.log.read_text(encoding="utf-8").split("\n")[:-1] if self.log.exists() else []
        return [Arrival(**{**json.loads(line), "tables": tuple(json.loads(line)["tables"])}) for line in lines]


async def _run(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    topology, folder = load_topology(arguments.topology), Path(arguments.folder)
    with Path(arguments.log or "/dev/null").open("w", buffering=1, encoding="utf-8") as log:

        def note(arrival: Arrival) -> None:
            line = {name: getattr(arrival, name) for name in ("time_ns", "switch", "updates", "tables")}
            log.write(json.dumps(line) + "\n")

        async with serving(topology, folder, note):
            sys.stdout.write(f"{READY}\n")
            sys.stdout.flush()
            await stop.wait()


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topology", help="a file, a bundled name, or a family such as fat-tree:k=12")
    parser.add_argument("folder", help="where the sockets go")
    parser.add_argument("--log", help="where arrivals are written")
    asyncio.run(_run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
