"""Captures of other programs: old packet blocks, frame check sequences, frames cut by a snap length, damaged ends."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from dataplane.errors import PortError
from dataplane.nic import Capture, PcapReader
from dataplane.nic.ports.memory_port import memory_pair
from dataplane.switch.attachments import CaptureFiles
from tests.foreign.bmv2_json import document, write
from tests.waiting import wait_until

FRAME = bytes.fromhex("020000000002 020000000001 88b5") + bytes(range(46))
FCS = bytes.fromhex("deadbeef")
TIME_NS = 5_000_001_000
UNITS = TIME_NS // 1000


def pcap(path: Path, *frames: tuple[bytes, int], link: int = 1) -> Path:
    """Write frames with their lengths on the wire."""
    data = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)
    for frame, length in frames:
        data += struct.pack("<IIII", 5, 1, len(frame), length) + frame
    path.write_bytes(data)
    return path


def block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + size + body + size


def pcapng(path: Path, *blocks: bytes, snap: int = 0, options: bytes = b"") -> Path:
    section = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    path.write_bytes(section + block(1, struct.pack("<HHI", 1, 0, snap) + options) + b"".join(blocks))
    return path


def enhanced(frame: bytes, length: int, options: bytes = b"") -> bytes:
    head = struct.pack("<IIIII", 0, 0, UNITS, len(frame), length)
    return block(6, head + frame + bytes(-len(frame) % 4) + options)


def read(path: Path) -> tuple[list[Capture], tuple[str, ...]]:
    with PcapReader(path) as reader:
        captures = list(reader)
        return captures, reader.left_out()


def test_obsolete_packet_blocks_are_read(tmp_path: Path) -> None:
    body = struct.pack("<HHIIII", 0, 7, 0, UNITS, len(FRAME), len(FRAME)) + FRAME
    assert read(pcapng(tmp_path / "f", block(2, body))) == ([Capture(FRAME, TIME_NS, len(FRAME))], ())


def test_unread_blocks_are_counted_and_said(tmp_path: Path) -> None:
    names, custom = block(4, bytes(4)), block(0xBAD, bytes(8))
    captures, left_out = read(pcapng(tmp_path / "f", names, custom, enhanced(FRAME, len(FRAME)), custom))
    assert [capture.frame for capture in captures] == [FRAME]
    assert left_out == (f"{tmp_path}/f: 2 blocks of type 0xbad, which may hold packets, are not read",)


@pytest.mark.parametrize("flags", [0x24000000, 0x2C000000, 0x24010000])
def test_pcap_frame_check_sequence_is_taken_off(tmp_path: Path, flags: int) -> None:
    whole, cut = (FRAME + FCS, len(FRAME) + 4), (FRAME[:20], len(FRAME) + 4)
    nearly = (FRAME + FCS[:2], len(FRAME) + 4)  # cut inside the sequence: the frame is whole
    without_length, tiny = (FRAME + FCS, 0), (b"\x01\x02", 2)
    captures, left_out = read(pcap(tmp_path / "f", whole, cut, nearly, without_length, tiny, link=flags | 1))
    assert [capture.frame for capture in captures] == [FRAME, FRAME[:20], FRAME, FRAME, b""]
    assert [capture.is_whole for capture in captures] == [True, False, True, True, True]
    assert left_out == (f"{tmp_path}/f: 1 of 5 frames are cut by a snap length",)


@pytest.mark.parametrize("flags", [0x00010000, 0x03FF0000, 0x08000000, 0x40000000])
def test_reserved_bits_of_the_link_type_are_ignored(tmp_path: Path, flags: int) -> None:
    captures, _ = read(pcap(tmp_path / "f", (FRAME, len(FRAME)), link=flags | 1))
    assert [capture.frame for capture in captures] == [FRAME]


@pytest.mark.parametrize("length", [32, 4])
def test_pcapng_interface_gives_the_sequences_length(tmp_path: Path, length: int) -> None:
    options = struct.pack("<HHBxxxHH", 13, 1, length, 0, 0)
    simple = block(3, struct.pack("<I", len(FRAME) + 4) + FRAME + FCS)
    captures, _ = read(pcapng(tmp_path / "f", enhanced(FRAME + FCS, len(FRAME) + 4), simple, options=options))
    assert [(capture.frame, capture.length) for capture in captures] == [(FRAME, len(FRAME))] * 2


def test_pcapng_packet_flags_give_the_sequences_length(tmp_path: Path) -> None:
    flags = struct.pack("<HHIHH", 2, 4, 4 << 5, 0, 0)
    captures, _ = read(pcapng(tmp_path / "f", enhanced(FRAME + FCS, len(FRAME) + 4, flags), enhanced(FRAME, 60)))
    assert [capture.frame for capture in captures] == [FRAME, FRAME]


def test_section_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 2, 1, -1)))
    with pytest.raises(PortError, match=r"f: at byte 0: pcapng version 2\.1 is not supported, only 1"):
        read(path)


def test_simple_packet_cut_by_the_snap_length(tmp_path: Path) -> None:
    captures, left_out = read(pcapng(tmp_path / "f", block(3, struct.pack("<I", 60) + FRAME[:20]), snap=20))
    assert (captures, captures[0].is_whole) == ([Capture(FRAME[:20], 0, 60)], False)
    assert left_out == (f"{tmp_path}/f: 1 of 1 frames are cut by a snap length",)


def replayed(source: Path, number: int) -> list[bytes]:
    """Return the frames that a port receives from a capture file, once as many as `number` are there."""
    near, far = memory_pair(("near", "far"), slots=64)
    files = CaptureFiles(far, source, source.with_suffix(".out"))
    frames: list[bytes] = []

    def received() -> bool:
        frames.extend(near.receive(64))
        return len(frames) >= number and files.has_ended

    wait_until(received)
    files.close()
    near.close()
    return frames


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the switch logged; on a busy machine the wait for it logs, too."""
    return [record.getMessage() for record in caplog.records if record.name == "millrace.switch"]


def test_port_takes_whole_frames_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = pcap(tmp_path / "f.pcap", (FRAME[:20], len(FRAME)), (FRAME, len(FRAME)))
    with caplog.at_level(logging.WARNING, "millrace.switch"):
        assert replayed(source, 1) == [FRAME]
    assert said(caplog) == [f"{source}: 1 of 2 frames are cut by a snap length: they are left out"]


def test_port_tells_where_its_capture_is_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = pcap(tmp_path / "f.pcap", (FRAME, len(FRAME)), (FRAME, len(FRAME)))
    source.write_bytes(source.read_bytes()[:-9])
    with caplog.at_level(logging.WARNING, "millrace.switch"):
        assert replayed(source, 1) == [FRAME]
    assert said(caplog) == [f"{source}: ends inside a frame, which begins at byte 116: it ends here"]


def test_trace_says_that_a_frame_is_cut(tmp_path: Path) -> None:
    capture = pcap(tmp_path / "f.pcap", (FRAME, len(FRAME)), (FRAME[:20], len(FRAME)))
    program = write(document(), tmp_path / "p.json")
    result = CliRunner().invoke(app, ["trace", str(program), f"@{capture}"])
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        f"millrace trace: {capture}: frame 2 is cut: 20 of 60 bytes; it is explained as if it ended there\n"
    )
