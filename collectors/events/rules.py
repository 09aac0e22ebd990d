"""Rules as settings: which figure of what, when an event is raised, when it is cleared."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from collectors.events.scopes import FIGURES, Scope
from collectors.settings import Positive
from collectors.values import Severity
from dataplane.config import Settings

DurationNs = Annotated[int, Meta(ge=0)]
Above0 = Annotated[float, Meta(gt=0.0)]
NotNegative = Annotated[float, Meta(ge=0.0)]


class ChangeSettings(Settings, frozen=True):
    """Change-point detection: a two-sided cumulative sum (CUSUM; Page, Continuous inspection schemes, 1954)."""

    learn: Annotated[int, Meta(ge=2)] = 20
    """Number of observations that establish the level and its deviation before anything is judged."""

    slack: NotNegative = 1.0
    """Deviations (standard deviations from the level) up to this do not add to the sum."""

    limit: Above0 = 10.0
    """The sum, in standard deviations, at which the level has changed; one observation adds half of it at most."""

    least_deviation: NotNegative = 0.0
    """Minimum of the standard deviation, in the figure's unit."""

    least_share: NotNegative = 0.05
    """Minimum of the standard deviation, as a share of the level; avoids events for trifles in steady figures."""

    adopt_after_ns: Annotated[int, Meta(ge=1)] = 60_000_000_000
    """A new level that lasts this long becomes the usual one, and its event is cleared."""


class Rule(Settings, frozen=True):
    """One rule: exactly one of `above`, `below` and `change`."""

    name: Annotated[str, Meta(min_length=1, max_length=80)]
    """Its name, in every event."""

    figure: str
    """The figure, by the field's name in the snapshot, as delay_p99_ns, loss, rate_bps, lost."""

    scope: Scope = Scope.LINK
    """link, path, reporter, job or child (a contributor to a job)."""

    severity: Severity = Severity.WARNING
    """warning or critical: what the page and alerts show first."""

    above: float | None = None
    """Raised while the figure is greater."""

    below: float | None = None
    """Raised while the figure is less."""

    change: ChangeSettings | None = None
    """Raised when the figure's level changes."""

    clear: float | None = None
    """Hysteresis: cleared only once the figure is back on this side of the limit; left out, the limit itself."""

    hold_ns: DurationNs = 0
    """The condition must have held for this long, without a break, before an event is raised."""

    clear_hold_ns: DurationNs | None = None
    """The condition must have been over for this long before the event is cleared; default: `hold`."""

    match: tuple[str, ...] = ()
    """Shell patterns of subjects, as 's1->*', '10.0.0.1:*->*/17', 'node 7 hw *' or 'job 3 at *: h2'; left out, all."""

    per_second: bool = False
    """Take the figure's growth per second instead of the figure: for counters, as a reporter's `lost`."""

    least_samples: DurationNs = 0
    """Links, paths, jobs and children with fewer samples behind their figures are not judged."""

    evidence: Annotated[int, Meta(ge=1, le=1000)] = 8
    """Number of newest observations attached to an event."""

    def __post_init__(self) -> None:
        """Raise ValueError for errors that a schema cannot express."""
        if self.figure not in FIGURES[self.scope]:
            names = ", ".join(FIGURES[self.scope])
            raise ValueError(f"rule {self.name!r}: a {self.scope} has no figure {self.figure!r}; it has {names}")
        if sum(kind is not None for kind in (self.above, self.below, self.change)) != 1:
            raise ValueError(f"rule {self.name!r}: exactly one of above, below and change is required")
        if self.least_samples and self.scope is Scope.REPORTER:
            raise ValueError(f"rule {self.name!r}: a reporter has no samples")
        if self.clear is not None:
            self._check_clear(self.clear)

    def _check_clear(self, clear: float) -> None:
        if self.change is not None:
            raise ValueError(f"rule {self.name!r}: clear requires above or below; change does not take it")
        if (self.above is not None and clear > self.above) or (self.below is not None and clear < self.below):
            raise ValueError(f"rule {self.name!r}: clear is on the wrong side of the limit")


class RuleSettings(Settings, frozen=True):
    """The rules and how they are evaluated."""

    rules: tuple[Rule, ...] = ()
    """The rules; none: nothing is evaluated."""

    interval_ns: Positive = 100_000_000
    """Time between two evaluations."""

    max_subjects: Positive = 65_536
    """Maximum number of subjects tracked over all rules; any beyond are counted and not judged."""

    keep_events: Positive = 10_000
    """Number of events kept for later queries."""

    database: str | None = None
    """File that keeps acknowledgements and rules changed at run time across restarts; null: they end with it."""

    def __post_init__(self) -> None:
        """Raise ValueError for rules that share a name."""
        check_names(self.rules)


def check_names(rules: tuple[Rule, ...]) -> None:
    """Raise ValueError unless every rule has a different name."""
    names = [rule.name for rule in rules]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two rules are named {twice!r}")
