"""Conversion of topology files (YAML, see topologies/*.yaml) and names to checked `Topology` values, and back."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from dataplane.config import Document, loads_document
from dataplane.config.suggestions import nearest
from dataplane.errors import ConfigError
from dataplane.topology import addressing, families
from dataplane.topology.hardware import hardware_document
from dataplane.topology.importing import import_topology, is_foreign, is_importable, read_topology
from dataplane.topology.schema import REPORT_UDP_PORT, TopologySpec, resolve
from dataplane.topology.units import format_delay, format_rate, format_share
from dataplane.topology.values import Device, Endpoint, GeoLocation, HostNode, Link, MemoryMedium, SwitchNode, Topology

LOGGER = logging.getLogger("millrace.topology")

_INSTALLED = Path(__file__).parent / "topologies"
_SOURCE = Path(__file__).parents[2] / "topologies"


def load_topology(spec: str | Path) -> Topology:
    """Load the topology of a family, a file (a Path, or text with / or .yaml), or a bundled name.

    Bundled names are `bundled_topologies()`; a family reads 'leaf-spine:spines=2,leaves=4,hosts=2' or 'fat-tree:k=4'.
    Raises ConfigError.
    """
    if isinstance(spec, Path):
        return load(spec)
    name, colon, _ = spec.partition(":")
    if colon and name in families.FAMILIES:  # before files: a rate has a / in it
        return families.from_text(spec)
    if "/" in spec or spec.endswith((".yaml", ".yml")) or is_importable(Path(spec)):
        return load(Path(spec))
    if ":" in spec:
        return families.from_text(spec)
    bundled = bundled_topologies()
    if spec in bundled:
        return load(bundled[spec])
    if spec in families.FAMILIES:
        return families.from_text(spec)
    if os.path.exists(spec):  # noqa: PTH110 - unlike Path it takes a NUL and any length
        kinds = ".yaml, .graphml, .dot, .gv, .json or .py"
        raise ConfigError(f"is there, but its name does not end in {kinds}, so that its kind is unknown", file=spec)
    names = [*bundled, *(f"{family}:..." for family in families.FAMILIES)]
    near = nearest(spec, names)
    hint = f"; did you mean {near}?" if near else ""
    raise ConfigError(f"is neither a file nor one of {', '.join(names)}{hint}", file=spec)


def bundled_topologies() -> dict[str, Path]:
    """Return Millrace's bundled topology files, by name; in the source they are in `topologies/`."""
    return {path.stem: path for path in sorted(topologies_folder().glob("*.yaml"))}


def topologies_folder() -> Path:
    """Return the folder of the bundled topologies and demand matrices: the wheel's, else the source checkout's."""
    return _INSTALLED if _INSTALLED.is_dir() else _SOURCE


def load(path: Path) -> Topology:
    """Load the topology in a file, ours or a foreign one; raise ConfigError with file, line and key.

    What is assumed for a foreign one is logged, once.
    """
    data = read_topology(path)
    if is_foreign(path, data):
        imported = import_topology(path, data=data)
        _log_assumptions(str(path), imported.assumptions)
        return imported.topology
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=str(path)) from error
    toml, as_json = path.suffix == ".toml", path.suffix == ".json"
    return _resolve(loads_document(text, TopologySpec, file=str(path), toml=toml, as_json=as_json))


@cache
def _log_assumptions(file: str, assumptions: tuple[str, ...]) -> None:
    for line in assumptions:
        LOGGER.warning("%s: assumed %s", file, line)


def loads(text: str, *, file: str = "<text>") -> Topology:
    """Parse the topology in YAML text; raise ConfigError with file, line and key."""
    return _resolve(loads_document(text, TopologySpec, file=file))


def _resolve(document: Document[TopologySpec]) -> Topology:
    return resolve(document.value, document.error)


def dumps(topology: Topology) -> str:
    """Format the topology as YAML text that `loads` reads back as an equal value, with defaults but no zero losses.

    `loads` has hosts at the end `a` of their links, whichever end they are at here.
    """
    facing = [replace(link, a=link.b, b=link.a) if link.b.node in topology.host else link for link in topology.links]
    access = {link.a.node: link for link in facing if link.a.node in topology.host}
    document: dict[str, Any] = {"millrace": 1, "name": topology.name}
    if topology.collector is not None:
        document["collector"] = {"host": topology.collector.host}
        if topology.collector.udp_port != REPORT_UDP_PORT:
            document["collector"]["udp_port"] = topology.collector.udp_port
    document["synchronised_clocks"] = topology.synchronised_clocks
    document["switches"] = [_switch(node) for node in topology.switches]
    document["hosts"] = [_host(node, access[node.name]) for node in topology.hosts]
    document["links"] = [_link(link) for link in facing if link.a.node in topology.switch]
    return yaml.dump(document, Dumper=_FlowItems, sort_keys=False, allow_unicode=True, width=4096)


def dumps_hardware(cores: int | None, memory: Iterable[MemoryMedium], devices: Iterable[Device]) -> str:
    """Format hardware as YAML text for a host's entry of a topology file; '' if nothing is known."""
    document = hardware_document(cores, memory, devices)
    return yaml.dump(document, Dumper=_FlowItems, sort_keys=False, allow_unicode=True, width=4096) if document else ""


def _switch(node: SwitchNode) -> dict[str, Any]:
    source = {} if node.report_source is None else {"report_source": str(node.report_source)}
    return {"name": node.name, "id": node.node_id, **_location(node.place), **source}


def _host(node: HostNode, link: Link) -> dict[str, Any]:
    return {
        "name": node.name,
        "switch": link.b.node,
        "port": link.b.port,
        "ipv4": str(node.ipv4),
        **({} if node.ipv6 is None else {"ipv6": str(node.ipv6)}),
        "mac": addressing.format_mac(node.mac),
        **_capacity(link),
        **_location(node.place),
        **hardware_document(node.cores, node.memory, node.devices),
    }


def _link(link: Link) -> dict[str, Any]:
    return {**_end("a", link.a), **_end("b", link.b), **_capacity(link)}


def _end(side: str, end: Endpoint) -> dict[str, Any]:
    return {side: end.node, f"{side}_port": end.port}


def _capacity(link: Link) -> dict[str, Any]:
    return {
        "rate": format_rate(link.rate_bps),
        "delay": format_delay(link.delay_ns),
        "queue_frames": link.queue_frames,
        **({"loss": format_share(link.loss_ppb)} if link.loss_ppb else {}),
        **({"jitter": format_delay(link.jitter_ns)} if link.jitter_ns else {}),
    }


def _location(location: GeoLocation | None) -> dict[str, Any]:
    if location is None:
        return {}
    fields: dict[str, Any] = {"latitude": location.latitude, "longitude": location.longitude}
    return {"place": {**fields, "city": location.city} if location.city else fields}


class _FlowItems(yaml.SafeDumper):
    """One switch, host or link per line."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:  # noqa: ANN401 - PyYAML's
        node = super().represent_sequence(tag, sequence, flow_style)
        for item in node.value:
            item.flow_style = True
        return node
