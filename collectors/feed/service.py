"""The feed's service as feed.proto describes it, and where it is."""

from __future__ import annotations

from typing import Final

from collectors.feed import feed_pb2
from dataplane.rpc.own_folder import default_address

FEED: Final = feed_pb2.DESCRIPTOR.services_by_name["Feed"]
ADDRESS: Final = default_address("collector")
"""The default address of the feed, for the collector and for its clients."""
