"""Link conditions as the controller reported them: kept for a while, because their reporter may be gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from collectors.values import LinkStatus
from dataplane.topology.values import LinkKey, Topology

FORGOTTEN_NS: Final = 10_000_000_000
"""Time without a report after which link conditions are unknown; reports are repeated every few seconds."""


class LinkNotes:
    """The newest report on a topology's links; ages continue from their values at its arrival."""

    def __init__(self, topology: Topology) -> None:
        self._known = topology.directed_links.keys()
        self._statuses: Mapping[LinkKey, LinkStatus] = {}
        self._told_ns = 0

    def note(self, statuses: Mapping[LinkKey, LinkStatus], now_ns: int) -> None:
        """Take the condition of all watched links, in place of the previous one."""
        self._statuses = {key: status for key, status in statuses.items() if key in self._known}
        self._told_ns = now_ns

    def statuses(self, now_ns: int) -> Mapping[LinkKey, LinkStatus]:
        """Return the known conditions of links; none without a report for `FORGOTTEN_NS`."""
        waited_ns = now_ns - self._told_ns
        if waited_ns > FORGOTTEN_NS:
            return {}
        return {key: replace(status, age_ns=status.age_ns + waited_ns) for key, status in self._statuses.items()}
