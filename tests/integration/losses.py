"""Cables that lose frames at random: an eBPF program at both directions of a device (tcx), as netem is not everywhere.

A worker's frames are dropped before they leave its device, and those for it before they reach a socket. What reads the
device itself, as a switch does, would see frames before they are dropped on arrival.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from dataplane.errors import FabricError
from dataplane.fabric.kernel import namespaces

_SYSCALL: Final = {"x86_64": 321, "aarch64": 280}
_LOAD, _LINK = 5, 28
_SCHED_CLS: Final = 3
_TCX_INGRESS, _TCX_EGRESS = 46, 47
_RANDOM_U32, _DROP, _NEXT = 7, 2, -1
_CALL, _JUMP_IF_AT_LEAST, _MOVE, _EXIT = 0x85, 0x36, 0xB7, 0x95
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def losing(namespace: str, device: str, share: float) -> Iterator[None]:
    """Lose a share of the frames in each direction while the block lasts; raises FabricError if that cannot be."""
    with ExitStack() as stack:
        for direction in (_TCX_INGRESS, _TCX_EGRESS):
            program = _call(_LOAD, _program(share, direction), "an eBPF program")
            stack.callback(os.close, program)
            link = namespaces.call(namespace, partial(_attach, program, device, direction))
            stack.callback(os.close, link)
        yield


def _instructions(share: float) -> bytes:
    below = int(share * 2**32)
    code = [
        (_CALL, 0, _RANDOM_U32),
        (_JUMP_IF_AT_LEAST, 2, below - 2**32 if below >= 2**31 else below),
        (_MOVE, 0, _DROP),
        (_EXIT, 0, 0),
        (_MOVE, 0, _NEXT),
        (_EXIT, 0, 0),
    ]
    return b"".join(struct.pack("<BBhi", operation, 0, jump, value) for operation, jump, value in code)


class _Kept:
    """Attributes of the system call and the buffers that they point to."""

    def __init__(self, words: bytes, *buffers: object) -> None:
        self.memory = ctypes.create_string_buffer(words, 160)
        self.buffers = buffers


def _program(share: float, direction: int) -> _Kept:
    code = ctypes.create_string_buffer(_instructions(share))
    words = ctypes.create_string_buffer(b"Apache-2.0")
    head = struct.pack("<IIQQ", _SCHED_CLS, 6, ctypes.addressof(code), ctypes.addressof(words))
    return _Kept(head + bytes(44) + struct.pack("<I", direction), code, words)


def _attach(program: int, device: str, direction: int) -> int:
    words = struct.pack("<IIII", program, socket.if_nametoindex(device), direction, 0)
    return _call(_LINK, _Kept(words), f"losses at {device}")


def _call(command: int, kept: _Kept, what: str) -> int:
    number = _SYSCALL[os.uname().machine]
    status: int = _libc.syscall(number, command, kept.memory, len(kept.memory))
    if status < 0:
        raise FabricError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return status
