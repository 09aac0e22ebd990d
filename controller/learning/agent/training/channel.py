"""Channel between a deciding and a training process: messages on a socket, large ones in sealed memory.

A message is at most as long as a socket takes at once. Anything longer goes into anonymous memory, which is sealed
before it is handed over, so that nobody can change it while the other side reads.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

import msgspec

from controller.learning.agent.training.base import Status

MOST_BYTES: Final = 1 << 17
"""Maximum length of a message."""
_SEALS: Final = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

EXPERIENCE: Final = b"e"
ASK: Final = b"a"
ASK_AT_ONCE: Final = b"o"
"""First bytes of messages to the training process."""


class TrainerMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Message from the training process; `weights` and `state` come with memory, `failed` is the last message.

    A state answers the question with the same number.
    """

    kind: Literal["ready", "weights", "state", "progress", "failed"]
    version: int = 0
    question: int = 0
    status: Status = Status()


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends: whole messages, in order."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def sealed(data: bytes) -> int:
    """Return a file descriptor of immutable memory with these bytes."""
    descriptor = os.memfd_create("millrace-learning", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        rest = memoryview(data)
        while rest:
            # A write may take only a part.
            rest = rest[os.write(descriptor, rest) :]
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def mapped(descriptor: int) -> Iterator[mmap.mmap]:
    """Yield the contents of memory that was received."""
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as memory:
        yield memory


def tell(end: socket.socket, message: TrainerMessage, data: bytes | None = None) -> None:
    """Send a message, with memory if there are bytes; waits until the other side takes it."""
    encoded = msgspec.msgpack.encode(message)
    if data is None:
        end.send(encoded)
        return
    descriptor = sealed(data)
    try:
        socket.send_fds(end, [encoded], [descriptor])
    finally:
        os.close(descriptor)


def hear(end: socket.socket) -> tuple[TrainerMessage, bytes] | None:
    """Return the next message and its memory, None at the end; waits for it."""
    message, descriptors, _, _ = socket.recv_fds(end, MOST_BYTES, 1)
    try:
        if not message:
            return None
        data = b""
        for descriptor in descriptors:
            with mapped(descriptor) as memory:
                data = memory[:]
        return msgspec.msgpack.decode(message, type=TrainerMessage), data
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
