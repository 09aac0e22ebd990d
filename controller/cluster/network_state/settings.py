"""Settings of who follows the network's state."""

from __future__ import annotations

from typing import Annotated

import msgspec

from collectors.settings import FeedClientSettings, Positive
from controller.network.paths.settings import ADDRESS
from dataplane.config import Strict
from dataplane.rpc.access.settings import TlsSettings


class NetworkStateSettings(Strict, frozen=True):
    """Where the network's state comes from, and how old it may be."""

    feed: str = FeedClientSettings().address
    """The collector's feed: unix:PATH or HOST:PORT."""
    path_server: str | None = ADDRESS
    """The path server: unix:PATH or HOST:PORT; null: there is none, and all packets follow base routes."""
    tls: TlsSettings | None = None
    """Certificates for HOST:PORT of both; null: those that the environment names."""
    interval_ns: Annotated[int, msgspec.Meta(ge=10_000_000)] = 1_000_000_000
    """How often a snapshot is taken."""
    stale_after_ns: Positive = 10_000_000_000
    """A figure older than this is not believed, and neither is a cost map when no newer state comes."""
