"""Runs a test of the simple test framework on bmv2's simple_switch_grpc: P4Runtime for tables, gRPC for packets.

Tables are filled in a switch of ours first, and what P4Runtime reads from that is written to bmv2, so that a test's
words are understood in one place. bmv2 has no registers in P4Runtime: tests that write one cannot be run this way.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4r
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from dataplane.clock import VirtualClock
from dataplane.errors import ConfigError, EntryError, SwitchError
from dataplane.program.model import Program
from dataplane.stf.compare import Difference, Ledger
from dataplane.stf.controls import Controls
from dataplane.stf.run import named_ports
from dataplane.stf.statements import (
    CheckCounter,
    Command,
    CounterRead,
    Expect,
    MeterGet,
    MirrorGet,
    NoPacket,
    Packet,
    RegisterRead,
    RegisterReset,
    RegisterWrite,
    Statement,
    Wait,
)
from dataplane.switch.bmv2 import EXECUTABLE, thrift_words, wait_listening
from dataplane.switch.p4runtime import P4RuntimeCore
from dataplane.switch.switch import Switch
from tests.p4runtime_client import ELECTION, Client, commit_request, connect, pipeline_config

DEVICE = 1
LIMIT_S = 20.0
SHOWS = (CounterRead, MeterGet, MirrorGet, RegisterRead, Wait)


def run_on_bmv2(
    program: Path, p4info: Path | None, statements: Sequence[Statement], file: str
) -> tuple[Difference, ...]:
    """Return a test's differences on bmv2; raise SwitchError if bmv2 refuses the program or an entry."""
    controls = [
        statement for statement in statements if not isinstance(statement.command, (Packet, Expect, NoPacket, *SHOWS))
    ]
    ledger = Ledger(named_ports(statements, file))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stf-bmv2")))
        bmv2 = stack.enter_context(_running(folder, None if controls else program))
        mirror = None
        if controls:
            client = stack.enter_context(connect(f"unix:{folder}/p4rt", DEVICE))
            mirror = _Mirror(program, p4info, client)
        packets: list[tuple[int, Packet]] = []
        for statement in statements:
            command = statement.command
            if isinstance(command, Packet):
                packets.append((statement.line, command))
            elif isinstance(command, Expect):
                ledger.expect(statement.line, command)
            elif mirror is not None and not isinstance(command, (NoPacket, *SHOWS)):
                _send(folder, packets, ledger)
                packets.clear()
                mirror.carry_out(statement, file)
        _send(folder, packets, ledger)
        if bmv2.poll() is not None:
            raise SwitchError(f"{EXECUTABLE} ended with {bmv2.returncode}")
    return tuple(ledger.differences())


@contextmanager
def _running(folder: Path, program: Path | None) -> Iterator[subprocess.Popen[bytes]]:
    start = ["--no-p4"] if program is None else [str(program)]
    addresses = ["--grpc-server-addr", f"unix:{folder}/p4rt", "--dp-grpc-server-addr", f"unix:{folder}/packets"]
    command = [EXECUTABLE, *thrift_words(), "--device-id", str(DEVICE), "-L", "off", *start, "--", *addresses]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            for name in ("p4rt", "packets"):
                wait_listening(f"unix:{folder}/{name}", LIMIT_S, lambda: process.poll() is None)
            yield process
        finally:
            process.kill()


# ---- tables


class _Mirror:
    """A switch of ours whose tables are written to bmv2 whenever they change."""

    def __init__(self, program: Path, p4info: Path | None, client: Client) -> None:
        if p4info is None:
            raise SwitchError("the program has no P4Info, without which bmv2's tables cannot be written here")
        self._client = client
        self._switch = Switch(DEVICE, [], VirtualClock())
        self._core = P4RuntimeCore(self._switch)
        self._stream = self._core.open_stream(lambda _: None)
        arbitration = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=ELECTION)
        self._stream.handle(p4r.StreamMessageRequest(arbitration=arbitration))
        config = pipeline_config(program, p4info)
        self._core.set_pipeline(commit_request(config, DEVICE))
        client.commit_config(config)
        running, state = self._switch.program, self._switch.state
        assert running is not None
        assert state is not None
        self._controls = Controls(running, state)
        self._program: Program = running
        self._written = self._read()

    def carry_out(self, statement: Statement, file: str) -> None:
        where = f"{file}:{statement.line}"
        _refuse_registers(statement.command, where)
        try:
            self._controls.carry_out(statement.command)
        except EntryError as error:
            raise ConfigError(str(error), file=file, line=statement.line) from error
        now = self._read()
        gone = self._written.keys() - now.keys()
        updates = [p4r.Update(type=p4r.Update.DELETE, entity=self._written[key]) for key in gone]
        for key, entity in now.items():
            if key not in self._written:
                updates.append(p4r.Update(type=p4r.Update.INSERT, entity=entity))
            elif entity != self._written[key]:
                updates.append(p4r.Update(type=p4r.Update.MODIFY, entity=entity))
        if updates:
            self._client.write(updates, where)
        self._written = now

    def _read(self) -> dict[bytes, p4r.Entity]:
        info = self._program.p4info
        defaults = [p4r.TableEntry(table_id=table.preamble.id, is_default_action=True) for table in info.tables]
        wanted = [
            p4r.Entity(table_entry=p4r.TableEntry()),
            *(p4r.Entity(table_entry=entry) for entry in defaults),
            p4r.Entity(packet_replication_engine_entry=_everything("multicast_group_entry")),
            p4r.Entity(packet_replication_engine_entry=_everything("clone_session_entry")),
            *(p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=meter.preamble.id)) for meter in info.meters),
        ]
        request = p4r.ReadRequest(device_id=DEVICE, entities=wanted)
        entities = [entity for answer in self._core.read(request) for entity in answer.entities]
        return {_key(entity): entity for entity in entities if not entity.table_entry.is_const}


def _everything(kind: str) -> p4r.PacketReplicationEngineEntry:
    entry = p4r.PacketReplicationEngineEntry()
    getattr(entry, kind).SetInParent()
    return entry


def _key(entity: p4r.Entity) -> bytes:
    """Return an entity's key, without its action and data."""
    key = p4r.Entity()
    key.CopyFrom(entity)
    for field in ("action", "idle_timeout_ns"):
        key.table_entry.ClearField(field) if entity.HasField("table_entry") else None
    if entity.HasField("meter_entry"):
        key.meter_entry.ClearField("config")
    replication = key.packet_replication_engine_entry
    if entity.HasField("packet_replication_engine_entry"):
        replication.multicast_group_entry.ClearField("replicas") if replication.HasField(
            "multicast_group_entry"
        ) else None
        replication.clone_session_entry.ClearField("replicas") if replication.HasField("clone_session_entry") else None
    return key.SerializeToString(deterministic=True)


def _refuse_registers(command: Command, where: str) -> None:
    if isinstance(command, RegisterWrite | RegisterReset):
        raise SwitchError(f"{where}: bmv2's P4Runtime has no registers")
    if isinstance(command, CheckCounter):
        raise SwitchError(f"{where}: counters are not compared here")


# ---- packets


def _messages() -> tuple[Any, Any]:
    """Return request and response of bmv2's p4.bm.DataplaneInterface.PacketStream, whose fields are the same."""
    file = descriptor_pb2.FileDescriptorProto(name="dataplane_interface.proto", package="p4.bm", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name in ("PacketStreamRequest", "PacketStreamResponse"):
        message = file.message_type.add(name=name)
        fields = (("id", kinds.TYPE_UINT64), ("device_id", kinds.TYPE_UINT64))
        for number, (field, kind) in enumerate((*fields, ("port", kinds.TYPE_UINT32), ("packet", kinds.TYPE_BYTES)), 1):
            message.field.add(name=field, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    types = [pool.FindMessageTypeByName(f"p4.bm.{name}") for name in ("PacketStreamRequest", "PacketStreamResponse")]
    return message_factory.GetMessageClass(types[0]), message_factory.GetMessageClass(types[1])


_Request, _Response = _messages()


def _send(folder: Path, packets: Sequence[tuple[int, Packet]], ledger: Ledger) -> None:
    """Send packets in order and collect the output until bmv2 is idle."""
    if not packets:
        return
    with grpc.insecure_channel(f"unix:{folder}/packets") as channel:
        stream = channel.stream_stream(
            "/p4.bm.DataplaneInterface/PacketStream",
            request_serializer=_Request.SerializeToString,
            response_deserializer=_Response.FromString,
        )
        requests = [
            _Request(id=line, device_id=DEVICE, port=packet.port, packet=packet.data) for line, packet in packets
        ]
        try:
            for answer in stream(iter(requests), timeout=LIMIT_S):
                ledger.arrive(answer.id, answer.port, answer.packet)
        except grpc.RpcError as error:
            raise SwitchError(f"bmv2 ended while packets were under way: {error}".splitlines()[0]) from error
    time.sleep(0.02)
