"""BFD control packet, mandatory section, 24 bytes (RFC 5880, section 4.1).

Version3 Diagnostic5 | State2 Poll1 Final1 ControlPlaneIndependent1 Authentication1 Demand1 Multipoint1 |
DetectMultiplier8 Length8 | MyDiscriminator32 | YourDiscriminator32 | DesiredMinTx32 RequiredMinRx32
RequiredMinEchoRx32, the last three in microseconds. Any remainder within Length is authentication, which is not
supported: a packet that has it is refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need

HEADER: Final = "bfd"
SIZE: Final = 24
VERSION: Final = 1

_LAYOUT = struct.Struct("!BBBBIIIII")
_POLL, _FINAL, _INDEPENDENT, _AUTHENTICATION, _DEMAND, _MULTIPOINT = 32, 16, 8, 4, 2, 1


class State(IntEnum):
    """The sender's state, as encoded in two bits."""

    ADMIN_DOWN = 0
    DOWN = 1
    INIT = 2
    UP = 3


@dataclass(frozen=True, slots=True)
class Bfd:
    """A control packet without authentication; intervals in microseconds."""

    state: State
    detect_multiplier: int
    my_discriminator: int
    your_discriminator: int = 0
    desired_min_tx_us: int = 0
    required_min_rx_us: int = 0
    required_min_echo_rx_us: int = 0
    diagnostic: int = 0
    poll: bool = False
    final: bool = False
    control_plane_independent: bool = False
    demand: bool = False

    @property
    def size(self) -> int:
        """Length in bytes."""
        return SIZE

    def encode(self) -> bytes:
        """Return the packet's 24 bytes; raise WireError for a value that does not fit."""
        fit(
            HEADER,
            diagnostic=(self.diagnostic, 5),
            detect_multiplier=(self.detect_multiplier, 8),
            my_discriminator=(self.my_discriminator, 32),
            your_discriminator=(self.your_discriminator, 32),
            desired_min_tx_us=(self.desired_min_tx_us, 32),
            required_min_rx_us=(self.required_min_rx_us, 32),
            required_min_echo_rx_us=(self.required_min_echo_rx_us, 32),
        )
        flags = (
            self.state << 6
            | _POLL * self.poll
            | _FINAL * self.final
            | _INDEPENDENT * self.control_plane_independent
            | _DEMAND * self.demand
        )
        return _LAYOUT.pack(
            VERSION << 5 | self.diagnostic,
            flags,
            self.detect_multiplier,
            SIZE,
            self.my_discriminator,
            self.your_discriminator,
            self.desired_min_tx_us,
            self.required_min_rx_us,
            self.required_min_echo_rx_us,
        )


def decode(data: bytes, offset: int = 0) -> Bfd:
    """Return the packet at `offset`; raise WireError for one that a receiver must discard in any state.

    These are the checks of RFC 5880, section 6.8.6, up to the session lookup.
    """
    need(HEADER, data, offset, SIZE)
    first, flags, multiplier, length, mine, yours, tx_us, rx_us, echo_us = _LAYOUT.unpack_from(data, offset)
    if first >> 5 != VERSION:
        raise WireError(HEADER, f"version {first >> 5}, not {VERSION}", offset=offset)
    if flags & _AUTHENTICATION:
        raise WireError(HEADER, "has authentication, which is not supported", offset=offset)
    if length != SIZE:
        raise WireError(HEADER, f"a length of {length}, not {SIZE}", offset=offset)
    if multiplier == 0:
        raise WireError(HEADER, "a detection multiplier of 0", offset=offset)
    if flags & _MULTIPOINT:
        raise WireError(HEADER, "the multipoint bit is set", offset=offset)
    if mine == 0:
        raise WireError(HEADER, "a sender's discriminator of 0", offset=offset)
    state = State(flags >> 6)
    if yours == 0 and state not in {State.DOWN, State.ADMIN_DOWN}:
        raise WireError(HEADER, f"state {state.name} without a receiver's discriminator", offset=offset)
    return Bfd(
        state=state,
        detect_multiplier=multiplier,
        my_discriminator=mine,
        your_discriminator=yours,
        desired_min_tx_us=tx_us,
        required_min_rx_us=rx_us,
        required_min_echo_rx_us=echo_us,
        diagnostic=first & 31,
        poll=bool(flags & _POLL),
        final=bool(flags & _FINAL),
        control_plane_independent=bool(flags & _INDEPENDENT),
        demand=bool(flags & _DEMAND),
    )
