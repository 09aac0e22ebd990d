"""The feed's service as feed.proto describes it."""

from __future__ import annotations

from typing import Final

from collectors.feed import feed_pb2

FEED: Final = feed_pb2.DESCRIPTOR.services_by_name["Feed"]
