"""Settings of the task scheduler: a part of the scheduler daemon's."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from controller.probing.evaluation.policy import DEFAULT, Policy
from controller.probing.evaluation.trust import TrustSettings
from controller.scheduling.dispatch.prices import PriceSettings
from controller.scheduling.dispatch.probing import ProbingSettings
from controller.scheduling.dispatch.profiles import (
    ACCELERATED,
    ALL_UNITS,
    FIXED_BENCHMARK,
    MEASURED,
    TaskProfileSettings,
)
from dataplane.config import Strict


class TaskSettings(Strict, frozen=True):
    """How tasks are dispatched to compute centres."""

    profiles: Annotated[tuple[TaskProfileSettings, ...], Meta(min_length=1)] = (
        MEASURED,
        ACCELERATED,
        ALL_UNITS,
        FIXED_BENCHMARK,
    )
    """Ways to decide; a task names its own. Tasks of other profiles are left to other schedulers."""
    probing: ProbingSettings = field(default_factory=ProbingSettings)
    scoring: Policy = DEFAULT
    """How figures of probes become points."""
    trust: TrustSettings = field(default_factory=TrustSettings)
    """When figures of a centre are taken less firmly."""
    prices: PriceSettings = field(default_factory=PriceSettings)
    ratio: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1000
    """Executions in a task for one repetition in the probes that are built of it."""
    most: Annotated[int, Meta(ge=1, le=1_000_000)] = 20_000
    """Tasks that are looked at in a round; of more that wait, the others come when these are fewer."""
    retries: Annotated[int, Meta(ge=0, le=1000)] = 3
    """A task whose centre falls silent goes again so many times; then it has failed."""
    history: str | None = None
    """A folder of the collector's history: what telemetry has said of the ways to centres; needs the topology."""
    explained_centres: Annotated[int, Meta(ge=1, le=256)] = 16
    """Of so many centres, refused and scored ones, a decision keeps the reasons."""
