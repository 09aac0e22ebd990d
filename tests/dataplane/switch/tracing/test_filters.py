"""The filter language: matches, and errors of invalid expressions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import ConfigError
from dataplane.switch.pipeline import Frame
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tracing.filters import bind_filter, parse_filter
from dataplane.switch.tracing.literals import read_number
from dataplane.switch.tracing.matching import Matcher
from tests.dataplane.switch.interpreter.harness import own_program

PROGRAM = own_program("forwarding")
STATE = ForwardingState(PROGRAM)
UDP = bytes.fromhex("02000000000202000000000108004500002000010000401163040a0001010a0002c8c0de0007000c000001020304")
ARP = bytes.fromhex("0200000000020200000000010806") + bytes(28)


def holds(text: str, frame: bytes = UDP, port: int = 3) -> bool:
    return Matcher(PROGRAM, STATE, parse_filter(text))(Frame(port, frame))


@pytest.mark.parametrize(
    "text",
    [
        "ipv4.dst_addr==10.0.2.200",
        "hdr.ipv4.dst_addr == 0x0a0002c8 && ingress_port==3",
        "ipv4.dst_addr==10.0.2.0/24",
        "ipv4.dst_addr!=10.0.3.0/24",
        "ethernet.src_addr==02:00:00:00:00:01",
        "ipv4",
        "!(ipv4.ttl<64)&&ipv4.ttl<=64 && ipv4.ttl>=64 && ipv4.ttl>63",
        "ipv4.ttl==1 || ipv4.protocol==17",
        "standard_metadata.ingress_port == 3",
        "ipv4.protocol",
        "packet_length==46",
    ],
)
def test_what_is_true(text: str) -> None:
    assert holds(text)
    assert not holds(f"!({text})")


@pytest.mark.parametrize("text", ["ipv4", "ipv4.dst_addr==0", "ipv4.dst_addr!=0", "ingress_port!=3", "ipv4.tos"])
def test_what_is_false_of_a_packet_without_the_header(text: str) -> None:
    assert not holds(text, ARP)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty, at column 1 of ''"),
        ("ipv4.ttl==", "ends where a number or an address is expected, at column 11"),
        ("ipv4.ttl==x", "has 'x' where a number or an address is expected, at column 11"),
        ("(ipv4", "ends where ) is expected, at column 6"),
        ("ipv4 ipv4", "has 'ipv4' where && or || is expected, at column 6"),
        ("&& ipv4", "has '&&' where a field is expected, at column 1"),
        ("ipv4.ttl # 3", "unexpected '#', at column 10"),
        ("(" * 99 + "ipv4" + ")" * 99, "is nested more than 64 deep"),
        ("ipv4.tll==1", "header ipv4 has no field 'tll', but version, ihl"),
        ("tcp", "the program has no header or field 'tcp'"),
        ("tcp.port==1", "the program has no field 'tcp.port'"),
        ("ipv4.ttl==256", "0x100 does not fit ipv4.ttl, which has 8 bits"),
        ("ipv4.dst_addr==10.0.0.0/33", "ipv4.dst_addr has 32 bits, not 33"),
    ],
)
def test_what_is_wrong_is_one_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bind_filter(parse_filter(text, "--trace-filter"), PROGRAM, "--trace-filter")
    assert str(caught.value).startswith(f"--trace-filter: {problem}")
    assert "\n" not in str(caught.value)


@given(st.text("ipv4.dst=!<>&|()/ 10:x\n", max_size=30))
def test_any_text_is_a_filter_or_one_line(text: str) -> None:
    problem = ""
    try:
        bind_filter(parse_filter(text), PROGRAM)
    except ConfigError as error:
        problem = str(error)
    assert "\n" not in problem


def test_numbers_and_addresses() -> None:
    good = {"17": 17, "0x11": 17, "0b1": 1, "1.0.0.1": 0x01000001, "::1": 1, "00-00-00-00-01-00": 256}
    assert {text: read_number(text) for text in good} == good
    assert [read_number(text) for text in ("", "1.2.3.400", "1::2::3", "ten", "08:00")] == [None] * 5
