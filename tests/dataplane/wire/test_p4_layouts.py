"""Headers of the P4 program against the codecs: every field that both have lies in the same place."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dataplane.wire import int_metadata
from dataplane.wire.aggregation import Aggregation, Kind
from dataplane.wire.completion import Completion
from dataplane.wire.int_md import IntMd
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_mx import IntMx
from dataplane.wire.int_shim import IntShim, IntType, NextProtocol
from dataplane.wire.places import Place, place_of
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import IndividualHeader, InnerType, ReportType
from dataplane.wire.report_int import IntReport

P4 = Path(__file__).parents[3] / "p4"
SOURCES = ("shared/headers.p4", "aggregation/headers.p4")
_HEADER = re.compile(r"^header (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^ +bit<(\d+)> +(\w+);", re.MULTILINE)
OTHER = HopMetadata(reserved=(None,) * 6)


def places_in_p4() -> dict[str, dict[str, Place]]:
    """Return the places of the fields of each header."""
    layouts: dict[str, dict[str, Place]] = {}
    for source in SOURCES:
        for name, body in _HEADER.findall((P4 / source).read_text(encoding="utf-8")):
            places, at = {}, 0
            for bits, field in _FIELD.findall(body):
                places[field] = Place(at, int(bits))
                at += int(bits)
            layouts[name] = places
    return layouts


def hop(field: str, bitmap: int, *, report: bool = False) -> Callable[[int], bytes]:
    return lambda value: HopMetadata(**{field: value}).encode(bitmap, report=report)  # type: ignore[arg-type]


def individual(name: str) -> Callable[[int], bytes]:
    def encode(value: int) -> bytes:
        fields = {"length_words": 0, "metadata_words": 0, name: value}
        return IndividualHeader(ReportType.INNER_ONLY, InnerType.NONE, **fields).encode()  # type: ignore[arg-type]

    return encode


def main(name: str, *, is_bitmap: bool = False) -> Callable[[int], bytes]:
    def encode(value: int) -> bytes:
        own = OTHER if is_bitmap and value else HopMetadata()
        header = IntReport(**{"bits": 0, "metadata": own, name: value})  # type: ignore[arg-type]
        return individual("length_words")(0) + header.encode()[:8]

    return encode


def md(name: str) -> Callable[[int], bytes]:
    return lambda value: IntMd(**{"hop_ml": 0, "remaining_hops": 0, "instructions": 0, name: value}).encode()  # type: ignore[arg-type]


def mx(name: str) -> Callable[[int], bytes]:
    return lambda value: IntMx(**{"instructions": 0, name: value}).encode()  # type: ignore[arg-type]


def completed(name: str) -> Callable[[int], bytes]:
    zeros = dict.fromkeys(("job", "item", "last_child", "wait_us", "repeated", "ahead"), 0)
    return lambda value: Completion(**{**zeros, name: value}).encode()  # type: ignore[arg-type]


def aggregated(name: str) -> Callable[[int], bytes]:
    fields = {"kind": Kind.AGAIN, "job": 0, "item": 0, "epoch": 0, "workers": 1}
    return lambda value: Aggregation(**{**fields, name: value}).encode()[:32]  # type: ignore[arg-type]


CASES: dict[tuple[str, str], Callable[[int], bytes]] = {
    ("report_group_t", "hardware_id"): lambda value: ReportGroup(value, 0, 0).encode(),
    ("report_group_t", "sequence"): lambda value: ReportGroup(0, value, 0).encode(),
    ("report_group_t", "node_id"): lambda value: ReportGroup(0, 0, value).encode(),
    ("report_t", "report_words"): lambda value: individual("length_words")(value) + bytes(8),
    ("report_t", "metadata_words"): lambda value: individual("metadata_words")(value) + bytes(8),
    **{
        ("report_t", name): lambda value, name=name: individual(name)(value) + bytes(8)  # type: ignore[misc]
        for name in ("dropped", "congested", "tracked", "intermediate")
    },
    ("report_t", "metadata_bits"): main("bits", is_bitmap=True),
    ("report_t", "domain_id"): main("domain_id"),
    ("report_t", "domain_metadata_bits"): main("domain_bits"),
    ("report_t", "domain_status"): main("domain_status"),
    ("int_shim_t", "length"): lambda value: IntShim(IntType.MD, value).encode(),
    ("int_shim_t", "value"): lambda value: IntShim(
        IntType.MD, 0, NextProtocol.UDP_PAYLOAD, original_udp_port=value
    ).encode(),
    ("int_md_t", "hop_words"): md("hop_ml"),
    ("int_md_t", "hops_exceeded"): md("hop_count_exceeded"),
    **{
        ("int_md_t", name): md(name)
        for name in (
            *("discard", "mtu_exceeded", "remaining_hops", "instructions", "domain_id"),
            *("domain_instructions", "domain_flags"),
        )
    },
    ("node_word_t", "node_id"): hop("node_id", int_metadata.NODE_ID),
    ("level1_word_t", "ingress_port"): hop("ingress_interface", int_metadata.LEVEL1_INTERFACES),
    ("level1_word_t", "egress_port"): hop("egress_interface", int_metadata.LEVEL1_INTERFACES),
    ("latency_word_t", "latency_ns"): hop("hop_latency", int_metadata.HOP_LATENCY),
    ("queue_word_t", "queue_id"): hop("queue_id", int_metadata.QUEUE),
    ("queue_word_t", "occupancy"): hop("queue_occupancy", int_metadata.QUEUE),
    ("timestamp_words_t", "timestamp_ns"): hop("ingress_timestamp", int_metadata.INGRESS_TIMESTAMP),
    ("level2_words_t", "ingress_port"): hop("level2_ingress_interface", int_metadata.LEVEL2_INTERFACES),
    ("level2_words_t", "egress_port"): hop("level2_egress_interface", int_metadata.LEVEL2_INTERFACES),
    ("utilization_word_t", "transmitted_bytes"): hop("tx_utilisation", int_metadata.TX_UTILISATION),
    ("drop_word_t", "queue_id"): hop("drop_queue_id", int_metadata.LAST, report=True),
    ("drop_word_t", "reason"): hop("drop_reason", int_metadata.LAST, report=True),
    **{("completion_words_t", name): completed(name) for name in ("job", "last_child", "leaf", "item")},
    ("completion_words_t", "repeated"): completed("repeated"),
    ("completion_words_t", "ahead"): completed("ahead"),
    **{("aggregation_t", name): aggregated(name) for name in ("job", "item", "epoch", "nonce", "check")},
}


@pytest.mark.parametrize(("header", "field"), CASES, ids="-".join)
def test_fields_lie_where_the_codec_puts_them(header: str, field: str) -> None:
    span = places_in_p4()[header][field]
    assert place_of(CASES[header, field], span.bits) == span


@pytest.mark.parametrize("name", ["instructions", "domain_id", "domain_instructions", "domain_flags"])
def test_md_and_mx_have_the_domain_in_one_place(name: str) -> None:
    """The program, and the collector's kernels, read both by one layout."""
    assert place_of(mx(name), 16) == place_of(md(name), 16)


def test_hops_are_pushed_in_the_order_of_the_bitmap() -> None:
    """The deparser emits headers in the order of the struct."""
    text = (P4 / "shared/headers.p4").read_text(encoding="utf-8").split("struct headers_t")[1]
    pushed = [kind for kind, name in re.findall(r"^ +(\w+?)(?:\[\d+\])? +(hop_\w+);", text, re.MULTILINE)]
    sizes = {name: sum(span.bits for span in fields.values()) for name, fields in places_in_p4().items()}
    declared = [sum(bits for _, bits in group) for _, group in int_metadata.LAYOUT]
    assert [sizes[kind] for kind in pushed][: len(declared)] == declared


def test_a_field_that_moves_another_has_no_place() -> None:
    with pytest.raises(ValueError, match="other bits than 8 in a row"):
        place_of(lambda value: bytes((value, value)), 8)
