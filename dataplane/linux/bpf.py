"""bpf(2) without a library, for our few kernel programs of a dozen instructions each."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from typing import Final

MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, PROG_LOAD, PROG_QUERY, LINK_CREATE = 0, 1, 2, 5, 16, 28
LOAD_MAP, SET, COPY, ADD, CALL, EXIT = 0x18, 0xB7, 0xBF, 0x07, 0x85, 0x95
LOAD_WORD, STORE_WORD, ADD_TO_MEMORY = 0x61, 0x62, 0xDB
JUMP_IF_EQUAL, JUMP_IF_AT_LEAST = 0x15, 0x3D
_SYSCALL_NUMBERS: Final = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_libc = ctypes.CDLL(None, use_errno=True)


def instruction(code: int, target: int = 0, source: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    """Return struct bpf_insn."""
    return struct.pack("=BBhi", code, source << 4 | target, offset, immediate)


def load_map(target: int, descriptor: int) -> bytes:
    """Return the two instructions that load the address of a map into a register."""
    return instruction(LOAD_MAP, target, 1, 0, descriptor) + instruction(0)


def load_program(kind: int, code: bytes, *, flags: int = 0, attach_type: int = 0) -> int:
    """Load a program, under Apache-2.0, and return its descriptor; raise OSError."""
    text = ctypes.create_string_buffer(code, len(code))
    license_text = ctypes.create_string_buffer(b"Apache-2.0")
    attributes = struct.pack(
        "=IIQQIIQII16sII",
        *(kind, len(code) // 8, ctypes.addressof(text), ctypes.addressof(license_text)),
        *(0, 0, 0),  # the verifier's log
        *(0, flags, b"millrace", 0, attach_type),
    )
    return bpf(PROG_LOAD, attributes)


def count_programs(index: int, attach_type: int) -> int:
    """Return how many programs are attached to a device of this thread's namespace at an attach point; raise OSError.

    A kernel that does not know the attach point has none there.
    """
    block = ctypes.create_string_buffer(struct.pack("=IIIIQI4x8x8x8x8x", index, attach_type, 0, 0, 0, 0), 64)
    try:
        _call(PROG_QUERY, block)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOSYS}:
            return 0
        raise
    count: int = struct.unpack_from("=I", block, 24)[0]
    return count


def bpf(command: int, attributes: bytes) -> int:
    """Run a command of the system call; raise OSError. Its descriptors are close-on-exec."""
    return _call(command, ctypes.create_string_buffer(attributes, len(attributes)))


def _call(command: int, block: ctypes.Array[ctypes.c_char]) -> int:
    number = _SYSCALL_NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    result: int = _libc.syscall(number, command, block, len(block))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
