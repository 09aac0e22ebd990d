"""Settings of the feed's clients; settings of whole daemons contain them."""

from __future__ import annotations

from typing import Final

from collectors.settings import Positive
from dataplane.config import Strict
from dataplane.rpc.own_folder import default_address

ADDRESS: Final = default_address("collector")
"""The default address of the feed, for the collector and for its clients."""


class FeedClientSettings(Strict, frozen=True):
    """Where the collector's feed is, and how to wait for it."""

    address: str = ADDRESS
    """The feed's gRPC address: unix:PATH or HOST:PORT."""

    first_wait_ns: Positive = 100_000_000
    """How long to wait before the first new try; each further wait is twice as long."""

    longest_wait_ns: Positive = 1_000_000_000
    """Waits grow no longer than this."""
