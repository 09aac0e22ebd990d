"""Prefilters on raw bytes: they miss no matching frame, and check headers at known offsets."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataplane.native import kernel_library
from dataplane.switch.compiled.memory.taps import Tap, fits, set_alternatives
from dataplane.switch.pipeline import Frame
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tracing.filters import parse_filter
from dataplane.switch.tracing.live.prefilter import ANYTHING, Alternative, prefilter
from dataplane.switch.tracing.matching import Matcher
from tests.dataplane.switch.scenarios import frames, load
from tests.examples import examples

IPV4 = {(12, 0xFF, 0x08, True), (13, 0xFF, 0x00, True)}
FILTERS = {
    "forwarding": (
        "ipv4.dst_addr==10.0.2.0/24",
        "ipv4.ttl",
        "ethernet.ether_type==0x800 || ipv4",
        "!ipv4",
        "ipv4.ttl<9",
    ),
    "parsing": (
        "kind.argument==2 || labels[1].value==1",
        "labels[1].value==2",
        "labels[2]",
        "kind.kind==1 && labels[0].last==0",
        "kind.argument==5",
    ),
    "unions": ("kind.order==2", "either.small", "either.large.value==0x0102"),
    "fabric": (
        "ipv4.dst_addr==10.0.2.1 && ingress_port==1",
        "udp.dst_port==2000",
        "tcp || vxlan",
        "inner_udp.dst_port==7",
        "ipv4.protocol==17 && ipv4.ttl>1 && vlan",
    ),
}


def alternatives(text: str, program: str = "forwarding") -> tuple[Alternative, ...]:
    return prefilter(parse_filter(text), load(program))


def test_a_field_is_looked_for_where_the_parser_finds_it() -> None:
    checks = frozenset(IPV4 | {(30, 0xFF, 10, True), (31, 0xFF, 0, True), (32, 0xFF, 2, True)})
    assert alternatives("ipv4.dst_addr==10.0.2.0/24 && ingress_port==1") == (Alternative(1, checks),)
    assert alternatives("ipv4") == (Alternative(None, frozenset(IPV4)),)
    assert alternatives("ipv4.version==4") == (Alternative(None, frozenset(IPV4 | {(14, 0xF0, 0x40, True)})),)
    assert alternatives("ingress_port==1 || ingress_port==2") == (Alternative(1), Alternative(2))


def test_undecidable_filters_match_all_and_contradictions_none() -> None:
    assert alternatives("ipv4.ttl>3") == alternatives("ipv4")
    assert alternatives("!ipv4") == ANYTHING
    assert alternatives("packet_length>100") == ANYTHING
    assert alternatives("ingress_port==1 && ingress_port==2") == ()


def test_a_stack_has_its_elements_one_behind_the_other() -> None:
    choices = alternatives("labels[1].value==2", "parsing")
    wanted = {(0, 0xFF, 1, True), (2, 0x01, 0, True), (3, 0xFE, 4, True)}  # kind 1, not the last label, then label 2
    assert any(alternative.checks >= wanted for alternative in choices)


def test_headers_behind_options_are_sought_only_with_options() -> None:
    """The port's offset is known in packets with an IPv4 header of fixed length; in others it is not."""
    plain, options = (14, 0x0F, 5, True), (14, 0x0F, 5, False)
    choices = [choice for choice in alternatives("udp.dst_port==2000", "fabric") if choice.checks >= IPV4]
    assert {plain in choice.checks for choice in choices} == {True, False}
    assert all((36, 0xFF, 0x07, True) in choice.checks for choice in choices if plain in choice.checks)
    assert all(options in choice.checks for choice in choices if plain not in choice.checks)


@cache
def matcher(program: str, text: str) -> Matcher:
    loaded = load(program)
    return Matcher(loaded, ForwardingState(loaded), parse_filter(text))


def has_all(alternative: Alternative, frame: Frame) -> bool:
    data = frame.data
    return alternative.port in {None, frame.port} and all(
        (at < len(data) and data[at] & mask == value) is wanted for at, mask, value, wanted in alternative.checks
    )


@pytest.mark.parametrize(("program", "text"), [(program, text) for program in FILTERS for text in FILTERS[program]])
@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_prefilter_misses_no_frame_and_agrees_with_machine_code(program: str, text: str, data: st.DataObject) -> None:
    choices = alternatives(text, program)
    tap, fits_native = Tap(), kernel_library(fits).bind(fits)
    set_alternatives(tap, choices)
    for content in data.draw(st.lists(frames(program), max_size=8)):
        frame = Frame(data.draw(st.sampled_from((1, 2))), content)
        fitting = any(has_all(alternative, frame) for alternative in choices)
        assert fitting or not matcher(program, text)(frame)
        assert bool(fits_native(tap, frame.port, content, len(content))) is fitting
