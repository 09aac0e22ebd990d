"""What servers of ours take from who calls them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dataplane.config import Strict

_Bytes = Annotated[int, msgspec.Meta(ge=1024, le=(1 << 31) - 1)]
_Number = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
_Ns = Annotated[int, msgspec.Meta(ge=1_000_000, le=86_400_000_000_000)]


class Limits(Strict, frozen=True):
    """What a server takes of all who call it; what exceeds it is refused with RESOURCE_EXHAUSTED, or waits."""

    request_bytes: _Bytes = 4 << 20
    """The largest request, and the largest message of a stream."""
    pending_bytes: _Bytes = 64 << 20
    """Requests of all calls that are being read or worked on, together; of more, calls wait before they are read."""
    answer_bytes: _Bytes = 256 << 20
    """The largest answer."""
    calls: _Number = 512
    """Calls and streams at a time, of all connections; more are refused."""
    streams: _Number = 256
    """Of them, streams that are followed; more are refused."""
    calls_per_connection: _Number = 256
    """Those of one connection; more wait at the client."""
    connections: _Number = 1024
    """Connections at a time; more are closed as they come."""
    first_message_ns: _Ns = 10_000_000_000
    """A client that connects, or opens a stream both ways, and says nothing for so long is refused."""
    idle_ns: _Ns = 600_000_000_000
    """A connection without a call is closed after so long; clients come back by themselves."""
