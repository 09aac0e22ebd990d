"""When an agent reports, and how long it waits: the same for the manager of a node and for the agent of a centre."""

from __future__ import annotations

from typing import Final

TRIES: Final = 2
"""Of each request; what comes to nothing is tried again with what is known then."""
FIRST_REPORT_S: Final = 10.0
"""Between two reports, before the first answer has told of the lease."""
AGAIN_S: Final = 1.0
"""After something that failed."""
SIGN_OFF_S: Final = 5.0
"""The last report has so long: whoever stops an agent waits for it."""
NO_ANSWER: Final = "the API server does not answer in time"
_REPORTS_IN_A_LEASE: Final = 4
_LEAST_REPORT_S: Final = 0.01
_LEAST_PATIENCE_S: Final = 0.5


def report_s(wanted_s: float | None, lease_s: float) -> float:
    """Return the time between two reports: what the settings say, else such that some may be lost within a lease."""
    return wanted_s or max(lease_s / _REPORTS_IN_A_LEASE, _LEAST_REPORT_S)


def patience_s(each_s: float) -> float:
    """Return how long a report has, where there is one every so many seconds."""
    return max(each_s, _LEAST_PATIENCE_S)
