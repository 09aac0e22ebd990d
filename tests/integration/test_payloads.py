"""Payloads of any content arrive unchanged: every mode, mark and program, and known faults."""

from __future__ import annotations

import random
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from typing import cast

import pytest

from collectors.collector import Collector
from controller.network.p4runtime.session import FABRIC, fabric_program
from controller.network.tables.telemetry.drop_watch import DropWatch
from controller.network.tables.telemetry.int_domain import IntDomain
from controller.network.tables.telemetry.int_watch import Mode, Watch
from controller.network.tables.telemetry.reporting import Reporting
from controller.network.virtual import VirtualController
from dataplane.fabric.virtual import VirtualFabric
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.switch import PipelineFactory
from dataplane.topology.addressing import gateway_mac
from dataplane.wire.packet import decode_udp_frame, udp_frame
from tests.payloads.cases import DOMAINS, MODES, SPECIALS, interpreted, watches_of
from tests.payloads.chain import ACROSS, SAME_LEAF, TOPOLOGY, Chain
from tests.payloads.mutants import (
    Patch,
    marker_before_check,
    mutant,
    payload_marker_forgotten,
    second_tag_over_the_first,
)
from tests.payloads.oracle import Verdict, judge, make_cases, try_payloads
from tests.payloads.timed import Timed

MS = 1_000_000
OVERRUN = bytes(8) + bytes.fromhex("11ff000020") + bytes(87)
"""A payload whose ninth byte begins a shim that reaches past the end."""


TAGS = (b"\x81\0", b"\x88\xa8", b"\x91\0")
ONE_TAG = [(b"\x81\0", ether_type) for ether_type in (b"\x08\0", b"\x86\xdd")]


@pytest.fixture(scope="module", params=["fabric", "fabric_aggregation"])
def compiled(request: pytest.FixtureRequest) -> Chain:
    """Return a fabric of compiled pipelines with one of the programs."""
    return Chain(compiled_pipeline, aggregating=request.param != "fabric")


@pytest.fixture(scope="module", params=["fabric", "fabric_aggregation"])
def reference(request: pytest.FixtureRequest) -> Chain:
    """Return a fabric of interpreters with one of the programs."""
    return Chain(interpreted, aggregating=request.param != "fabric")


def check(verdict: Verdict, count: int) -> None:
    """Check that nothing was changed, or dropped for its content, and that most payloads arrived."""
    assert verdict.sent >= count
    assert verdict.changed == 0, "\n".join(verdict.examples)
    assert sum(verdict.dropped.values()) < verdict.sent / 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_payloads_arrive_as_they_were_sent(compiled: Chain, domain: IntDomain, mode: Mode) -> None:
    compiled.configure(domain, watches_of(mode))
    check(try_payloads(compiled, domain, f"{domain} {mode}", 120), 120)


@pytest.mark.parametrize(("domain", "watches"), SPECIALS.values(), ids=SPECIALS)
def test_payloads_arrive_whatever_a_watch_asks_for(
    compiled: Chain, domain: IntDomain, watches: tuple[Watch, ...]
) -> None:
    compiled.configure(domain, watches)
    check(try_payloads(compiled, domain, "special", 120), 120)


@pytest.mark.parametrize("domain", [DOMAINS["dscp"], DOMAINS["probe marker"]], ids=["dscp", "probe"])
def test_every_header_at_every_offset(compiled: Chain, domain: IntDomain) -> None:
    compiled.configure(domain, watches_of("md"))
    check(try_payloads(compiled, domain, "every", 0, systematic=True, reports=False), 6000)


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
def test_the_interpreter_changes_nothing_either(reference: Chain, domain: IntDomain) -> None:
    reference.configure(domain, watches_of("md"))
    check(try_payloads(reference, domain, f"{domain}", 40), 40)


@pytest.mark.parametrize("patch", [marker_before_check, payload_marker_forgotten])
def test_a_program_with_a_fault_is_caught(tmp_path: Path, patch: Patch) -> None:
    p4info, program = fabric_program(FABRIC)
    chain = Chain(compiled_pipeline, change=lambda _: mutant(patch, program, p4info, tmp_path))
    assert try_payloads(chain, DOMAINS["dscp"], "fault", 2000).changed > 0


def test_a_fault_that_only_two_tags_show(tmp_path: Path) -> None:
    p4info, program = fabric_program(FABRIC)
    chain = Chain(compiled_pipeline, change=lambda _: mutant(second_tag_over_the_first, program, p4info, tmp_path))
    cases = make_cases(random.Random(1), DOMAINS["dscp"], ACROSS, [bytes(60)] * 1000)
    tagged = [
        case for case in cases if case.sent[12:14] in TAGS and (case.sent[12:14], case.sent[16:18]) not in ONE_TAG
    ]
    assert judge(chain, ACROSS, [case for case in cases if case not in tagged]).changed == 0
    assert judge(chain, ACROSS, tagged).changed > 0


@pytest.mark.parametrize("program", ["fabric", "fabric_aggregation"])
def test_payloads_behind_queues_and_cables(program: str) -> None:
    """With time, hellos and reports, by the default controller."""
    fabric = Timed(compiled_pipeline, aggregating=program != "fabric")
    for name, mode in (("dscp", "md"), ("probe marker, tunnels", "hop-by-hop"), ("udp port, tunnels", "mx")):
        fabric.configure(DOMAINS[name], watches_of(cast("Mode", mode)))
        check(try_payloads(fabric, DOMAINS[name], f"{program} {name}", 120), 120)


@pytest.mark.parametrize("pipeline", [compiled_pipeline, interpreted], ids=["compiled", "interpreter"])
def test_a_shim_that_reaches_past_its_payload(pipeline: PipelineFactory) -> None:
    """With cables, queues and time: 100 bytes used to become 92 on the same leaf and 152 beyond."""
    fabric = VirtualFabric(TOPOLOGY, pipeline_factory=pipeline)
    VirtualController.over(fabric).start()
    for src, dst in (SAME_LEAF, ACROSS):
        got: list[bytes] = []
        fabric.host(dst).on_frame(partial(_keep, got))
        fabric.host(src).send(_datagram(src, TOPOLOGY.host[dst].ipv4, 2000, OVERRUN))
        fabric.run_until(fabric.now_ns + 10 * MS)
        (frame,) = got
        arrived = decode_udp_frame(frame)
        assert arrived is not None
        assert arrived.checksum_ok
        assert arrived.payload.hex() == OVERRUN.hex()


def _keep(kept: list[bytes], frame: bytes, _: int) -> None:
    kept.append(frame)


def _datagram(src: str, dst: IPv4Address, dst_port: int, payload: bytes) -> bytes:
    host = TOPOLOGY.host[src]
    return udp_frame(
        src_mac=host.mac,
        dst_mac=gateway_mac(TOPOLOGY, src),
        src=host.ipv4,
        dst=dst,
        src_port=2000,
        dst_port=dst_port,
        payload=payload,
    )


@pytest.mark.parametrize(("pipeline", "src"), [(compiled_pipeline, "h1"), (interpreted, "h4")], ids=["h1", "h4"])
def test_a_host_cannot_report(pipeline: PipelineFactory, src: str) -> None:
    """Its replayed or forged reports never reach the collector, even where drops are reported; real ones do."""
    assert TOPOLOGY.collector is not None
    fabric = VirtualFabric(TOPOLOGY, pipeline_factory=pipeline)
    reporting = Reporting(drops=(DropWatch(),))
    VirtualController.over(fabric, watches=(Watch(),), reporting=reporting).start()
    collector, reports = Collector(TOPOLOGY, fabric.clock), list[bytes]()

    def receive(frame: bytes, _: int) -> None:
        datagram = decode_udp_frame(frame)
        if datagram is not None and datagram.dst_port == collector.report_udp_port:
            reports.append(datagram.payload)
            collector.receive(datagram.payload)

    fabric.host(TOPOLOGY.collector.host).on_frame(receive)
    fabric.host(src).send(_datagram(src, TOPOLOGY.host["h2"].ipv4, 2000, b"measured"))
    fabric.run_until(fabric.now_ns + 10 * MS)
    assert len(reports) == 1
    address = TOPOLOGY.host[TOPOLOGY.collector.host].ipv4
    for payload in (reports[0], bytes(60)):
        fabric.host(src).send(_datagram(src, address, TOPOLOGY.collector.udp_port, payload))
    fabric.host(src).send(_datagram(src, address, 2000, reports[0]))
    fabric.run_until(fabric.now_ns + 10 * MS)
    # The last datagram was no report, and carried telemetry itself.
    assert len(reports) == 2
    state = fabric.switch(TOPOLOGY.attachment[src].node).state
    assert state is not None
    assert state.counters["FabricIngress.validation.drop_report_at_edge"].packets[0] == 2
