"""Context of a request: one program's ids, its state, and P4Runtime's own data for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from finsy.proto import p4r

from dataplane.switch.p4runtime.catalog import Catalog
from dataplane.switch.p4runtime.control import SwitchControl
from dataplane.switch.p4runtime.digests import Learner
from dataplane.switch.p4runtime.errors import invalid
from dataplane.switch.p4runtime.idle import IdleWatch
from dataplane.switch.p4runtime.used_strings import used_numbers
from dataplane.switch.tables import ForwardingState

Undo = Callable[[], None]
"""Restores an entity to its earlier state."""


@dataclass(frozen=True, slots=True)
class Context:
    """A program's ids, the associated state, and the switch that runs it or will.

    `learners` are the digests' by name; `idle` belongs to the holder of the state's lock.
    """

    catalog: Catalog
    state: ForwardingState
    control: SwitchControl
    learners: dict[str, Learner] = field(default_factory=dict)
    idle: IdleWatch = field(default_factory=IdleWatch)

    @classmethod
    def of(cls, catalog: Catalog, state: ForwardingState, control: SwitchControl) -> Context:
        """Return the context of a state, whose entries may already have times to live."""
        learners = {info.spec.name: Learner() for info in catalog.digests.values()}
        context = cls(catalog, state, control, learners)
        with state.lock:
            context.idle.watch_all(state)
            for strings, numbers in used_numbers(catalog, state).items():
                strings.reserve(numbers)
        return context

    def make_room(self) -> None:
        """Forget unused strings of types that are close to their maximum; the lock is held."""
        if any(strings.is_crowded() for strings in self.catalog.strings):
            used = used_numbers(self.catalog, self.state)
            for strings in self.catalog.strings:
                strings.keep(used.get(strings, ()))


class UpdateKind(Enum):
    """Effect of an update on its entity."""

    INSERT = p4r.Update.INSERT
    MODIFY = p4r.Update.MODIFY
    DELETE = p4r.Update.DELETE


def require_modify(kind: UpdateKind, what: str) -> None:
    """Raise INVALID_ARGUMENT unless the update is a MODIFY, for entities that always exist."""
    if kind is not UpdateKind.MODIFY:
        raise invalid(f"{what} can only be modified, not inserted or deleted")
