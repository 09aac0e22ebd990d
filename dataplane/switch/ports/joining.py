"""What ports are to do about TCP segments that follow each other, as a command line says it."""

from __future__ import annotations

import argparse
from enum import StrEnum


class Joining(StrEnum):
    """Whether TCP segments that follow each other leave by a port as one packet."""

    AUTO = "auto"
    """While it is known that nobody but a host's TCP/IP stack takes them."""
    ON = "on"
    OFF = "off"


def read_joining(text: str) -> tuple[int | None, Joining]:
    """Return the port, None for all of them, and what it does; raise ArgumentTypeError."""
    number, separator, word = text.rpartition(":")
    if not separator and text.isdecimal():
        return int(text), Joining.ON
    if word not in set(Joining) or (separator and not number.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not auto, on or off, nor PORT:off and the like")
    return int(number) if separator else None, Joining(word)
