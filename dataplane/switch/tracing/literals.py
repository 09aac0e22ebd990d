"""Numbers in human notation: decimal, 0x, 0o or 0b, IPv4, IPv6 and MAC addresses."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

_MAC = re.compile(r"[0-9a-fA-F]{1,2}(?:[:-][0-9a-fA-F]{1,2}){5}")


def read_number(text: str) -> int | None:
    """Return the number for a text, an address as its bits; None if it is neither."""
    if _MAC.fullmatch(text):
        return int("".join(part.zfill(2) for part in re.split("[:-]", text)), 16)
    address = IPv6Address if ":" in text else IPv4Address
    if ":" in text or text.count(".") == 3:
        try:
            return int(address(text))
        except AddressValueError:
            return None
    try:
        return int(text, 0)
    except ValueError:
        return None
