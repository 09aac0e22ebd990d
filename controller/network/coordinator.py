"""Desired and known state of every switch, and the next writes; no session, no clock.

All of it comes from the owners of tables (`controller/network/owners`), none of which it knows by name. Both drivers
(gRPC, and virtual time in one process) do the same: pass on what they read from a switch, send what `reconcile`, `sync`
and `next_step` return, and report the outcome. They differ only in how a batch is sent and how time passes. Everything
is level triggered: the next write follows from the desired and the current state.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence, Set
from itertools import combinations

from controller.common.errors import ControllerError, SessionError
from controller.network.owners.base import ListeningOwner, ObservedState, Owner, Refusal, StagedOwner, Verdict
from controller.network.owners.steps import Phase, Step, UpdatePlan, merged
from controller.network.reconcile import apply, chunks, diff
from controller.network.tables.base import FILL_ORDER
from controller.network.tables.entities import Batch, Entities, Entity, EntityKey, Kind, Update, same
from dataplane.topology.values import LinkKey, Topology

_UNIMPLEMENTED = "UNIMPLEMENTED"

Exchange = Generator[Batch, SessionError | None, int | None]
"""Batches for one switch, each answered by None when it is acknowledged, else by the write error.

It returns the number of updates acknowledged, None if the switch must be read again, and raises the error if the
switch cannot be used.
"""


class Coordinator:
    """The tables of a whole fabric, desired and held."""

    def __init__(self, topology: Topology, owners: Sequence[Owner]) -> None:
        """Begin with nothing held; raise ControllerError if two owners want an entity in different ways.

        Owners are asked in this order: if several want an entity, the last one's version applies.
        """
        self.topology, self.owners = topology, tuple(owners)
        self.staged = tuple(owner for owner in self.owners if isinstance(owner, StagedOwner))
        self.listening = tuple(owner for owner in self.owners if isinstance(owner, ListeningOwner))
        self._held: dict[str, Entities] = {}
        self._live: set[str] = set()
        self.known = ObservedState(self._held, self._live)
        """State shown to owners."""
        self._order = (*FILL_ORDER, *(table for owner in self.owners for table in owner.fill_order))
        self.down: frozenset[LinkKey] = frozenset()
        """The links known to be dead."""
        self._made_ns: int | None = None
        for node in topology.switches:
            _check_agreement(node.name, self.owners)

    @property
    def live(self) -> frozenset[str]:
        """The switches whose tables are known and can be written."""
        return frozenset(self._live)

    @property
    def is_everybody_right(self) -> bool:
        """Return whether all switches are live and have gone through all stages; there may be steps left."""
        return len(self._live) == len(self.topology.switches) and all(owner.is_settled for owner in self.staged)

    def held(self, switch: str) -> Entities:
        """Return a switch's known entities, none for one never seen."""
        return self._held.get(switch, {})

    def wanted(self, switch: str) -> dict[EntityKey, Entity]:
        """Return a switch's desired entities in the final state."""
        return {key: entity for owner in self.owners for key, entity in owner.wanted(switch).items()}

    def samples(self) -> Iterator[Entity]:
        """Yield entities of every kind that the switches' program must support."""
        for owner in self.owners:
            yield from owner.samples(self.topology.switches[0].name)

    def avoid(self, down: Set[LinkKey]) -> bool:
        """Avoid these links from now on, both ways; return whether they differ from the previous ones."""
        if down == self.down:
            return False
        self.down = frozenset(down)
        for owner in self.owners:
            owner.avoid(self.down)
        return True

    def installed(self, switch: str) -> None:
        """Note that a switch has just received its program."""
        for owner in self.owners:
            owner.installed(switch)

    def reconcile(self, switch: str, actual: Entities) -> Exchange:
        """Bring a switch that holds `actual` to the state that is safe immediately; from then on steps may use it."""
        count = yield from self._write(switch, self.connected(switch, actual))
        if count is not None:
            self.reconciled(switch)
        return count

    def sync(self, switch: str) -> Exchange:
        """Bring a reconciled switch to its owners' desired state, one owner after the other."""
        total = 0
        for owner in self.owners:
            while batches := owner.next_batches(switch, self.known):
                count = yield from self._write(switch, batches, in_order=True)
                if count is None:
                    return None
                total += count
        if switch in self._live:
            for owner in self.owners:
                owner.confirmed(switch, self.held(switch))
        return total

    def write(self, switch: str, updates: Sequence[Update]) -> Exchange:
        """Write a switch's part of a step."""
        return (yield from self._write(switch, chunks(updates)))

    def is_right(self, switch: str) -> bool:
        """Return whether no owner has updates for this switch alone."""
        return not any(owner.next_batches(switch, self.known) for owner in self.owners)

    def connected(self, switch: str, actual: Entities) -> list[Batch]:
        """Take what was read from a switch and return the updates that are safe immediately.

        Entities that no owner wants are removed. Those that must change in a safe order across switches are kept: the
        steps that follow change them.
        """
        for owner in self.owners:
            owner.found(switch, actual)
        wanted: dict[EntityKey, Entity] = {}
        for owner in self.owners:
            wanted.update(owner.restored(switch, actual, self.known))
        self._held[switch] = actual
        return diff(wanted, actual, order=self._order)

    def reconciled(self, switch: str) -> None:
        """Note that everything from `connected` is acknowledged: from now on steps may use the switch."""
        self._live.add(switch)

    def lost(self, switch: str) -> None:
        """Note that a switch is gone, or that its contents are unknown."""
        self._live.discard(switch)
        for owner in self.owners:
            owner.lost(switch)

    def acknowledged(self, switch: str, updates: Sequence[Update]) -> None:
        """Note that updates took effect; registers are not held, as packets write them, too."""
        entities = [update for update in updates if update.key.kind is not Kind.REGISTER]
        if entities:
            self._held[switch] = apply(self.held(switch), entities)
        for owner in self.owners:
            owner.acknowledged(switch, updates)

    def refused(self, switch: str, batch: Batch, error: SessionError) -> Verdict:
        """Tell owners which updates of a batch a switch refused, and return the consequence."""
        refused: dict[int, list[Update]] = {}
        for index in _refused(batch, error):
            refused.setdefault(self._owner_of(batch[index].key), []).append(batch[index])
        verdicts = [
            Verdict.INSISTS
            if number < 0
            else self.owners[number].refused(Refusal(switch, tuple(updates), error.code, str(error)))
            for number, updates in refused.items()
        ]
        return max(verdicts, default=Verdict.INSISTS)

    def forgive(self) -> None:
        """Allow refused updates to be retried: a switch has returned, possibly with room or another program."""
        for owner in self.owners:
            owner.forgive()

    def plan(self) -> UpdatePlan:
        """Return the steps to the desired state, make before break."""
        return merged([owner.plan(self.known) for owner in self.owners])

    def next_step(self) -> Step | None:
        """Return the step that may be sent now, None if none is left."""
        steps = self.plan().steps
        return steps[0] if steps else None

    def stepped(self, step: Step, now_ns: int) -> None:
        """Note that a step was sent, and acknowledged as far as it will be."""
        if step.phase is Phase.MAKE:
            self._made_ns = now_ns

    def not_before_ns(self, step: Step, drain_ns: int) -> int:
        """Return when a step may take effect: packets get `drain_ns` to leave entries that it removes."""
        return 0 if step.phase is Phase.MAKE or self._made_ns is None else self._made_ns + drain_ns

    def _write(self, switch: str, batches: Iterable[Batch], *, in_order: bool = False) -> Exchange:
        """Write batches; with `in_order`, batches after one with omitted updates are not sent."""
        count = 0
        for batch in batches:
            error = yield batch
            if error is None:
                self.acknowledged(switch, batch)
                count += len(batch)
                continue
            verdict = self.refused(switch, batch, error)
            if verdict is Verdict.INSISTS:
                raise error
            if verdict is Verdict.SPARED:
                return None
            refused = _refused(batch, error)
            self.acknowledged(switch, [update for index, update in enumerate(batch) if index not in refused])
            if verdict is Verdict.LEFT and in_order:
                break
        return count

    def _owner_of(self, key: EntityKey) -> int:
        """Return the index of an entity's owner; -1 for an unwanted leftover without one."""
        return next((index for index, owner in enumerate(self.owners) if owner.owns(key)), -1)


def _refused(batch: Batch, error: SessionError) -> Sequence[int]:
    """Return the indices of refused updates: all, if a target reports that it does not implement them."""
    return error.refused or (range(len(batch)) if error.code == _UNIMPLEMENTED else ())


def _check_agreement(switch: str, owners: Sequence[Owner]) -> None:
    wanted = [(owner, owner.wanted(switch)) for owner in owners]
    for (owner, left), (other, right) in combinations(wanted, 2):
        for key in left.keys() & right.keys():
            if not same(left[key], right[key]):
                raise ControllerError(f"switch {switch}: {key}: {owner.name} and {other.name} want different content")
