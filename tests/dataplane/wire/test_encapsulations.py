"""GRE, VXLAN-GPE, Geneve, their INT shims, INT-MX, probe marker: hex both ways, truncations, refusals, fuzz."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import WireError
from dataplane.wire import geneve, gre, int_mx, int_shim_gre, int_shim_vxlan_gpe, probe_marker, vxlan_gpe
from dataplane.wire.geneve import Geneve, GeneveOption
from dataplane.wire.gre import Gre
from dataplane.wire.int_mx import IntMx
from dataplane.wire.int_shim import IntType
from dataplane.wire.int_shim_gre import GreShim
from dataplane.wire.int_shim_vxlan_gpe import VxlanGpeShim
from dataplane.wire.vxlan_gpe import VxlanGpe

Decode = Callable[[bytes, int], Any]

MX_5_9 = "20000000 90000000 00000000"
"""The INT-MX header of section 6.2."""
MX_SOURCE = "20000000 9000abcd c0000000 0000000f 12345678"
"""The INT-MX header of section 6.16: sequence number 15 and flow id 0x12345678, inserted by the source."""


def decode_mx_of_16(data: bytes, offset: int) -> IntMx:
    return int_mx.decode(data, offset, 20)


CASES: list[tuple[Decode, str, Any]] = [
    (gre.decode, "0000 0800", Gre(0x0800)),
    (gre.decode, "8000 88b5 12340000", Gre(0x88B5, checksum=0x1234)),
    (gre.decode, "2000 6558 0a0b0c0d", Gre(0x6558, key=0x0A0B0C0D)),
    (gre.decode, "1000 86dd 00000007", Gre(0x86DD, sequence=7)),
    (gre.decode, "b000 88b5 ffff0000 00000000 ffffffff", Gre(0x88B5, 0xFFFF, 0, 0xFFFF_FFFF)),
    (int_shim_gre.decode, "18 07 0800", GreShim(IntType.MD, 7, 0x0800, gre_inserted=True)),
    (int_shim_gre.decode, "30 03 6558", GreShim(IntType.MX, 3, 0x6558)),
    (vxlan_gpe.decode, "0c000082 00006400", VxlanGpe(0x64, vxlan_gpe.NEXT_INT)),
    (vxlan_gpe.decode, "08000000 abcdef00", VxlanGpe(0xABCDEF, None)),
    (vxlan_gpe.decode, "07000003 00000000", VxlanGpe(0, has_vni=False, is_bum=True, is_oam=True)),
    (int_shim_vxlan_gpe.decode, "10 09 00 03", VxlanGpeShim(IntType.MD, 9, 3)),
    (int_shim_vxlan_gpe.decode, "30 03 80 03", VxlanGpeShim(IntType.MX, 3, 3, was_vxlan=True)),
    (geneve.decode, "00006558 00006400", Geneve(0x64, 0x6558)),
    (
        geneve.decode,
        "05c06558 00006400 01030303" + MX_5_9 + "fff00100",
        Geneve(
            0x64,
            0x6558,
            (GeneveOption(0x0103, 3, bytes.fromhex(MX_5_9)), GeneveOption(0xFFF0, 1)),
            is_control=True,
            is_critical=True,
        ),
    ),
    (int_mx.decode, MX_5_9, IntMx(0x9000)),
    (int_mx.decode, "28000000 ff804d52 80018000", IntMx(0xFF80, 0x4D52, 0x8001, 0x8000, discard=True)),
    (decode_mx_of_16, MX_SOURCE, IntMx(0x9000, 0xABCD, 0xC000, 0, bytes.fromhex("0000000f12345678"))),
]


@pytest.mark.parametrize(("decode", "text", "value"), CASES)
def test_bytes_and_values_agree_both_ways(decode: Decode, text: str, value: Any) -> None:
    data = bytes.fromhex(text)
    assert decode(data, 0) == value
    assert decode(b"\xff\xff\xff" + data + b"\xee", 3) == value
    assert value.encode() == data
    assert value.size == (4 if "Shim" in type(value).__name__ else len(data))


@pytest.mark.parametrize(("decode", "text", "value"), CASES)
def test_every_truncation_is_a_wire_error(decode: Decode, text: str, value: Any) -> None:
    data = bytes.fromhex(text)
    for size in range(len(data)):
        with pytest.raises(WireError):
            decode(data[:size], 0)


@pytest.mark.parametrize(("decode", "text", "value"), CASES)
def test_flipped_bits_decode_reversibly_or_raise_wire_error(decode: Decode, text: str, value: Any) -> None:
    for bit in range(8 * len(bytes.fromhex(text))):
        data = bytearray(bytes.fromhex(text))
        data[bit // 8] ^= 0x80 >> bit % 8
        try:
            decoded = decode(bytes(data), 0)
        except WireError:
            continue
        assert decode(decoded.encode() + bytes(data)[decoded.size :], 0) == decoded


@pytest.mark.parametrize(
    ("decode", "text", "value"),
    [
        (int_shim_gre.decode, "17 07 0800", GreShim(IntType.MD, 7, 0x0800)),
        (int_shim_vxlan_gpe.decode, "1f 09 7f 03", VxlanGpeShim(IntType.MD, 9, 3)),
        (vxlan_gpe.decode, "ccffff82 000064ff", VxlanGpe(0x64, vxlan_gpe.NEXT_INT)),
        (geneve.decode, "013f6558 000064ff 010303e0", Geneve(0x64, 0x6558, (GeneveOption(0x0103, 3),))),
        (int_mx.decode, "27ffffff 90000000 00000000", IntMx(0x9000)),
        (gre.decode, "03f8 0800", Gre(0x0800)),
    ],
)
def test_reserved_bits_are_ignored(decode: Decode, text: str, value: Any) -> None:
    assert decode(bytes.fromhex(text), 0) == value


@pytest.mark.parametrize(
    ("decode", "text", "problem"),
    [
        (gre.decode, "4000 0800", "RFC 2784"),
        (gre.decode, "0001 880b", "RFC 2784"),
        (int_shim_gre.decode, "00 07 0800", "type 0 is not defined"),
        (int_shim_vxlan_gpe.decode, "40 07 0003", "type 4 is not defined"),
        (vxlan_gpe.decode, "1c000082 00006400", "version is 1"),
        (geneve.decode, "40006558 00006400", "version is 1"),
        (geneve.decode, "01006558 00006400 01030303", "geneve option"),
        (int_mx.decode, "10000000 90000000 00000000", "version is 1"),
    ],
)
def test_what_the_specifications_refuse_is_a_wire_error(decode: Decode, text: str, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        decode(bytes.fromhex(text), 0)


@pytest.mark.parametrize(
    "value",
    [
        Gre(1 << 16),
        Gre(0, key=1 << 32),
        GreShim(IntType.MD, 256, 0),
        VxlanGpe(1 << 24),
        VxlanGpeShim(IntType.MD, 0, 256),
        GeneveOption(0x0103, 1, bytes(128)),
        GeneveOption(0x0103, 1, bytes(3)),
        Geneve(0, 0, (GeneveOption(0, 0, bytes(124)),) * 3),
        IntMx(1 << 16),
        IntMx(0, source_inserted=bytes(5)),
    ],
)
def test_values_that_do_not_fit_are_refused(value: Any) -> None:
    with pytest.raises(WireError):
        value.encode()


@pytest.mark.parametrize("size", [0, 11, 13])
def test_an_mx_header_of_a_wrong_length_is_refused(size: int) -> None:
    with pytest.raises(WireError, match="12 and whole words"):
        int_mx.decode(bytes(20), 0, size)


def test_only_an_option_of_ints_class_and_a_known_type_is_int() -> None:
    assert GeneveOption(0x0103, 1).int_type is IntType.MD
    assert GeneveOption(0x0103, 4).int_type is None
    assert GeneveOption(0x0104, 1).int_type is None


def test_probe_marker_is_64_bits_and_recognised_in_place() -> None:
    marker = 0xDEADBEEF_01020304
    data = probe_marker.encode(marker)
    assert data.hex() == "deadbeef01020304"
    assert probe_marker.decode(b"\0" + data, 1) == marker
    assert probe_marker.is_at(b"\0" + data, 1, marker)
    assert not probe_marker.is_at(data, 1, marker)
    assert not probe_marker.is_at(data, 0, None)
    for size in range(8):
        assert not probe_marker.is_at(data[:size], 0, marker)
        with pytest.raises(WireError):
            probe_marker.decode(data[:size], 0)
    with pytest.raises(WireError):
        probe_marker.encode(1 << 64)


@given(st.binary(max_size=64), st.sampled_from([case[0] for case in CASES]))
def test_any_bytes_decode_or_raise_wire_error(junk: bytes, decode: Decode) -> None:
    try:
        value = decode(junk, 0)
    except WireError:
        return
    assert decode(value.encode() + junk[value.size :], 0) == value
