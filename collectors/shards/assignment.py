"""Assignment of switches to collectors by rendezvous hashing (Thaler and Ravishankar, 1998).

Every pair of a switch and a collector has a weight, and a switch belongs to the collector of the greatest. So a
collector that leaves moves its own switches alone, in equal parts to the others, and gets them back when it returns;
and all who see the same collectors compute the same, without telling one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from hashlib import blake2b


def assigned(switches: Iterable[str], collectors: Collection[str]) -> dict[str, str]:
    """Return each switch's collector, by names; nothing without collectors."""
    if not collectors:
        return {}
    return {switch: max(collectors, key=lambda name: (_weight(switch, name), name)) for switch in switches}


def _weight(switch: str, collector: str) -> bytes:
    # No built-in hash: its seed differs from process to process.
    return blake2b(f"{switch}\0{collector}".encode(), digest_size=8).digest()
