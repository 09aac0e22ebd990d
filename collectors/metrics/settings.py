"""Settings of the endpoint that serves a collector's metrics."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from dataplane.config import Strict


class MetricsSettings(Strict, frozen=True):
    """Prometheus scrapes http://ADDRESS:PORT/metrics."""

    address: str = "127.0.0.1"
    """The local address; nothing authenticates, so any other than loopback must be explicit: `plain:0.0.0.0`."""

    port: Annotated[int, Meta(ge=0, le=65535)] = 9477
    """The TCP port, 0 for a free one."""
