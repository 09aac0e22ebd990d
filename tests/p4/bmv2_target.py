"""bmv2's simple_switch_grpc, in a network namespace of its own, driven through P4Runtime."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import finsy
import grpc
from finsy.proto import p4r, p4r_grpc

from dataplane.switch.bmv2 import thrift_words
from tests.p4.entries import (
    COLLECTOR_PORT,
    CPU_PORT,
    DOWN_PORT,
    HOST_PORT,
    UP_PORT,
    CloneTo,
    DefaultAction,
    Entry,
    Item,
    MulticastTo,
    Spread,
)
from tests.p4.targets import P4INFO, PROGRAM, Sent
from tests.p4.veth import Namespace, receive_all, unique_name

PORTS = (HOST_PORT, UP_PORT, DOWN_PORT, COLLECTOR_PORT)
_DEVICE = 1
_ELECTION = p4r.Uint128(low=1)
_TIMEOUT_S = 5.0
_SETTLE_S = 0.03
_BETWEEN_FRAMES_S = 0.001
"""bmv2 receives through libpcap, whose ring holds 32 frames and silently loses more."""

Entity: TypeAlias = (
    finsy.P4TableEntry
    | finsy.P4ActionProfileMember
    | finsy.P4ActionProfileGroup
    | finsy.P4CloneSessionEntry
    | finsy.P4MulticastGroupEntry
)


class Bmv2Target:
    """One process for a whole test session; `reset` deletes what a test has written."""

    name = "bmv2"
    shortest_frame = 14

    def __init__(self, program: tuple[Path, Path] = (PROGRAM, P4INFO)) -> None:
        self._program, p4info = program
        self._schema = finsy.P4Schema(p4info, self._program)
        self._written: list[p4r.Entity] = []
        self._baseline: dict[str, int] = {}
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        self._packets_in: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._learned: queue.SimpleQueue[tuple[int, ...]] = queue.SimpleQueue()

    def __enter__(self) -> Bmv2Target:
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-p4-"))
            namespace = stack.enter_context(Namespace(unique_name(), PORTS))
            self._sockets = namespace.open_sockets()
            for packet_socket in self._sockets.values():
                stack.callback(packet_socket.close)
            address = f"unix:{directory}/grpc"
            self._start(stack, namespace, address)
            channel = stack.enter_context(grpc.insecure_channel(address))
            grpc.channel_ready_future(channel).result(timeout=20)
            self._stub = p4r_grpc.P4RuntimeStub(channel)
            self._become_primary(stack)
            self._load()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def reset(self) -> None:
        defaults = [entity for entity in self._written if entity.table_entry.is_default_action]
        self._update(p4r.Update.DELETE, [entity for entity in reversed(self._written) if entity not in defaults])
        for entity in defaults:
            entity.table_entry.ClearField("action")
        self._update(p4r.Update.MODIFY, defaults)
        self._written = []
        self._take()
        self._baseline = self._counts()

    def write(self, items: Iterable[Item]) -> None:
        for item in items:
            kind = p4r.Update.MODIFY if isinstance(item, DefaultAction) else p4r.Update.INSERT
            for entity in _entities(item):
                encoded = entity.encode(self._schema)
                self._update(kind, [encoded])
                self._written.append(encoded)

    def send(self, port: int, *frames: bytes, expect: int) -> Sent:
        for frame in frames:
            self._sockets[port].send(frame)
            time.sleep(_BETWEEN_FRAMES_S)
        return self._collect(expect)

    def packet_out(self, payload: bytes, *, expect: int) -> Sent:
        packet = finsy.P4PacketOut(payload[2:], egress_port=int.from_bytes(payload[:2], "big") >> 7, pad=0)
        self._requests.put(packet.encode_update(self._schema))
        return self._collect(expect)

    def count(self, counter: str) -> int:
        return self._counts()[counter] - self._baseline[counter]

    def learned(self, *, expect: int) -> list[tuple[int, ...]]:
        give_up = time.monotonic() + _TIMEOUT_S
        while self._learned.qsize() < expect and time.monotonic() < give_up:
            time.sleep(0.001)
        time.sleep(_SETTLE_S)
        return [self._learned.get() for _ in range(self._learned.qsize())]

    @staticmethod
    def _start(stack: contextlib.ExitStack, namespace: Namespace, address: str) -> None:
        ports = [word for port in PORTS for word in ("-i", f"{port}@s{port}")]
        switch = ["simple_switch_grpc", *thrift_words(), "--no-p4", "--device-id", str(_DEVICE), *ports, "--"]
        process = stack.enter_context(
            subprocess.Popen(
                ["ip", "netns", "exec", namespace.name, *switch, "--grpc-server-addr", address, "--cpu-port", "255"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        stack.callback(process.terminate)

    def _become_primary(self, stack: contextlib.ExitStack) -> None:
        arbitration = p4r.MasterArbitrationUpdate(device_id=_DEVICE, election_id=_ELECTION)
        self._requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
        responses = iter(self._stub.StreamChannel(iter(self._requests.get, None)))
        assert next(responses).arbitration.status.code == 0
        reader = threading.Thread(target=self._read, args=(responses,))
        reader.start()
        stack.callback(reader.join, timeout=5)
        stack.callback(self._requests.put, None)

    def _read(self, responses: Iterator[p4r.StreamMessageResponse]) -> None:
        for response in responses:
            if response.HasField("packet"):
                packet = finsy.P4PacketIn.decode(response, self._schema)
                self._packets_in.put((int(packet.metadata["ingress_port"]) << 7).to_bytes(2, "big") + packet.payload)
            if response.HasField("digest"):
                for digest in response.digest.data:
                    self._learned.put(
                        tuple(int.from_bytes(member.bitstring, "big") for member in digest.struct.members)
                    )

    def _load(self) -> None:
        config = p4r.ForwardingPipelineConfig(p4info=self._schema.p4info, p4_device_config=self._program.read_bytes())
        action = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        self._stub.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=_DEVICE, election_id=_ELECTION, action=action, config=config
            )
        )
        one_at_a_time = [finsy.P4DigestEntry(digest.alias, max_list_size=1) for digest in self._schema.digests]
        self._update(p4r.Update.INSERT, [entry.encode(self._schema) for entry in one_at_a_time])

    def _update(self, kind: p4r.Update.Type.ValueType, entities: list[p4r.Entity]) -> None:
        # One update a request: bmv2 reports only that some update of a batch failed.
        for entity in entities:
            update = p4r.Update(type=kind, entity=entity)
            self._stub.Write(p4r.WriteRequest(device_id=_DEVICE, election_id=_ELECTION, updates=[update]))

    def _counts(self) -> dict[str, int]:
        request = p4r.ReadRequest(device_id=_DEVICE, entities=[p4r.Entity(counter_entry=p4r.CounterEntry())])
        names = {counter.id: counter.alias for counter in self._schema.counters}
        return {
            names[entity.counter_entry.counter_id]: entity.counter_entry.data.packet_count
            for response in self._stub.Read(request)
            for entity in response.entities
        }

    def _collect(self, expect: int) -> Sent:
        sent: Sent = []
        give_up = time.monotonic() + _TIMEOUT_S
        while len(sent) < expect and time.monotonic() < give_up:
            sent += self._take()
            time.sleep(0.001)
        time.sleep(_SETTLE_S)
        sent += self._take()
        return sorted(sent, key=lambda frame: frame[0])

    def _take(self) -> Sent:
        sent = [(port, data) for port, own in self._sockets.items() for data in receive_all(own)]
        while not self._packets_in.empty():
            sent.append((CPU_PORT, self._packets_in.get()))
        return sent


def _entities(item: Item) -> list[Entity]:
    match item:
        case Entry(table, match, action, arguments, priority):
            key = finsy.P4TableMatch({name: value for name, value in match.items() if value != (0, 0)})
            return [finsy.P4TableEntry(table, match=key, action=_action(action, arguments), priority=priority)]
        case DefaultAction(table, action, arguments):
            return [finsy.P4TableEntry(table, action=_action(action, arguments), is_default_action=True)]
        case Spread():
            return _spread_entities(item)
        case CloneTo(port, session):
            return [finsy.P4CloneSessionEntry(session, replicas=[port])]
        case MulticastTo(group, replicas):
            return [finsy.P4MulticastGroupEntry(group, replicas=list(replicas))]


def _spread_entities(item: Spread) -> list[Entity]:
    numbers = range(1, len(item.next_hops) + 1)
    return [
        *(
            finsy.P4ActionProfileMember(item.selector, member_id=number, action=_action("forward", next_hop))
            for number, next_hop in zip(numbers, item.next_hops, strict=True)
        ),
        finsy.P4ActionProfileGroup(
            item.selector,
            group_id=item.group,
            max_size=32,
            members=[finsy.P4Member(number, weight=1) for number in numbers],
        ),
        finsy.P4TableEntry(
            item.table, match=finsy.P4TableMatch(item.match), action=finsy.P4IndirectAction(group_id=item.group)
        ),
    ]


_PARAMETERS = {
    "set_node": ("node_id",),
    "set_source_port": ("addr", "mask", "ipv6_addr", "ipv6_mask"),
    "set_host_port": ("addr", "mask", "ipv6_addr", "ipv6_mask"),
    "set_switch_addresses": ("addr", "mask"),
    "set_egress_port": ("src_mac", "sink", "mtu_bytes", "strip_at_mtu"),
    "forward": ("egress_port", "dst_mac"),
    "set_report_target": ("src_mac", "dst_mac", "src_addr", "dst_addr", "udp_port"),
    "watch": (
        "watch_id",
        "sample_every",
        "instructions",
        "max_hops",
        "mode",
        "domain_instructions",
        "discard",
    ),
    "mark_by_dscp": ("dscp", "mask"),
    "mark_by_udp_port": ("udp_port", "always_new_udp"),
    "mark_by_probe": ("probe_marker",),
    "carry_in_tunnels": ("gre_protocol",),
    "send_to_cpu": (),
    "set_collector": ("addr", "ipv6_addr", "udp_port"),
    "gather_reports": ("most", "age_us"),
    "report_drops": (),
    "watch_queue": ("occupancy", "latency_ns", "clear_occupancy", "clear_latency_ns", "quota"),
    "filter_reports": ("quantum_ns", "refresh_us"),
    "watch_drops": ("watch_id", "quota"),
    "set_path_hash_multiplier": ("multiplier",),
    "from_child": ("number",),
    "from_server": (),
    "from_parent": (),
    "add_up": ("nonce", "epoch", "children", "first_cell", "last_cell", "group", "group_with_server"),
    "add_up_for": ("nonce", "epoch", "children", "first_cell", "last_cell", "group", "parent"),
    "report_items": ("mask", "slow_us"),
    "address": ("dst_mac", "dst_addr", "dst_port"),
    "to_producer": ("producer",),
    "cached": ("cell", "generation", "producer", "port"),
    "recorded": ("cell", "generation", "writers", "forward"),
    "NoAction": (),
    "find_hot": ("interval", "threshold"),
}


def _action(name: str, arguments: tuple[int, ...]) -> finsy.P4TableAction:
    return finsy.P4TableAction(name, **dict(zip(_PARAMETERS[name], arguments, strict=True)))
