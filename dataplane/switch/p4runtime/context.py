"""What a request works on: one program's ids and its state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from finsy.proto import p4r

from dataplane.switch.p4runtime.catalog import Catalog
from dataplane.switch.p4runtime.errors import invalid
from dataplane.switch.tables import ForwardingState


@dataclass(frozen=True, slots=True)
class Context:
    """A program's ids and the state that goes with them."""

    catalog: Catalog
    state: ForwardingState


class UpdateKind(Enum):
    """What an update does to its entity."""

    INSERT = p4r.Update.INSERT
    MODIFY = p4r.Update.MODIFY
    DELETE = p4r.Update.DELETE


def require_modify(kind: UpdateKind, what: str) -> None:
    """Raise INVALID_ARGUMENT unless the update is a MODIFY, for entities that always exist."""
    if kind is not UpdateKind.MODIFY:
        raise invalid(f"{what} can only be modified, not inserted or deleted")
