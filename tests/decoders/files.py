"""Decoders of files: captures, journals, logs, programs, tests of programs, topologies."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf import json_format

from collectors.errors import HistoryError
from collectors.history.journal import JournalWriter, read_journal
from dataplane.errors import ConfigError, FabricError, PortError, ProgramError
from dataplane.fabric.agent import read_log
from dataplane.nic import PcapReader
from dataplane.program.files.entries import read_entries
from dataplane.program.loader import load_program
from dataplane.program.p4info import read_p4info
from dataplane.stf.parse import parse_stf
from dataplane.topology import file as topology_file
from dataplane.topology.importing.containerlab import read_containerlab
from dataplane.topology.importing.dot import read_dot
from dataplane.topology.importing.graphml import read_graphml
from dataplane.topology.importing.mininet import read_mininet
from dataplane.topology.importing.node_link import read_node_link
from tests.dataplane.program.mutation import PROGRAMS, document, p4info
from tests.decoders.decoding import Decoder, in_file

_FRAME = bytes.fromhex("020000000002 020000000001 88b5") + bytes(range(46))
_SCHEMA = pa.schema([("time", pa.int64()), ("link", pa.string())])
_ENTRIES = b"updates".join((PROGRAMS / "presets.entries.txtpb").read_bytes().split(b"updates")[:2])
_STF = """# forwards what it knows
add c.t 7 x:0x0a/8 y:5&&&0b11 z:3->0x9 w:* c.set(port: 2, val:0b101) = A
setdefault c.t c.a(x:1)
packet 3 00 01ab CDEF
expect 2 0*2* ****
check_counter cnt($A) bytes >= 0x10
meter_set_rates m 2 0.000005:4 2:5
mc_node_create 400 6 7
"""
_TOPOLOGY = """millrace: 1
name: pair
switches: [{name: s1, id: 1}, {name: s2, id: 2}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s2}]
links: [{a: s1, b: s2, rate: 10 Mbit/s, delay: 5 ms}]
"""
_GRAPHML = b"""<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="d0" for="node" attr.name="label"/>
<graph><node id="0"><data key="d0">London</data></node><node id="1"/><edge source="0" target="1"/></graph></graphml>"""
_DOT = b"""// a fabric
strict digraph "f" { node [shape=box]; a [label=<b<i>c</i>>, type="switch"]
 a:p1:n -> {b; "c" + "d"} -> e [rate="1 Gbit/s"]; x = 1; subgraph s { edge [delay="1 ms"]; e -> -1.5 }}"""
_LAB = b"""topology: {nodes: {a: {kind: linux}, b: {kind: bridge, labels: {x: 1}}}, links: [
{endpoints: ["a:eth1", "b:e1"], vars: {rate: 1 Gbit/s}}, {type: host, endpoint: {node: b}}]}"""
_MININET = b"""from mininet.topo import Topo
class T(Topo):
    def build(self, n=3):
        for s in [self.addSwitch('s%d' % i) for i in range(n)]:
            self.addLink(s, self.addHost(f'h{s}', ip='1.2.3.4'), bw=1.5)
topos = {'t': lambda: T(n=2)}"""


def _pcap(order: str) -> bytes:
    header = struct.pack(order + "IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    return header + struct.pack(order + "IIII", 1_700_000_000, 123, len(_FRAME), 1514) + _FRAME


def _block(order: str, kind: int, body: bytes) -> bytes:
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def _pcapng(order: str) -> bytes:
    section = _block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
    interface = _block(order, 1, struct.pack(order + "HHI", 1, 0, 0))
    enhanced = struct.pack(order + "IIIII", 0, 1, 2, len(_FRAME), 1514) + _FRAME
    return section + interface + _block(order, 6, enhanced)


def _captures(path: Path) -> object:
    with PcapReader(path) as reader:
        return list(reader)


def _journal() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        writer = JournalWriter(path, _SCHEMA)
        for at in range(3):
            writer.append(pa.RecordBatch.from_pylist([{"time": at, "link": "s1-s2"}], _SCHEMA))
        writer.close()
        return path.read_bytes()


def _rows(batches: Iterable[pa.RecordBatch]) -> list[Any]:
    return [row for batch in batches for row in batch.to_pylist()]


def _text(read: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: read(data.decode("latin-1"))


FILES = (
    Decoder(
        "dataplane.nic.capture.pcap.PcapReader",
        in_file(_captures),
        (_pcap("<"), _pcap(">")),
        refuses=(PortError,),
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.nic.capture.pcapng.read_pcapng",
        in_file(_captures),
        (_pcapng("<"), _pcapng(">")),
        refuses=(PortError,),
        may_be_cut=True,
    ),
    Decoder(
        "collectors.history.journal.read_journal",
        in_file(lambda path: _rows(read_journal(path, _SCHEMA))),
        (_journal(),),
        refuses=(HistoryError,),
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.fabric.agent.read_log",
        in_file(lambda path: list(read_log(path))),
        (struct.pack("!IQQQIB", 1, 2, 3, 4, 5, 6) * 3,),
        refuses=(FabricError,),
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.program.loader.load_program",
        lambda data: load_program(data, None),
        (json.dumps(document("forwarding"), separators=(",", ":")).encode(),),
        refuses=(ProgramError,),
    ),
    Decoder(
        "dataplane.program.p4info.read_p4info",
        lambda data: read_p4info(data, "x.p4info"),
        (p4info("forwarding"),),
        refuses=(ProgramError,),
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.program.files.entries.read_entries",
        lambda data: read_entries(data, "x.entries.txtpb"),
        (_ENTRIES, json_format.MessageToJson(read_entries(_ENTRIES, "")).encode()),
        refuses=(ProgramError,),
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.stf.parse.parse_stf",
        _text(lambda text: parse_stf(text, "x.stf")),
        (_STF.encode(),),
        refuses=(ConfigError,),
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.topology.file.loads",
        _text(lambda text: topology_file.loads(text, file="x.yaml")),
        (topology_file.dumps(topology_file.loads(_TOPOLOGY)).encode(),),
        refuses=(ConfigError,),
        write=lambda topology: topology_file.dumps(topology).encode(),
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.topology.importing.graphml.read_graphml",
        lambda data: read_graphml(data, "x.graphml"),
        (_GRAPHML,),
        refuses=(ConfigError,),
        harmful=(b"<!DOCTYPE g [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><g>&e;</g>", b"<a>" * 4_000),
    ),
    Decoder(
        "dataplane.topology.importing.dot.read_dot",
        lambda data: read_dot(data, "x.dot"),
        (_DOT,),
        refuses=(ConfigError,),
        harmful=(b"graph " + b"{" * 4_000, b'graph {"a"' + b'+"a"' * 4_000, b"graph {<" + b"<" * 4_000),
    ),
    Decoder(
        "dataplane.topology.importing.containerlab.read_containerlab",
        lambda data: read_containerlab(data, "x.clab.yml"),
        (_LAB,),
        refuses=(ConfigError,),
    ),
    Decoder(
        "dataplane.topology.importing.mininet.reading.read_mininet",
        lambda data: read_mininet(data, "x.py"),
        (_MININET,),
        refuses=(ConfigError,),
        harmful=(b"x = " + b"(" * 4_000, b"x = " + b"-" * 4_000 + b"1"),
        may_be_cut=True,
    ),
    Decoder(
        "dataplane.topology.importing.node_link.read_node_link",
        lambda data: read_node_link(data, "x.json"),
        (b'{"nodes": [{"id": 1, "label": "a"}, {"id": [2, "b"]}], "links": [{"source": 1, "target": [2, "b"]}]}',),
        refuses=(ConfigError,),
    ),
)
"""All of them."""
