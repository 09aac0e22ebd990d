"""Contents of a switch's tables as comparable values, without entries that change with any traffic."""

from __future__ import annotations

from collections.abc import Mapping

from controller.network.tables.entities import Entity, EntityKey, content_of
from dataplane.store.names import digest


def steady(held: Mapping[EntityKey, Entity], name: str) -> dict[EntityKey, object]:
    """Return all but the hot names' interval, and the copy of the one name that is read."""
    changing = (digest(name), 0)
    return {
        key: content_of(entity)
        for key, entity in held.items()
        if key.table != "store_hot_names" and not (key.table == "store_names" and dict(key.match)["name"] in changing)
    }


def differences(before: Mapping[EntityKey, object], after: Mapping[EntityKey, object]) -> list[str]:
    """Return the entries that came, went or changed."""
    return sorted(str(key) for key in before.keys() | after.keys() if before.get(key) != after.get(key))
