"""Changes to JSON documents, addressed by path."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parents[1] / "programs"
OWN_PROGRAMS = (
    "forwarding",
    "parsing",
    "copies",
    "arithmetic",
    "unions",
    "stateful",
    "union_stacks",
    "numbers",
    "choices",
    "algorithms",
)
"""The programs that exercise the language; p4rt_entities is for P4Runtime."""

JsonPath = tuple[str | int, ...]
DELETE = object()


def without_positions(node: Any) -> Any:
    """Return a document without source_info, which makes up most of it."""
    if isinstance(node, dict):
        return {key: without_positions(value) for key, value in node.items() if key != "source_info"}
    if isinstance(node, list):
        return [without_positions(item) for item in node]
    return node


def document(name: str) -> Any:
    return without_positions(json.loads((PROGRAMS / f"{name}.json").read_bytes()))


def p4info(name: str) -> bytes:
    return (PROGRAMS / f"{name}.p4info.txtpb").read_bytes()


def paths(node: Any, prefix: JsonPath = ()) -> list[JsonPath]:
    """Return the paths of all parts of a document, except itself."""
    items: Any = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path for key, value in items for path in [(*prefix, key), *paths(value, (*prefix, key))]]


def changed(base: Any, path: JsonPath, value: object) -> bytes:
    """Return the document, encoded, with the part at `path` set to a value, or deleted."""
    root = copy.deepcopy(base)
    node = root
    for step in path[:-1]:
        node = node[step]
    if value is DELETE:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return json.dumps(root).encode()
