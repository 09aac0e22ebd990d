"""Captures traffic at the ports' devices to capture files and the log, like bmv2's `--pcap`.

A packet socket besides the port's own sees a device's frames both ways (packet(7)), so forwarding is as fast as
without. When the capture falls behind, frames are missing in the files, and a line in the log gives their number.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import struct
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

from dataplane.clock import NS_PER_S
from dataplane.errors import PortError
from dataplane.linux import (
    PACKET_ADD_MEMBERSHIP,
    PACKET_MEMBERSHIP_PROMISCUOUS,
    PACKET_STATISTICS,
    SOL_PACKET,
    ask_receive_buffer,
)
from dataplane.nic.capture.pcap import PcapWriter
from dataplane.nic.layouts import ETHERTYPE_VLAN, TP_VLAN_VALID

_ETH_P_ALL: Final = 3
_OUTGOING: Final = 4
"""The packet type of outgoing frames (struct sockaddr_ll)."""
_AUXDATA: Final = 8
_TIMESTAMPNS: Final = 35
_AUXDATA_LAYOUT: Final = struct.Struct("=IIIHHHH")
"""struct tpacket_auxdata: status, length, kept, two offsets, VLAN tag, its type."""
_TIME_LAYOUT: Final = struct.Struct("=qq")
_ADDRESSES_BYTES: Final = 12
_LONGEST_FRAME: Final = 1 << 16
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(_AUXDATA_LAYOUT.size) + socket.CMSG_SPACE(_TIME_LAYOUT.size)
_BUFFER_BYTES: Final = 8 << 20
_AT_ONCE: Final = 256

logger = logging.getLogger("millrace.switch")


class Capture:
    """Captures the devices of ports while the `with` block lasts; raises PortError if it cannot begin.

    With a `folder`, frames go to DEVICE_in.pcap and DEVICE_out.pcap there; with `dump_bytes`, that many bytes of each
    go to the log. Outgoing frames include those that the kernel itself sends over a device.
    """

    def __init__(self, devices: Mapping[int, str], folder: Path | None, dump_bytes: int = 0) -> None:
        self._selector = selectors.DefaultSelector()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)
        with ExitStack() as stack:
            stack.callback(self._selector.close)
            self._taps = [stack.enter_context(_Tap(port, name, folder, dump_bytes)) for port, name in devices.items()]
            for tap in self._taps:
                self._selector.register(tap.socket, selectors.EVENT_READ, tap)
            woken, self._wake = os.pipe()
            stack.callback(os.close, woken)
            stack.callback(os.close, self._wake)
            self._selector.register(woken, selectors.EVENT_READ)
            self._stack = stack.pop_all()

    def __enter__(self) -> Capture:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write everything captured so far, and close."""
        self._stopped.set()
        os.write(self._wake, b"x")
        self._thread.join()
        self._stack.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for key, _ in self._selector.select():
                if isinstance(key.data, _Tap):
                    key.data.take()
        for tap in self._taps:
            while tap.take():
                pass


class _Tap:
    """One device's socket and files."""

    def __init__(self, port: int, device: str, folder: Path | None, dump_bytes: int) -> None:
        self._port, self._device, self._dump_bytes = port, device, dump_bytes
        self._files: tuple[PcapWriter, PcapWriter] | None = None
        self._stack = ExitStack()
        with ExitStack() as stack:
            self.socket = stack.enter_context(_open(device))
            if folder is not None:
                names = (f"{device}_in.pcap", f"{device}_out.pcap")
                coming, going = (stack.enter_context(PcapWriter(folder / name, nanoseconds=False)) for name in names)
                self._files = coming, going
            self._stack = stack.pop_all()
        self._flush()

    def __enter__(self) -> _Tap:
        return self

    def __exit__(self, *_: object) -> None:
        statistics = self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
        lost = int.from_bytes(statistics[4:8], "little")
        if lost:
            logger.warning(
                "port %d: %d frames of %s were not captured: too many arrived", self._port, lost, self._device
            )
        try:
            self._stack.close()
        except PortError as error:
            logger.warning("port %d: %s", self._port, error)

    def take(self) -> bool:
        """Take available frames, up to a limit; return whether there may be more."""
        taken = 0
        while taken < _AT_ONCE:
            try:
                frame, notes, _, address = self.socket.recvmsg(_LONGEST_FRAME, _ANCILLARY_BYTES)
            except BlockingIOError:
                break
            except OSError as error:  # the device went down, which the port itself reports
                logger.debug("port %d: %s", self._port, error)
                break
            self._note(*_whole(frame, notes), leaves=address[2] == _OUTGOING)
            taken += 1
        if taken:
            self._flush()
        return taken == _AT_ONCE

    def _note(self, frame: bytes, time_ns: int, *, leaves: bool) -> None:
        if self._dump_bytes:
            what = "Sending" if leaves else "Received"
            sample = frame[: self._dump_bytes].hex()
            logger.info("%s packet of length %d on port %d: %s", what, len(frame), self._port, sample)
        if self._files is not None:
            try:
                self._files[leaves].write(frame, time_ns)
            except PortError as error:
                self._give_up(error)

    def _flush(self) -> None:
        for file in self._files or ():
            try:
                file.flush()
            except PortError as error:
                self._give_up(error)

    def _give_up(self, error: PortError) -> None:
        logger.warning("port %d can no longer be captured: %s", self._port, error)
        self._files = None


def _open(device: str) -> socket.socket:
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    except OSError as error:
        raise PortError(f"interface {device} cannot be captured: {error.strerror}") from error
    try:
        ask_receive_buffer(opened, _BUFFER_BYTES)
        opened.setsockopt(SOL_PACKET, _AUXDATA, 1)
        opened.setsockopt(socket.SOL_SOCKET, _TIMESTAMPNS, 1)
        opened.bind((device, _ETH_P_ALL))
        index = socket.if_nametoindex(device)
        membership = struct.pack("=iHH8s", index, PACKET_MEMBERSHIP_PROMISCUOUS, 0, b"")
        opened.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, membership)
    except OSError as error:
        opened.close()
        raise PortError(f"interface {device} cannot be captured: {error.strerror}") from error
    return opened


def _whole(frame: bytes, notes: list[tuple[int, int, bytes]]) -> tuple[bytes, int]:
    """Return a frame with the VLAN tag that the kernel removed, and its time in nanoseconds since 1970."""
    time_ns = 0
    for level, kind, data in notes:
        if (level, kind) == (SOL_PACKET, _AUXDATA):
            status, _, _, _, _, tag, tag_type = _AUXDATA_LAYOUT.unpack(data)
            if status & TP_VLAN_VALID:
                head = struct.pack("!HH", tag_type or ETHERTYPE_VLAN, tag)
                frame = frame[:_ADDRESSES_BYTES] + head + frame[_ADDRESSES_BYTES:]
        elif (level, kind) == (socket.SOL_SOCKET, _TIMESTAMPNS):
            seconds, rest_ns = _TIME_LAYOUT.unpack(data)
            time_ns = seconds * NS_PER_S + rest_ns
    return frame, time_ns
