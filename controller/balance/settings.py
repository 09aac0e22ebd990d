"""Settings of the management service of unit pools."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from controller.balance.rules import TABLE, IntervalTable
from dataplane.config import Strict

PositiveS = Annotated[float, Meta(gt=0, le=1e9)]


class MetricsSettings(Strict, frozen=True):
    """Where Prometheus finds the service's metrics."""

    address: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 9470


class MovingSettings(Strict, frozen=True):
    """How quickly units move, and for how little."""

    margin: Annotated[float, Meta(ge=0, le=100)] = 0.1
    """A unit is taken from who wants it only for one to whom it is worth more by this share (hysteresis)."""
    units_per_s: Annotated[float, Meta(gt=0, le=1e6)] = 100.0
    """So many units of a pool move in a second, once `burst` have at once."""
    burst: Annotated[int, Meta(ge=1, le=1_000_000)] = 1000
    """So many move at once."""
    full_load: Annotated[float, Meta(gt=0, le=1)] = 0.9
    """Units that are not needed for this load of those that are may be asked back for somebody who lacks some."""


class HistorySettings(Strict, frozen=True):
    """What is kept of reports and moves."""

    file: str
    """A file of SQLite; made where it is not there."""
    keep_s: PositiveS = 7 * 86_400.0
    """What is older goes."""


class BalanceSettings(Strict, frozen=True):
    """What `millrace balance serve` is given."""

    api: str | None = None
    """The API server: unix:PATH, HOST:PORT or a URL; null: the environment's, else the user's own socket."""
    interval_s: PositiveS = 1.0
    """Time between two rounds; what holders report in between is seen together."""
    stale_s: PositiveS = 10.0
    """A holder that has not reported for so long keeps its units and gets none; after its pool's lease they go."""
    moving: MovingSettings = MovingSettings()
    """How units move."""
    table: IntervalTable = TABLE
    """What pools of the rule `table` go by; `millrace balance learn` writes one."""
    history: HistorySettings | None = None
    """Reports, outputs and moves on disk, and what controllers remember over a restart; null: nowhere."""
    metrics: MetricsSettings | None = None
    """Where Prometheus finds metrics; null: nowhere."""
