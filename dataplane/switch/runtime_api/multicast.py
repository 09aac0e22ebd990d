"""Methods on multicast groups: groups of nodes, each with an instance number and ports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from dataplane.switch.runtime_api.records import MulticastCode, MulticastRefusal
from dataplane.switch.runtime_api.runtime import Books, Node, Runtime
from dataplane.switch.tables import CloneSession, Replica

_GROUPS = 1 << 16
_INSTANCES = 1 << 16
_PORTS = 512
_MULTICAST_NOTES = ("multicast group", "clone session")


class MulticastMethods:
    """The services simple_pre_lag and simple_pre; nodes with link aggregation groups instead of ports are refused."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    @contextmanager
    def _books(self) -> Iterator[Books]:
        with self.runtime.books() as books:
            yield books

    def bm_mc_mgrp_create(self, _: int, group: int) -> int:
        """Make an empty group; its handle is its number."""
        with self._books() as books:
            if not 0 < group < _GROUPS:
                raise MulticastRefusal(MulticastCode.INVALID_MGID)
            for node in books.nodes.values():
                node.groups.discard(group)
            books.groups.add(group)
            publish(books, group)
            return group

    def bm_mc_mgrp_destroy(self, _: int, group: int) -> None:
        """Remove a group; its nodes stay."""
        with self._books() as books:
            _check_group(books, group)
            for node in books.nodes.values():
                node.groups.discard(group)
            books.groups.discard(group)
            if group in books.state.multicast_groups:
                del books.state.multicast_groups[group]
            books.state.replication_notes.pop((_MULTICAST_NOTES[0], group), None)
            follow_group(books, group)

    def bm_mc_node_create(self, _: int, rid: int, port_map: str, lag_map: str = "") -> int:
        """Make a node; return its handle."""
        with self._books() as books:
            if not 0 <= rid < _INSTANCES:
                raise MulticastRefusal(MulticastCode.ERROR)
            node = Node(rid, _ports(port_map, lag_map))
            handle = books.node_numbers.take()
            books.nodes[handle] = node
            return handle

    def bm_mc_node_associate(self, _: int, group: int, handle: int) -> None:
        """Put a node into a group."""
        with self._books() as books:
            _check_group(books, group)
            _node(books, handle).groups.add(group)
            publish(books, group)

    def bm_mc_node_dissociate(self, _: int, group: int, handle: int) -> None:
        """Take a node out of a group."""
        with self._books() as books:
            _check_group(books, group)
            _node(books, handle).groups.discard(group)
            publish(books, group)

    def bm_mc_node_destroy(self, _: int, handle: int) -> None:
        """Remove a node, also from its groups."""
        with self._books() as books:
            groups = _node(books, handle).groups
            del books.nodes[handle]
            books.node_numbers.give(handle)
            for group in groups:
                publish(books, group)

    def bm_mc_node_update(self, _: int, handle: int, port_map: str, lag_map: str = "") -> None:
        """Give a node other ports."""
        with self._books() as books:
            node = _node(books, handle)
            node.ports = _ports(port_map, lag_map)
            for group in node.groups:
                publish(books, group)

    def bm_mc_set_lag_membership(self, _: int, index: int, port_map: str) -> None:  # noqa: ARG002
        """Refuse: there are no link aggregation groups."""
        raise MulticastRefusal(MulticastCode.ERROR)

    def bm_mc_get_entries(self, _: int) -> str:
        """Return groups and nodes as JSON."""
        with self._books() as books:
            groups = [
                {"id": group, "l1_handles": [handle for handle, node in books.nodes.items() if group in node.groups]}
                for group in sorted(books.groups)
            ]
            firsts = [{"handle": handle, "rid": node.rid, "l2_handle": handle} for handle, node in books.nodes.items()]
            seconds = [{"handle": handle, "ports": node.ports, "lags": []} for handle, node in books.nodes.items()]
            return json.dumps({"mgrps": groups, "l1_handles": firsts, "l2_handles": seconds, "lags": []})


def publish(books: Books, group: int) -> None:
    """Publish a group's present contents to packets."""
    replicas = [
        Replica(port, node.rid)
        for _, node in sorted(books.nodes.items())
        if group in node.groups
        for port in node.ports
    ]
    books.state.multicast_groups[group] = tuple(dict.fromkeys(replicas))
    books.state.replication_notes.pop((_MULTICAST_NOTES[0], group), None)
    follow_group(books, group)


def follow_group(books: Books, group: int) -> None:
    """Update mirroring sessions of a group to its present contents."""
    for session, followed in books.mirrored_groups.items():
        if followed == group:
            publish_session(books, session)


def publish_session(books: Books, session: int) -> None:
    """Publish a mirroring session's present destination to packets."""
    group, port = books.mirrored_groups.get(session), books.mirrored_ports.get(session)
    replicas: tuple[Replica, ...] = () if port is None else (Replica(port),)
    if group is not None:
        replicas += books.state.multicast_groups.get(group, ())
    books.state.clone_sessions[session] = CloneSession(replicas)
    books.state.replication_notes.pop((_MULTICAST_NOTES[1], session), None)


def _check_group(books: Books, group: int) -> None:
    if group not in books.groups:
        raise MulticastRefusal(MulticastCode.INVALID_GROUP_HANDLE)


def _node(books: Books, handle: int) -> Node:
    node = books.nodes.get(handle)
    if node is None:
        raise MulticastRefusal(MulticastCode.INVALID_NODE_HANDLE)
    return node


def _ports(port_map: str, lag_map: str) -> tuple[int, ...]:
    """Return the ports in a string of bits, the last character for port 0."""
    if set(port_map + lag_map) - {"0", "1"} or "1" in lag_map or "1" in port_map[:-_PORTS]:
        raise MulticastRefusal(MulticastCode.ERROR)
    return tuple(port for port, bit in enumerate(reversed(port_map)) if bit == "1")
