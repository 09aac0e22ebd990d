"""A full queue in virtual time: the loss that the collector tells, and the packets that truly went missing."""

from __future__ import annotations

from typing import Literal

import pytest

from collectors.collector import Collector
from collectors.settings import CollectorSettings, StateSettings
from collectors.values import LossSource
from controller.network.tables.telemetry.drop_watch import DropWatch
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.tables.telemetry.reporting import Reporting
from controller.network.virtual import VirtualController
from dataplane.fabric.hosts import Receiver, flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.file import loads
from dataplane.topology.values import LinkKey
from dataplane.wire.packet import decode_udp_frame

MS = 1_000_000
LINE = """
millrace: 1
name: line
collector: {host: c1}
synchronised_clocks: true
defaults:
  access: {rate: 100 Mbit/s, delay: 10 us}
  link: {rate: 4 Mbit/s, delay: 1 ms, queue_frames: 16}
switches: [{name: s1}, {name: s2}, {name: s3}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s2}, {name: h3, switch: s3}, {name: c1, switch: s2}]
links:
  - {a: s1, b: s2}
  - {a: s2, b: s3}
"""


@pytest.mark.parametrize("mode", ["md", "hop-by-hop"])
def test_the_loss_of_a_full_queue_is_told_where_it_happens(mode: Literal["md", "hop-by-hop"]) -> None:
    topology = loads(LINE)
    fabric = VirtualFabric(topology)
    reporting = Reporting(drops=(DropWatch(quota=0),))
    VirtualController.over(fabric, watches=(Watch(mode=mode),), reporting=reporting).start()
    collector = Collector(topology, fabric.clock, CollectorSettings(state=StateSettings(window_ns=400 * MS)))
    receiver = Receiver()

    def report(frame: bytes, now_ns: int) -> None:
        packet = decode_udp_frame(frame)
        assert packet is not None
        collector.receive(packet.payload)

    fabric.host("c1").on_frame(report)
    fabric.host("h3").on_frame(receiver.receive)
    for flow_id, src in ((1, "h1"), (2, "h2")):
        fabric.start_flow(src, flow_between(topology, flow_id, src, "h3", 2_400_000))
    fabric.run_until(1000 * MS)
    links = collector.snapshot().links
    came = sum(receiver.measure(flow, 600 * MS, 1000 * MS).packets for flow in (1, 2))
    truth = 1 - came / (2 * 0.4 * 2_400_000 / 8000)
    assert truth > 0.1
    full = links[LinkKey("s2", "s3")]
    assert full.loss == pytest.approx(truth, abs=0.06)
    if mode == "md":
        assert full.loss_source is LossSource.DROP_REPORTS
    before = links[LinkKey("s1", "s2")]
    assert before.loss in {None, 0.0}
