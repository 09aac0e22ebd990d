"""Building blocks of a tree of leaves: nodes, leaves, and the ports that they are read from.

Every leaf belongs to one port, so the tree is just ports read through a table (`leaves`): it has no state,
and nothing needs to be kept in sync.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dataplane.switch.gnmi.paths import Path, Step
from dataplane.switch.ports.states import HelloSettings, PortCounters, PortState

Value = str | int | bool


class Kind(Enum):
    """Kind of data in a leaf (gNMI, section 3.3.1)."""

    CONFIG = "config"
    STATE = "state"
    """Read only, mirrors the configuration."""
    OPERATIONAL = "operational"
    """Read only, reflects events."""


class Type(Enum):
    """Encoding of a leaf's value (RFC 7951, section 6)."""

    STRING = "string"
    BOOLEAN = "boolean"
    UINT32 = "uint32"
    UINT64 = "uint64"
    IDENTITY = "identity"
    """A name that belongs to a module."""


@dataclass(frozen=True, slots=True)
class PortView:
    """A port as the tree shows it; times are nanoseconds since 1970."""

    name: str
    state: PortState
    hellos: HelloSettings
    """Settings for sending hellos, used if they are enabled."""
    last_change_ns: int
    hello_change_ns: int
    counters: PortCounters


@dataclass(frozen=True, slots=True)
class Node:
    """An element of the tree: name, its defining module, and the key if it is a list."""

    name: str
    module: str
    key: str | None = None


# Each leaf exists once; comparing and hashing its fields would take a third of a port's change.
@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A leaf: its location, its type, and its value for a port (None: the port has none)."""

    nodes: tuple[Node, ...]
    kind: Kind
    type: Type
    read: Callable[[PortView], Value | None]
    on_change: bool = True
    """True if changes are sent as they happen (ON_CHANGE); not so for counters."""
    identities: str = ""
    """The module that an identity belongs to."""

    @property
    def module(self) -> str:
        """The module defining the leaf."""
        return self.nodes[-1].module

    @property
    def name(self) -> str:
        """The path without keys: `interfaces/interface/state/oper-status`."""
        return "/".join(node.name for node in self.nodes)

    def path(self, view: PortView) -> Path:
        """Return the leaf's path for a port."""
        return tuple(
            Step(node.name, {} if node.key is None else {node.key: key_of(node.key, view)}) for node in self.nodes
        )


MODULES: Final = {
    "oc-if": "openconfig-interfaces",
    "oc-eth": "openconfig-if-ethernet",
    "oc-p4rt": "openconfig-p4rt",
    "oc-bfd": "openconfig-bfd",
    "hellos": "millrace-hellos",
    "segments": "millrace-segments",
    "ianaift": "iana-if-type",
}
"""Modules by the prefixes that YANG files use."""


def nodes_of(path: str) -> tuple[Node, ...]:
    """Return the nodes of `oc-if:interfaces/interface[name]/oc-eth:ethernet`: a module applies until the next one."""
    nodes: list[Node] = []
    module = ""
    for text in path.split("/"):
        prefix, colon, rest = text.rpartition(":")
        module = MODULES[prefix] if colon else module
        name, _, key = rest.partition("[")
        nodes.append(Node(name, module, key.rstrip("]") or None))
    return tuple(nodes)


def key_of(key: str, view: PortView) -> str:
    """Return a list's key for a port: its name, or the discriminator of its session with the neighbour."""
    if key != "local-discriminator":
        return view.name
    return "" if view.state.hello is None else str(view.state.hello.local_discriminator)
