"""Settings of the management service of unit pools."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from controller.balance.rules import TABLE, IntervalTable
from dataplane.config import Settings, Strict

PositiveS = Annotated[float, Meta(gt=0, le=1e9)]


class MetricsSettings(Strict, frozen=True):
    """Settings of the service's Prometheus metrics."""

    address: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 9470


class MovingSettings(Strict, frozen=True):
    """Rate limit and hysteresis of moves."""

    margin: Annotated[float, Meta(ge=0, le=100)] = 0.1
    """Share by which a unit must be worth more to another holder to be taken from one that wants it (hysteresis)."""
    units_per_s: Annotated[float, Meta(gt=0, le=1e6)] = 100.0
    """Units of a pool that may move per second, after an initial `burst`."""
    burst: Annotated[int, Meta(ge=1, le=1_000_000)] = 1000
    """Units that may move at once."""
    full_load: Annotated[float, Meta(gt=0, le=1)] = 0.9
    """Load at which a holder's units suffice; the others may be asked back for a holder that lacks some."""


class HistorySettings(Settings, frozen=True):
    """Settings of the history of reports and moves."""

    file: str
    """An SQLite file, created if missing."""
    keep_s: PositiveS = 7 * 86_400.0
    """Age at which records are deleted."""


class BalanceSettings(Settings, frozen=True):
    """Settings of `millrace balance serve`."""

    api: str | None = None
    """The API server: unix:PATH, HOST:PORT or a URL; null: the environment's, else the user's own socket."""
    interval_s: PositiveS = 1.0
    """Time between two rounds; reports in between are processed together."""
    stale_s: PositiveS = 10.0
    """Silence after which a holder keeps its units but gets none; after its pool's lease it loses them."""
    moving: MovingSettings = MovingSettings()
    """Settings of moves."""
    table: IntervalTable = TABLE
    """Table for pools with the rule `table`; `millrace balance learn` writes one."""
    history: HistorySettings | None = None
    """Reports, outputs and moves on disk, and controllers' states for a restart; null: not kept."""
    metrics: MetricsSettings | None = None
    """Address of the Prometheus metrics; null: none."""
