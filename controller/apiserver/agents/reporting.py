"""Timing of agent reports, shared by the node manager and the centre agent."""

from __future__ import annotations

from typing import Final

TRIES: Final = 2
"""Attempts per request; afterwards the agent retries with its state at that time."""
FIRST_REPORT_S: Final = 10.0
"""Interval between reports until the first answer gives the lease."""
AGAIN_S: Final = 1.0
"""Delay after a failure."""
SIGN_OFF_S: Final = 5.0
"""Time limit for the last report: stopping an agent waits for it."""
NO_ANSWER: Final = "the API server did not answer in time"
_REPORTS_IN_A_LEASE: Final = 4
_LEAST_REPORT_S: Final = 0.01
_LEAST_PATIENCE_S: Final = 0.5


def report_s(wanted_s: float | None, lease_s: float) -> float:
    """Return the report interval: the configured one, or else short enough to lose a few reports within a lease."""
    return wanted_s or max(lease_s / _REPORTS_IN_A_LEASE, _LEAST_REPORT_S)


def patience_s(each_s: float) -> float:
    """Return the time limit for a report, given the interval between reports."""
    return max(each_s, _LEAST_PATIENCE_S)
