"""The program that hands a device's frames to AF_XDP sockets: bpf(2) by hand, attached for as long as we live.

The program is `return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS)`. It hangs on a link whose
descriptor is ours: the kernel takes it off the device when that closes, however the process ends.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from dataplane.errors import PortError
from dataplane.nic.devices.device import Device, refusal

_SYSCALL_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_MAP_CREATE, _MAP_UPDATE, _PROG_LOAD, _LINK_CREATE = 0, 2, 5, 28
_MAP_TYPE_XSKMAP, _PROG_TYPE_XDP, _ATTACH_TYPE_XDP = 17, 6, 37
_REDIRECT_MAP, _PASS, _QUEUE_INDEX_OFFSET = 51, 2, 16
_HAS_FRAGMENTS = 1 << 5
_GENERIC_MODE, _DRIVER_MODE = 1 << 1, 1 << 2
_LOAD_WORD, _LOAD_MAP, _SET, _CALL, _EXIT = 0x61, 0x18, 0xB7, 0x85, 0x95
_libc = ctypes.CDLL(None, use_errno=True)


class SocketProgram:
    """An XDP program on a device with the map of sockets that it fills; raises PortError."""

    def __init__(self, device: Device, queues: int) -> None:
        self._device = device
        self._descriptors: list[int] = []
        self.mode = ""
        """"driver" or "generic", once attached."""
        try:
            self._map = self._keep(_MAP_CREATE, struct.pack("=IIII", _MAP_TYPE_XSKMAP, 4, 4, queues))
            self._program = self._load()
        except OSError as error:
            self.close()
            raise refusal(device.name, "an XDP program", error) from error

    def add(self, queue: int, descriptor: int) -> None:
        """Give the frames of a device queue to a socket; raise PortError if the kernel refuses."""
        key, value = ctypes.c_uint32(queue), ctypes.c_uint32(descriptor)
        attributes = struct.pack("=IIQQQ", self._map, 0, ctypes.addressof(key), ctypes.addressof(value), 0)
        try:
            _bpf(_MAP_UPDATE, attributes)
        except OSError as error:
            raise refusal(self._device.name, f"queue {queue} for AF_XDP", error) from error

    def attach(self) -> None:
        """Put the program onto the device: in its driver where that can run it, else in front of the stack.

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
                raise PortError(f"interface {self._device.name}: {problem}, which XDP does not take") from error
            raise refusal(self._device.name, "an XDP program", error) from error

    def close(self) -> None:
        """Take the program off the device; a second call does nothing."""
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _load(self) -> int:
        code = b"".join(
            [
                _instruction(_LOAD_WORD, 2, 1, _QUEUE_INDEX_OFFSET, 0),
                _instruction(_LOAD_MAP, 1, 1, 0, self._map),
                _instruction(0, 0, 0, 0, 0),
                _instruction(_SET, 3, 0, 0, _PASS),
                _instruction(_CALL, 0, 0, 0, _REDIRECT_MAP),
                _instruction(_EXIT, 0, 0, 0, 0),
            ]
        )
        text = ctypes.create_string_buffer(code, len(code))
        license_text = ctypes.create_string_buffer(b"Apache-2.0")
        attributes = struct.pack(
            "=IIQQIIQII16sII",
            *(_PROG_TYPE_XDP, len(code) // 8, ctypes.addressof(text), ctypes.addressof(license_text)),
            *(0, 0, 0),  # the verifier's log
            *(0, _HAS_FRAGMENTS, b"millrace", 0, _ATTACH_TYPE_XDP),
        )
        return self._keep(_PROG_LOAD, attributes)

    def _link(self, mode: int) -> None:
        self._keep(_LINK_CREATE, struct.pack("=IIII", self._program, self._device.index, _ATTACH_TYPE_XDP, mode))

    def _keep(self, command: int, attributes: bytes) -> int:
        descriptor = _bpf(command, attributes)
        self._descriptors.append(descriptor)
        return descriptor


def _instruction(code: int, target: int, source: int, offset: int, immediate: int) -> bytes:
    """Return struct bpf_insn."""
    return struct.pack("=BBhi", code, source << 4 | target, offset, immediate)


def _bpf(command: int, attributes: bytes) -> int:
    """Run one bpf(2) command; raise OSError. The kernel closes its descriptors on exec by itself."""
    number = _SYSCALL_NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    block = ctypes.create_string_buffer(attributes, len(attributes))
    result: int = _libc.syscall(number, command, block, len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
