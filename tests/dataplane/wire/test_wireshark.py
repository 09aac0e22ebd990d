"""The Wireshark dissectors (deploy/wireshark/millrace.lua) against our decoders, over the same golden packets."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from dataplane.errors import WireError
from dataplane.nic.capture.pcap import PcapWriter
from dataplane.wire import domain_metadata, report
from dataplane.wire.aggregation import Aggregation, Flags, Kind
from dataplane.wire.completion import Completion
from dataplane.wire.completion import decode as decode_completion
from dataplane.wire.domain_metadata import FABRIC
from dataplane.wire.geneve import GeneveOption
from dataplane.wire.inner import InnerPacket, decode_ipv4, decode_ipv6
from dataplane.wire.int_md import IntMd, encode_stack
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_shim import IntShim, IntType
from dataplane.wire.marking import INT_DSCP, Marking
from dataplane.wire.packet import link_header, udp_frame
from dataplane.wire.report import Report, ReportPacket
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import InnerType, ReportType
from dataplane.wire.report_int import IntReport
from tests.dataplane.wire.golden_frames import FRAMES
from tests.dataplane.wire.golden_reports import REPORTS
from tests.waiting import HANG_S

SCRIPT = Path(__file__).parents[3] / "deploy/wireshark/millrace.lua"
MARKS = ("p4int.udp_port:22136", "p4int.probe_marker:4D494C4C52414345")
"""The domain's marks in the golden frames, besides DSCP 0x17; 22136 is 0x5678."""
BIT_OF_DSCP = ("p4int.dscp:32", "p4int.dscp_mask:32")

HOP_FIELDS = [field.name for field in fields(HopMetadata) if field.name != "reserved"]
BYTES = dict.fromkeys(HOP_FIELDS, 4) | {
    "ingress_interface": 2,
    "egress_interface": 2,
    "queue_id": 1,
    "queue_occupancy": 3,
    "buffer_id": 1,
    "buffer_occupancy": 3,
    "ingress_timestamp": 8,
    "egress_timestamp": 8,
    "drop_queue_id": 1,
    "drop_reason": 1,
}

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark")


@dataclass(frozen=True)
class Dissected:
    """A frame as seen by tshark: the values of each requested field, and its expert notes."""

    values: dict[str, list[str]]
    notes: str

    def numbers(self, name: str) -> list[int]:
        return [int(value, 0) for value in self.values[name]]


def dissect(
    folder: Path, frames: Iterable[bytes], names: Sequence[str], options: Sequence[str] = ()
) -> list[Dissected]:
    capture = folder / "frames.pcap"
    writer = PcapWriter(capture)
    for frame in frames:
        writer.write(frame, 0)
    writer.close()
    command = ["tshark", "-X", f"lua_script:{SCRIPT}", "-r", str(capture), "-T", "fields", "-E", "aggregator=|"]
    for option in options:
        command += ["-o", option]
    for name in (*names, "_ws.expert.message"):
        command += ["-e", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "lua" not in done.stderr.lower(), done.stderr
    dissections = []
    for line in done.stdout.splitlines():
        *columns, notes = line.split("\t")
        assert "Lua" not in notes, notes
        values = {name: column.split("|") if column else [] for name, column in zip(names, columns, strict=True)}
        dissections.append(Dissected(values, notes))
    return dissections


def test_named_script_coexists_with_the_personal_plugin(tmp_path: Path) -> None:
    plugins = tmp_path / ".local/lib/wireshark/plugins"
    plugins.mkdir(parents=True)
    shutil.copy(SCRIPT, plugins)
    capture = tmp_path / "frame.pcap"
    writer = PcapWriter(capture)
    writer.write(reported(bytes(40)), 0)
    writer.close()
    for named in ([], ["-X", f"lua_script:{SCRIPT}"]):
        done = subprocess.run(
            ["tshark", *named, "-r", str(capture), "-Y", "p4report"],
            env=os.environ | {"HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=True,
        )
        assert "lua" not in done.stderr.lower()
        assert done.stdout


def framed(packet: bytes) -> bytes:
    return link_header(2, 1, packet[0] >> 4) + packet


def reported(payload: bytes, port: int = 32766) -> bytes:
    return udp_frame(
        src_mac=1,
        dst_mac=2,
        src=IPv4Address("10.0.0.1"),
        dst=IPv4Address("10.0.0.9"),
        src_port=1000,
        dst_port=port,
        payload=payload,
    )


def inner(packet: bytes, marking: Marking) -> InnerPacket:
    return decode_ipv6(packet, marking) if packet[0] >> 4 == 6 else decode_ipv4(packet, marking)


def values_of(hops: Sequence[HopMetadata], name: str, bits: int, *, in_report: bool = False) -> list[int]:
    """Return a value on the wire: all ones where a hop lacks it, nothing where it was not requested."""
    values = []
    asked = _asked(bits, in_report=in_report)
    for hop in hops:
        value = getattr(hop, name)
        if name in asked:
            values.append((1 << 8 * BYTES[name]) - 1 if value is None else value)
    return values


def _asked(bits: int, *, in_report: bool) -> set[str]:
    groups = (
        ("node_id",),
        ("ingress_interface", "egress_interface"),
        ("hop_latency",),
        ("queue_id", "queue_occupancy"),
        ("ingress_timestamp",),
        ("egress_timestamp",),
        ("level2_ingress_interface", "level2_egress_interface"),
        ("tx_utilisation",),
        ("buffer_id", "buffer_occupancy"),
    )
    asked = {name for bit, group in enumerate(groups) if bits & 0x8000 >> bit for name in group}
    if bits & 1:
        asked |= {"drop_queue_id", "drop_reason"} if in_report else {"checksum_complement"}
    return asked


NUMBERS = [name for name in HOP_FIELDS if name != "domain"]
HEADER = ("hop_ml", "remaining_hops", "instructions", "domain_id", "domain_instructions", "domain_flags")


@pytest.mark.parametrize("options", [MARKS, BIT_OF_DSCP], ids=["marks", "bit of DSCP"])
def test_int_in_packets_is_what_our_decoder_finds(tmp_path: Path, options: tuple[str, ...]) -> None:
    goldens = [
        golden
        for golden in FRAMES.values()
        if (golden.marking.dscp == 0x20) is (options is BIT_OF_DSCP)
        and not isinstance(inner(golden.packet, golden.marking).shim, GeneveOption)
    ]
    names = ["p4int.type", "p4int.length", *(f"p4int.{name}" for name in HEADER)]
    names += [f"p4int.hop.{name}" for name in HOP_FIELDS]
    dissected = dissect(tmp_path, [framed(golden.packet) for golden in goldens], names, options)
    assert len(dissected) == len(goldens) > 0
    for golden, dissection in zip(goldens, dissected, strict=True):
        want = inner(golden.packet, golden.marking)
        header = want.int_md or want.int_mx
        assert "INT" not in dissection.notes, golden.title
        if want.shim is None or header is None:
            assert dissection.numbers("p4int.type") == []
            continue
        assert not isinstance(want.shim, GeneveOption)
        assert dissection.numbers("p4int.type")[0] == want.shim.int_type
        assert dissection.numbers("p4int.length")[0] == want.shim.length_words
        for name in HEADER:
            assert dissection.numbers(f"p4int.{name}") == ([getattr(header, name)] if hasattr(header, name) else []), (
                name
            )
        for name in NUMBERS:
            assert dissection.numbers(f"p4int.hop.{name}") == values_of(want.hops, name, header.instructions), name
        assert dissection.values["p4int.hop.domain"] == [hop.domain.hex() for hop in want.hops if hop.domain]


def test_reports_are_what_our_decoder_finds(tmp_path: Path) -> None:
    flags = ("dropped", "congested", "tracked", "intermediate")
    header = ("bits", "domain_id", "domain_bits", "domain_status")
    flow = ("src", "dst", "src6", "dst6", "protocol", "src_port", "dst_port")
    names = [
        "p4report.hw_id",
        "p4report.sequence",
        "p4report.node_id",
        *(f"p4report.{name}" for name in flags + header),
    ]
    names += [f"p4report.own.{name}" for name in HOP_FIELDS] + [f"p4report.flow.{name}" for name in flow]
    names += [f"p4int.hop.{name}" for name in NUMBERS]
    goldens = [golden for golden in REPORTS.values() if golden.marking.dscp != 0x20]
    dissected = dissect(tmp_path, [reported(golden.payload) for golden in goldens], names, MARKS)
    for golden, dissection in zip(goldens, dissected, strict=True):
        want = report.decode(golden.payload)
        assert not dissection.notes, golden.title
        for name in ("hw_id", "sequence", "node_id"):
            assert dissection.numbers(f"p4report.{name}") == [getattr(want.group, name)]
        for name in flags:
            assert dissection.numbers(f"p4report.{name}") == [
                getattr(individual, name) for individual in want.reports
            ], name
        mains = [individual.main for individual in want.reports if individual.main]
        for name in header:
            assert dissection.numbers(f"p4report.{name}") == [getattr(main, name) for main in mains], name
        for name in NUMBERS:
            own = [value for main in mains for value in values_of([main.metadata], name, main.bits, in_report=True)]
            assert dissection.numbers(f"p4report.own.{name}") == own, name
        packets = [inner(individual.inner, golden.marking) for individual in want.reports]
        addresses = dissection.values["p4report.flow.src"] + dissection.values["p4report.flow.src6"]
        assert addresses == [str(packet.src) for packet in packets]
        assert dissection.numbers("p4report.flow.protocol") == [packet.protocol for packet in packets]
        assert dissection.numbers("p4report.flow.dst_port") == [packet.dst_port for packet in packets]
        stacks = [hop.queue_occupancy for packet in packets for hop in packet.hops]
        assert dissection.numbers("p4int.hop.queue_occupancy") == stacks


def test_our_domain_s_metadata_has_names(tmp_path: Path) -> None:
    md = IntMd(2, 6, 0x8000, FABRIC.domain_id, domain_metadata.SEQUENCE | domain_metadata.FORWARDING)
    hops = (HopMetadata(2, domain=bytes.fromhex("033d0000")), HopMetadata(1, domain=bytes.fromhex("013e0000")))
    body = md.encode() + encode_stack(md, hops) + (77).to_bytes(4, "big")
    marked = udp_frame(
        src_mac=1,
        dst_mac=2,
        src=IPv4Address("10.0.0.1"),
        dst=IPv4Address("10.0.0.2"),
        src_port=1000,
        dst_port=2000,
        payload=IntShim(IntType.MD, len(body) // 4).encode() + body + b"gradients",
        dscp=INT_DSCP,
    )
    done = Completion(job=3, item=9, last_child=2, wait_us=40, repeated=1, ahead=5, leaf=True)
    main = IntReport(0, HopMetadata(domain=done.encode()), FABRIC.domain_id, domain_metadata.COMPLETION)
    individual = Report(ReportType.INT, InnerType.NONE, main, b"")
    completed = reported(ReportPacket(ReportGroup(0, 1, 4), (individual,)).encode())
    names = ["p4int.source_number", "p4int.hop.decision", "p4int.hop.ttl"]
    own = ["job", "item", "last_child", "wait", "repeated", "ahead", "leaf"]
    first, second = dissect(tmp_path, [marked, completed], names + [f"p4report.own.{name}" for name in own])
    assert not first.notes
    assert not second.notes
    assert [first.numbers(name) for name in names] == [[77], [3, 1], [0x3D, 0x3E]]
    assert decode_completion(done.encode()) == done
    assert [second.numbers(f"p4report.own.{name}") for name in own] == [[3], [9], [2], [40], [1], [5], [1]]


def test_the_aggregation_header_is_what_our_decoder_finds(tmp_path: Path) -> None:
    packet = Aggregation(
        Kind.RESULT, job=7, item=1 << 31, epoch=3, workers=8, values=bytes(512), flags=Flags.SATURATED, nonce=5, check=9
    )
    whole = packet.encode()
    frames = [reported(whole[:size], 20000) for size in (len(whole), 288, 31)]
    names = [
        "kind",
        "job",
        "item",
        "epoch",
        "workers",
        "operation",
        "quarters",
        "reason",
        "nonce",
        "check",
        "saturated",
    ]
    dissection, *cut = dissect(tmp_path, frames, [f"mrsum.{name}" for name in names], ["mrsum.port:20000"])
    assert not dissection.notes
    assert all("needs" in truncated.notes for truncated in cut)
    assert [dissection.numbers(f"mrsum.{name}") for name in names] == [
        [value] for value in (2, 7, 1 << 31, 3, 8, 1, 2, 0, 5, 9, 1)
    ]


def test_what_is_cut_is_told_and_never_an_error_of_the_script(tmp_path: Path) -> None:
    """Cut at every length: packets by the capture, reports in their UDP payload."""
    packets = [FRAMES[name] for name in ("MD_TCP", "MX_UDP_PORT", "MD_GRE", "MX_VXLAN", "MD_PROBE_MARKER")]
    frames = [framed(golden.packet)[:size] for golden in packets for size in range(14, 14 + len(golden.packet))]
    payloads = [REPORTS[name].payload for name in ("sink", "group", "intermediate")]
    reports = [payload[:size] for payload in payloads for size in range(1, len(payload))]
    frames += [reported(payload) for payload in reports]
    dissected = dissect(tmp_path, frames, ["p4int.type"], MARKS)
    assert len(dissected) == len(frames)
    for payload, dissection in zip(reports, dissected[-len(reports) :], strict=True):
        try:
            report.decode(payload)
        except WireError:
            assert "needs" in dissection.notes or "fewer" in dissection.notes, payload.hex()
    md = dissected[: len(packets[0].packet)]
    told = [dissection for size, dissection in enumerate(md) if 44 <= size < 72]
    assert all("needs" in dissection.notes or "explain" in dissection.notes for dissection in told)
    assert len(told) == 28
