"""INT shim, INT-MD header and stack: the specification's examples, every truncation, round trips, fuzz."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import WireError
from dataplane.wire import int_md, int_metadata, int_shim
from dataplane.wire.int_md import IntMd
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_shim import IntShim, IntType, NextProtocol

# INT v2.1, section 6.1: shim, INT-MD header, then hop 2 and hop 1 with node id and queue occupancy.
SHIM = "10 07 0028"
HEADER = "20000206 90000000 00000000"
STACK = "00000002 05000011  00000001 00000003"
HOP2 = HopMetadata(node_id=2, queue_id=5, queue_occupancy=0x11)
HOP1 = HopMetadata(node_id=1, queue_id=0, queue_occupancy=3)
MD = IntMd(hop_ml=2, remaining_hops=6, instructions=0x9000)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (SHIM, IntShim(IntType.MD, 7, original_dscp=0x0A)),
        ("14 07 12b5", IntShim(IntType.MD, 7, NextProtocol.UDP_PAYLOAD, original_udp_port=4789)),
        ("18 07 0006", IntShim(IntType.MD, 7, NextProtocol.NEW_UDP, original_protocol=6)),
        ("30 03 0000", IntShim(IntType.MX, 3)),
        ("20 01 0000", IntShim(IntType.DESTINATION, 1)),
    ],
)
def test_shims_of_every_next_protocol_agree_both_ways(text: str, value: IntShim) -> None:
    assert int_shim.decode(bytes.fromhex(text)) == value
    assert int_shim.decode(b"\xff" + bytes.fromhex(text), 1) == value
    assert value.encode() == bytes.fromhex(text)


def test_a_shims_reserved_bits_are_ignored() -> None:
    assert int_shim.decode(bytes.fromhex("13 07 ff2b")) == IntShim(IntType.MD, 7, original_dscp=0x0A)


@pytest.mark.parametrize("text", ["00070000", "40070000", "1c070000"])
def test_undefined_types_and_next_protocols_are_refused(text: str) -> None:
    with pytest.raises(WireError, match="not defined"):
        int_shim.decode(bytes.fromhex(text))


@pytest.mark.parametrize("size", range(4))
def test_every_truncation_of_a_shim_is_a_wire_error(size: int) -> None:
    with pytest.raises(WireError):
        int_shim.decode(bytes.fromhex(SHIM)[:size])


def test_the_int_md_header_of_section_6_1_agrees_both_ways() -> None:
    assert int_md.decode(bytes.fromhex(HEADER)) == MD
    assert MD.encode() == bytes.fromhex(HEADER)


def test_each_flag_and_domain_field_has_its_place() -> None:
    value = IntMd(
        hop_ml=31,
        remaining_hops=255,
        instructions=0xFF80,
        domain_id=0x4D52,
        domain_instructions=0x8001,
        domain_flags=0x8000,
        discard=True,
        hop_count_exceeded=True,
        mtu_exceeded=True,
    )
    data = bytes.fromhex("2e001fff ff804d52 80018000")
    assert value.encode() == data
    assert int_md.decode(data) == value
    assert int_md.decode(bytes.fromhex("28000206 90000000 00000000")) == replace(MD, discard=True)
    assert int_md.decode(bytes.fromhex("24000206 90000000 00000000")) == replace(MD, hop_count_exceeded=True)
    assert int_md.decode(bytes.fromhex("22000206 90000000 00000000")) == replace(MD, mtu_exceeded=True)
    assert int_md.decode(bytes.fromhex("21ffe206 90000000 00000000")) == MD  # reserved bits


def test_another_version_is_refused() -> None:
    with pytest.raises(WireError, match="INT-MD at byte 0: version is 1, not 2"):
        int_md.decode(bytes.fromhex("10000206 90000000 00000000"))


@pytest.mark.parametrize("size", range(12))
def test_every_truncation_of_the_header_is_a_wire_error(size: int) -> None:
    with pytest.raises(WireError):
        int_md.decode(bytes.fromhex(HEADER)[:size])


def test_the_stack_of_section_6_1_is_newest_first_both_ways() -> None:
    data = bytes.fromhex(STACK)
    assert int_md.decode_stack(MD, data, 0, 16) == (HOP2, HOP1)
    assert int_md.decode_stack(MD, b"\xee" * 4 + data, 4, 16) == (HOP2, HOP1)
    assert int_md.encode_stack(MD, (HOP2, HOP1)) == data
    assert int_md.decode_stack(MD, data, 0, 0) == ()


@pytest.mark.parametrize("size", range(16))
def test_every_truncation_of_the_stack_is_a_wire_error(size: int) -> None:
    with pytest.raises(WireError):
        int_md.decode_stack(MD, bytes.fromhex(STACK)[:size], 0, 16)


def test_source_only_metadata_may_stand_alone() -> None:
    header = replace(MD, domain_id=0x4D52, domain_instructions=0x8000)
    assert int_md.decode_stack(header, bytes(4), 0, 4) == ()
    assert int_md.decode_stack(header, bytes(4), 0, 4, source_only_words=1) == ()
    assert int_md.decode_stack(replace(header, hop_ml=0), bytes(4), 0, 4) == ()
    with pytest.raises(WireError, match="not a multiple"):
        int_md.decode_stack(header, bytes(4), 0, 4, source_only_words=2)


@pytest.mark.parametrize("size", [1, 4, 7, 9, 12, 15])
def test_a_stack_that_is_no_multiple_of_hop_ml_is_refused(size: int) -> None:
    with pytest.raises(WireError, match="not a multiple"):
        int_md.decode_stack(MD, bytes.fromhex(STACK), 0, size)


def test_hop_ml_contradicting_the_instructions_is_refused() -> None:
    with pytest.raises(WireError, match="not what bitmap 0x9000 asks for"):
        int_md.decode_stack(replace(MD, hop_ml=1), bytes(4), 0, 4)
    with pytest.raises(WireError, match="HopML is 0"):
        int_md.decode_stack(replace(MD, hop_ml=0), bytes(4), 0, 4)


def test_source_only_metadata_belongs_to_the_gateway() -> None:
    header = int_md.decode(bytes.fromhex("20000105 80005453 80004000"))
    stack = bytes.fromhex("00000003 00000002 00000001 a61af6b1 647d0000")
    hops = int_md.decode_stack(header, stack, 0, len(stack), source_only_words=2)
    assert [hop.node_id for hop in hops] == [3, 2, 1]
    assert hops[-1].domain.hex() == "a61af6b1647d0000"
    assert int_md.encode_stack(header, hops) == stack


def test_remaining_words_belong_to_the_source_with_a_domain() -> None:
    header = replace(MD, domain_id=7, domain_instructions=0x8000)
    source = replace(HOP1, domain=b"\1\2\3\4")
    data = int_md.encode_stack(header, (HOP2, source))
    assert len(data) == 20
    assert int_md.decode_stack(header, data, 0, 20) == (HOP2, source)


def test_all_instructions_of_one_hop_are_read_in_bit_order() -> None:
    data = bytes.fromhex(
        "00000009 00010002 000003e8 0400000a 0000000000000100 0000000000000200 00000003 00000004 00001000"
        "06000007 0000000b 0000000c 0000000d 0000000e 0000000f 00000010  dddddddd  12345678"
    )
    hop = HopMetadata(
        node_id=9,
        ingress_interface=1,
        egress_interface=2,
        hop_latency=1000,
        queue_id=4,
        queue_occupancy=10,
        ingress_timestamp=256,
        egress_timestamp=512,
        level2_ingress_interface=3,
        level2_egress_interface=4,
        tx_utilisation=4096,
        buffer_id=6,
        buffer_occupancy=7,
        reserved=(11, 12, 13, 14, 15, 16),
        domain=bytes.fromhex("dddddddd"),
        checksum_complement=0x12345678,
    )
    assert int_metadata.baseline_words(0xFFFF) == 19
    assert int_metadata.decode(data, 0, 0xFFFF, 80) == hop
    assert hop.encode(0xFFFF) == data


def test_report_metadata_has_queue_and_drop_reason() -> None:
    data = bytes.fromhex("0400000a 05110000 dddddddd")
    hop = HopMetadata(queue_id=4, queue_occupancy=10, drop_queue_id=5, drop_reason=17, domain=bytes.fromhex("dddddddd"))
    assert int_metadata.decode(data, 0, 0x1001, 12, report=True) == hop
    assert hop.encode(0x1001, report=True) == data


def test_all_ones_is_none_and_none_is_all_ones() -> None:
    data = b"\xff" * 76
    hop = int_metadata.decode(data, 0, 0xFFFF, 76)
    assert hop == HopMetadata(reserved=(None,) * 6)
    assert hop.encode(0xFFFF) == data


@given(bitmap=st.integers(0, 0xFFFF), report=st.booleans(), extra=st.integers(0, 3), data=st.data())
def test_any_metadata_survives_the_wire(bitmap: int, report: bool, extra: int, data: st.DataObject) -> None:
    size = 4 * (int_metadata.baseline_words(bitmap) + extra)
    body = data.draw(st.binary(min_size=size, max_size=size))
    hop = int_metadata.decode(body, 0, bitmap, size, report=report)
    again = hop.encode(bitmap, report=report)
    if report and bitmap & 1:  # two bytes of padding are not kept
        at = 4 * (int_metadata.baseline_words(bitmap) - 1) + 2
        body = body[:at] + b"\0\0" + body[at + 2 :]
    assert again == body
    for short in range(size):
        with pytest.raises(WireError):
            int_metadata.decode(body[:short], 0, bitmap, size, report=report)


@given(
    junk=st.binary(max_size=64),
    hop_ml=st.integers(0, 31),
    instructions=st.integers(0, 0xFFFF),
    domain=st.integers(0, 0xFFFF),
    size=st.integers(0, 80),
)
def test_any_stack_decodes_or_raises_wire_error(
    junk: bytes, hop_ml: int, instructions: int, domain: int, size: int
) -> None:
    header = IntMd(hop_ml, 8, instructions, domain_instructions=domain)
    try:
        hops = int_md.decode_stack(header, junk, 0, size)
    except WireError:
        return
    if hops or not domain:  # a source's words without its hop are no hop
        assert int_md.encode_stack(header, hops) == junk[:size]


@given(st.binary(max_size=16))
def test_any_bytes_decode_as_shim_and_header_or_raise_wire_error(junk: bytes) -> None:
    for decode in (int_shim.decode, int_md.decode):
        try:
            value = decode(junk)
        except WireError:
            continue
        assert decode(value.encode()) == value


@pytest.mark.parametrize("value", [IntShim(IntType.MD, 256), IntShim(IntType.MD, 0, original_dscp=64)])
def test_a_shim_that_does_not_fit_is_refused(value: IntShim) -> None:
    with pytest.raises(WireError):
        value.encode()


def test_hops_that_do_not_fit_are_refused() -> None:
    with pytest.raises(WireError):
        IntMd(32, 0, 0).encode()
    with pytest.raises(WireError, match="queue_occupancy"):
        HopMetadata(queue_id=0, queue_occupancy=1 << 24).encode(0x1000)
    with pytest.raises(WireError, match="do not agree"):
        HopMetadata(node_id=1, domain=b"abc").encode(0x8000)
    with pytest.raises(WireError, match="HopML"):
        int_md.encode_stack(MD, (replace(HOP2, domain=bytes(4)), HOP1))
    with pytest.raises(WireError, match="HopML"):
        int_md.encode_stack(replace(MD, hop_ml=3), (HOP1,))
