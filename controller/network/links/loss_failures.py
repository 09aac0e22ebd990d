"""Link failures by loss, confirmed over two rounds: a single report, true or forged, takes no link out of use.

A link whose loss reaches `dead_loss` is suspected. It is dead once the packets reported as lost since then, relative to
those measured on it, reach `dead_loss` by themselves; that takes further, later reports, and enough packets measured on
the link in the meantime: of few packets, a few drops are already most. Until then deciders do not see its loss. It
stays dead until the loss is lower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from collectors.state.link_states import LinkStates
from collectors.values import LinkState, Snapshot
from controller.network.links.settings import LEAST_SAMPLES
from dataplane.topology.values import LinkKey


@dataclass(frozen=True, slots=True)
class _Suspect:
    """Time since when a link's loss has been that of a dead one, packets lost until then, and whether it is dead."""

    since_ns: int
    lost_packets: int | None
    is_dead: bool = False


class LossFailureDetector:
    """Remembers suspected links from round to round, no more than a snapshot has."""

    def __init__(self, dead_loss: float, least_samples: int = LEAST_SAMPLES) -> None:
        self._dead_loss, self._least_samples = dead_loss, max(least_samples, 1)
        self._suspects: dict[LinkKey, _Suspect] = {}

    def confirmed(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot without unconfirmed losses; the same snapshot may be passed again."""
        lossy = self._lossy(snapshot.links)
        self._suspects = {key: self._evaluate(state, snapshot.taken_ns) for key, state in lossy.items()}
        doubted = {key: replace(state, loss=None) for key, state in lossy.items() if not self._suspects[key].is_dead}
        return replace(snapshot, links={**snapshot.links, **doubted}) if doubted else snapshot

    def _lossy(self, links: Mapping[LinkKey, LinkState]) -> dict[LinkKey, LinkState]:
        if isinstance(links, LinkStates):
            keys = list(links)
            places = np.flatnonzero(links.floats("loss") >= self._dead_loss)  # an unknown loss, NaN, is not
            return {keys[row]: links[keys[row]] for row in places.tolist()}
        return {key: state for key, state in links.items() if state.loss is not None and state.loss >= self._dead_loss}

    def _evaluate(self, state: LinkState, now_ns: int) -> _Suspect:
        suspect = self._suspects.get(state.link)
        if suspect is None or _is_restarted(state, suspect):
            return _Suspect(now_ns, state.lost_packets)
        if suspect.is_dead or now_ns <= suspect.since_ns or state.samples < self._least_samples:
            return suspect
        if state.lost_packets is None or suspect.lost_packets is None:
            return replace(suspect, is_dead=True)
        lost = state.lost_packets - suspect.lost_packets
        return replace(suspect, is_dead=lost > 0 and lost / (lost + state.samples) >= self._dead_loss)


def _is_restarted(state: LinkState, suspect: _Suspect) -> bool:
    """Return whether a link's count has fallen: it is another collector's."""
    return (state.lost_packets or 0) < (suspect.lost_packets or 0)
