"""Parametric topologies: leaf-spine, fat tree and ring, by value or by text such as 'leaf-spine:spines=2,leaves=4'."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Final

from dataplane.config.suggestions import did_you_mean
from dataplane.errors import ConfigError
from dataplane.topology.schema import (
    CollectorSpec,
    DefaultsSpec,
    HostSpec,
    LinkDefaults,
    LinkSpec,
    SwitchSpec,
    TopologySpec,
    resolve_generated,
)
from dataplane.topology.values import Topology

COLLECTOR: Final = "collector"
"""Name of the host that receives telemetry reports, in all our topologies."""

_MAX_SIZE = 1024
_LEAST_RING = 3


def leaf_spine(
    spines: int = 2,
    leaves: int = 4,
    hosts: int = 2,
    *,
    rate: str = "10 Gbit/s",
    delay: str = "1 us",
    loss: str = "0%",
    jitter: str = "0 ns",
) -> Topology:
    """Return a two-stage Clos fabric: every leaf is linked with every spine, with `hosts` on each leaf.

    Switches are spine1.. and leaf1.., hosts h1.. leaf by leaf; the collector is attached to the first leaf. All links
    have the same rate, delay, loss and jitter. Raises ConfigError for a size below 1 or above 1024.
    """
    name = f"leaf-spine-{spines}-{leaves}-{hosts}"
    _check_sizes(name, spines=spines, leaves=leaves, hosts=hosts)
    tops = [f"spine{number + 1}" for number in range(spines)]
    edges = [f"leaf{number + 1}" for number in range(leaves)]
    links = [LinkSpec(a=leaf, b=spine) for leaf in edges for spine in tops]
    return _fabric(
        name, tops + edges, edges, hosts, links, LinkDefaults(rate=rate, delay=delay, loss=loss, jitter=jitter)
    )


def fat_tree(
    k: int = 4, *, rate: str = "10 Gbit/s", delay: str = "1 us", loss: str = "0%", jitter: str = "0 ns"
) -> Topology:
    """Return the k-ary fat tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008), `k` even.

    (k/2)^2 core switches, k pods of k/2 aggregation and k/2 edge switches, k/2 hosts on each edge switch. Core group g
    is linked with aggregation switch g of every pod. The collector takes one more port of the first edge switch.
    """
    name = f"fat-tree-{k}"
    _check_sizes(name, k=k)
    if k % 2:
        raise ConfigError(f"k is {k}: a fat tree needs an even number", file=f"<{name}>", key="k")
    half = k // 2
    cores = [f"core{number + 1}" for number in range(half * half)]
    aggregations = [f"agg{pod + 1}-{number + 1}" for pod in range(k) for number in range(half)]
    edges = [f"edge{pod + 1}-{number + 1}" for pod in range(k) for number in range(half)]
    links = []
    for pod in range(k):
        for number in range(half):
            aggregation = aggregations[pod * half + number]
            links += [LinkSpec(a=edge, b=aggregation) for edge in edges[pod * half : (pod + 1) * half]]
            links += [LinkSpec(a=aggregation, b=core) for core in cores[number * half : (number + 1) * half]]
    return _fabric(
        name,
        cores + aggregations + edges,
        edges,
        half,
        links,
        LinkDefaults(rate=rate, delay=delay, loss=loss, jitter=jitter),
    )


def ring(
    switches: int = 6,
    hosts: int = 1,
    *,
    rate: str = "10 Gbit/s",
    delay: str = "1 ms",
    access: str = "40 Gbit/s",
    loss: str = "0%",
    jitter: str = "0 ns",
) -> Topology:
    """Return switches s1.. linked in a ring, with `hosts` on each, whose links have the rate `access`.

    All links have the same delay, loss and jitter.

    The collector takes one more port of s1. Raises ConfigError for fewer than 3 switches or more than 1024.
    """
    name = f"ring-{switches}-{hosts}"
    _check_sizes(name, switches=switches, hosts=hosts)
    if switches < _LEAST_RING:
        raise ConfigError(
            f"{switches} switches do not make a ring: it needs {_LEAST_RING}", file=f"<{name}>", key="switches"
        )
    names = [f"s{number + 1}" for number in range(switches)]
    links = [LinkSpec(a=a, b=b) for a, b in zip(names, names[1:] + names[:1], strict=True)]
    everywhere = LinkDefaults(rate=rate, delay=delay, loss=loss, jitter=jitter)
    return _fabric(
        name, names, names, hosts, links, everywhere, LinkDefaults(rate=access, delay=delay, loss=loss, jitter=jitter)
    )


FAMILIES: Final[dict[str, Callable[..., Topology]]] = {"leaf-spine": leaf_spine, "fat-tree": fat_tree, "ring": ring}
"""Families by their name in `from_text`; their arguments are the functions' parameters."""


def from_text(text: str) -> Topology:
    """Return the family member for text such as 'leaf-spine:spines=2,leaves=4,hosts=2'; raise ConfigError."""
    name, _, arguments = text.partition(":")
    family = FAMILIES.get(name)
    if family is None:
        raise ConfigError(f"there is no family {name!r}{did_you_mean(name, FAMILIES)}", file=text)
    parameters = inspect.signature(family, eval_str=True).parameters
    given: dict[str, int | str] = {}
    for argument in filter(None, arguments.split(",")):
        key, _, value = argument.partition("=")
        if key not in parameters:
            raise ConfigError(f"unknown{did_you_mean(key, parameters)}", file=text, key=key)
        if key in given:
            raise ConfigError("appears twice", file=text, key=key)
        given[key] = _number(value, text, key) if parameters[key].annotation is int else value
    return family(**given)


def _number(value: str, text: str, key: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise ConfigError(f"{value!r} is not a whole number", file=text, key=key)
    return int(value)


def _check_sizes(name: str, **sizes: int) -> None:
    for key, value in sizes.items():
        if not 1 <= value <= _MAX_SIZE:
            raise ConfigError(f"{value} is not between 1 and {_MAX_SIZE}", file=f"<{name}>", key=key)


def _fabric(  # noqa: PLR0917 - each is one part of a topology
    name: str,
    switches: list[str],
    edges: list[str],
    hosts: int,
    links: list[LinkSpec],
    everywhere: LinkDefaults,
    access: LinkDefaults | None = None,
) -> Topology:
    carriers = [edge for edge in edges for _ in range(hosts)]
    return resolve_generated(
        TopologySpec(
            millrace=1,
            name=name,
            switches=[SwitchSpec(name=switch) for switch in switches],
            hosts=[
                *(HostSpec(name=f"h{number + 1}", switch=switch) for number, switch in enumerate(carriers)),
                HostSpec(name=COLLECTOR, switch=edges[0]),
            ],
            links=links,
            defaults=DefaultsSpec(link=everywhere, access=access or everywhere),
            collector=CollectorSpec(host=COLLECTOR),
            synchronised_clocks=True,
        )
    )
