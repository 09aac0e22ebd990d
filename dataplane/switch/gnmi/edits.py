"""The edits of a Set, as a pure function of the request and the current ports (gNMI, section 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from finsy.proto import gnmi

from dataplane.errors import SwitchError
from dataplane.switch.gnmi.errors import GnmiError, exhausted, invalid, not_found, unimplemented
from dataplane.switch.gnmi.leaves import ENABLED, HELLOS_ENABLED, HELLOS_INTERVAL, HELLOS_MULTIPLIER
from dataplane.switch.gnmi.matching import Selection, select
from dataplane.switch.gnmi.paths import ANY, ANY_DEPTH, Path, read_path, shown
from dataplane.switch.gnmi.schema import Kind, Leaf, PortView, Value
from dataplane.switch.gnmi.values import Json, read_value
from dataplane.switch.ports.states import NS_PER_US, HelloSettings

MAX_OPERATIONS: Final = 1_024
"""Maximum deletes, replaces and updates of one request."""


@dataclass(frozen=True, slots=True)
class PortConfig:
    """The configurable state of a port."""

    enabled: bool
    hellos: bool
    settings: HelloSettings

    @classmethod
    def of(cls, view: PortView) -> PortConfig:
        """Return a port's current configuration."""
        return cls(view.state.admin_up, view.state.hello is not None, view.hellos)


def edited(request: gnmi.SetRequest, views: Sequence[PortView]) -> dict[int, tuple[PortConfig, PortConfig]]:
    """Return a request's changes by port: old and new configuration.

    Raises GnmiError, and nothing changes, if any part of it is impossible.
    """
    if request.union_replace:
        raise unimplemented("union_replace is not served")
    if len(request.delete) + len(request.replace) + len(request.update) > MAX_OPERATIONS:
        raise exhausted(f"more than {MAX_OPERATIONS} operations in one Set")
    before = {view.state.port: PortConfig.of(view) for view in views}
    after = dict(before)
    for path in request.delete:
        _delete(read_path(path, request.prefix), views, after)
    for update in request.replace:
        _put(read_path(update.path, request.prefix), update.val, views, after, replacing=True)
    for update in request.update:
        _put(read_path(update.path, request.prefix), update.val, views, after, replacing=False)
    return {port: (before[port], config) for port, config in after.items() if config != before[port]}


def operations(request: gnmi.SetRequest) -> Iterator[gnmi.UpdateResult]:
    """Yield the result of each operation of a request that succeeded."""
    for path in request.delete:
        yield gnmi.UpdateResult(path=path, op=gnmi.UpdateResult.DELETE)
    for update in request.replace:
        yield gnmi.UpdateResult(path=update.path, op=gnmi.UpdateResult.REPLACE)
    for update in request.update:
        yield gnmi.UpdateResult(path=update.path, op=gnmi.UpdateResult.UPDATE)


def _delete(path: Path, views: Iterable[PortView], after: dict[int, PortConfig]) -> None:
    selections = _settable(path, select(path))
    for view in views:
        for selection in selections:
            if selection.selects(view):
                after[view.state.port] = _reset(after[view.state.port], selection.leaf)


def _put(
    path: Path, message: gnmi.TypedValue, views: Iterable[PortView], after: dict[int, PortConfig], *, replacing: bool
) -> None:
    selections = _configurable(path)
    view = _one(path, selections, views)
    value = read_value(message)
    config = after[view.state.port]
    if replacing:
        for selection in selections:
            config = _reset(config, selection.leaf)
    given = dict(_leaves_of(path, value, selections))
    for leaf, scalar in given.items():
        config = _with(config, leaf, scalar, view, path)
    after[view.state.port] = config


def _configurable(path: Path) -> tuple[Selection, ...]:
    """Return the configurable leaves that an update's path selects."""
    if any(step.name in {ANY, ANY_DEPTH} or ANY in step.keys.values() for step in path):
        raise invalid(f"{shown(path)}: only a delete may have wildcards")
    try:
        selections = select(path)
    except GnmiError as error:
        raise not_found(error.message) from error
    return _settable(path, selections)


def _settable(path: Path, selections: Sequence[Selection]) -> tuple[Selection, ...]:
    settable = tuple(selection for selection in selections if selection.leaf.kind is Kind.CONFIG)
    if not any(selection.leaf.name in _READERS for selection in settable):
        raise invalid(f"{shown(path)}: read-only")
    return settable


def _one(path: Path, selections: Sequence[Selection], views: Iterable[PortView]) -> PortView:
    """Return the single port that a path refers to."""
    if not all(selection.keys for selection in selections):
        raise unimplemented(f"{shown(path)}: set one interface at a time, by its key")
    for view in views:
        if all(selection.selects(view) for selection in selections):
            return view
    raise not_found(f"{shown(path)}: there is no such interface")


def _leaves_of(path: Path, value: Value | Json, selections: Sequence[Selection]) -> Iterator[tuple[Leaf, Value]]:
    """Yield the leaves that a value consists of: itself, or those of a container's object."""
    is_leaf = len(selections) == 1 and len(selections[0].leaf.nodes) == len(path)
    if is_leaf is isinstance(value, dict):
        raise invalid(f"{shown(path)}: a leaf is set by a scalar, a container by a JSON object")
    if not isinstance(value, dict):
        yield selections[0].leaf, value
        return
    leaves = {
        tuple(node.name for node in selection.leaf.nodes[len(path) :]): selection.leaf for selection in selections
    }
    for names, scalar in _flat(value):
        if names not in leaves:
            raise invalid(f"{shown(path)}: {'/'.join(names)} cannot be set there")
        yield leaves[names], scalar


def _flat(value: Mapping[str, object], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Value]]:
    """Yield names and scalars of nested objects; a member's module (RFC 7951) is dropped."""
    for member, content in value.items():
        names = (*above, member.rpartition(":")[2][:64])
        if isinstance(content, dict) and len(names) < 8:
            yield from _flat(content, names)
        elif isinstance(content, str | int | bool):
            yield names, content
        else:
            raise invalid(f"{'/'.join(names)}: neither a scalar nor an object")


def _reset(config: PortConfig, leaf: Leaf) -> PortConfig:
    default = _DEFAULTS.get(leaf.name)
    return config if default is None else _READERS[leaf.name](config, default)


def _with(config: PortConfig, leaf: Leaf, value: Value, view: PortView, path: Path) -> PortConfig:
    """Return a config with a leaf set; a read-only leaf may be set to its current value."""
    read = _READERS.get(leaf.name)
    try:
        if read is not None:
            return read(config, value)
    except (TypeError, SwitchError) as error:
        raise invalid(f"{shown(path)}: {leaf.nodes[-1].name}: {error}") from error
    value_now = leaf.read(view)
    if value not in {value_now, f"{leaf.identities}:{value_now}"}:
        raise invalid(f"{shown(path)}: {leaf.nodes[-1].name} is {value_now} and cannot be set")
    return config


def _bool(value: Value) -> bool:
    if not isinstance(value, bool):
        raise TypeError("must be true or false")
    return value


def _int(value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise TypeError("must be a 32-bit number")
    return value


_READERS: Final[Mapping[str, Callable[[PortConfig, Value], PortConfig]]] = {
    ENABLED: lambda config, value: replace(config, enabled=_bool(value)),
    HELLOS_ENABLED: lambda config, value: replace(config, hellos=_bool(value)),
    HELLOS_INTERVAL: lambda config, value: replace(
        config, settings=replace(config.settings, interval_ns=_int(value) * NS_PER_US)
    ),
    HELLOS_MULTIPLIER: lambda config, value: replace(config, settings=replace(config.settings, multiplier=_int(value))),
}
_DEFAULTS: Final[Mapping[str, Value]] = {
    ENABLED: True,
    HELLOS_ENABLED: False,
    HELLOS_INTERVAL: HelloSettings().interval_ns // NS_PER_US,
    HELLOS_MULTIPLIER: HelloSettings().multiplier,
}
