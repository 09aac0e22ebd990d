"""Gives native code inputs that end where memory ends: reading one byte too far kills the process (SIGSEGV).

python -m tests.collectors.native.guarded_run reports|frames LONGER: each report, or Ethernet frame with one, claims to
be LONGER bytes longer than it is. Prints how many native code handled, as proof that it ran.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.collector import Collector
from collectors.decode.payloads import Payloads
from collectors.ingest.frames import FrameReader
from collectors.native.core import NativeCore
from collectors.settings import CollectorSettings
from dataplane.clock import VirtualClock
from dataplane.topology.schema import REPORT_UDP_PORT
from dataplane.wire import report
from dataplane.wire.completion import Completion
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.packet import udp_frame
from dataplane.wire.report import ReportPacket
from dataplane.wire.report_group import ReportGroup
from tests.collectors.reports import ALL, Reporter, build_topology, long_way
from tests.dataplane.switch.compiled.guarded_memory import Guarded

VALUES = (0x00, 0x01, 0x0F, 0x45, 0x4F, 0x80, 0xFF)
ROOM = 1 << 12


def originals() -> Iterator[bytes]:
    """Yield reports of every kind that the native core reads."""
    for addresses in (("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")):
        for bits in (ALL, 0xFF00, 0xFFFE & ~0x7E):
            reporter = Reporter(*addresses, bits=bits)
            yield reporter.stacked(long_way())
            yield reporter.hop_by_hop(long_way())[1]
            yield reporter.postcards(long_way(), mx=True)[1]
            yield reporter.postcards(long_way(), mx=False)[1]
            yield reporter.congested(long_way()[1])
            yield reporter.dropped(long_way(), DropReason.NO_ROUTE)
            yield reporter.intermediate(long_way()[:2], long_way()[2:])[0]
    yield Reporter().item(12, Completion(3, 7, 1, 2000, 1, 4, leaf=True))
    individual = report.decode(Reporter().stacked(long_way())).reports[0]
    yield ReportPacket(ReportGroup(1, 7, 13), (individual, individual, individual)).encode()


def damaged(whole: bytes) -> Iterator[bytes]:
    """Yield a report, cut at every place, and with every byte changed; behind UDP and as if it were TCP."""
    for kind in (whole, whole.replace(b"\x40\x11", b"\x40\x06", 1)):
        yield from (kind[:size] for size in range(len(kind) + 1))
        for position in range(len(kind)):
            for value in VALUES:
                yield kind[:position] + bytes([value]) + kind[position + 1 :]


def take_reports(longer: int) -> int:
    """Give the native core every report; return how many it took."""
    core: Any = Collector(build_topology(), VirtualClock(1000), CollectorSettings())._native
    assert isinstance(core, NativeCore)
    memory, taken = Guarded(ROOM), 0
    for whole in originals():
        for data in damaged(whole):
            there, lengths = _placed(memory, data, longer)
            taken += core.take(Payloads(there, np.zeros(1, np.uint64), lengths), 0, 1000)
    return taken


def find_in_frames(longer: int) -> int:
    """Look for reports in every frame; return how many there were."""
    memory, reader, count = Guarded(ROOM), FrameReader(REPORT_UDP_PORT), 0
    payload = Reporter().stacked(long_way())
    for src, dst in (("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")):
        for vlan_id in (None, 7):
            whole = udp_frame(
                src_mac=1,
                dst_mac=2,
                src=ip_address(src),
                dst=ip_address(dst),
                src_port=5000,
                dst_port=REPORT_UDP_PORT,
                payload=payload,
                vlan_id=vlan_id,
            )
            for data in damaged(whole):
                there, lengths = _placed(memory, data, longer)
                count += len(reader.payloads(there, np.zeros(1, np.uint64), lengths))
    return count


def _placed(memory: Guarded, data: bytes, longer: int) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """Return an array over bytes at the end of memory, not a copy of them, and their number."""
    address = memory.put(data, at_end=True)
    bytes_there: Any = (ctypes.c_uint8 * (len(data) + longer)).from_address(address)
    return np.frombuffer(bytes_there, np.uint8), np.array([len(data) + longer], np.uint32)


if __name__ == "__main__":
    print({"reports": take_reports, "frames": find_in_frames}[sys.argv[1]](int(sys.argv[2])))
