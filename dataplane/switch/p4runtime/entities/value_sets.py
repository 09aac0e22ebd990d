"""ValueSetEntry: the members of parser value sets (specification, section 9.6)."""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4r

from dataplane.switch.p4runtime import codec
from dataplane.switch.p4runtime.context import Context, Undo, UpdateKind, require_modify
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError


def write(context: Context, kind: UpdateKind, message: p4r.ValueSetEntry) -> None:
    """Set all members at once; none empties the set."""
    info = context.catalog.value_set(message.value_set_id)
    require_modify(kind, f"{info.spec.name}: a value set")
    members = [codec.decode_match(info.key, member.match) for member in message.members]
    if len(set(members)) != len(members):
        raise P4RuntimeError(Code.ALREADY_EXISTS, f"{info.spec.name}: a member appears twice")
    context.state.value_sets[info.spec.name].replace(members)


def undo(context: Context, message: p4r.ValueSetEntry) -> Undo:
    """Return a function that restores the set's present members."""
    value_set = context.state.value_sets[context.catalog.value_set(message.value_set_id).spec.name]
    present = value_set.members
    return lambda: value_set.replace(present)


def read(context: Context, message: p4r.ValueSetEntry) -> Iterator[p4r.Entity]:
    """Return one value set, or all."""
    catalog = context.catalog
    infos = [catalog.value_set(message.value_set_id)] if message.value_set_id else list(catalog.value_sets.values())
    sets = [(info, context.state.value_sets[info.spec.name].members) for info in infos]

    def encode() -> Iterator[p4r.Entity]:
        for info, members in sets:
            entry = p4r.ValueSetEntry(value_set_id=info.value_set_id)
            for member in members:
                entry.members.add(match=codec.encode_match(info.key, member))
            yield p4r.Entity(value_set_entry=entry)

    return encode()
