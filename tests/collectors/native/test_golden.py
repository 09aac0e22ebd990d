"""Golden reports, whole, cut and changed byte by byte: both cores say the same of each."""

from __future__ import annotations

import msgspec
import pytest

from collectors.collector import Collector
from collectors.settings import CollectorSettings, Core
from dataplane.clock import VirtualClock
from dataplane.wire.marking import Marking
from tests.collectors.cores import receive_together
from tests.collectors.reports import build_topology
from tests.dataplane.wire.golden_reports import REPORTS, GoldenReport


def settings_of(marking: Marking) -> CollectorSettings:
    return CollectorSettings(
        int_dscp=marking.dscp,
        int_dscp_mask=marking.dscp_mask,
        int_udp_port=marking.udp_port,
        int_probe_marker=marking.probe_marker,
    )


def both(settings: CollectorSettings) -> tuple[Collector, Collector]:
    clock = VirtualClock(1000)
    reference, native = (
        Collector(build_topology(), clock, msgspec.structs.replace(settings, core=core))
        for core in (Core.REFERENCE, Core.NATIVE)
    )
    return reference, native


@pytest.mark.parametrize("name", list(REPORTS))
def test_golden_reports_and_every_damage_of_them(name: str) -> None:
    golden: GoldenReport = REPORTS[name]
    whole = golden.payload
    cut = [whole[:size] for size in range(0, len(whole), 5)]
    changed = [whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :] for at in range(0, len(whole), 3)]
    # Each change with sequence numbers and reporter as they were would be called repeated.
    numbered = [
        part[:1] + (0x1000 + number).to_bytes(3, "big") + part[4:] if len(part) > 4 else part
        for number, part in enumerate([whole, *cut, *changed])
    ]
    reference, native = both(settings_of(golden.marking))
    for part in numbered:
        reference.receive(part)
    receive_together(native, numbered)
    assert native.status() == reference.status()
    assert native.snapshot() == reference.snapshot()
