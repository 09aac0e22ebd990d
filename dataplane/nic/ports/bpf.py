"""The program that hands a device's frames to AF_XDP sockets: attached for this process's lifetime.

The program is `return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS)`. It is attached by a link whose
descriptor is ours: the kernel takes it off the device when that closes, however the process ends.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from dataplane.errors import PortError
from dataplane.linux.bpf import (
    CALL,
    EXIT,
    LINK_CREATE,
    LOAD_WORD,
    MAP_CREATE,
    MAP_UPDATE,
    SET,
    bpf,
    instruction,
    load_map,
    load_program,
)
from dataplane.nic.devices.device import Device, refusal

_MAP_TYPE_XSKMAP, _PROG_TYPE_XDP, _ATTACH_TYPE_XDP = 17, 6, 37
_REDIRECT_MAP, _PASS, _QUEUE_INDEX_OFFSET = 51, 2, 16
_HAS_FRAGMENTS = 1 << 5
_GENERIC_MODE, _DRIVER_MODE = 1 << 1, 1 << 2


class SocketProgram:
    """An XDP program on a device with the map of sockets that it fills; raises PortError."""

    def __init__(self, device: Device, queues: int) -> None:
        self._device = device
        self._descriptors: list[int] = []
        self.mode = ""
        """"driver" or "generic", once attached."""
        try:
            self._map = self._keep(bpf(MAP_CREATE, struct.pack("=IIII", _MAP_TYPE_XSKMAP, 4, 4, queues)))
            self._program = self._load()
        except OSError as error:
            self.close()
            raise refusal(device.name, "an XDP program", error) from error

    def add(self, queue: int, descriptor: int) -> None:
        """Give the frames of a device queue to a socket; raise PortError if the kernel refuses."""
        key, value = ctypes.c_uint32(queue), ctypes.c_uint32(descriptor)
        attributes = struct.pack("=IIQQQ", self._map, 0, ctypes.addressof(key), ctypes.addressof(value), 0)
        try:
            bpf(MAP_UPDATE, attributes)
        except OSError as error:
            raise refusal(self._device.name, f"queue {queue} for AF_XDP", error) from error

    def attach(self) -> None:
        """Attach the program to the device: in its driver if that can run it, else in front of the stack.

        Raises PortError if the kernel refuses.
        """
        try:
            try:
                self._link(_DRIVER_MODE)
                self.mode = "driver"
            except OSError as error:
                if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:
                    raise
                self._link(_GENERIC_MODE)
                self.mode = "generic"
        except OSError as error:
            if error.errno in {errno.EBUSY, errno.EEXIST}:
                raise PortError(f"interface {self._device.name}: another XDP program is on it") from error
            if error.errno == errno.ENOSPC:
                problem = "has fewer receive queues than its peer has transmit queues"
                raise PortError(f"interface {self._device.name}: {problem}, which XDP does not accept") from error
            raise refusal(self._device.name, "an XDP program", error) from error

    def close(self) -> None:
        """Detach the program from the device; a second call does nothing."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _load(self) -> int:
        code = b"".join(
            [
                instruction(LOAD_WORD, 2, 1, _QUEUE_INDEX_OFFSET),
                load_map(1, self._map),
                instruction(SET, 3, 0, 0, _PASS),
                instruction(CALL, 0, 0, 0, _REDIRECT_MAP),
                instruction(EXIT),
            ]
        )
        return self._keep(load_program(_PROG_TYPE_XDP, code, flags=_HAS_FRAGMENTS, attach_type=_ATTACH_TYPE_XDP))

    def _link(self, mode: int) -> None:
        words = struct.pack("=IIII", self._program, self._device.index, _ATTACH_TYPE_XDP, mode)
        self._keep(bpf(LINK_CREATE, words))

    def _keep(self, descriptor: int) -> int:
        self._descriptors.append(descriptor)
        return descriptor
