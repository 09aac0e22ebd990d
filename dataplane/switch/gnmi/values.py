"""Values of leaves and subtrees in gNMI's encodings (gNMI, section 2.3; JSON_IETF as in RFC 7951)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from finsy.proto import gnmi

from dataplane.switch.gnmi.errors import invalid, unimplemented
from dataplane.switch.gnmi.schema import Leaf, PortView, Type, Value, key_of

ENCODINGS: Final = (gnmi.Encoding.JSON, gnmi.Encoding.JSON_IETF, gnmi.Encoding.PROTO)

_MAX_JSON_BYTES: Final = 4_096
"""Longer than any settable value."""

Json = dict[str, "Json | list[Json] | Value"]


def check_encoding(encoding: gnmi.Encoding.ValueType) -> None:
    """Raise GnmiError for an unsupported encoding."""
    if encoding not in ENCODINGS:
        name = gnmi.Encoding.Name(encoding) if encoding in gnmi.Encoding.values() else str(encoding)
        raise unimplemented(f"encoding {name}: JSON, JSON_IETF and PROTO are served")


def write_value(leaf: Leaf, value: Value, encoding: gnmi.Encoding.ValueType) -> gnmi.TypedValue:
    """Return a leaf's value as a gNMI message."""
    if encoding == gnmi.Encoding.PROTO:
        return _write_scalar(leaf, value)
    return _write_json(_json_value(leaf, value, ietf=encoding == gnmi.Encoding.JSON_IETF), encoding)


def write_subtree(
    depth: int, entries: Iterable[tuple[PortView, Leaf, Value]], encoding: gnmi.Encoding.ValueType
) -> gnmi.TypedValue:
    """Return everything below one node, `depth` nodes from the root, as one JSON value."""
    ietf = encoding == gnmi.Encoding.JSON_IETF
    root: Json = {}
    for view, leaf, value in entries:
        if len(leaf.nodes) == depth:
            return write_value(leaf, value, encoding)
        _put(root, view, leaf, value, depth, ietf=ietf)
    return _write_json(root, encoding)


def read_value(message: gnmi.TypedValue) -> Value | Json:
    """Return a value to set: a scalar, or the object of a container; raise GnmiError for others."""
    kind = message.WhichOneof("value")
    if kind in {"json_val", "json_ietf_val"}:
        return _read_json(message.json_val or message.json_ietf_val)
    if kind in {"string_val", "bool_val", "uint_val", "int_val"}:
        scalar: Value = getattr(message, kind)
        return scalar
    if kind is None:
        raise invalid("an update without a value")
    raise unimplemented(f"a value as {kind}: JSON, JSON_IETF and scalars are read")


def _write_scalar(leaf: Leaf, value: Value) -> gnmi.TypedValue:
    if isinstance(value, bool):
        return gnmi.TypedValue(bool_val=value)
    if isinstance(value, int):
        return gnmi.TypedValue(uint_val=value)
    return gnmi.TypedValue(string_val=_qualified(leaf, value))


def _json_value(leaf: Leaf, value: Value, *, ietf: bool) -> Value:
    """Return the JSON form: RFC 7951 writes 64-bit numbers as text, and identities with their module."""
    if leaf.type is Type.UINT64 and ietf:
        return str(value)
    return _qualified(leaf, value) if isinstance(value, str) and ietf else value


def _qualified(leaf: Leaf, value: str) -> str:
    return f"{leaf.identities}:{value}" if leaf.type is Type.IDENTITY else value


def _put(root: Json, view: PortView, leaf: Leaf, value: Value, depth: int, *, ietf: bool) -> None:
    """Insert a leaf into nested objects; a list is searched for the object with the key."""
    here, module = root, ""
    for node in leaf.nodes[depth:-1]:
        name = _member(node.name, node.module, module, ietf=ietf)
        module = node.module
        if node.key is None:
            below = here.setdefault(name, {})
            assert isinstance(below, dict)
            here = below
        else:
            entries = here.setdefault(name, [])
            assert isinstance(entries, list)
            here = _entry(entries, node.key, key_of(node.key, view))
    last = leaf.nodes[-1]
    here[_member(last.name, last.module, module, ietf=ietf)] = _json_value(leaf, value, ietf=ietf)


def _entry(entries: list[Json], key: str, value: str) -> Json:
    """Return a list's object with a key; leaves come port by port, so it is the last one or a new one."""
    if not entries or entries[-1][key] != value:
        entries.append({key: value})
    return entries[-1]


def _member(name: str, module: str, parent: str, *, ietf: bool) -> str:
    """Return a member's name, in RFC 7951 with its module if the parent's differs."""
    return f"{module}:{name}" if ietf and module != parent else name


def _write_json(value: Json | Value, encoding: gnmi.Encoding.ValueType) -> gnmi.TypedValue:
    text = json.dumps(value, separators=(",", ":")).encode()
    return (
        gnmi.TypedValue(json_ietf_val=text) if encoding == gnmi.Encoding.JSON_IETF else gnmi.TypedValue(json_val=text)
    )


def _read_json(text: bytes) -> Value | Json:
    if len(text) > _MAX_JSON_BYTES:
        raise invalid(f"a JSON value of {len(text)} bytes: at most {_MAX_JSON_BYTES} are read")
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid("a value is not JSON") from error
    if isinstance(value, str | bool | int | dict):
        return value
    raise invalid("a JSON value is neither text, a number, true, false nor an object")
