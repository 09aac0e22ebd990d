"""Membership of flows: which the path server manages, and when it admits, replaces and forgets them.

When there are more than it can manage, it keeps the heaviest. Flows that a decision or a person put on a path stay; of
the others those with the lowest rates are replaced by those with clearly higher ones. A newcomer must send twice as
much: a rate from few packets is uncertain, and a flow that alternates would lose the decider's state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.common.errors import PathError
from controller.network.algorithms.link_table import Flags, Longs
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.graph import Network
from controller.network.paths.managed_flows import ManagedFlows
from controller.network.paths.seen_flows import SeenFlows, SeenRows
from dataplane.clock import NS_PER_S

REPLACED_EVERY_NS: Final = NS_PER_S
_CLEARLY: Final = 2


class Membership:
    """The managed flows: those that the settings list, or else those that telemetry shows, up to `most`.

    `listed` are the settings' flows with their rates; if there are any, no other flow is managed, and none is
    forgotten. `counters` counts flows over the limit and replaced ones.
    """

    def __init__(
        self,
        network: Network,
        seen: SeenFlows,
        listed: Mapping[FlowSpec, int | None],
        counters: Counter[str],
        *,
        most: int,
        forget_after_ns: int,
    ) -> None:
        for flow in listed:
            for host in (flow.src_host, flow.dst_host):
                if host not in network.topology.attachment:
                    raise PathError(f"flows: topology {network.topology.name} has no host {host!r}")
        self.listed, self.most = listed, most
        self.flows = ManagedFlows(network, seen.code)
        self.flows.add(listed, 0)
        self._seen, self._counters, self._forget_after_ns = seen, counters, forget_after_ns
        self._replaced_ns = -REPLACED_EVERY_NS

    def manages(self, flow: FlowSpec) -> bool:
        """Return whether the settings allow managing a flow."""
        return not self.listed or flow in self.listed

    @property
    def is_full(self) -> bool:
        """True if no flow can be added without replacing another."""
        return not self.listed and len(self.flows) >= self.most

    def discover(self, seen: SeenRows, held: Collection[FlowSpec], now_ns: int) -> list[FlowSpec]:
        """Admit the flows that telemetry shows; return those that newcomers replaced, never one of `held`."""
        if self.listed:
            return []
        # Restored: when it was last seen is unknown, and the collector may have just started, too.
        self.flows.add(held, now_ns)
        shown = seen.shown
        numbers = self.flows.numbers(shown)
        self.flows.seen_ns[numbers[numbers >= 0]] = now_ns
        new, room = shown[numbers < 0], max(self.most - len(self.flows), 0)
        replaced: list[FlowSpec] = []
        if len(new) > room:
            new, replaced = self._admit(new, seen, held, room, now_ns)
        self.flows.add(map(self._seen.flow, new.tolist()), now_ns)
        return replaced

    def forget(self, pinned: Collection[FlowSpec], now_ns: int) -> list[FlowSpec]:
        """Drop flows not seen for long, and return them; those `pinned` stay."""
        if self.listed:
            return []
        old = self.flows.seen_ns < now_ns - self._forget_after_ns
        old[[number for number, _ in self.flows.among(pinned)]] = False
        if not old.any():
            return []
        gone = [self.flows.names[number] for number in np.flatnonzero(old).tolist()]
        self.flows.remove(old)
        return gone

    def _admit(
        self, new: Longs, seen: SeenRows, held: Collection[FlowSpec], room: int, now_ns: int
    ) -> tuple[Longs, list[FlowSpec]]:
        """Return the codes of the newcomers to manage from now on, and the flows that were dropped for them.

        Flows are replaced once a second at most, as all state of flows by number must then be rebuilt.
        """
        may_replace = not 0 <= now_ns - self._replaced_ns < REPLACED_EVERY_NS
        self._replaced_ns = now_ns if may_replace else self._replaced_ns
        stays = np.full(len(self.flows), not may_replace)
        stays[[number for number, _ in self.flows.among(held)]] = True
        codes = np.array([self._seen.code(flow) for flow in self.flows], np.int64)
        admission = admit(seen.sent_bps(new), seen.sent_bps(codes), stays, room=room)
        self._counters["flows_over_limit"] += len(new) - len(admission.admitted)
        self._counters["flows_replaced"] += len(admission.removed)
        replaced = [self.flows.names[number] for number in admission.removed.tolist()]
        if replaced:
            gone = np.zeros(len(self.flows), np.bool_)
            gone[admission.removed] = True
            self.flows.remove(gone)
        return new[admission.admitted], replaced


@dataclass(frozen=True, slots=True)
class Admission:
    """Rows of the newcomers that are admitted, heaviest first, and of the known flows that make room for them."""

    admitted: Longs
    removed: Longs


def admit(new_bps: Longs, known_bps: Longs, held: Flags, *, room: int) -> Admission:
    """Return which newcomers are admitted with `room` free places.

    `new_bps` and `known_bps` are the rates of newcomers and known flows, 0 if unknown; known flows that are
    `held` never make room. Of equal newcomers the first is admitted, of equal known flows the first makes room.
    """
    heaviest = np.argsort(-new_bps, kind="stable")
    challengers = heaviest[room:]
    movable = np.flatnonzero(~held)
    lightest = movable[np.argsort(known_bps[movable], kind="stable")]
    count = min(len(challengers), len(lightest))
    # Challengers get lighter and their opponents heavier: once one loses, all that follow do.
    wins = int((new_bps[challengers[:count]] > _CLEARLY * known_bps[lightest[:count]]).sum())
    return Admission(heaviest[: room + wins], lightest[:wins])
