"""Decoders of headers, each with bytes put together by hand from its specification's drawing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collectors.decode import reports as measurements
from dataplane.errors import WireError
from dataplane.fabric.hosts import decode_probe, find_probe
from dataplane.store import layout
from dataplane.switch.hellos import frames as hellos
from dataplane.wire import (
    aggregation,
    bfd,
    completion,
    ethernet,
    geneve,
    gre,
    ifa,
    inner,
    int_md,
    int_metadata,
    int_mx,
    int_shim,
    int_shim_gre,
    int_shim_vxlan_gpe,
    ipv4,
    ipv6,
    packet,
    probe_marker,
    report,
    report_group,
    report_individual,
    report_int,
    report_tlv,
    sflow,
    stamp,
    store,
    tcp,
    tcp_options,
    udp,
    vlan,
    vxlan_gpe,
)
from dataplane.wire.aggregation import Aggregation
from dataplane.wire.completion import Completion
from dataplane.wire.marking import Marking
from dataplane.wire.store import Kind, Message
from tests.dataplane.wire.golden_frames import FRAMES
from tests.dataplane.wire.golden_reports import REPORTS
from tests.dataplane.wire.golden_sflow import COUNTERS, COUNTERS_OF_3, PACKETS
from tests.dataplane.wire.golden_traces import IFA_TCP, IFA_UDP, PORTS, STAMPED, WITH_ROOM
from tests.decoders.decoding import Decoder

_BITS = 0x9000
_BFD = bfd.Bfd(bfd.State.UP, 3, 0x8000_0A01, 0x8000_0B02, 50_000, 50_000)
_SUM = Aggregation(aggregation.Kind.CONTRIBUTION, 30, 2052, 7, values=bytes(range(256)) * 2)
_DATA = Message(Kind.DATA, 0x0011_2233_4455_6677_8899_AABB_CCDD_EEFF, 7, 3, 1000, content=b"\xab" * 256, tag=16)
_LINK = "020000000002 020000000001 0800"
_SEGMENT = "4500002d 00010000 4006 66c8 0a000001 0a000002  1388 1771 00000001 00000002 5018 0200 2af7 0000 68656c6c6f"
_DATAGRAM = "45000021 00010000 4011 66c9 0a000001 0a000002  1388 1771 000d a0e4 68656c6c6f"


def _encoded(value: Any) -> bytes:
    encoded: bytes = value.encode()
    return encoded


def _known(value: Any) -> bytes:
    """Return the known reports, encoded; those of reserved types are skipped and never written."""
    if isinstance(value, report_individual.ReservedHeader) or getattr(value, "reserved", False):
        raise WireError(report_individual.HEADER, "of a reserved type")
    return _encoded(value)


def _header(name: str, decode: Callable[[bytes, int], Any], *texts: str, may_be_cut: bool = False) -> Decoder:
    """Return the decoder of a header that encodes itself, placed after one unrelated byte."""
    return Decoder(
        f"dataplane.wire.{name}.decode",
        lambda data: decode(b"\xee" + data, 1),
        tuple(map(bytes.fromhex, texts)),
        write=_encoded,
        may_be_cut=may_be_cut,
    )


def _reports(
    name: str, decode: Callable[[bytes], Any], write: Callable[[Any], bytes] | None
) -> tuple[Decoder, Decoder]:
    """Return a decoder of reports, with single ones and with a group, which may end after any of its reports."""
    plain = [golden for golden in REPORTS.values() if golden.marking == Marking()]
    alone = tuple(golden.payload for golden in plain if len(golden.individuals) == 1)
    groups = tuple(golden.payload for golden in plain if len(golden.individuals) > 1)
    return Decoder(name, decode, alone, write=write), Decoder(name, decode, groups, may_be_cut=True)


def _inner(name: str, decode: Callable[[bytes, Marking], Any], version: int) -> Decoder:
    """Return a decoder of the packets within reports, marked like all golden ones: by DSCP, port or neither."""
    frames = [golden for golden in FRAMES.values() if golden.packet[0] >> 4 == version]
    marking = Marking(dscp=0x17, udp_port=0x5678)
    link = bytes.fromhex(_LINK) if version == 4 else bytes.fromhex(_LINK)[:12] + b"\x86\xdd"
    goldens = tuple((link if name == "decode_ethernet" else b"") + golden.packet for golden in frames)
    readable = tuple(golden for golden in goldens if _takes(decode, golden, marking))
    return Decoder(f"dataplane.wire.inner.{name}", lambda data: decode(data, marking), readable, may_be_cut=True)


def _takes(decode: Callable[[bytes, Marking], Any], golden: bytes, marking: Marking) -> bool:
    return decode(golden, marking) is not None


HEADERS = (
    _header("ethernet", ethernet.decode, _LINK),
    _header("vlan", vlan.decode, "b00a 0800"),
    _header(
        "ipv4",
        ipv4.decode,
        "4500003c 1c464000 4006b1e6 ac100a63 ac100a0c",
        "465e0020 00010003 01110000 0a000001 e0000016 94040000",
    ),
    _header("ipv6", ipv6.decode, "65d12345 000d1140 20010db8000000000000000000000001 20010db8000000000000000000000002"),
    _header("udp", udp.decode, "1388 1771 000d a7f4"),
    Decoder(
        "dataplane.wire.tcp_options.decode",
        tcp_options.decode,
        (bytes.fromhex("0101080a 0000000a 0000000b 01010512 00000001 00000003 00000005 00000009"),),
        may_be_cut=True,
    ),
    _header("tcp", tcp.decode, "1f90 0050 01020304 05060708 6112 ffff e57e 0009 020405b4"),
    _header("gre", gre.decode, "0000 0800", "b000 6558 12340000 00000007 00000008"),
    _header("vxlan_gpe", vxlan_gpe.decode, "0c000003 00006400"),
    _header("geneve", geneve.decode, "0240 6558 000064 00 0103 01 01 20000206"),
    _header("int_shim", int_shim.decode, "10070028", "18070006"),
    _header("int_shim_gre", int_shim_gre.decode, "10070800"),
    _header("int_shim_vxlan_gpe", int_shim_vxlan_gpe.decode, "10090003", "20038003"),
    _header("int_md", int_md.decode, "20000206 90000000 00000000"),
    _header("report_group", report_group.decode, "20000001 00000001", "21412345 0000002a"),
    _header("report_tlv", report_tlv.decode, "00010009 eeeeeeee"),
    _header("bfd", bfd.decode, "20c00318 80000a01 80000b02 0000c350 0000c350 00000000", _BFD.encode().hex()),
    _header("store", store.decode, _DATA.encode().hex(), Message(Kind.INTEREST, 1).encode().hex()),
    _header("aggregation", aggregation.decode, _SUM.encode().hex()),
    _header("completion", completion.decode, Completion(30, 2052, 5, 1000, 1, 2, True).encode().hex()),
    Decoder(
        "dataplane.wire.int_mx.decode",
        lambda data: int_mx.decode(data, 0, len(data)),
        (bytes.fromhex("20000000 90000000 00000000"), bytes.fromhex("20000000 9000abcd c0000000 0000000f 12345678")),
        write=_encoded,
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.wire.int_md.decode_stack",
        lambda data: int_md.decode_stack(int_md.IntMd(2, 6, _BITS), data, 0, len(data)),
        (bytes.fromhex("00000002 05000011 00000001 00000003"),),
        write=lambda hops: int_md.encode_stack(int_md.IntMd(2, 6, _BITS), hops),
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.wire.int_metadata.decode",
        lambda data: int_metadata.decode(data, 0, 0x5100, len(data)),
        (bytes.fromhex("00010002 00000058 000186a0"), bytes.fromhex("00010002 00000058 000186a0 023f0000")),
        write=lambda hop: hop.encode(0x5100),
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.wire.report_int.decode",
        lambda data: report_int.decode(data, 0, 4),
        (bytes.fromhex("7100 0000 0000 0000 00010002 000003e8 00000003 000186a0"),),
        write=_encoded,
    ),
    Decoder(
        "dataplane.wire.report_tlv.decode_all",
        report_tlv.decode_all,
        (bytes.fromhex("00010009 eeeeeeee 20090000") + bytes.fromhex(_DATAGRAM + "000000"),),
        write=lambda tlvs: b"".join(map(_encoded, tlvs)),
        may_be_cut=True,
    ),
    Decoder("dataplane.wire.probe_marker.decode", probe_marker.decode, (probe_marker.encode(2**63 + 7),)),
    Decoder(
        "dataplane.wire.packet.decode_udp_frame",
        packet.decode_udp_frame,
        (bytes.fromhex(_LINK + _DATAGRAM), bytes.fromhex(_LINK[:-4] + "8100 b00a 0800" + _DATAGRAM)),
    ),
    Decoder("dataplane.wire.packet.decode_tcp_frame", packet.decode_tcp_frame, (bytes.fromhex(_LINK + _SEGMENT),)),
    Decoder("dataplane.wire.sflow.decode", sflow.decode, (PACKETS, COUNTERS, COUNTERS_OF_3)),
    Decoder("dataplane.wire.report_individual.decode", report_individual.decode, (b"\x14\x0d\4\x20",), write=_known),
    *_reports("dataplane.wire.report.decode", report.decode, _known),
    *_reports("collectors.decode.reports.decode", lambda data: measurements.decode(data, Marking()), None),
    _inner("decode_ethernet", inner.decode_ethernet, 4),
    _inner("decode_ipv4", inner.decode_ipv4, 4),
    _inner("decode_ipv6", inner.decode_ipv6, 6),
    Decoder(
        "dataplane.wire.inner.decode_ipv4",
        lambda data: inner.decode_ipv4(data, Marking(ifa_protocol=253)),
        (IFA_UDP, IFA_TCP),
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.wire.inner.decode_ipv6",
        lambda data: inner.decode_ipv6(data, Marking(ioam_namespace=7)),
        (WITH_ROOM, PORTS, STAMPED),
        may_be_cut=True,
    ),
    Decoder("dataplane.wire.stamp.decode_request", stamp.decode_request, (stamp.Request.at(7, 10**18).encode(),)),
    Decoder(
        "dataplane.wire.stamp.decode_answer",
        stamp.decode_answer,
        (stamp.Answer(7, 10**18, 10**18 + 9, stamp.Request.at(7, 10**18), 64).encode(),),
    ),
    Decoder("dataplane.wire.ifa.decode", lambda data: ifa.decode(data, 0), (IFA_UDP[20:24],)),
    Decoder("dataplane.wire.ifa.decode_stack", lambda data: ifa.decode_stack(data, 0), (IFA_UDP[32:100],)),
    Decoder(
        "dataplane.store.layout.decode",
        layout.decode,
        (layout.in_place(b"a value")[0][:24], layout.by_hash(bytes(5000))[0].encode()),
        write=_encoded,
    ),
    Decoder(
        "dataplane.fabric.hosts.decode_probe",
        decode_probe,
        (b"millrace" + bytes.fromhex("00000007 0000000000000001 00000000000f4240"),),
        write=_encoded,
    ),
    Decoder(
        "dataplane.fabric.hosts.find_probe",
        find_probe,
        (b"stack" + b"millrace" + bytes.fromhex("00000007 0000000000000001 00000000000f4240"),),
    ),
    Decoder(
        "dataplane.switch.hellos.frames.is_hello",
        lambda data: bfd.decode(data, hellos.PACKET_OFFSET) if hellos.is_hello(data) else None,
        (hellos.encode(1, 2, _BFD)[: hellos.HELLO_BYTES],),
        write=lambda value: hellos.encode(1, 2, value)[: hellos.HELLO_BYTES],
    ),
)
"""All of them."""
