"""Limits of our servers for their callers."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dataplane.config import Settings

_Bytes = Annotated[int, msgspec.Meta(ge=1024, le=(1 << 31) - 1)]
_Number = Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
_Ns = Annotated[int, msgspec.Meta(ge=1_000_000, le=86_400_000_000_000)]


class Limits(Settings, frozen=True):
    """Limits over all callers of a server; excess calls are refused with RESOURCE_EXHAUSTED, or wait."""

    request_bytes: _Bytes = 4 << 20
    """Largest request, and largest message of a stream."""
    pending_bytes: _Bytes = 64 << 20
    """Total size of all requests being read or processed; calls beyond it wait before they are read."""
    answer_bytes: _Bytes = 256 << 20
    """Largest answer."""
    calls: _Number = 512
    """Concurrent calls and streams over all connections; more are refused."""
    streams: _Number = 256
    """Followed streams among them; more are refused."""
    calls_per_connection: _Number = 256
    """Concurrent calls per connection; more wait at the client."""
    connections: _Number = 1024
    """Concurrent connections; more are closed on arrival."""
    first_message_ns: _Ns = 10_000_000_000
    """A client that connects, or opens a bidirectional stream, and stays silent for this long is refused."""
    idle_ns: _Ns = 600_000_000_000
    """A connection without a call is closed after this time; clients reconnect by themselves."""
