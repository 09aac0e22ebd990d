"""Report payloads in bulk: where they are in a block of memory, whatever their source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Payloads:
    """Payload i is the `lengths[i]` bytes of `data` (one-dimensional, contiguous) from `places[i]` on.

    `source_of` returns the sender, if known; it only appears in the explanation of a refusal. `age_ns` is how long ago
    they arrived, 0 for payloads that arrive now; `is_behind` says that reading has been late for a while, so that no
    records are made of them. `addresses` are the IPv4 addresses that they came from, 0 where there is none
    (`collectors.decode.sources`); None: the caller answers for them.
    """

    data: NDArray[np.uint8]
    places: NDArray[np.uint64]
    lengths: NDArray[np.uint32]
    source_of: Callable[[int], object] | None = None
    age_ns: int = 0
    addresses: NDArray[np.uint32] | None = None
    is_behind: bool = False

    def __len__(self) -> int:
        return len(self.lengths)

    def payload(self, number: int) -> bytes:
        """Return one payload's bytes."""
        offset = int(self.places[number])
        return self.data[offset : offset + int(self.lengths[number])].tobytes()

    def address(self, number: int) -> int | None:
        """Return the IPv4 address that one payload came from, None if the caller answers for it."""
        return None if self.addresses is None else int(self.addresses[number])

    def source(self, number: int) -> object:
        """Return the sender of a payload, None if unknown."""
        return None if self.source_of is None else self.source_of(number)


def payloads_of(parts: Sequence[bytes]) -> Payloads:
    """Return payloads as one contiguous run."""
    lengths = np.array([len(part) for part in parts], np.uint32)
    places = np.zeros(len(parts), np.uint64)
    np.cumsum(lengths[:-1], out=places[1:])
    return Payloads(np.frombuffer(b"".join(parts), np.uint8), places, lengths)
