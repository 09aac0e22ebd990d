"""Settings of the task scheduler, part of the scheduler daemon's."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from controller.probing.evaluation.policy import DEFAULT, Policy
from controller.probing.evaluation.trust import TrustSettings
from controller.scheduling.tasks.prices import PriceSettings
from controller.scheduling.tasks.probing import ProbingSettings
from controller.scheduling.tasks.profiles import (
    ACCELERATED,
    ALL_UNITS,
    FIXED_BENCHMARK,
    HEFT,
    MEASURED,
    TaskProfileSettings,
)
from controller.scheduling.tasks.waiting import WAIT_COST
from dataplane.config import Strict


class BuilderSettings(Strict, frozen=True):
    """Settings of `millrace probe builder serve`, which builds the probes of new types for schedulers."""

    api: str | None = None
    """The API server: unix:PATH, HOST:PORT or a URL; null: the environment's, else the user's own socket."""
    ratio: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1000
    """Executions in a task per repetition in the probes built from it."""


class TaskSettings(Strict, frozen=True):
    """Settings for dispatching tasks to compute centres."""

    profiles: Annotated[tuple[TaskProfileSettings, ...], Meta(min_length=1)] = (
        MEASURED,
        HEFT,
        ACCELERATED,
        ALL_UNITS,
        FIXED_BENCHMARK,
    )
    """Ways to decide; a task names its own. Tasks of other profiles are left to other schedulers."""
    probing: ProbingSettings = field(default_factory=ProbingSettings)
    scoring: Policy = DEFAULT
    """Policy that turns probe figures into points; a ScoringPolicy of its name in the API server replaces it."""
    trust: TrustSettings = field(default_factory=TrustSettings)
    """Conditions under which a centre's figures are trusted less."""
    prices: PriceSettings = field(default_factory=PriceSettings)
    ratio: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1000
    """Executions in a task per repetition in the probes built from it."""
    most: Annotated[int, Meta(ge=1, le=1_000_000)] = 20_000
    """Maximum number of waiting tasks examined per round; the others follow when there are fewer."""
    ahead: Annotated[int, Meta(ge=0, le=100_000)] = 32
    """Number of tasks planned per round before their predecessors have ended, to say where they will run."""
    retries: Annotated[int, Meta(ge=0, le=1000)] = 3
    """Number of times that a task is sent again after its centre falls silent; then it has failed."""
    wait_cost: Annotated[float, Meta(ge=0, le=1e6)] = WAIT_COST
    """Unit-seconds that a second of waiting for a better network must save; waiting also needs a deadline."""
    history: str | None = None
    """A folder of the collector's history: past telemetry of the paths to centres; needs the topology."""
    explained_centres: Annotated[int, Meta(ge=1, le=256)] = 16
    """Number of centres, refused and scored, whose reasons a decision keeps."""
