"""Settings of the probes: which reflectors are asked, and which way."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from dataplane.clock import NS_PER_MS, NS_PER_S
from dataplane.config import Settings, Strict


class StampSessionSettings(Strict, frozen=True):
    """A reflector, and the way to it."""

    address: str
    """The reflector's HOST:PORT; STAMP's port is 862."""

    path: tuple[str, ...]
    """The nodes that a probe passes, from this collector's host, or its switch, to the reflector's switch or host."""

    synchronised_clocks: bool = False
    """True if the reflector's clock is that of this host (PTP): then each direction has its own delay."""

    key_file: str | None = None
    """File with the key of authenticated packets; null sends unauthenticated ones."""


class StampSettings(Settings, frozen=True):
    """Active probes to STAMP reflectors, whose round trips give delays of links without telemetry."""

    sessions: tuple[StampSessionSettings, ...]
    """The reflectors; a link gets a delay from the session that ends behind it and the one that ends before it."""

    interval_ns: Annotated[int, Meta(ge=10 * NS_PER_MS)] = 100 * NS_PER_MS
    """Time between two probes of a session."""

    timeout_ns: Annotated[int, Meta(ge=NS_PER_MS)] = NS_PER_S
    """An answer later than this does not count."""

    stale_after_ns: Annotated[int, Meta(ge=1)] = 5 * NS_PER_S
    """A link whose probes are older has its nominal delay again."""

    address: str | None = None
    """Local address to send from; null leaves it to the kernel."""
