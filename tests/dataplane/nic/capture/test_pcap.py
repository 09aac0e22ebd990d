"""Capture files: exact bytes, round trips, both byte orders, and every way of being damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import PortError
from dataplane.nic import Capture, PcapReader, PcapWriter

FRAME = bytes.fromhex("020000000002 020000000001 88b5") + bytes(range(46))
TIME_NS = 1_700_000_000_123_456_789
frames = st.lists(st.tuples(st.binary(max_size=200), st.integers(0, (1 << 32) * 10**9 - 1)), max_size=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


def read(path: Path) -> list[Capture]:
    with PcapReader(path) as reader:
        return list(reader)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def classic(order: str, magic: int, fraction: int, *, link: int = 1) -> bytes:
    header = struct.pack(order + "IHHIIII", magic, 2, 4, 0, 0, 65535, link)
    return header + struct.pack(order + "IIII", TIME_NS // 10**9, fraction, len(FRAME), 1514) + FRAME


def block(order: str, kind: int, body: bytes) -> bytes:
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + size + body + size


def section(order: str) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(order: str, options: bytes = b"", *, link: int = 1) -> bytes:
    return block(order, 1, struct.pack(order + "HHI", link, 0, 0) + options)


def enhanced(order: str, number: int, units: int) -> bytes:
    head = struct.pack(order + "IIIII", number, units >> 32, units & 0xFFFFFFFF, len(FRAME), 1514)
    return block(order, 6, head + FRAME + bytes(-len(FRAME) % 4))


def next_generation(order: str) -> bytes:
    nanoseconds = struct.pack(order + "HHB3xHHqHH", 9, 1, 9, 14, 8, 5, 0, 0)
    return b"".join(
        [
            section(order) + interface(order) + interface(order, nanoseconds),
            block(order, 0xBAD, b"who knows..."),
            enhanced(order, 0, TIME_NS // 1000) + enhanced(order, 1, TIME_NS - 5 * 10**9),
            block(order, 3, struct.pack(order + "I", len(FRAME)) + FRAME),
        ]
    )


@pytest.mark.parametrize("order", ["<", ">"])
def test_classic_files_of_both_orders_and_units(tmp_path: Path, order: str) -> None:
    nanoseconds = write(tmp_path / "ns", classic(order, 0xA1B23C4D, 123_456_789))
    microseconds = write(tmp_path / "us", classic(order, 0xA1B2C3D4, 123_456))
    assert read(nanoseconds) == [Capture(FRAME, TIME_NS, 1514)]
    assert read(microseconds) == [Capture(FRAME, TIME_NS // 1000 * 1000, 1514)]
    assert not read(nanoseconds)[0].is_whole


@pytest.mark.parametrize("orders", ["<", ">", "<>"])
def test_next_generation_files(tmp_path: Path, orders: str) -> None:
    path = write(tmp_path / "ng", b"".join(map(next_generation, orders)))
    assert read(path) == [
        Capture(FRAME, TIME_NS // 1000 * 1000, 1514),
        Capture(FRAME, TIME_NS, 1514),
        Capture(FRAME, 0, len(FRAME)),
    ] * len(orders)


@given(frames=frames, nanoseconds=st.booleans())
def test_what_was_written_is_read(folder: Path, frames: list[tuple[bytes, int]], nanoseconds: bool) -> None:
    path = folder / "round-trip.pcap"
    with PcapWriter(path, nanoseconds=nanoseconds) as writer:
        for frame, time_ns in frames:
            writer.write(frame, time_ns)
    unit_ns = 1 if nanoseconds else 1000
    assert read(path) == [Capture(frame, time_ns // unit_ns * unit_ns, len(frame)) for frame, time_ns in frames]


@pytest.mark.parametrize("data", [classic("<", 0xA1B23C4D, 5) + classic(">", 0xA1B23C4D, 5)[24:], next_generation(">")])
def test_truncation_is_reported_or_ends_between_frames(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "cut"
    whole: set[int] = set()
    for length in range(len(data)):
        write(path, data[:length])
        try:
            read(path)
            whole.add(length)
        except PortError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
    assert len(whole) < 8


@given(data=st.data())
def test_no_bytes_whatever_do_more_than_raise(folder: Path, data: st.DataObject) -> None:
    original = data.draw(st.sampled_from([classic("<", 0xA1B2C3D4, 5), next_generation("<"), next_generation(">")]))
    mangled = bytearray(original)
    for position in data.draw(st.lists(st.integers(0, len(original) - 1), max_size=4)):
        mangled[position] = data.draw(st.integers(0, 255))
    try:
        for capture in read(write(folder / "mangled", bytes(mangled))):
            assert len(capture.frame) <= len(mangled)
    except PortError as error:
        assert str(error).startswith(f"{folder}/mangled: ")  # noqa: PT017


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", r"ends inside the magic number, which begins at byte 0"),
        (b"GIF89a", r"not a capture file: it begins with 47494638"),
        (classic("<", 0xA1B23C4D, 5)[:30], r"ends inside a frame's header at byte 24"),
        (classic("<", 0xA1B23C4D, 5)[:-1], r"ends inside a frame, which begins at byte 40"),
        (classic("<", 0xA1B23C4D, 5, link=101), r"link type 101 is not supported, only 1 \(Ethernet\)"),
        (struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 3, 0, 0, 0, 1), r"pcap version 2\.3 is not supported, only 2\.4"),
        (classic("<", 0xA1B2C3D4, 5)[:24] + b"\xff" * 16, r"impossible frame of 4294967295 bytes at byte 24"),
        (section("<") + enhanced("<", 0, 0), r"at byte 28: a frame of interface 0, which has no description"),
        (section("<") + interface("<", link=113) + enhanced("<", 0, 0), r"at byte 48: link type 113 is not supported"),
        (section("<")[:-1] + b"\x01", r"at byte 0: a block's two lengths differ: the file is damaged"),
        (section("<") + b"\x06\0\0\0\x0d\0\0\0", r"at byte 28: impossible block of 13 bytes: the file is damaged"),
    ],
)
def test_damage_is_named(tmp_path: Path, data: bytes, problem: str) -> None:
    path = write(tmp_path / "damaged", data)
    with pytest.raises(PortError, match=rf"^{path}: {problem}"):
        read(path)


def test_files_that_cannot_be_opened_or_written(tmp_path: Path) -> None:
    with pytest.raises(PortError, match=r"none: No such file or directory$"):
        PcapReader(tmp_path / "none")
    with pytest.raises(PortError, match=r"Is a directory$"):
        PcapWriter(tmp_path)
    with PcapWriter(tmp_path / "out.pcap") as writer:
        with pytest.raises(PortError, match=r"a frame of 1 bytes at -1 ns cannot be written$"):
            writer.write(b"x", -1)
        with pytest.raises(PortError, match=r"a frame of 300000 bytes at 0 ns cannot be written$"):
            writer.write(bytes(300_000), 0)


def test_a_full_disk_is_told() -> None:
    writer = PcapWriter("/dev/full")
    writer.write(FRAME, TIME_NS)
    with pytest.raises(PortError, match=r"^/dev/full: No space left on device$"):
        writer.flush()
    with pytest.raises(PortError, match=r"^/dev/full: No space left on device$"):
        writer.close()
