"""Delays of links from round trips: what a session to a link's far end takes longer than one to its near end; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from collectors.errors import CollectorError
from collectors.exporters.links import ExportedLinks
from collectors.stamp.settings import StampSettings
from collectors.state.link_states import LinkStates
from collectors.values import DelaySource, LoadSource
from dataplane.topology.values import DirectedLink, LinkKey, Topology


@dataclass(frozen=True, slots=True)
class Trip:
    """One probe's times on the way there and back; without synchronised clocks each is half of their sum."""

    there_ns: int
    back_ns: int


@dataclass(frozen=True, slots=True)
class _Session:
    """A session: the session before the rest of its path, None if there is none, and the rest, there and back."""

    before: int | None
    there: tuple[DirectedLink, ...]
    back: tuple[DirectedLink, ...]


class StampLinks:
    """Links of the sessions' paths; raises CollectorError, which names the key, for paths that do not fit.

    A session's excess is its trip's time beyond the propagation of its path. What it exceeds that of the session to the
    path's longest measured part is the queueing of the one cable between them; if there are more, of none.
    """

    def __init__(self, topology: Topology, settings: StampSettings, key: str = "stamp.sessions") -> None:
        self._links = ExportedLinks(
            topology, LoadSource.TELEMETRY, settings.stale_after_ns, delay_source=DelaySource.PROBES
        )
        paths = [session.path for session in settings.sessions]
        cables = [_cables(topology, path, f"{key}[{number}].path") for number, path in enumerate(paths)]
        self._propagation = [tuple(sum(link.delay_ns for link in way) for way in both) for both in cables]
        self._sessions: list[_Session] = []
        for number, (path, (there, back)) in enumerate(zip(paths, cables, strict=True)):
            if path in paths[:number]:
                raise CollectorError(f"{key}[{number}].path: {' '.join(path)} is that of another session")
            parts = [other for other, before in enumerate(paths) if path[: len(before)] == before and path != before]
            before = max(parts, key=lambda other: len(paths[other]), default=None)
            known = 0 if before is None else len(cables[before][0])
            self._sessions.append(_Session(before, there[known:], back[known:]))

    def take(self, trips: Sequence[Trip | None], now_ns: int) -> None:
        """Take one probe of each session, None for one without an answer."""
        excess = [
            None if trip is None else (trip.there_ns - there_ns, trip.back_ns - back_ns)
            for trip, (there_ns, back_ns) in zip(trips, self._propagation, strict=True)
        ]
        for session, own in zip(self._sessions, excess, strict=True):
            base = (0, 0) if session.before is None else excess[session.before]
            if own is None or base is None or len(session.there) != 1:
                continue
            for link, beyond_ns in ((session.there[0], own[0] - base[0]), (session.back[0], own[1] - base[1])):
                self._links.take_transit(link.tail, max(beyond_ns, 0), now_ns)

    def complete(self, links: LinkStates, now_ns: int) -> LinkStates:
        """Return links with these delays where telemetry gives none."""
        return self._links.complete(links, now_ns)


def _cables(
    topology: Topology, path: tuple[str, ...], key: str
) -> tuple[tuple[DirectedLink, ...], tuple[DirectedLink, ...]]:
    """Return a path's links there, and those back in the same order."""
    ways = []
    for near, far in pairwise(path):
        there, back = (topology.directed_links.get(LinkKey(*ends)) for ends in ((near, far), (far, near)))
        if there is None or back is None:
            raise CollectorError(f"{key}: there is no link from {near} to {far} in {topology.name}")
        ways.append((there, back))
    if not ways:
        raise CollectorError(f"{key}: a path has two nodes at least")
    return tuple(there for there, _ in ways), tuple(back for _, back in ways)
