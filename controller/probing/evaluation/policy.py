"""Scoring policies of settings files and of the API server, and the default one."""

from __future__ import annotations

from pathlib import Path

from controller.apiserver.resources import ScoringPolicy
from controller.apiserver.resources.base import Metadata, Name
from controller.apiserver.resources.scoring_policy import Interval, Scale, ScoringPolicySpec, ScoringScales
from dataplane.config import load


class Policy(ScoringScales, frozen=True):
    """A probe's score: the weighted sum of its figures' points."""

    name: Name = "default"

    @property
    def version(self) -> str:
        """Name and version, as results have them: `default@0123456789ab`."""
        return f"{self.name}@{self.digest}"


DEFAULT = Policy(
    run_time_s=Scale(
        weight=0.7,
        intervals=(
            *(
                Interval(start=low, below=high, points=points)
                for low, high, points in (
                    (0.0, 0.5, 100.0),
                    (0.5, 1.0, 90.0),
                    (1.0, 2.0, 75.0),
                    (2.0, 4.0, 60.0),
                    (4.0, 8.0, 45.0),
                    (8.0, 16.0, 30.0),
                    (16.0, 32.0, 15.0),
                )
            ),
            Interval(start=32.0, points=0.0),
        ),
    ),
    accuracy=Scale(
        weight=0.3,
        intervals=(
            Interval(start=0.0, below=1e-12, points=100.0),
            Interval(start=1e-12, below=1e-6, points=80.0),
            Interval(start=1e-6, below=1e-3, points=50.0),
            Interval(start=1e-3, points=0.0),
        ),
    ),
)


def load_policy(path: Path) -> Policy:
    """Return the policy of a settings file, YAML or TOML; raise ConfigError with file, line and key."""
    return load(path, Policy)


def policy_of(resource: ScoringPolicy) -> Policy:
    """Return a policy of the API server."""
    spec = resource.spec
    return Policy(name=resource.metadata.name, run_time_s=spec.run_time_s, accuracy=spec.accuracy, figures=spec.figures)


def resource_of(policy: Policy) -> ScoringPolicy:
    """Return a policy in the API server's form."""
    spec = ScoringPolicySpec(run_time_s=policy.run_time_s, accuracy=policy.accuracy, figures=policy.figures)
    return ScoringPolicy(metadata=Metadata(name=policy.name), spec=spec)
