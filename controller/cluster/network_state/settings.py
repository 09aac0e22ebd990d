"""Settings for following the network's state."""

from __future__ import annotations

from typing import Annotated

import msgspec

from collectors.settings import FeedClientSettings, Positive
from controller.network.paths.settings import ADDRESS
from dataplane.config import Settings
from dataplane.rpc.access.settings import TlsSettings


class NetworkStateSettings(Settings, frozen=True):
    """Source of the network's state, and its maximum age."""

    feed: str = FeedClientSettings().address
    """The collector's feed: unix:PATH or HOST:PORT; of several collectors all, separated by commas."""
    path_server: str | None = ADDRESS
    """The path server: unix:PATH or HOST:PORT; null: none, all packets follow base routes."""
    tls: TlsSettings | None = None
    """Certificates for HOST:PORT of both; null: those named in the environment."""
    interval_ns: Annotated[int, msgspec.Meta(ge=10_000_000)] = 1_000_000_000
    """Interval between snapshots."""
    stale_after_ns: Positive = 10_000_000_000
    """Older figures are ignored, and a cost map is refused if no newer state arrives for this long."""
