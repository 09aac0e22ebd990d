"""Reading of a socket's datagrams, many per system call (recvmmsg(2)); coalesced datagrams are split."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collectors.decode.payloads import Payloads
from collectors.native.receive_state import CONTROL_BYTES, MESSAGE_BYTES, MESSAGES, NAME_BYTES, STRIDE_BYTES
from collectors.native.reception import sender
from dataplane.clock import NS_PER_S
from dataplane.nic.layouts import InputOutputVector, MessageHeader

_ENTRY_BYTES: Final = 24
"""A struct cmsghdr of 16 bytes and 4 of data, aligned."""
_SEGMENT: Final = 17, 104
"""UDP_GRO, by level and kind."""
_CONTROL = np.dtype([("nbytes", "u8"), ("level", "i4"), ("kind", "i4"), ("number", "u4"), ("gap", "u4")])
_NAME4 = np.dtype({"names": ["address"], "formats": [">u4"], "offsets": [4], "itemsize": NAME_BYTES})
_NAME6 = np.dtype(
    {"names": ["prefix", "address"], "formats": [(">u4", 3), ">u4"], "offsets": [8, 20], "itemsize": NAME_BYTES}
)
"""Layout of struct sockaddr_in and sockaddr_in6, as far as they hold an IPv4 address."""
_MAPPED: Final = 0, 0, 0xFFFF
"""Prefix of an IPv4 address mapped into IPv6 (RFC 4291, 2.5.5.2)."""
_STAMP_OF_NEWEST: Final = 0x8907
"""SIOCGSTAMPNS: when the datagram came that was read last, by CLOCK_REALTIME; in struct timespec (socket(7))."""
_STAMP: Final = struct.Struct("qq")
_libc = ctypes.CDLL(None, use_errno=True)


class DatagramVector:
    """Buffers that a socket is read into; what `receive` returns is good until the next call."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._data = np.zeros(MESSAGES * STRIDE_BYTES, np.uint8)
        self._names = np.zeros((MESSAGES, NAME_BYTES), np.uint8)
        self._controls = np.zeros((MESSAGES, CONTROL_BYTES), np.uint8)
        self._pieces = np.zeros(MESSAGES, np.dtype(InputOutputVector))
        self._headers = np.zeros(MESSAGES, np.dtype(MessageHeader))
        numbers = np.arange(MESSAGES, dtype=np.uint64)
        self._starts = numbers * np.uint64(STRIDE_BYTES)
        self._pieces["base"] = np.uint64(self._data.ctypes.data) + self._starts
        self._pieces["nbytes"] = MESSAGE_BYTES
        self._headers["name"] = np.uint64(self._names.ctypes.data) + numbers * np.uint64(NAME_BYTES)
        self._headers["vector"] = np.uint64(self._pieces.ctypes.data) + numbers * np.uint64(16)
        self._headers["vector_count"] = 1
        self._headers["control"] = np.uint64(self._controls.ctypes.data) + numbers * np.uint64(CONTROL_BYTES)
        self._senders4 = self._names.view(_NAME4)[:, 0]["address"]
        self.cut = 0

    def stamp_ns(self) -> int | None:
        """Return the arrival time of the newest datagram read, in ns since 1970; None if the kernel has no stamp.

        The kernel stamps datagrams once it has been asked for a stamp. This costs one system call for all datagrams
        read; a stamp with each of them (SO_TIMESTAMPNS) would cost 8 % of reading them.
        """
        try:
            seconds, more_ns = _STAMP.unpack(fcntl.ioctl(self._socket.fileno(), _STAMP_OF_NEWEST, bytes(_STAMP.size)))
        except OSError:
            return None
        return int(seconds * NS_PER_S + more_ns)

    def receive(self, most: int = MESSAGES) -> Payloads | None:
        """Return the datagrams available, None if there are none.

        They are those of at most `most` messages, each of which the kernel may have coalesced from several.
        """
        self._headers["name_bytes"], self._headers["control_bytes"] = NAME_BYTES, CONTROL_BYTES
        count = _libc.recvmmsg(
            self._socket.fileno(),
            ctypes.c_void_p(self._headers.ctypes.data),
            min(most, MESSAGES),
            socket.MSG_DONTWAIT,
            None,
        )
        if count <= 0:
            return None
        headers = self._headers[:count]
        segments = self._read_controls(headers["control_bytes"])
        lengths = headers["length"].astype(np.uint32)
        cut = (headers["flags"] & socket.MSG_TRUNC) != 0
        self.cut += int(np.count_nonzero(cut))
        joined = (segments > 0) & (segments < lengths) & ~cut
        lengths = np.where(cut, 0, lengths).astype(np.uint32)
        payloads = Payloads(self._data, self._starts[:count], lengths, self._source, addresses=self._addresses(count))
        return (
            self._take_apart(payloads, np.where(joined, segments, np.maximum(lengths, 1))) if joined.any() else payloads
        )

    def _addresses(self, count: int) -> NDArray[np.uint32]:
        """Return the IPv4 addresses that messages came from, 0 for those from IPv6."""
        if self._socket.family == socket.AF_INET:
            return self._senders4[:count].astype(np.uint32)
        names = self._names.view(_NAME6)[:count, 0]
        mapped = (names["prefix"] == _MAPPED).all(axis=1)
        return np.where(mapped, names["address"], 0).astype(np.uint32)

    def _take_apart(self, whole: Payloads, segments: np.ndarray) -> Payloads:
        """Return the datagrams that messages are made of: all of a message but the last are of its segments' size."""
        lengths = whole.lengths
        parts = np.maximum(-(-lengths.astype(np.int64) // segments), 1)
        message = np.repeat(np.arange(len(parts)), parts)
        number = np.arange(len(message)) - np.repeat(np.cumsum(parts) - parts, parts)
        begins = number * segments[message]
        places = self._starts[message] + begins.astype(np.uint64)
        sizes = np.minimum(segments[message], lengths[message] - begins).astype(np.uint32)
        addresses = None if whole.addresses is None else whole.addresses[message]
        return replace(
            whole,
            places=places,
            lengths=sizes,
            source_of=lambda payload: self._source(int(message[payload])),
            addresses=addresses,
        )

    def _read_controls(self, nbytes: np.ndarray) -> np.ndarray:
        """Return the size of each message's segments, 0 for one datagram."""
        segments = np.zeros(len(nbytes), np.int64)
        if not nbytes.any():  # the usual case: the kernel adds control data only to coalesced datagrams
            return segments
        entry = self._controls[: len(nbytes), :_ENTRY_BYTES].reshape(-1).view(_CONTROL)
        is_segment = nbytes >= _ENTRY_BYTES - 4
        is_segment &= (entry["level"] == _SEGMENT[0]) & (entry["kind"] == _SEGMENT[1])
        segments[is_segment] = entry["number"][is_segment]
        return segments

    def _source(self, message: int) -> object:
        """Return address and port of a message's sender."""
        return sender(self._names[message].tobytes())
