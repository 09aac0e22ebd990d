"""The CPU port of the native switch: frames from Python to its workers, and from them to Python."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter

from dataplane.native import kernel_library
from dataplane.native.doorbell import Bell
from dataplane.switch.abi import Packet
from dataplane.switch.compiled.memory.pool import BlockPool, Cache, give, take
from dataplane.switch.compiled.memory.rings import get, make_ring, put
from dataplane.switch.counters import MAX_FRAME_BYTES, OVERSIZE

RING_FRAMES = 1_024
PACKET_OUT_FULL = "packet_out_full"


class CpuPort:
    """Two bounded rings of frames, each in a block of `frames` while in flight; any thread may call.

    `workers` is rung for incoming frames, `reports` for outgoing ones.
    """

    def __init__(self, frames: BlockPool, workers: Bell, reports: Bell) -> None:
        library = kernel_library(take, give, get, put)
        self._take, self._give = library.bind(take), library.bind(give)
        self._get, self._put = library.bind(get), library.bind(put)
        self._cache = Cache()
        self._cache.pool = frames.pool
        self._lock = threading.Lock()
        self._drops: Counter[str] = Counter()
        self._is_closed = False
        self.injected = make_ring(RING_FRAMES, workers)
        self.packets_in = make_ring(RING_FRAMES, reports)

    @property
    def drops(self) -> Counter[str]:
        """Frames that were refused, by reason."""
        with self._lock:
            return Counter(self._drops)

    def inject(self, payload: bytes) -> None:
        """Give the workers a frame with its packet-out header, or count it as dropped."""
        too_long = len(payload) > MAX_FRAME_BYTES
        with self._lock:
            block = 0 if too_long or self._is_closed else self._take(self._cache)
            if block == 0:
                self._drops[OVERSIZE if too_long else PACKET_OUT_FULL] += 1
                return
            frame = Packet.from_address(block)
            frame.length = len(payload)
            ctypes.memmove(frame.data.address, payload, len(payload))
            if not self._put(self.injected, frame):
                self._give(self._cache, frame)
                self._drops[PACKET_OUT_FULL] += 1

    def take(self) -> bytes | None:
        """Return the oldest frame that workers have sent to the CPU, or None; one thread at a time."""
        block = self._get(self.packets_in)
        if not block:
            return None
        frame = Packet.from_address(block)
        payload = ctypes.string_at(frame.data.address, frame.length)
        with self._lock:
            self._give(self._cache, frame)
        return payload

    def close(self) -> None:
        """Accept no more frames."""
        with self._lock:
            self._is_closed = True
