"""Command line settings for joining consecutive TCP segments at ports."""

from __future__ import annotations

import argparse
from enum import StrEnum


class Joining(StrEnum):
    """Setting for whether a port sends consecutive TCP segments as one packet."""

    AUTO = "auto"
    """While it is known that only a host's TCP/IP stack takes them."""
    ON = "on"
    OFF = "off"


def read_joining(text: str) -> tuple[int | None, Joining]:
    """Return the port, None for all of them, and its setting; raise ArgumentTypeError."""
    number, separator, word = text.rpartition(":")
    if not separator and text.isdecimal():
        return int(text), Joining.ON
    if word not in set(Joining) or (separator and not number.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not auto, on or off, nor PORT:off and the like")
    return int(number) if separator else None, Joining(word)
