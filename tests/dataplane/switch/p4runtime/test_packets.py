"""Packet-in and packet-out: real bits, and errors of refused packets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from finsy.proto import p4i, p4r
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import ProgramError, SwitchError
from dataplane.switch.p4runtime import Code, P4RuntimeError
from dataplane.switch.p4runtime.packets import HeaderField, PacketHeader

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell


def header(*widths: int) -> PacketHeader:
    info = p4i.ControllerPacketMetadata(preamble=p4i.Preamble(name="packet_out"))
    for number, width in enumerate(widths, 1):
        info.metadata.add(id=number, name=f"field{number}", bitwidth=width)
    return PacketHeader("packet_out", [HeaderField(item.id, item.name, item.bitwidth) for item in info.metadata])


def fields(*values: bytes) -> list[p4r.PacketMetadata]:
    return [p4r.PacketMetadata(metadata_id=number, value=value) for number, value in enumerate(values, 1)]


def packet_out(payload: bytes, *values: bytes) -> p4r.StreamMessageRequest:
    return p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=payload, metadata=fields(*values)))


def test_fields_are_packed_from_the_most_significant_bit_on() -> None:
    assert header(9, 7).pack(fields(b"\x01\x01", b"\x05")) == bytes.fromhex("8085")
    assert header(9, 7).pack(fields(b"\x01", b"\x00")) == bytes.fromhex("0080")
    assert header(16, 1, 7).pack(reversed(fields(b"\xab\xcd", b"\x01", b"\x02"))) == bytes.fromhex("abcd82")


def test_unpack() -> None:
    packet = header(9, 7).unpack(bytes.fromhex("8085deadbeef"))
    assert packet == p4r.PacketIn(payload=bytes.fromhex("deadbeef"), metadata=fields(b"\x01\x01", b"\x05"))


@pytest.mark.parametrize("length", [0, 1])
def test_every_truncation(length: int) -> None:
    assert header(9, 7).unpack(bytes(length)) is None
    assert header(9, 7).unpack(bytes(2)) == p4r.PacketIn(metadata=fields(b"\x00", b"\x00"))


@given(st.binary(max_size=40))
def test_unpack_then_pack(data: bytes) -> None:
    layout = header(3, 13, 1, 31, 16)
    packet = layout.unpack(data)
    if len(data) < layout.length_bytes:
        assert packet is None
    else:
        assert packet is not None
        assert layout.pack(packet.metadata) + packet.payload == data


def test_a_program_without_header() -> None:
    layout = PacketHeader.none("packet_in")
    assert layout.unpack(b"abc") == p4r.PacketIn(payload=b"abc")
    assert layout.pack([]) == b""


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        (fields(b"\x01"), Code.INVALID_ARGUMENT),
        (fields(b"\x01", b"\x01", b"\x01"), Code.INVALID_ARGUMENT),
        ([*fields(b"\x01", b"\x01"), *fields(b"\x01")], Code.INVALID_ARGUMENT),
        (fields(b"\x02\x00", b"\x01"), Code.OUT_OF_RANGE),
        (fields(b"", b"\x01"), Code.OUT_OF_RANGE),
    ],
)
def test_refused_metadata(metadata: list[p4r.PacketMetadata], code: Code) -> None:
    with pytest.raises(P4RuntimeError, match="packet_out") as caught:
        header(9, 7).pack(metadata)
    assert caught.value.code is code


def test_padding_that_only_the_program_has_comes_last() -> None:
    assert header(9).pack(fields(b"\x01\x01")) == bytes.fromhex("8080")
    packet = header(9).unpack(bytes.fromhex("80ffdeadbeef"))
    assert packet == p4r.PacketIn(payload=bytes.fromhex("deadbeef"), metadata=fields(b"\x01\x01"))


def test_fields_have_bits() -> None:
    with pytest.raises(ProgramError, match="packet_out: field field2 has 0 bits"):
        header(9, 0, 7)


def test_packet_out(shell: Shell, switch: FakeSwitch) -> None:
    shell.session.handle(packet_out(b"\xaa\xbb", b"\x01\x02", b"\x00"))
    assert switch.packets_out == [bytes.fromhex("8100aabb")]
    assert len(shell.received) == 1  # only the answer to arbitration


def test_a_bad_packet_out_is_answered_with_the_packet(shell: Shell, switch: FakeSwitch) -> None:
    shell.session.handle(packet_out(b"\xaa", b"\x01"))
    error = shell.received[-1].error
    assert error.canonical_code == Code.INVALID_ARGUMENT
    assert "pad" in error.message
    assert error.packet_out.packet_out.payload == b"\xaa"
    assert not switch.packets_out
    assert shell.core.drops["packet_out_refused"] == 1


def test_a_backup_may_not_send_packets(shell: Shell, switch: FakeSwitch) -> None:
    received: list[p4r.StreamMessageResponse] = []
    shell.connect(0, received).handle(packet_out(b"\xaa", b"\x01", b"\x00"))
    assert received[-1].error.canonical_code == Code.PERMISSION_DENIED
    assert not switch.packets_out


def test_a_switch_that_cannot_take_a_packet(shell: Shell, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(payload: bytes) -> None:
        raise SwitchError("no CPU port")

    monkeypatch.setattr(switch, "packet_out", refuse)
    shell.session.handle(packet_out(b"\xaa", b"\x01", b"\x00"))
    assert shell.received[-1].error.message == "no CPU port"


def test_packet_in_goes_to_every_roles_primary(shell: Shell, switch: FakeSwitch) -> None:
    backup: list[p4r.StreamMessageResponse] = []
    other_role: list[p4r.StreamMessageResponse] = []
    shell.connect(0, backup)
    shell.connect(5, other_role, role="other")
    switch.packet_in(bytes.fromhex("0080cafe"))
    packet = p4r.PacketIn(payload=b"\xca\xfe", metadata=fields(b"\x01", b"\x00"))
    assert shell.received[-1].packet == other_role[-1].packet == packet
    assert all(message.HasField("arbitration") for message in backup)


def test_packets_in_that_reach_nobody_are_counted(shell: Shell, switch: FakeSwitch) -> None:
    switch.packet_in(b"\x00")
    shell.session.close()
    switch.packet_in(bytes(4))
    assert shell.core.drops["packet_in_too_short"] == 1
    assert shell.core.drops["packet_in_no_primary"] == 1


def test_other_messages(shell: Shell) -> None:
    shell.session.handle(p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=3)))
    assert shell.received[-1].error.canonical_code == Code.INVALID_ARGUMENT
    assert shell.received[-1].error.digest_list_ack.digest_list_ack.digest_id == 3
    other = p4r.StreamMessageRequest()
    other.other.type_url = "x"
    shell.session.handle(other)
    assert shell.received[-1].error.canonical_code == Code.UNIMPLEMENTED
    shell.session.handle(p4r.StreamMessageRequest())  # of a newer client, and it is the primary still
    assert shell.received[-1].error.canonical_code == Code.UNIMPLEMENTED
    shell.session.handle(p4r.StreamMessageRequest.FromString(b"\xfa\x01\x01x"))
    assert shell.received[-1].error.canonical_code == Code.UNIMPLEMENTED
    shell.insert(shell.member("next_hops", 1, shell.action("drop")))
