"""Packets as messages in place of devices, like bmv2's `--packet-in ADDRESS`: one program serves all ports.

The messages go over a listening nanomsg PAIR socket (ipc://PATH or tcp://HOST:PORT; its wire protocol is in sp.py).
Each begins with three numbers of 32 bits in the machine's byte order: type, port, and the length of the packet that
follows (src/bm_sim/dev_mgr_packet_in.cpp of behavioral-model).
"""

from __future__ import annotations

import enum
import logging
import os
import selectors
import struct
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Final

from dataplane.nic import NicPort
from dataplane.switch.drop_in.sp import PairListener

HEAD: Final = struct.Struct("=iii")
_STATUS: Final = struct.Struct("=i")
_NOT_SUPPORTED: Final = 1
_BURST: Final = 64

logger = logging.getLogger("millrace.switch")


class Kind(enum.IntEnum):
    """Types of messages; the first three change nothing here: a port is what `-i` names, and up."""

    PORT_ADD = 0
    PORT_REMOVE = 1
    PORT_SET_STATUS = 2
    PACKET_IN = 3
    PACKET_OUT = 4
    INFO_REQ = 5
    INFO_REP = 6


class PacketIn:
    """Carries packets between a socket and the far ends of ports' cables while the `with` block lasts.

    Raises PortError for an address at which nothing can listen. Packets for ports that do not exist, and those that
    nobody takes, are counted in `dropped`, and the log reports them at the end.
    """

    def __init__(self, address: str, ends: Mapping[int, NicPort]) -> None:
        self.dropped = 0
        self._ends = ends
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="packet-in", daemon=True)
        with ExitStack() as stack:
            self._selector = stack.enter_context(selectors.DefaultSelector())
            self._socket = PairListener(address, self._selector, self._take)
            stack.callback(self._socket.close)
            woken, self._wake = os.pipe()
            stack.callback(os.close, woken)
            stack.callback(os.close, self._wake)
            self._selector.register(woken, selectors.EVENT_READ, self._stopped.is_set)
            for port, end in ends.items():
                self._selector.register(end.fileno(), selectors.EVENT_READ, _Sender(self, port, end).send)
            self._stack = stack.pop_all()

    def __enter__(self) -> PacketIn:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        os.write(self._wake, b"x")
        self._thread.join()
        self._stack.close()
        if self.dropped:
            logger.warning("--packet-in: %d packets were dropped: unknown port, or no receiver", self.dropped)

    def send(self, port: int, frame: bytes) -> None:
        """Send packets that left by a port; count those without a receiver."""
        self.dropped += not self._socket.send(HEAD.pack(Kind.PACKET_OUT, port, len(frame)) + frame)

    def _run(self) -> None:
        while not self._stopped.is_set():
            for key, _ in self._selector.select():
                key.data()

    def _take(self, message: bytes) -> None:
        """Handle a message; a malformed one is dropped, and counted as a packet."""
        if len(message) < HEAD.size:
            self.dropped += 1
            return
        kind, port, more = HEAD.unpack_from(message)
        if kind == Kind.PACKET_IN:
            frame, end = message[HEAD.size :], self._ends.get(port)
            self.dropped += end is None or len(frame) != more or end.send([frame]) != 1
        elif kind == Kind.INFO_REQ:
            self._socket.send(HEAD.pack(Kind.INFO_REP, port, more) + _STATUS.pack(_NOT_SUPPORTED))


class _Sender:
    """Sender of one port's packets."""

    def __init__(self, target: PacketIn, port: int, end: NicPort) -> None:
        self._target, self._port, self._end = target, port, end

    def send(self) -> None:
        for frame in self._end.receive(_BURST):
            self._target.send(self._port, frame)
