"""Links, flows and routes as columns: values that many rows share are in a separate list, which rows index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import accumulate, chain, pairwise
from typing import Final, Generic, TypeVar

from collectors.feed import keys_pb2 as messages
from collectors.values import FlowKey
from dataplane.rpc.errors import MessageError
from dataplane.topology.values import LinkKey

MOST: Final = {"protocol": 0xFF, "src_port": 0xFFFF, "dst_port": 0xFFFF}
"""Largest values of a flow's fields other than its addresses."""
_FABRICS: Final = 4
"""Number of link lists cached between messages: a reader's snapshots are mostly of one fabric."""

T = TypeVar("T")
M = TypeVar("M")


class _Written(Generic[T, M]):
    """Cache of the messages last made from immutable objects, looked up by identity."""

    def __init__(self, make: Callable[[T], M]) -> None:
        self._make = make
        self._kept: tuple[tuple[T, M], ...] = ()

    def message(self, thing: T) -> M:
        """Return the message of an object."""
        for original, message in self._kept:
            if original is thing:
                return message
        message = self._make(thing)
        # Replaced as a whole: threads make messages side by side.
        self._kept = ((thing, message), *self._kept)[:_FABRICS]
        return message


def links_out(message: messages.LinkKeys, links: Iterable[LinkKey]) -> None:
    """Put names of links into a message."""
    places: dict[str, int] = {}
    ends = [(places.setdefault(key.src, len(places)), places.setdefault(key.dst, len(places))) for key in links]
    message.nodes.extend(places)
    message.src.extend([src for src, _ in ends])
    message.dst.extend([dst for _, dst in ends])


def link_places_out(message: messages.LinkKeys, places: Mapping[LinkKey, int]) -> None:
    """Put names of links into a message; a recently written mapping must not have changed."""
    message.CopyFrom(_LINKS.message(places))


def _links_message(links: Mapping[LinkKey, int]) -> messages.LinkKeys:
    message = messages.LinkKeys()
    links_out(message, links)
    return message


_LINKS: Final = _Written(_links_message)


def links_in(message: messages.LinkKeys) -> Mapping[LinkKey, int]:
    """Return the links of a message and their places; raise MessageError for one that appears twice, or has no end.

    Equal messages have the same keys: a reader of successive snapshots compares them by identity.
    """
    return _links_in(message.SerializeToString(deterministic=True))


@lru_cache(_FABRICS)
def _links_in(packed: bytes) -> Mapping[LinkKey, int]:
    message = messages.LinkKeys.FromString(packed)
    src, dst = pick("LinkKeys.src", message.nodes, message.src), pick("LinkKeys.dst", message.nodes, message.dst)
    if len(src) != len(dst):
        raise MessageError(f"LinkKeys has {len(src)} entries in src and {len(dst)} in dst")
    return keyed("link", map(LinkKey, src, dst), range(len(src)))


def flows_out(message: messages.FlowKeys, flows: Sequence[FlowKey]) -> None:
    """Put flows into a message, one row each."""
    src, dst = [flow.src for flow in flows], [flow.dst for flow in flows]
    # By identity, as an address's own hash costs more than all the rest; two objects of one address do no harm.
    addresses = {id(address): address for address in chain(src, dst)}
    places = {address: index for index, address in enumerate(addresses)}
    message.addresses.extend([address.packed for address in addresses.values()])
    message.src.extend([places[id(address)] for address in src])
    message.dst.extend([places[id(address)] for address in dst])
    message.protocol.extend([flow.protocol for flow in flows])
    message.src_port.extend([flow.src_port for flow in flows])
    message.dst_port.extend([flow.dst_port for flow in flows])


def flows_in(message: messages.FlowKeys) -> list[FlowKey]:
    """Return the flows of a message; raise MessageError for odd addresses, protocols and ports."""
    addresses = [address_in(packed) for packed in message.addresses]
    src, dst = pick("FlowKeys.src", addresses, message.src), pick("FlowKeys.dst", addresses, message.dst)
    columns = {name: getattr(message, name)[:] for name in MOST}
    for name, column in (("dst", dst), *columns.items()):
        if len(column) != len(src):
            raise MessageError(f"FlowKeys.{name} has {len(column)} entries for {len(src)} rows")
    for name, column in columns.items():
        if column and max(column) > MOST[name]:
            raise MessageError(f"FlowKeys.{name}: {max(column)} is more than {MOST[name]}")
    return list(map(FlowKey, src, dst, *columns.values()))


def flow_out(message: messages.FlowKey, flow: FlowKey) -> None:
    """Put one flow into a message."""
    message.src, message.dst = flow.src.packed, flow.dst.packed
    message.protocol, message.src_port, message.dst_port = flow.protocol, flow.src_port, flow.dst_port


def flow_in(message: messages.FlowKey) -> FlowKey:
    """Return the flow of a message; raise MessageError for odd addresses, protocols and ports."""
    for name, most in MOST.items():
        if getattr(message, name) > most:
            raise MessageError(f"FlowKey.{name}: {getattr(message, name)} is more than {most}")
    ends = address_in(message.src), address_in(message.dst)
    return FlowKey(*ends, message.protocol, message.src_port, message.dst_port)


def address_in(packed: bytes) -> IPv4Address | IPv6Address:
    """Return an address that has travelled; raise MessageError for one of odd length."""
    try:
        return ip_address(packed)
    except ValueError as error:
        raise MessageError(f"an address of {len(packed)} bytes is neither IPv4 nor IPv6") from error


def routes_out(message: messages.Routes, routes: tuple[tuple[str, ...], ...]) -> None:
    """Put routes into a message."""
    message.CopyFrom(_ROUTES.message(routes))


def _routes_message(routes: tuple[tuple[str, ...], ...]) -> messages.Routes:
    switches: dict[str, int] = {}
    hops = [switches.setdefault(name, len(switches)) for name in chain.from_iterable(routes)]
    return messages.Routes(switches=switches, hops=hops, lengths=map(len, routes))


_ROUTES: Final = _Written(_routes_message)


def routes_in(message: messages.Routes) -> tuple[tuple[str, ...], ...]:
    """Return the routes of a message; raise MessageError where their lengths are not those of the hops.

    Equal messages have the same object: a reader of successive snapshots need not look at its routes again.
    """
    return _routes_in(message.SerializeToString(deterministic=True))


@lru_cache(_FABRICS)
def _routes_in(packed: bytes) -> tuple[tuple[str, ...], ...]:
    message = messages.Routes.FromString(packed)
    hops = pick("Routes.hops", message.switches, message.hops)
    ends = list(accumulate(message.lengths, initial=0))
    if ends[-1] != len(hops):
        raise MessageError(f"Routes has {len(hops)} hops, but its lengths add up to {ends[-1]}")
    return tuple(tuple(hops[begin:end]) for begin, end in pairwise(ends))


def pick(name: str, things: Sequence[T], places: Sequence[int]) -> list[T]:
    """Return the values at the indices in a column; raise MessageError for an index out of range."""
    try:
        return list(map(things[:].__getitem__, places[:]))
    except IndexError:
        raise MessageError(f"{name}: index {max(places)} is not below {len(things)}") from None


K = TypeVar("K")


def keyed(name: str, keys: Iterable[K], values: Sequence[T]) -> dict[K, T]:
    """Return values by their keys; raise MessageError for a duplicate key."""
    by_key = dict(zip(keys, values, strict=True))
    if len(by_key) != len(values):
        raise MessageError(f"a {name} appears twice in one message")
    return by_key
