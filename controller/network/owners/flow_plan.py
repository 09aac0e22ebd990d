"""Changes of explicit paths across switches, in an order in which no packet meets half a path.

For each flow the new entries are made from the destination back to the source, so that a packet on the new path
finds it complete; only when all are made, entries that no path needs are removed, from the source onward, so that the
rest of an old path always still leads to its end. Both orders keep every intermediate state free of loops, whatever
mix of old path, new path and base routes a packet meets on its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from finsy import P4TableAction, P4TableEntry

from controller.network.owners.steps import Phase, Step, UpdatePlan
from controller.network.tables.entities import Entities, Entity, EntityKey, Update, Verb, same
from dataplane.topology.values import Topology

SwitchUpdate = tuple[str, Update]


def plan(
    topology: Topology,
    desired: Mapping[str, Entities],
    held: Mapping[str, Entities],
    live: Set[str],
    refused: Set[EntityKey] = frozenset(),
) -> UpdatePlan:
    """Return the steps of flow entries from `held` to `desired`, by switch name; refused keys stay as they are."""
    makes: list[list[SwitchUpdate]] = []
    breaks: list[list[SwitchUpdate]] = []
    pending: set[EntityKey] = set()
    changed = _changed(desired, held)
    wants, haves = _by_key(desired, changed), _by_key(held, changed)
    for key in sorted(changed):
        want, have = wants[key], haves[key]
        if key in refused or not want.keys() <= live:
            pending.add(key)
            continue
        makes.append(_makes(topology, key, want, have))
        sequence = _breaks(topology, key, want, have)
        reachable = _until_dead(sequence, live)
        breaks.append(reachable)
        if len(reachable) < len(sequence):
            pending.add(key)
    steps = [*_steps(Phase.MAKE, makes), *_steps(Phase.BREAK, breaks)]
    return UpdatePlan(tuple(steps), frozenset(pending))


def restorable(
    topology: Topology, switch: str, desired: Mapping[str, Entities], held: Mapping[str, Entities]
) -> dict[EntityKey, Entity]:
    """Return the desired flow entries of one switch whose next hops are already in place on the others."""
    entries: dict[EntityKey, Entity] = {}
    for key, entity in desired.get(switch, {}).items():
        want, have = _by_switch(desired, key), _by_switch(held, key)
        onward = _onward(topology, switch, want)
        if all(name in have and same(have[name], want[name]) for name in onward):
            entries[key] = entity
    return entries


def _changed(desired: Mapping[str, Entities], held: Mapping[str, Entities]) -> set[EntityKey]:
    """Return the flows whose entries on some switch differ from the desired ones: usually few of a thousand."""
    changed: set[EntityKey] = set()
    for switch in desired.keys() | held.keys():
        want, have = desired.get(switch, {}), held.get(switch, {})
        missing = 0
        for key, entity in want.items():
            other = have.get(key)
            if other is None:
                missing += 1
            if other is None or not same(other, entity):
                changed.add(key)
        if len(have) != len(want) - missing:
            changed |= have.keys() - want.keys()
    return changed


def _by_key(side: Mapping[str, Entities], keys: Set[EntityKey]) -> dict[EntityKey, dict[str, Entity]]:
    """Return the entries of each of these flows by switch."""
    entries: dict[EntityKey, dict[str, Entity]] = {key: {} for key in keys}
    for switch, entities in side.items():
        for key in entities.keys() & keys:
            entries[key][switch] = entities[key]
    return entries


def _by_switch(side: Mapping[str, Entities], key: EntityKey) -> dict[str, Entity]:
    return {switch: entities[key] for switch, entities in side.items() if key in entities}


def _makes(
    topology: Topology, key: EntityKey, want: Mapping[str, Entity], have: Mapping[str, Entity]
) -> list[SwitchUpdate]:
    """Return the writes for one flow, the switch nearest to the destination first."""
    updates: list[SwitchUpdate] = []
    for switch in sorted(want, key=lambda name: (len(_onward(topology, name, want)), name)):
        if switch not in have:
            updates.append((switch, Update(Verb.INSERT, key, want[switch])))
        elif not same(have[switch], want[switch]):
            updates.append((switch, Update(Verb.MODIFY, key, want[switch])))
    return updates


def _breaks(
    topology: Topology, key: EntityKey, want: Mapping[str, Entity], have: Mapping[str, Entity]
) -> list[SwitchUpdate]:
    """Return the removals for one flow, the switch farthest from the destination first."""
    stale = sorted(have.keys() - want.keys(), key=lambda name: (-len(_onward(topology, name, have)), name))
    return [(switch, Update(Verb.DELETE, key, have[switch])) for switch in stale]


def _until_dead(sequence: list[SwitchUpdate], live: Set[str]) -> list[SwitchUpdate]:
    """Stop before a switch that is gone: it may still send to those behind it."""
    dead = next((index for index, (switch, _) in enumerate(sequence) if switch not in live), len(sequence))
    return sequence[:dead]


def _onward(topology: Topology, switch: str, entries: Mapping[str, Entity]) -> list[str]:
    """Return the switches that entries lead to from `switch`, itself left out; ends at the first repetition."""
    passed = [switch]
    while (peer := _peer(topology, passed[-1], entries.get(passed[-1]))) in entries and peer not in passed:
        passed.append(peer)
    return passed[1:]


def _peer(topology: Topology, switch: str, entity: Entity | None) -> str:
    """Return the neighbour at the port that an entry forwards to, '' if unknown."""
    if not isinstance(entity, P4TableEntry) or not isinstance(entity.action, P4TableAction):
        return ""
    peer = topology.neighbours[switch].get(entity.action.args.get("egress_port", 0))
    return "" if peer is None else peer.node


def _steps(phase: Phase, sequences: list[list[SwitchUpdate]]) -> Iterable[Step]:
    """Merge sequences: the first updates of all flows go together, then the second ones."""
    for index in range(max(map(len, sequences), default=0)):
        updates: dict[str, list[Update]] = {}
        for sequence in sequences:
            if index < len(sequence):
                switch, update = sequence[index]
                updates.setdefault(switch, []).append(update)
        yield Step(phase, {switch: tuple(batch) for switch, batch in updates.items()})
