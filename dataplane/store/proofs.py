"""Stateless proofs that a writer receives at the address that its packets come from.

A proof is a keyed hash of address, UDP port and a time slot, with a key that only this process knows. It is sent to the
address that a write came from: a sender that spoofs that address never sees it. Like SYN cookies (RFC 4987, 3.6), it
has 32 bits: of forged writes with a guessed proof, one in two billion is accepted.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, TypeAlias

Source: TypeAlias = tuple[int, int]
"""IPv4 address and UDP port."""

SLOT_NS: Final = 60_000_000_000
"""A proof is valid in the slot in which it was made, and in the next one."""


class Proofs:
    """Makes and checks one producer's proofs; `key` has 16 to 64 secret bytes, random by default."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    def of(self, source: Source, now_ns: int) -> int:
        """Return the proof that a source must send with its writes: 1 to 2^32 - 1."""
        return self._made(source, now_ns // SLOT_NS)

    def holds(self, source: Source, proof: int, now_ns: int) -> bool:
        """Return whether a source was given this proof less than two slots ago."""
        slot = now_ns // SLOT_NS
        return proof != 0 and proof in (self._made(source, slot), self._made(source, slot - 1))

    def _made(self, source: Source, slot: int) -> int:
        address, port = source
        text = address.to_bytes(4, "big") + port.to_bytes(2, "big") + slot.to_bytes(8, "big", signed=True)
        return int.from_bytes(hashlib.blake2b(text, key=self._key, digest_size=4).digest(), "big") or 1
