"""Settings of named content in switches."""

from __future__ import annotations

from typing import Annotated

import msgspec

from controller.network.tables.store import CELLS, MAX_THRESHOLD
from dataplane.config import Settings, Strict

Hosts = tuple[str, ...]


class RecordedSettings(Strict, frozen=True):
    """A name that the switch of a server keeps itself, such as the parameters that workers return."""

    name: str
    """Such as /job/parameters."""
    bytes: Annotated[int, msgspec.Meta(ge=0, le=CELLS * 1024)]
    """The longest value."""
    writers: Hosts
    """The hosts that may write it."""
    server: str
    """The host that readers and writers send to: its switch has the name."""
    forward: bool = True
    """Forward writes to the server too, which acknowledges them; otherwise only the switch has them."""


class StoreSettings(Settings, frozen=True):
    """Content that switches hold."""

    producers: Hosts = ()
    """The hosts that serve content: each one's switch keeps copies of the most requested names."""
    recorded: tuple[RecordedSettings, ...] = ()
    """Names that are kept in switches themselves."""
    interval_ns: Annotated[int, msgspec.Meta(ge=10_000_000)] = 1_000_000_000
    """Interval at which the names to be copied are chosen."""
    threshold: Annotated[int, msgspec.Meta(ge=1, le=MAX_THRESHOLD)] = 2
    """Interests in an interval below which no name is worth a copy."""
    copies: Annotated[int, msgspec.Meta(ge=0, le=CELLS)] = CELLS
    """Segments (of 1,024 bytes) that a switch has copies of, at most."""
    on_the_way: bool = False
    """Let all switches, not only the producers' own, copy blocks of long values, which never change."""
    announced_for_ns: Annotated[int, msgspec.Meta(ge=100_000_000)] = 30_000_000_000
    """Time for which a prefix leads to a producer that no longer announces it."""
