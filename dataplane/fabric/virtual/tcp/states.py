"""A connection's states (RFC 9293, section 3.3.2) and its addresses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dataplane.wire.fields import IpAddress


class State(StrEnum):
    """RFC 9293, section 3.3.2; a listener has no connection, so LISTEN is not among them."""

    SYN_SENT = "syn-sent"
    SYN_RECEIVED = "syn-received"
    ESTABLISHED = "established"
    FIN_WAIT_1 = "fin-wait-1"
    FIN_WAIT_2 = "fin-wait-2"
    CLOSE_WAIT = "close-wait"
    CLOSING = "closing"
    LAST_ACK = "last-ack"
    TIME_WAIT = "time-wait"
    CLOSED = "closed"


OPENING: Final = frozenset((State.SYN_SENT, State.SYN_RECEIVED))
SENDING: Final = frozenset((State.ESTABLISHED, State.CLOSE_WAIT, State.FIN_WAIT_1, State.CLOSING, State.LAST_ACK))
RECEIVING: Final = frozenset((State.ESTABLISHED, State.FIN_WAIT_1, State.FIN_WAIT_2))
WRITABLE: Final = frozenset((*OPENING, State.ESTABLISHED, State.CLOSE_WAIT))
"""States before `close` is called."""


@dataclass(frozen=True, slots=True)
class Address:
    """Both endpoints of a connection, seen from one of them."""

    local: IpAddress
    local_port: int
    remote: IpAddress
    remote_port: int
