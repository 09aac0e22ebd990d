"""Frames for the flow classifier: few values, so that rules match and flows recur, then cut and mangled."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from hypothesis import strategies as st

MACS = ("020000000001", "020000000002", "0200000000ff")
IPV4 = ("10.0.0.1", "10.0.0.2", "10.128.0.1", "192.168.1.7")
IPV6 = ("2001:db8::1", "2001:db8::2", "2001:db8:ffff::1", "fe80::1")
PORTS = (0, 1, 53, 80, 255, 256, 32766, 65535)


@st.composite
def transports(draw: st.DrawFn, protocol: int) -> bytes:
    """Return a UDP or TCP segment, or some bytes."""
    ports = b"".join(draw(st.sampled_from(PORTS)).to_bytes(2, "big") for _ in range(2))
    if protocol == 17:
        return ports + bytes(4) + draw(st.binary(max_size=8))
    if protocol == 6:
        return ports + bytes(9) + bytes([draw(st.integers(0, 255))]) + bytes(6) + draw(st.binary(max_size=8))
    return draw(st.binary(max_size=24))


@st.composite
def ipv4_packets(draw: st.DrawFn) -> bytes:
    """Return an IPv4 packet, often right."""
    protocol = draw(st.sampled_from((6, 17, 17, 1, 44)))
    options = draw(st.sampled_from((0, 0, 1, 10)))
    payload: bytes = draw(transports(protocol))
    header_words = draw(st.sampled_from((5 + options,) * 4 + (4, 15)))
    total: int = draw(st.sampled_from((20 + 4 * options + len(payload),) * 4 + (0, 19, 24, 65535)))
    fragment = draw(st.sampled_from((0, 0x4000, 0x4000, 0x2000, 0x0001, 0x8000)))
    source, destination = (IPv4Address(draw(st.sampled_from(IPV4))).packed for _ in range(2))
    head = bytes([0x40 | header_words, draw(st.integers(0, 255))]) + total.to_bytes(2, "big") + bytes(2)
    head += fragment.to_bytes(2, "big") + bytes([draw(st.integers(0, 255)), protocol]) + bytes(2)
    return head + source + destination + bytes(4 * options) + payload


@st.composite
def extensions(draw: st.DrawFn, last: int) -> tuple[int, bytes]:
    """Return the first next-header of a chain of extension headers, and the chain, in front of a protocol."""
    chain = b""
    following = last
    for kind in draw(st.lists(st.sampled_from((0, 43, 44, 51, 60, 60)), max_size=10)):
        if kind == 44:
            header = bytes([following, 0]) + draw(st.sampled_from((0, 0, 6, 1, 8, 0x100))).to_bytes(2, "big") + bytes(4)
        elif kind == 51:
            words = draw(st.sampled_from((1, 2, 4)))
            header = bytes([following, words]) + bytes((words + 2) * 4 - 2)
        else:
            units = draw(st.sampled_from((0, 0, 1)))
            header = bytes([following, units]) + bytes(units * 8 + 6)
        chain, following = header + chain, kind
    return following, chain


@st.composite
def ipv6_packets(draw: st.DrawFn) -> bytes:
    """Return an IPv6 packet, often right."""
    protocol = draw(st.sampled_from((6, 17, 17, 58, 59)))
    first, chain = draw(extensions(protocol))
    payload: bytes = chain + draw(transports(protocol))
    length: int = draw(st.sampled_from((len(payload),) * 4 + (0, 7, 65535)))
    source, destination = (IPv6Address(draw(st.sampled_from(IPV6))).packed for _ in range(2))
    word = draw(st.sampled_from((6, 6, 6, 4))) << 28 | draw(st.integers(0, 255)) << 20
    return word.to_bytes(4, "big") + length.to_bytes(2, "big") + bytes([first, 64]) + source + destination + payload


@st.composite
def whole_frames(draw: st.DrawFn) -> bytes:
    """Return a frame with up to three tags."""
    frame = bytes.fromhex(draw(st.sampled_from(MACS)) + draw(st.sampled_from(MACS)))
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2, 3)))):
        frame += bytes.fromhex(draw(st.sampled_from(("8100", "88a8", "9100"))))
        frame += draw(st.sampled_from((0, 5, 0x1FFF, 0xE005))).to_bytes(2, "big")
    kind = draw(st.sampled_from(("0800", "0800", "86dd", "0806")))
    packet = draw({"0800": ipv4_packets(), "86dd": ipv6_packets(), "0806": st.binary(max_size=46)}[kind])
    return frame + bytes.fromhex(kind) + packet + draw(st.sampled_from((b"", b"", b"\0" * 20)))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Return a frame that may be cut anywhere, or have some bytes changed."""
    frame = bytearray(draw(whole_frames()))
    match draw(st.sampled_from(("whole", "whole", "cut", "mangled"))):
        case "cut":
            del frame[draw(st.integers(0, len(frame))) :]
        case "mangled":
            for index, octet in draw(
                st.lists(st.tuples(st.integers(0, len(frame) - 1), st.integers(0, 255)), max_size=4)
            ):
                frame[index] = octet
    return bytes(frame)
