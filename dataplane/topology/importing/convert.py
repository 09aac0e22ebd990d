"""Conversion of foreign graphs to topologies; each assumption is listed."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NotRequired, TypedDict

import msgspec

from dataplane.errors import ConfigError
from dataplane.given import DOCUMENT_BYTES, read_given
from dataplane.topology.importing.containerlab import is_containerlab, read_containerlab
from dataplane.topology.importing.dot import read_dot
from dataplane.topology.importing.graph import Addresses, Edge, Graph
from dataplane.topology.importing.graphml import read_graphml
from dataplane.topology.importing.mininet import read_mininet
from dataplane.topology.importing.node_link import is_ours, read_node_link
from dataplane.topology.schema import (
    CollectorSpec,
    HostSpec,
    LinkSpec,
    PlaceSpec,
    SwitchSpec,
    TopologySpec,
    resolve,
)
from dataplane.topology.units import (
    format_delay,
    format_rate,
    format_share,
    parse_delay_ns,
    parse_rate_bps,
    parse_share_ppb,
)
from dataplane.topology.values import Topology

_READERS: Final[Mapping[str, Callable[[bytes, str], Graph]]] = {
    ".graphml": read_graphml,
    ".dot": read_dot,
    ".gv": read_dot,
    ".json": read_node_link,
    ".clab.yml": read_containerlab,
    ".clab.yaml": read_containerlab,
    ".py": read_mininet,
}
_CHOICE: Final = re.compile(r"(?P<file>.+\.py):(?P<choice>\w+)", re.DOTALL)
"""A Python file and the name of one of its topologies."""
_HOSTS: Final = frozenset({"host", "server", "client", "endpoint", "end-host"})
_ROLES: Final = ("function", "type", "kind", "role", "device")
_RATES: Final = ("rate", "bandwidth", "capacity", "speed", "bw")
_DELAYS: Final = ("delay", "latency")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_NAMED: Final = 8
_NAME_LENGTH: Final = 24
_EARTH_KM: Final = 6371.0
_US_PER_KM: Final = 5


@dataclass(frozen=True, slots=True)
class Defaults:
    """Figures of links for which a file has none."""

    rate: str = "10 Gbit/s"
    delay: str = "1 ms"


@dataclass(frozen=True, slots=True)
class Imported:
    """An imported topology, and what was assumed for it, a line each."""

    topology: Topology
    assumptions: tuple[str, ...]


def is_importable(path: Path) -> bool:
    """Return whether a file's ending is that of a foreign format."""
    return _ending(path) is not None


def is_foreign(path: Path, data: bytes) -> bool:
    """Return whether a file is a foreign topology by its ending and content: JSON and YAML may be ours."""
    ending = _ending(path)
    if ending == ".json":
        try:
            return not is_ours(msgspec.json.decode(data))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return True  # the importer says what is wrong
    return ending is not None or (path.suffix.lower() in {".yaml", ".yml"} and is_containerlab(data))


def read_topology(path: Path) -> bytes:
    """Return the content of a topology file, ours or a foreign one; raise ConfigError."""
    try:
        return read_given(_file_of(path)[0], DOCUMENT_BYTES)
    except OSError as error:
        raise ConfigError(error.strerror or "cannot be read", file=str(path)) from None


def import_topology(path: Path, defaults: Defaults | None = None, data: bytes | None = None) -> Imported:
    """Return a foreign file's topology; raise ConfigError with the file, and the line or key.

    `data` is its content, None: it is read. FILE.py:NAME chooses one of a Python file's topologies.
    """
    ending = _ending(path)
    if ending is None and path.suffix.lower() not in {".yaml", ".yml"}:
        raise ConfigError(f"its name must end in one of {', '.join(_READERS)}", file=str(path))
    data = read_topology(path) if data is None else data
    file, choice = _file_of(path)
    if choice is not None:
        graph = read_mininet(data, str(file), choice)
    else:
        graph = _READERS[ending or ".clab.yml"](data, str(file))
    stem = file.name[: -len(ending)] if ending else file.stem
    return _Converter(graph, str(file), defaults or Defaults()).imported(choice or stem)


def _file_of(path: Path) -> tuple[Path, str | None]:
    """Return a topology's file, and the name of the one in it that is meant, None: its only one."""
    match = _CHOICE.fullmatch(str(path))
    return (path, None) if match is None else (Path(match["file"]), match["choice"])


def _ending(path: Path) -> str | None:
    name = _file_of(path)[0].name.lower()
    return next((ending for ending in _READERS if name.endswith(ending)), None)


class _Figures(TypedDict):
    """A link's figures, as keyword arguments of HostSpec and LinkSpec."""

    rate: str
    delay: str
    loss: NotRequired[str]
    jitter: NotRequired[str]
    queue_frames: NotRequired[int]


@dataclass(slots=True)
class _Converter:
    graph: Graph
    file: str
    defaults: Defaults
    names: dict[str, str] = field(default_factory=dict)
    places: dict[str, PlaceSpec] = field(default_factory=dict)
    assumed: dict[str, list[str]] = field(default_factory=dict)

    def imported(self, stem: str) -> Imported:
        if not self.graph.nodes:
            raise ConfigError("has no node", file=self.file)
        self._name_nodes()
        self._place_nodes()
        hosts = {node for node, attributes in self.graph.nodes.items() if _is_host(attributes)}
        switches = [node for node in self.graph.nodes if node not in hosts]
        if not switches:
            raise ConfigError("all its nodes are hosts, so that there is no switch", file=self.file)
        edges = self._merged()
        self._check_connected(edges)
        assumed = {text: list(names) for text, names in self.assumed.items()}
        try:
            topology = self._resolved(hosts, switches, edges, stem)
        except ConfigError as error:
            if not self.graph.addresses or not (error.key or "").endswith((".ipv4", ".mac")):
                raise
            # Automatic addresses, such as the collector's, may be those of the file.
            self.graph.addresses, self.assumed = {}, assumed
            topology = self._resolved(hosts, switches, edges, stem)
            self._assume("addresses of hosts are ours, not the file's", f"{error.key}: {error.problem}")
        for text, about in self.graph.assumptions:
            self._assume(text, self.names.get(about, about))
        return Imported(topology, tuple(_line(text, names) for text, names in self.assumed.items()))

    def _resolved(
        self, hosts: set[str], switches: list[str], edges: Mapping[frozenset[str], list[Edge]], stem: str
    ) -> Topology:
        spec = TopologySpec(
            millrace=1,
            name=_plain(stem) or "imported",
            switches=[SwitchSpec(self.names[node], place=self.places.get(node)) for node in switches],
            hosts=self._hosts(hosts, switches, edges),
            links=[self._link(pair) for pair in edges.values() if not hosts & {pair[0].a, pair[0].b}],
            collector=CollectorSpec("collector"),
        )
        return resolve(spec, lambda problem, key: ConfigError(problem, file=self.file, key=key))

    def _assume(self, text: str, about: str) -> None:
        self.assumed.setdefault(text, []).append(about)

    def _name_nodes(self) -> None:
        taken, numbers = {"collector"}, dict[str, int]()
        for node, attributes in self.graph.nodes.items():
            label = attributes.get("label") or attributes.get("name") or node
            name = _plain(label) or f"n-{_plain(node)}".rstrip("-")
            unique = name
            while unique in taken:
                numbers[name] = numbers.get(name, 1) + 1
                unique = f"{name}-{numbers[name]}"
            taken.add(unique)
            self.names[node] = unique
            if unique != label:
                self._assume("names of our form", f"{label!r} (id {node}) is {unique}")

    def _place_nodes(self) -> None:
        for node, attributes in self.graph.nodes.items():
            degrees = [
                next((value for key in keys if (value := _number(attributes.get(key, ""))) is not None), None)
                for keys in (("latitude", "lat"), ("longitude", "lon", "lng"))
            ]
            if degrees[0] is not None and degrees[1] is not None:
                self.places[node] = PlaceSpec(degrees[0], degrees[1])

    def _merged(self) -> dict[frozenset[str], list[Edge]]:
        """Return the edges of each pair of nodes, without loops."""
        merged: dict[frozenset[str], list[Edge]] = {}
        for edge in self.graph.edges:
            if edge.a == edge.b:
                self._assume("links of a node with itself are left out", self.names[edge.a])
            else:
                merged.setdefault(frozenset((edge.a, edge.b)), []).append(edge)
        for pair, edges in merged.items():
            links = {(edge.a, edge.b) for edge in edges} if self.graph.is_directed else {pair}
            if len(links) < len(edges):
                self._assume(
                    "parallel links are one, with the figures of the first that states them", self._ends(edges[0])
                )
            elif any(edge.attributes != edges[0].attributes for edge in edges):
                self._assume(
                    "both directions of a link have the figures of the first that states them", self._ends(edges[0])
                )
        return merged

    def _check_connected(self, edges: Mapping[frozenset[str], list[Edge]]) -> None:
        neighbours: dict[str, list[str]] = {node: [] for node in self.graph.nodes}
        for a, b in edges:
            neighbours[a].append(b)
            neighbours[b].append(a)
        start = next(iter(neighbours))
        reached, frontier = {start}, [start]
        while frontier:
            new = set(neighbours[frontier.pop()]) - reached
            reached |= new
            frontier.extend(new)
        if apart := next((node for node in neighbours if node not in reached), None):
            names = self.names[start], self.names[apart]
            raise ConfigError(f"is not connected: no path from {names[0]} to {names[1]}", file=self.file)

    def _hosts(
        self, hosts: set[str], switches: list[str], edges: Mapping[frozenset[str], list[Edge]]
    ) -> list[HostSpec]:
        made = []
        cables: dict[str, list[list[Edge]]] = {host: [] for host in self.graph.nodes if host in hosts}
        for pair, group in edges.items():
            for host in pair & hosts:
                cables[host].append(group)
        for host, pairs in cables.items():
            name = self.names[host]
            if len(pairs) != 1:
                raise ConfigError(f"host {name} has links to {len(pairs)} nodes, not to one switch", file=self.file)
            (switch,) = {pairs[0][0].a, pairs[0][0].b} - {host}
            if switch in hosts:
                raise ConfigError(f"host {name} is linked with host {self.names[switch]}", file=self.file)
            first, figures = pairs[0][0], self._figures(pairs[0])
            addresses = self.graph.addresses.get(host, Addresses())
            made.append(
                HostSpec(
                    name,
                    self.names[switch],
                    port=first.port_at(switch),
                    ipv4=addresses.ipv4,
                    mac=addresses.mac,
                    place=self.places.get(host),
                    **figures,
                )
            )
        if not hosts:
            taken = set(self.names.values())
            for switch in switches:
                name = f"h-{self.names[switch]}"
                while name in taken:
                    name = f"h-{name}"
                taken.add(name)
                made.append(HostSpec(name, self.names[switch]))
            self._assume("a host at each switch, of 10 Gbit/s and 10 us", f"{len(made)} hosts")
        self._assume("the collector is a host of the first switch", self.names[switches[0]])
        return [*made, HostSpec("collector", self.names[switches[0]])]

    def _link(self, edges: list[Edge]) -> LinkSpec:
        first, figures = edges[0], self._figures(edges)
        return LinkSpec(self.names[first.a], self.names[first.b], a_port=first.a_port, b_port=first.b_port, **figures)

    def _figures(self, edges: list[Edge]) -> _Figures:
        ends = self._ends(edges[0])
        rate = next((rate for edge in edges if (rate := self._rate(edge)) is not None), None)
        if rate is None:
            self._assume(f"a rate of {self.defaults.rate}", ends)
            rate = self.defaults.rate
        delay = next((delay for edge in edges if (delay := self._delay(edge)) is not None), None)
        if delay is None and (distance_km := self._distance_km(edges[0])) is not None:
            self._assume("a delay by the distance, of fibre (ITU-T G.826) with 5 us/km", ends)
            delay = format_delay(round(_route_km(distance_km) * _US_PER_KM) * 1000)
        if delay is None:
            self._assume(f"a delay of {self.defaults.delay}", ends)
            delay = self.defaults.delay
        figures = _Figures(rate=rate, delay=delay)
        first = edges[0]
        if (loss := self._stated(first, ("loss",), parse_share_ppb, format_share)) is not None:
            figures["loss"] = loss
        if (jitter := self._stated(first, ("jitter",), parse_delay_ns, format_delay)) is not None:
            figures["jitter"] = jitter
        if re.fullmatch(r"[0-9]{1,9}", frames := first.attributes.get("queue_frames", "")):
            figures["queue_frames"] = int(frames)
        return figures

    def _rate(self, edge: Edge) -> str | None:
        """Return a stated rate; Topology Zoo's LinkSpeedRaw is in bit/s, and 0 if unknown."""
        text = edge.attributes.get("linkspeedraw", "")
        raw = _number(text)
        if raw is not None and raw > 0:
            return self._checked(parse_rate_bps, f"{raw:.0f} bit/s", edge, format_rate)
        if text and raw != 0:
            self._assume("LinkSpeedRaw is no rate and not used", f"{self._ends(edge)} ({text[:_NAME_LENGTH]!r})")
        return self._stated(edge, _RATES, parse_rate_bps, format_rate)

    def _delay(self, edge: Edge) -> str | None:
        return self._stated(edge, _DELAYS, parse_delay_ns, format_delay)

    def _stated(
        self, edge: Edge, keys: Iterable[str], parse: Callable[[str], int], write: Callable[[int], str]
    ) -> str | None:
        for key in keys:
            if text := edge.attributes.get(key, ""):
                if _number(text) is None:
                    return self._checked(parse, text, edge, write)
                self._assume(f"{key} without a unit is not used", self._ends(edge))
        return None

    def _checked(self, parse: Callable[[str], int], text: str, edge: Edge, write: Callable[[int], str]) -> str:
        try:
            return write(parse(text))
        except ValueError as error:
            raise ConfigError(str(error), file=self.file, key=self._ends(edge)) from None

    def _distance_km(self, edge: Edge) -> float | None:
        a, b = self.places.get(edge.a), self.places.get(edge.b)
        if a is None or b is None:
            return None
        (north, east), (other_north, other_east) = (
            (math.radians(place.latitude), math.radians(place.longitude)) for place in (a, b)
        )
        half = math.sin((other_north - north) / 2) ** 2
        half += math.cos(north) * math.cos(other_north) * math.sin((other_east - east) / 2) ** 2
        return 2 * _EARTH_KM * math.asin(min(1.0, math.sqrt(half)))

    def _ends(self, edge: Edge) -> str:
        return f"{self.names[edge.a]} - {self.names[edge.b]}"


def _is_host(attributes: Mapping[str, str]) -> bool:
    return any(attributes.get(role, "").lower() in _HOSTS for role in _ROLES)


def _number(text: str) -> float | None:
    # float() also takes 1_000, nan and inf.
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


def _plain(text: str) -> str:
    """Return text as a part of a name: lower-case letters, digits and hyphens; '' if nothing is left."""
    ascii_only = unicodedata.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_only).strip("-")[:_NAME_LENGTH].strip("-")


def _route_km(distance_km: float) -> float:
    """Return the length of a fibre's route by ITU-T Rec. G.826, at least 10 km."""
    if distance_km < 1000:
        return max(10.0, 1.5 * distance_km)
    return max(1500.0, 1.25 * distance_km)


def _line(text: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{text}: {', '.join(names[:_NAMED])}{more}"
