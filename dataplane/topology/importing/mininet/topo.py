"""Mininet's Topo: its methods, as the programs call them, and what they build.

mininet/topo.py and link.py of Mininet 2.3: rates are in Mbit/s, losses in percent, delays as tc reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from dataplane.topology.importing.graph import Addresses, Edge, Graph
from dataplane.topology.importing.mininet.values import Class, Instance, Native, RefusedError, kind_of
from dataplane.topology.units import format_delay

_TIME: Final = re.compile(r"(?P<number>\d{1,12}(?:\.\d{0,12})?|\.\d{1,12}) ?(?P<unit>[a-z]*)", re.ASCII)
_UNITS_NS: Final = {
    **dict.fromkeys(("s", "sec", "secs"), 10**9),
    **dict.fromkeys(("ms", "msec", "msecs"), 10**6),
    **dict.fromkeys(("", "us", "usec", "usecs"), 10**3),  # tc's unit of plain numbers
    **dict.fromkeys(("ns", "nsec", "nsecs"), 1),
}
_MOST_PORT: Final = 1 << 16

Make = Callable[[Instance, list[Any], dict[str, Any]], object]
"""Calls an instance's build."""


@dataclass(slots=True)
class _Built:
    """State of one Topo."""

    graph: Graph = field(default_factory=Graph)
    switches: set[str] = field(default_factory=set)
    ports: dict[str, set[int]] = field(default_factory=dict)
    defaults: dict[str, dict[str, Any]] = field(default_factory=dict)


class Topo:
    """The class `mininet.topo.Topo`, whose instances build graphs."""

    def __init__(self, build: Make) -> None:
        """Start; `build` calls the method of an instance that its class may define."""
        self._build, self._built = build, dict[int, tuple[Instance, _Built]]()
        members: dict[str, Callable[..., Any]] = {
            "__init__": self._start,
            "addHost": self._add_host,
            "addSwitch": self._add_switch,
            "addNode": self._add_node,
            "addLink": self._add_link,
            "build": lambda _, *__, **___: None,
            "hosts": lambda made, sort=True: self._named(made, sort, lambda name, switches: name not in switches),
            "switches": lambda made, sort=True: self._named(made, sort, lambda name, switches: name in switches),
            "nodes": lambda made, sort=True: self._named(made, sort, lambda *_: True),
            "isSwitch": lambda made, name: name in self._of(made).switches,
        }
        self.cls = Class("Topo", None, {name: Native(name, call) for name, call in members.items()})

    def graph_of(self, instance: Instance) -> Graph:
        """Return what an instance has built, hosts marked."""
        built = self._of(instance)
        for name, attributes in built.graph.nodes.items():
            if name not in built.switches:
                attributes["type"] = "host"
        return built.graph

    def _of(self, instance: Instance) -> _Built:
        if not isinstance(instance, Instance) or id(instance) not in self._built:
            raise RefusedError(f"{kind_of(instance)}: Topo.__init__ has not been called")
        return self._built[id(instance)][1]

    def _start(self, instance: Instance, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - a program's value
        built = _Built(defaults={key: named.pop(key, None) or {} for key in ("hopts", "sopts", "lopts")})
        # The instance is held, so that no other gets its number.
        self._built[id(instance)] = instance, built
        self._build(instance, list(arguments), named)

    def _add_host(self, instance: Instance, name: str, **options: Any) -> str:  # noqa: ANN401 - a program's value
        return self._add_node(instance, name, **(options or self._of(instance).defaults["hopts"]))

    def _add_switch(self, instance: Instance, name: str, **options: Any) -> str:  # noqa: ANN401 - a program's value
        return self._add_node(instance, name, **{**(options or self._of(instance).defaults["sopts"]), "isSwitch": True})

    def _add_node(self, instance: Instance, name: str, **options: Any) -> str:  # noqa: ANN401 - a program's value
        built = self._of(instance)
        if not isinstance(name, str) or not name:
            raise RefusedError(f"a node's name is text, not {kind_of(name)}")
        for key in ("isSwitch", "ip", "mac"):
            if not isinstance(options.get(key), str | int | None):
                raise RefusedError(f"{key} is {kind_of(options[key])}")
        built.graph.nodes.setdefault(name, {})
        if options.get("isSwitch"):
            built.switches.add(name)
        elif options.get("ip") or options.get("mac"):
            ip, mac = (None if options.get(key) is None else str(options[key]) for key in ("ip", "mac"))
            built.graph.addresses[name] = Addresses(ip and ip.partition("/")[0], mac)
        return name

    def _add_link(  # noqa: PLR0917 - Mininet's
        self,
        instance: Instance,
        node1: str,
        node2: str,
        port1: int | None = None,
        port2: int | None = None,
        key: object = None,  # noqa: ARG002 - of parallel links
        **options: Any,  # noqa: ANN401 - a program's value
    ) -> None:
        built = self._of(instance)
        ports = [self._port(built, end, port) for end, port in ((node1, port1), (node2, port2))]
        attributes = _attributes(options or built.defaults["lopts"])
        built.graph.edges.append(Edge(node1, node2, attributes, *ports))

    def _port(self, built: _Built, node: str, port: object) -> int:
        """Return the number of a new port: by default the next, from 1 at switches and 0 at hosts."""
        if not isinstance(node, str) or node not in built.graph.nodes:
            raise RefusedError(f"a link ends at {str(node)[:40]!r}, which is no node")
        taken = built.ports.setdefault(node, set())
        number = len(taken) + (node in built.switches) if port is None else port
        if not isinstance(number, int) or not 0 <= number < _MOST_PORT:
            raise RefusedError(f"{str(number)[:40]!r} is no port")
        taken.add(number)
        return number

    def _named(self, instance: Instance, sort: object, wanted: Callable[[str, set[str]], bool]) -> list[str]:
        built = self._of(instance)
        names = [name for name in built.graph.nodes if wanted(name, built.switches)]
        return sorted(names, key=_natural) if sort else names


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _attributes(options: dict[str, Any]) -> dict[str, str]:
    """Return a link's figures as text with units; None and a rate of 0 are unlimited in Mininet."""
    attributes: dict[str, str] = {}
    for name in ("bw", "loss", "max_queue_size"):
        value = options.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
            what = str(value)[:40] if isinstance(value, str | int | float) else kind_of(value)
            raise RefusedError(f"{name} is {what}, not a number of at least 0")
        if value and value < 1e12:
            number = f"{value:.9f}".rstrip("0").rstrip(".")
            key, unit = {"bw": ("rate", " Mbit/s"), "loss": ("loss", "%"), "max_queue_size": ("queue_frames", "")}[name]
            attributes[key] = f"{number}{unit}"
        elif value:
            raise RefusedError(f"{name} is {str(value)[:40]}, too much")
    for name in ("delay", "jitter"):
        if options.get(name) is not None:
            attributes[name] = _delay(name, options[name])
    return attributes


def _delay(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RefusedError(f"{name} is {kind_of(value)}, not a time of tc such as '5ms'")
    match = _TIME.fullmatch(str(value).strip().lower())
    if match is None or match["unit"] not in _UNITS_NS:
        raise RefusedError(f"{name} is {str(value)[:40]!r}, not a time of tc such as '5ms'")
    return format_delay(round(Fraction(match["number"]) * _UNITS_NS[match["unit"]]))
