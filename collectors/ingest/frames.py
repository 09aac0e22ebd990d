"""Ethernet frames in bulk to the report payloads that they carry."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from collectors.decode.payloads import Payloads
from collectors.native.kernel_calls import kernel_calls
from collectors.native.memory import address_in
from dataplane.errors import WireError
from dataplane.wire.packet import decode_udp_frame


class FrameReader:
    """Finds the UDP datagrams to a port; counts cut, fragmented and corrupt ones.

    Datagrams that arrive `from_cables` with this machine's own address (127.0.0.0/8, maybe a relay's) get no address.
    """

    def __init__(self, udp_port: int, *, from_cables: bool = False) -> None:
        self._udp_port, self._from_cables = udp_port, int(from_cables)
        self._find = kernel_calls().find_payloads
        self._malformed = np.zeros(1, np.uint32)

    @property
    def malformed(self) -> int:
        """Number of frames to the port so far that were not one whole datagram."""
        return int(self._malformed[0])

    def payloads(
        self,
        data: NDArray[np.uint8],
        places: NDArray[np.uint64],
        lengths: NDArray[np.uint32],
        name_of: Callable[[int], object] | None = None,
    ) -> Payloads:
        """Return the payloads of the frames in `data`; changes `places` and `lengths`.

        `name_of` returns the description of a frame, by its number, in place of its sender.
        """
        frames, sizes = places.copy(), lengths.copy()
        numbers, sources = np.empty(len(places), np.uint32), np.empty(len(places), np.uint32)
        count = self._find(
            address_in(data),
            address_in(places),
            address_in(lengths),
            len(places),
            self._udp_port,
            address_in(self._malformed),
            address_in(numbers),
            address_in(sources),
            self._from_cables,
        )

        def source_of(number: int) -> object:
            frame = int(numbers[number])
            if name_of is not None:
                return name_of(frame)
            start = int(frames[frame])
            return source_of_frame(data[start : start + int(sizes[frame])].tobytes())

        return Payloads(data, places[:count], lengths[:count], source_of, addresses=sources[:count])


def source_of_frame(frame: bytes) -> object:
    """Return the sender's address and port of a UDP frame, None for any other."""
    try:
        datagram = decode_udp_frame(frame)
    except WireError:
        return None
    return None if datagram is None else (str(datagram.ip.src), datagram.src_port)
