"""Telemetry of completed items: the last child, its delay, and repetitions."""

from __future__ import annotations

import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from dataplane.allreduce.reference.aggregator import Job
from dataplane.wire import completion, report
from dataplane.wire.aggregation import Aggregation, Kind
from dataplane.wire.completion import Completion
from dataplane.wire.report_individual import InnerType
from tests.p4.aggregating import NONCE, PARENT_PORT, Hosted, address_of, fabric_items, from_child, port_of, seen
from tests.p4.entries import COLLECTOR_PORT, REPORT_TARGET, CloneTo, DefaultAction, Entry
from tests.p4.targets import Sent, Target
from tests.p4.telemetry import OUTER_BYTES, TRACKED, decode_report

assert PARENT_PORT == COLLECTOR_PORT


def hosted(number: int, *, leaf: bool = False) -> Hosted:
    """Return a job of two children; each test has a number of its own, for registers go on from test to test."""
    return Hosted(number, Job(epoch=3, children=0b11, cells=8, leaf=leaf, nonce=NONCE), children=2, first_cell=200)


def reporting(target: Target, job: Hosted, *, mask: int = 0, slow_us: int = 0) -> None:
    """Set up a switch that reports the job's items."""
    target.write(
        [
            *fabric_items(),
            *job.items(),
            DefaultAction("node", "set_node", (101,)),
            DefaultAction("report_target", "set_report_target", REPORT_TARGET),
            CloneTo(COLLECTOR_PORT),
            Entry("aggregation_reports", {"job": job.number}, "report_items", (mask, slow_us)),
        ]
    )


def contribute(target: Target, job: Hosted, child: int, item: int, expect: int) -> Sent:
    """Send a child's contribution to an item; return what the switch sent."""
    packet = Aggregation(Kind.CONTRIBUTION, job.number, item=item, epoch=3, values=bytes(256), nonce=NONCE)
    return target.send(*from_child(child, packet), expect=expect)


def completions_of(sent: Sent) -> list[Completion]:
    """Return the completions reported among frames; check the other fields."""
    completions = []
    for _, data in sent:
        if Ether(data)[IP].dport == REPORT_TARGET[-1]:
            raw = decode_report(data)
            assert (raw.flags, raw.node_id, raw.metadata_bits, raw.domain_metadata_bits) == (
                TRACKED,
                101,
                0x4800,
                0x2000,
            )
            (individual,) = report.decode(data[OUTER_BYTES:]).reports
            assert individual.main is not None
            assert individual.inner_type is InnerType.IPV4
            assert len(individual.inner) == 28, "the last contribution, through UDP"
            reported = completion.in_report(individual.main)
            assert reported is not None
            assert IP(individual.inner).src == str(address_of(reported.last_child))
            assert individual.main.metadata.ingress_interface == port_of(reported.last_child)
            completions.append(reported)
    return completions


@pytest.mark.parametrize("leaf", [False, True], ids=["root", "leaf"])
def test_a_complete_item_is_reported(aggregating: Target, leaf: bool) -> None:
    job = hosted(30 + leaf, leaf=leaf)
    reporting(aggregating, job)
    for item in (4, 5, 6):
        contribute(aggregating, job, 1, item, 0)
    contribute(aggregating, job, 1, 4, 0)
    sent = contribute(aggregating, job, 0, 4, 2 if leaf else 3)
    assert len(sent) == (2 if leaf else 3)
    (reported,) = completions_of(sent)
    assert (reported.job, reported.item, reported.last_child, reported.repeated, reported.ahead, reported.leaf) == (
        30 + leaf,
        4,
        0,
        1,
        2,
        leaf,
    )
    assert reported.wait_us >= 4_000 if aggregating.name != "bmv2" else reported.wait_us > 0
    assert completions_of(contribute(aggregating, job, 0, 4, 1)) == [], "an answer is no completion"
    (reported,) = completions_of(contribute(aggregating, job, 0, 6, 2 if leaf else 3))
    assert (reported.item, reported.repeated, reported.ahead) == (6, 0, 0)


def test_items_are_chosen_by_their_number_or_for_being_slow(aggregating: Target) -> None:
    job = hosted(33)
    reporting(aggregating, job, mask=3, slow_us=2_500 if aggregating.name != "bmv2" else 0xFFFFFFFF)
    items = []
    for item in (4, 5, 6, 7, 8):
        contribute(aggregating, job, 0, item, 0)
        if item == 6:
            aggregating.send(port_of(0), bytes(60), expect=0)
            aggregating.send(port_of(0), bytes(60), expect=0)
        sent = contribute(aggregating, job, 1, item, 2 + (item % 4 == 0))
        items += [completion.item for completion in completions_of(sent)]
    assert items == ([4, 8] if aggregating.name == "bmv2" else [4, 6, 8])
    assert aggregating.count("completions_reported") == len(items)


def test_nothing_is_reported_where_nobody_asks(aggregating: Target) -> None:
    job = hosted(34)
    reporting(aggregating, hosted(35))
    aggregating.write(job.items())
    contribute(aggregating, job, 0, 1, 0)
    assert len(seen(contribute(aggregating, job, 1, 1, 2))) == 2
