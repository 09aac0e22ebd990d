"""Hierarchical names of content, and the hash that stands for one in packets and in the switch."""

from __future__ import annotations

import hashlib

from dataplane.store.errors import StoreError

_BYTES = 16


def digest(name: str) -> int:
    """Return the 128 bits (BLAKE2b) of a name such as `/model/layer1/weights`; raise StoreError for what is none."""
    components = name.split("/")
    if components[0] or len(components) < 2 or not all(components[1:]):
        raise StoreError(f"{name!r} is not a name: it begins with / and has no empty component")
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_BYTES).digest(), "big")
