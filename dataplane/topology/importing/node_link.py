"""Node-link JSON, as `networkx.node_link_data` and D3 have it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from dataplane.errors import ConfigError
from dataplane.topology.importing.graph import Edge, Graph


def is_ours(document: object) -> bool:
    """Return whether a JSON document has our schema's version."""
    return isinstance(document, dict) and "millrace" in document


def read_node_link(data: bytes, file: str) -> Graph:
    """Return the graph of a document with `nodes` and `links` (or `edges`); raise ConfigError with the key."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(f"is not JSON: {error}", file=file) from None
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise ConfigError("has no list of `nodes`, as networkx's node-link JSON does", file=file)
    graph = Graph(is_directed=document.get("directed") is True)
    for at, node in enumerate(document["nodes"]):
        name = _text(node.get("id")) if isinstance(node, dict) else None
        if name is None or name in graph.nodes:
            raise ConfigError("has no id" if name is None else f"id {name!r} is taken", file=file, key=f"nodes[{at}]")
        graph.nodes[name] = _attributes(node)
    key = "links" if "links" in document else "edges"
    edges = document.get(key, [])
    if not isinstance(edges, list):
        raise ConfigError("is not a list", file=file, key=key)
    for at, edge in enumerate(edges):
        ends = [_text(edge.get(side)) for side in ("source", "target")] if isinstance(edge, dict) else [None]
        for end in ends:
            if end is None or end not in graph.nodes:
                raise ConfigError(f"source and target must be nodes, not {end!r}", file=file, key=f"{key}[{at}]")
        graph.edges.append(Edge(str(ends[0]), str(ends[1]), _attributes(edge)))
    return graph


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    # networkx writes tuples as lists.
    return json.dumps(value) if isinstance(value, list) and value else None


def _attributes(item: dict[str, Any]) -> dict[str, str]:
    return {name.lower(): text for name, value in item.items() if (text := _text(value)) is not None}
