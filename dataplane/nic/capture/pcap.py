"""Capture files: writes classic pcap, reads pcap and pcapng, one frame at a time (draft-ietf-opsawg-pcap, -pcapng).

Classic pcap: a header of 24 bytes (magic number, version 2.4, two unused words, longest frame, link type), then for
each frame 16 bytes (seconds, fraction, captured bytes, original bytes) and the captured bytes. The magic number gives
the byte order and whether the fraction is in microseconds or nanoseconds. The upper half of the link type's word is
flags: whether frames end with a frame check sequence, and its length.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from dataplane.clock import NS_PER_S
from dataplane.errors import PortError
from dataplane.given import MIB, MOST_BYTES, open_given
from dataplane.nic.capture.pcapng import SECTION_MAGIC, read_pcapng, without_fcs

ETHERNET_LINK = 1
MAGIC_US, MAGIC_NS = 0xA1B2C3D4, 0xA1B23C4D
LONGEST_FRAME_BYTES = 1 << 18
_FRACTION_NS = {MAGIC_US: 1000, MAGIC_NS: 1}
_VERSION = (2, 4)
_LINK_MASK = 0xFFFF
_FCS_FLAG = 1 << 26
_FCS_SHIFT, _FCS_UNIT_BYTES = 28, 2


@dataclass(frozen=True, slots=True)
class Capture:
    """One captured frame without FCS: its bytes, nanoseconds since 1970, and its length on the wire in bytes."""

    frame: bytes
    time_ns: int
    length: int

    @property
    def is_whole(self) -> bool:
        """Return whether the file contains the whole frame."""
        return len(self.frame) >= self.length


class PcapReader:
    """Iterates over the Ethernet frames of a capture file, reading as it goes.

    `left_out` says what of the part read so far did not become whole frames.

    Raises PortError naming the file, the problem and its byte: on opening if the file is no Ethernet capture, later
    where the file is damaged or ends inside a frame.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._frames_read = self._cut_frames = 0
        self._unread: Counter[int] = Counter()
        try:
            self._file: BinaryIO = _opened(self.path)
        except OSError as error:
            raise PortError(f"{self.path}: {error.strerror}") from error
        try:
            self._captures = self._begin()
        except PortError:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[Capture]:
        return self

    def __next__(self) -> Capture:
        capture = next(self._captures)
        self._frames_read += 1
        self._cut_frames += not capture.is_whole
        return capture

    def left_out(self) -> tuple[str, ...]:
        """Return a line for each kind of thing that the file holds and that could not be read whole."""
        cut = f"{self.path}: {self._cut_frames} of {self._frames_read} frames are cut by a snap length"
        return (*self.unread(), cut) if self._cut_frames else self.unread()

    def unread(self) -> tuple[str, ...]:
        """Return a line for each type of blocks that may hold packets and were skipped."""
        return tuple(
            f"{self.path}: {number} blocks of type {kind:#x}, which may hold packets, are not read"
            for kind, number in sorted(self._unread.items())
        )

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._file.close()

    def __enter__(self) -> PcapReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> Iterator[Capture]:
        magic = self._take(4, "the magic number")
        if int.from_bytes(magic, "big") == SECTION_MAGIC:
            return (Capture(*fields) for fields in read_pcapng(self._file, str(self.path), self._unread))
        for order in "<>":
            (number,) = struct.unpack(order + "I", magic)
            if number in _FRACTION_NS:
                return self._read(order, _FRACTION_NS[number])
        raise PortError(f"{self.path}: not a capture file: it begins with {magic.hex()}")

    def _read(self, order: str, fraction_ns: int) -> Iterator[Capture]:
        header = self._take(20, "the file's header")
        major, minor, _, _, _, link = struct.unpack(order + "HHIIII", header)
        if (major, minor) != _VERSION:
            raise PortError(f"{self.path}: pcap version {major}.{minor} is not supported, only 2.4")
        if link & _LINK_MASK != ETHERNET_LINK:
            raise PortError(f"{self.path}: link type {link & _LINK_MASK} is not supported, only 1 (Ethernet)")
        fcs_bytes = (link >> _FCS_SHIFT) * _FCS_UNIT_BYTES if link & _FCS_FLAG else 0
        return self._frames(struct.Struct(order + "IIII"), fraction_ns, fcs_bytes)

    def _frames(self, layout: struct.Struct, fraction_ns: int, fcs_bytes: int) -> Iterator[Capture]:
        while True:
            start = self._file.tell()
            header = self._file.read(layout.size)
            if not header:
                return
            if len(header) < layout.size:
                raise PortError(f"{self.path}: ends inside a frame's header at byte {start}")
            seconds, fraction, kept, length = layout.unpack(header)
            if kept > LONGEST_FRAME_BYTES:
                raise PortError(f"{self.path}: impossible frame of {kept} bytes at byte {start}: the file is damaged")
            frame, length = without_fcs(self._take(kept, "a frame"), length, fcs_bytes)
            yield Capture(frame, seconds * NS_PER_S + fraction * fraction_ns, length)

    def _take(self, nbytes: int, what: str) -> bytes:
        start = self._file.tell()
        data = self._file.read(nbytes)
        if len(data) < nbytes:
            raise PortError(f"{self.path}: ends inside {what}, which begins at byte {start}")
        return data


def _opened(path: Path) -> BinaryIO:
    """Open a capture for reading; a pipe, which cannot be read twice, is read into memory, up to a limit."""
    file = open_given(path)
    if file.seekable():
        return file
    with file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise PortError(f"{path}: is a pipe with more than {MOST_BYTES // MIB} MiB, the most that is read from one")
    return BytesIO(content)


class PcapWriter:
    """Writes Ethernet frames to a classic pcap file, in this machine's byte order; raises PortError.

    `nanoseconds` False writes microseconds, for programs that know no other files.
    """

    def __init__(self, path: Path | str, *, nanoseconds: bool = True) -> None:
        self.path = Path(path)
        magic = MAGIC_NS if nanoseconds else MAGIC_US
        self._fraction_ns = _FRACTION_NS[magic]
        try:
            self._file: BinaryIO = self.path.open("wb")
            self._file.write(struct.pack("=IHHIIII", magic, *_VERSION, 0, 0, LONGEST_FRAME_BYTES, ETHERNET_LINK))
        except OSError as error:
            raise PortError(f"{self.path}: {error.strerror}") from error

    def write(self, frame: bytes, time_ns: int) -> None:
        """Append a frame seen at `time_ns`, in nanoseconds since 1970, before 2106."""
        seconds, rest_ns = divmod(time_ns, NS_PER_S)
        if not 0 <= seconds < 1 << 32 or len(frame) > LONGEST_FRAME_BYTES:
            raise PortError(f"{self.path}: a frame of {len(frame)} bytes at {time_ns} ns cannot be written")
        head = struct.pack("=IIII", seconds, rest_ns // self._fraction_ns, len(frame), len(frame))
        try:
            self._file.write(head + frame)
        except OSError as error:
            raise PortError(f"{self.path}: {error.strerror}") from error

    def flush(self) -> None:
        """Flush written frames to the file."""
        try:
            self._file.flush()
        except OSError as error:
            raise PortError(f"{self.path}: {error.strerror}") from error

    def close(self) -> None:
        """Write buffered frames and close the file; a second call does nothing."""
        try:
            self._file.close()
        except OSError as error:
            raise PortError(f"{self.path}: {error.strerror}") from error

    def __enter__(self) -> PcapWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
