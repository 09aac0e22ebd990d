"""Sums in the switch: membership, lengths, marks, and packets that only look like contributions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scapy.compat import raw
from scapy.layers.inet import IP, IPOption
from scapy.layers.l2 import Dot1Q, Ether

from dataplane.allreduce.reference.aggregator import Job
from dataplane.wire import aggregation
from dataplane.wire.aggregation import Aggregation, Flags, Kind, Operation, Reason
from tests.p4.aggregating import (
    NONCE,
    PARENT,
    PARENT_PORT,
    SERVER,
    SWITCH,
    Hosted,
    address_of,
    fabric_items,
    frame,
    from_child,
    port_of,
    seen,
    udp_port_of,
)
from tests.p4.entries import ANY_ADDRESS, DOWN_PORT, HOST_PORT, NEXT_HOP_MAC, Entry, Item, MulticastTo, Watch, mac
from tests.p4.targets import Sent, Target

PAYLOAD_AT = 42


def hosted(number: int, children: int = 0b11) -> Hosted:
    """Return a job of two children: each test has a number of its own, for registers go on from test to test."""
    return Hosted(number, Job(epoch=3, children=children, cells=4, nonce=NONCE), children=2, first_cell=100)


def of(job: Hosted, **fields: object) -> Aggregation:
    """Return a contribution to the job, of 64 ones unless `fields` says otherwise."""
    values = b"\0\0\0\1" * 64
    packet = Aggregation(Kind.CONTRIBUTION, job.number, item=7, epoch=job.job.epoch, values=values, nonce=job.job.nonce)
    return replace(packet, **fields)  # type: ignore[arg-type]


def set_up(target: Target, job: Hosted, *more: Item) -> None:
    """Write the job's tables and a route to its children."""
    path = Entry("ipv4_destination_paths", {"dst_addr": (0x0A000000, 16)}, "forward", (DOWN_PORT, NEXT_HOP_MAC))
    target.write([*fabric_items(), path, *job.items(), *more])


def complete(target: Target, job: Hosted, packet: Aggregation, *, ecn: int = 0, expect: int = 2) -> Sent:
    """Send the packet from all children, the last one with ECN bits; return the switch's output for that one."""
    for child in range(job.children - 1):
        assert target.send(*from_child(child, packet), expect=0) == []
    return target.send(*from_child(job.children - 1, packet, ecn=ecn), expect=expect)


def test_who_is_removed_learns_the_epoch_and_is_not_added(aggregating: Target) -> None:
    job = hosted(10, children=0b01)
    set_up(aggregating, job)
    (refused,) = seen(aggregating.send(*from_child(1, of(job, epoch=2)), expect=1))
    assert (refused[-1].kind, refused[-1].reason, refused[-1].epoch) == (Kind.REFUSED, Reason.EPOCH, 3)
    assert aggregating.send(*from_child(1, of(job)), expect=0) == []
    sent = seen(aggregating.send(*from_child(0, of(job)), expect=2))
    assert {(packet.kind, packet.workers) for *_, packet in sent} == {(Kind.RESULT, 1)}


def test_a_process_that_was_replaced_on_its_host_is_nobody(aggregating: Target) -> None:
    """It gets no reply either, so it does not learn the epoch of the remaining workers."""
    job = hosted(35)
    set_up(aggregating, job)
    left_over = frame(address_of(0), udp_port_of(0) + 100, of(job, values=b"\0\0\0\7" * 64))
    ordinary = seen(aggregating.send(port_of(0), left_over, expect=0))
    assert [packet.kind for *_, packet in ordinary if packet.kind is not Kind.CONTRIBUTION] == []
    sent = seen(complete(aggregating, job, of(job)))
    assert {packet.values[:4] for *_, packet in sent} == {b"\0\0\0\2"}


@pytest.mark.parametrize("wrong", [{"nonce": 0}, {"nonce": NONCE ^ 1 << 63}, {"workers": 0}], ids=str)
def test_sender_without_the_nonce_changes_nothing_unanswered(aggregating: Target, wrong: dict[str, int]) -> None:
    """From a child's address and port; nor is an anonymous contribution added, which would distort a mean."""
    job = hosted(36 + len(wrong) * (wrong.get("nonce", 2) % 3))
    set_up(aggregating, job)
    forged = [_forged(child, of(job, values=b"\0\0\0\7" * 64), wrong) for child in range(2)]
    assert [aggregating.send(*datagram, expect=0) for datagram in forged] == [[], []]
    sent = seen(complete(aggregating, job, of(job, check=2**63)))
    assert {(packet.values[:4], packet.check, packet.workers) for *_, packet in sent} == {(b"\0\0\0\2", 0, 2)}
    assert [aggregating.send(*datagram, expect=0) for datagram in forged] == [[], []]


def _forged(child: int, packet: Aggregation, wrong: dict[str, int]) -> tuple[int, bytes]:
    port, data = from_child(child, replace(packet, nonce=wrong.get("nonce", packet.nonce)))
    return port, data[: PAYLOAD_AT + 10] + wrong.get("workers", 1).to_bytes(2, "big") + data[PAYLOAD_AT + 12 :]


def test_a_final_result_goes_to_the_main_server_too(aggregating: Target) -> None:
    job = hosted(11)
    final = Entry("aggregation_jobs", {"job": 11}, "add_up", (NONCE, 3, 0b11, 100, 103, 11, 12))
    replicas = (*((port_of(child), child + 1) for child in range(2)), (PARENT_PORT, 9))
    server = Entry("aggregation_replicas", {"job": 11, "replica": 9}, "address", (mac(9), int(PARENT), 19999))
    items = [item for item in job.items() if not (isinstance(item, Entry) and item.table == "aggregation_jobs")]
    aggregating.write([*fabric_items(), *items, final, MulticastTo(12, replicas), server])
    assert len(seen(complete(aggregating, job, of(job)))) == 2
    sent = seen(complete(aggregating, job, of(job, item=8, flags=Flags.FINAL), expect=3))
    assert {(port, address, udp_port) for port, _, address, _, udp_port, _ in sent} == {
        (HOST_PORT, str(address_of(0)), udp_port_of(0)),
        (port_of(1), str(address_of(1)), udp_port_of(1)),
        (PARENT_PORT, str(PARENT), 19999),
    }


def test_congestion_is_a_flag_and_ecn_may_be_marked_again(aggregating: Target) -> None:
    job = hosted(13)
    set_up(aggregating, job)
    sent = complete(aggregating, job, of(job), ecn=3)
    assert {packet.flags for *_, packet in seen(sent)} == {Flags.CONGESTED}
    assert {Ether(data)[IP].tos for _, data in sent} == {2}


def test_counts_of_workers_stop_at_their_greatest(aggregating: Target) -> None:
    job = hosted(14)
    set_up(aggregating, job)
    sent = seen(complete(aggregating, job, of(job, workers=0xFFFF)))
    assert {packet.workers for *_, packet in sent} == {0xFFFF}


def _vlan(data: bytes) -> bytes:
    packet = Ether(data)
    return raw(Ether(src=packet.src, dst=packet.dst) / Dot1Q(vlan=5) / packet[IP])


def _with_ip(data: bytes, **fields: object) -> bytes:
    packet = Ether(data)
    for name, value in fields.items():
        setattr(packet[IP], name, value)
    del packet[IP].chksum, packet[IP].ihl, packet[IP].len
    return raw(packet)


ORDINARY = {
    "a VLAN tag": _vlan,
    "IP options": lambda data: _with_ip(data, options=[IPOption(b"\x94\x04\x00\x00")]),
    "a first fragment": lambda data: _with_ip(data, flags="MF"),
    "a later fragment": lambda data: _with_ip(data, frag=3),
    "no kind": lambda data: data[:42] + b"\x10" + data[43:],
    "a kind not known": lambda data: data[:42] + b"\x27" + data[43:],
    "an operation not known": lambda data: data[:54] + b"\x31" + data[55:],
}


@pytest.mark.parametrize("change", ORDINARY.values(), ids=ORDINARY)
def test_what_cannot_be_answered_rightly_is_an_ordinary_packet(aggregating: Target, change: object) -> None:
    assert callable(change)
    job = hosted(15)
    set_up(aggregating, job)
    frames = [from_child(child, of(job)) for child in range(2)]
    assert [aggregating.send(port, change(data), expect=0) for port, data in frames] == [[], []]
    assert aggregating.count("drop_no_route") == 2


def test_padding_behind_a_short_packet_is_not_counted(aggregating: Target) -> None:
    job = hosted(16)
    set_up(aggregating, job)
    short, pad = of(job, values=b""), bytes(2)
    for child, answers in ((0, 0), (1, 2), (1, 1)):
        port, data = from_child(child, short)
        for _, answer in aggregating.send(port, data + pad, expect=answers):
            assert (Ether(answer)[IP].len, Ether(answer)[IP].payload.len) == (60, 40)
            assert aggregation.decode(answer, PAYLOAD_AT).kind is (Kind.AGAIN if answers == 1 else Kind.RESULT)


def test_foreign_packets_pass_with_their_values_unmoved(aggregating: Target) -> None:
    job = hosted(17)
    watch = Watch(protocol=17).entries()
    set_up(aggregating, job, Entry("port_roles", {"ingress_port": HOST_PORT}, "set_source_port", ANY_ADDRESS), *watch)
    data = bytearray(frame(address_of(0), udp_port_of(0), of(job, values=bytes(range(256)))))
    data[30:34] = address_of(5).packed
    there = _with_ip(bytes(data))
    (sent,) = aggregating.send(HOST_PORT, there, expect=1)
    assert (sent[0], sent[1][34:]) == (DOWN_PORT, there[34:])


def test_results_obey_the_mtu_of_each_port(aggregating: Target) -> None:
    job = hosted(18)
    ports = Entry("egress_ports", {"egress_port": DOWN_PORT}, "set_egress_port", (mac(1), 0, 315, 0))
    items = [item for item in fabric_items() if not (isinstance(item, Entry) and item.match == ports.match)]
    aggregating.write([*items, ports, *replace(job, children=3, job=replace(job.job, children=0b111)).items()])
    sent = seen(complete(aggregating, replace(job, children=3), of(job)))
    assert [port for port, *_ in sent] == [port_of(0), port_of(1)]
    assert aggregating.count("drop_mtu_exceeded") == 1


def test_copies_for_nobody_are_counted(aggregating: Target) -> None:
    job = hosted(19)
    aggregating.write([*fabric_items(), *(item for item in job.items() if _is_not_replica(item, 2))])
    assert len(complete(aggregating, job, of(job), expect=1)) == 1
    assert aggregating.count("drop_no_replica") == 1


def _is_not_replica(item: Item, number: int) -> bool:
    return not (isinstance(item, Entry) and item.match.get("replica") == number)


def test_a_reader_asks_and_cannot_contribute(aggregating: Target) -> None:
    job = hosted(20)
    key = {"src_addr": int(address_of(4)), "dst_addr": int(SWITCH), "job": 20}
    set_up(aggregating, job, Entry("aggregation_peers", key, "from_server", priority=1))
    reader = (port_of(4), frame(address_of(4), udp_port_of(4), of(job)))
    assert aggregating.send(*reader, expect=0) == []
    assert len(complete(aggregating, job, of(job))) == 2
    pull = frame(address_of(4), udp_port_of(4), of(job, kind=Kind.PULL, values=bytes(256)))
    (answer,) = seen(aggregating.send(reader[0], pull, expect=1))
    assert (answer[0], answer[-1].kind, answer[-1].values[:4]) == (port_of(4), Kind.AGAIN, b"\0\0\0\2")


def test_main_servers_packet_goes_to_all_children_at_once(aggregating: Target) -> None:
    job = hosted(31)
    set_up(aggregating, job)
    given = of(job, kind=Kind.DISTRIBUTE, flags=Flags.FINAL, epoch=1, values=b"\0\0\0\5" * 64)
    assert aggregating.send(*from_child(0, given), expect=0) == []  # only the server may
    sent = seen(aggregating.send(*from_child(SERVER, given), expect=2))
    result = replace(given, kind=Kind.RESULT, flags=Flags.FINAL | Flags.DISTRIBUTED, epoch=3)
    assert [packet for *_, packet in sent] == [result] * 2
    again = [from_child(number, replace(given, kind=kind)) for number, kind in ((SERVER, given.kind), (1, Kind.PULL))]
    for port, data in again:
        ((to, *_, packet),) = seen(aggregating.send(port, data, expect=1))
        assert (to, packet) == (port, replace(result, kind=Kind.AGAIN))
    assert aggregating.send(*from_child(1, of(job, item=8)), expect=0) == []
    (mismatch,) = seen(aggregating.send(*from_child(SERVER, replace(given, item=8)), expect=1))
    assert mismatch[-1].reason is Reason.MISMATCH  # a worker contributes to it


def test_main_server_is_told_the_newest_item(aggregating: Target) -> None:
    job = hosted(32)
    set_up(aggregating, job)
    question = of(job, kind=Kind.PULL, item=0, flags=Flags.CALL, values=bytes(256))
    for item in (7, 8):
        assert len(complete(aggregating, job, of(job, item=item))) == 2
        ((*_, packet),) = seen(aggregating.send(*from_child(SERVER, question), expect=1))
        assert (packet.kind, packet.item) == (Kind.AGAIN, item)
    assert aggregating.send(*from_child(1, question), expect=0) == []


@pytest.mark.parametrize("bits", [0x7FFF7FFF, 0x80008000, 0xFFFF0000, 0x7FFF8000])
def test_greatest_of_unsigned_lanes(aggregating: Target, bits: int) -> None:
    job = hosted(21 + bits % 7)
    set_up(aggregating, job)
    for child, value in ((0, bits), (1, bits ^ 0xFFFFFFFF)):
        packet = of(job, operation=Operation.MAX, values=value.to_bytes(4, "big") * 64)
        sent = seen(aggregating.send(*from_child(child, packet), expect=2 * child))
    halves = (max(bits >> shift & 0xFFFF, ~bits >> shift & 0xFFFF) for shift in (16, 0))
    assert {packet.values for *_, packet in sent} == {b"".join(half.to_bytes(2, "big") for half in halves) * 64}
