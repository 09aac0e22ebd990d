"""Jobs that switches add up, their children, and the copies of results (p4/aggregation).

Each switch of a tree has an entry of the job with its epoch and the mask of its children, which change together. A
child is identified by its address and UDP port (and, where it is attached, its switch port): a replaced process that
keeps sending from its host is not taken for the new one. Results go to a multicast group, whose copies are addressed
one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from finsy import P4MulticastGroupEntry, P4RegisterEntry, P4TableAction, P4TableEntry, P4TableMatch
from finsy.p4entity import P4Replica

from controller.common.errors import ControllerError
from controller.network.base_paths import NextHops
from controller.network.intents import AggregationJob, AggregationTree, Leaf, Members, Worker
from controller.network.tables.entities import Entities, Entity, Update, Verb, index, key_of
from controller.network.tables.routing import IPV4, port_towards, ports_towards
from dataplane.allreduce.formats import MOST_WORKERS
from dataplane.topology.addressing import mac_at, switch_ipv4
from dataplane.topology.values import Topology
from dataplane.wire import store
from dataplane.wire.aggregation import UDP_PORT
from dataplane.wire.ipv4 import PROTOCOL_UDP

CELLS = 8192
"""Cells that a switch has for all its jobs (AGGREGATION_CELLS)."""
CELLS_REGISTER = "aggregation_cells"
"""Register in which a switch records the packets of an item that it has seen."""
MAX_JOBS = 256
"""Entries of `aggregation_jobs`."""
MAX_CHILDREN = 64
"""Bits of a job's mask."""

_ANY_PORT = 0x1FF
_WHOLE_PORT = 0xFFFF
_FIRST = 1 << 20
"""A priority above those of all rules of a watchlist."""
_SERVER_REPLICA = MAX_CHILDREN + 1


@dataclass(frozen=True, slots=True)
class Block:
    """Cells of one job in one switch: `cells`, a power of two, from `first` on, a multiple of it."""

    first: int
    cells: int

    @property
    def end(self) -> int:
        """The first cell after it."""
        return self.first + self.cells

    @property
    def group(self) -> int:
        """The multicast group of the job's children; `group + 1` has the main server, too. No other block has them."""
        return self.first + 1


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job, where it is added up, and in which cells of each switch of its tree."""

    job: AggregationJob
    tree: AggregationTree
    blocks: Mapping[str, Block]


def job_entities(topology: Topology, hops: NextHops, placed: PlacedJob, members: Members) -> dict[str, Entities]:
    """Return each switch's entries of a job in the tree; a leaf without members has none.

    Raise ControllerError for a job, tree or members that do not fit each other or the topology.
    """
    tree = placed.tree
    _check_job(topology, placed.job, members)
    _check_tree(topology, placed.job, tree)
    make = _Entries(topology, hops, placed.job, placed.blocks)
    entities: dict[str, Entities] = {tree.root: index(make.root(tree, members))}
    for leaf in leaves_of(tree):
        entities[leaf.switch] = index(make.leaf(leaf, tree.root, members))
    return entities


def congestion_entity(queue_frames: int) -> Entity:
    """Return the frames in a queue from which on a switch marks packets of ECN-capable flows (RFC 3168)."""
    action = P4TableAction("mark_from", queue_frames=queue_frames)
    return P4TableEntry("congestion", action=action, is_default_action=True)


def unwatched_entities() -> Iterator[Entity]:
    """Yield the rules that keep telemetry out of packets of sums and of stored content, to keep them recognisable.

    For every switch that has a watchlist, before all its rules.
    """
    silence = dict.fromkeys(
        ("watch_id", "sample_every", "instructions", "max_hops", "mode", "domain_instructions", "discard"), 0
    )
    for field, port in product(("src_port", "dst_port"), (UDP_PORT, store.UDP_PORT)):
        match = P4TableMatch({"protocol": (PROTOCOL_UDP, 0xFF), field: (port, 0xFFFF)})
        action = P4TableAction("watch", **silence)
        yield P4TableEntry(IPV4.watchlist, match=match, action=action, priority=_FIRST)


def report_entity(number: int, every: int, slow_us: int) -> Entity:
    """Return the entry for the items of a job that a switch reports: one in `every`, a power of two, and slow ones.

    `slow_us`: from the first contribution to the last; 0 reports none for being slow.
    """
    action = P4TableAction("report_items", mask=every - 1, slow_us=slow_us)
    return P4TableEntry("aggregation_reports", match=P4TableMatch(job=number), action=action)


def clearing(block: Block) -> Iterator[Update]:
    """Yield the writes that clear these cells of a switch."""
    for cell in range(block.first, block.first + block.cells):
        entity = P4RegisterEntry(CELLS_REGISTER, index=cell, data=0)
        yield Update(Verb.MODIFY, key_of(entity), entity)


def leaves_of(tree: AggregationTree) -> tuple[Leaf, ...]:
    """Return the leaves among the root's children."""
    return tuple(child for child in tree.children if isinstance(child, Leaf))


def switches_of(tree: AggregationTree) -> tuple[str, ...]:
    """Return the switches that add up, the root first."""
    return tree.root, *(leaf.switch for leaf in leaves_of(tree))


def parent_of(tree: AggregationTree, host: str) -> str:
    """Return the switch that a worker contributes to; raise ControllerError if it has no place in the tree."""
    for child in tree.children:
        if child == host:
            return tree.root
        if isinstance(child, Leaf) and host in child.workers:
            return child.switch
    raise ControllerError(f"aggregation: {host} is not in the tree rooted at {tree.root}")


def _check_job(topology: Topology, job: AggregationJob, members: Members) -> None:
    name = f"aggregation job {job.number}"
    hosts = [worker.host for worker in job.workers]
    if not 1 <= job.number <= 0xFFFF or not 0 <= members.epoch <= 0xFFFF:
        raise ControllerError(f"{name}: job numbers must be 1 to 65535, epochs 0 to 65535 (epoch {members.epoch})")
    receivers = hosts if job.server is None else [*hosts, job.server.host]
    for host in receivers:
        if host not in topology.host:
            raise ControllerError(f"{name}: there is no host {host!r}")
    if len({*receivers}) != len(receivers):
        raise ControllerError(f"{name}: a host appears twice, but switches identify workers by their address")
    if not 1 <= job.capacity <= MOST_WORKERS:
        raise ControllerError(f"{name}: a capacity must be 1 to {MOST_WORKERS}, not {job.capacity}")
    if len(members.workers) > job.capacity:
        raise ControllerError(f"{name}: {len(members.workers)} members exceed its capacity of {job.capacity}")
    if not members.workers or not members.workers <= {*hosts}:
        raise ControllerError(f"{name}: members must be among its workers")


def _check_tree(topology: Topology, job: AggregationJob, tree: AggregationTree) -> None:
    name = f"aggregation job {job.number}"
    places = [host for child in tree.children for host in (child.workers if isinstance(child, Leaf) else (child,))]
    if sorted(places) != sorted(worker.host for worker in job.workers):
        raise ControllerError(f"{name}: the tree must hold each of its workers exactly once")
    switches = switches_of(tree)
    for switch in switches:
        if switch not in topology.switch:
            raise ControllerError(f"{name}: there is no switch {switch!r}")
    if len({*switches}) != len(switches):
        raise ControllerError(f"{name}: a switch appears twice in its tree")
    for switch, count in ((tree.root, len(tree.children)), *((a.switch, len(a.workers)) for a in leaves_of(tree))):
        if count > MAX_CHILDREN:
            raise ControllerError(f"{name}: {switch} has {count} children, more than {MAX_CHILDREN}")


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of one job."""

    topology: Topology
    hops: NextHops
    job: AggregationJob
    blocks: Mapping[str, Block]

    def root(self, tree: AggregationTree, members: Members) -> Iterator[Entity]:
        block = self._block(tree.root)
        present = dict(self._present(tree.children, members))
        yield from self._children(tree.root, block, present)
        group_with_server = block.group
        if self.job.server is not None:
            group_with_server += 1
            server = self.job.server
            yield self._peer(tree.root, server.host, P4TableAction("from_server"))
            yield self._replica(tree.root, _SERVER_REPLICA, server.host)
            yield self._group(tree.root, group_with_server, {**present, _SERVER_REPLICA - 1: server.host})
        yield self._add_up("add_up", block, members.epoch, present, group_with_server=group_with_server)

    def leaf(self, leaf: Leaf, parent: str, members: Members) -> Iterator[Entity]:
        present = dict(self._present(leaf.workers, members))
        if present:
            block = self._block(leaf.switch)
            yield from self._children(leaf.switch, block, present)
            yield self._peer(leaf.switch, parent, P4TableAction("from_parent"))
            address = int(self._address(parent))
            yield self._add_up("add_up_for", block, members.epoch, present, parent=address)

    @staticmethod
    def _present(children: tuple[str | Leaf, ...], members: Members) -> Iterator[tuple[int, str]]:
        for number, child in enumerate(children):
            if isinstance(child, Leaf):
                if members.workers.intersection(child.workers):
                    yield number, child.switch
            elif child in members.workers:
                yield number, child

    def _children(self, switch: str, block: Block, present: Mapping[int, str]) -> Iterator[Entity]:
        yield self._group(switch, block.group, present)
        for number, child in present.items():
            yield self._peer(switch, child, P4TableAction("from_child", number=number))
            yield self._replica(switch, number + 1, child)

    def _add_up(self, action: str, block: Block, epoch: int, present: Mapping[int, str], **more: int) -> Entity:
        arguments = {
            "nonce": self.job.nonce,
            "epoch": epoch,
            "children": sum(1 << number for number in present),
            "first_cell": block.first,
            "last_cell": block.first + block.cells - 1,
            "group": block.group,
        }
        match = P4TableMatch(job=self.job.number)
        return P4TableEntry("aggregation_jobs", match=match, action=P4TableAction(action, **arguments, **more))

    def _peer(self, switch: str, child: str, action: P4TableAction) -> Entity:
        match = P4TableMatch(
            src_addr=int(self._address(child)),
            dst_addr=int(self._address(switch)),
            job=self.job.number,
            src_port=(self._udp_port(child), _WHOLE_PORT),
        )
        edge = self.topology.attachment.get(child)
        if edge is not None and edge.node == switch:
            match["ingress_port"] = (edge.port, _ANY_PORT)
        return P4TableEntry("aggregation_peers", match=match, action=action, priority=1)

    def _group(self, switch: str, group: int, present: Mapping[int, str]) -> Entity:
        replicas = [P4Replica(self._port(switch, child), instance=number + 1) for number, child in present.items()]
        return P4MulticastGroupEntry(group, replicas=replicas)

    def _replica(self, switch: str, replica: int, child: str) -> Entity:
        peer = self.topology.neighbours[switch][self._port(switch, child)]
        action = P4TableAction(
            "address",
            dst_mac=mac_at(self.topology, peer.node, peer.port),
            dst_addr=int(self._address(child)),
            dst_port=self._udp_port(child),
        )
        match = P4TableMatch(job=self.job.number, replica=replica)
        return P4TableEntry("aggregation_replicas", match=match, action=action)

    def _port(self, switch: str, child: str) -> int:
        if child in self.topology.host:
            ports = ports_towards(self.topology, self.hops, switch, child)
            port = ports[self.job.number % len(ports)] if ports else None
        else:
            port = port_towards(self.topology, self.hops, switch, child)
        if port is None:
            raise ControllerError(f"aggregation job {self.job.number}: {switch} cannot reach {child}")
        return port

    def _address(self, name: str) -> int:
        host = self.topology.host.get(name)
        return int(switch_ipv4(self.topology.switch[name].node_id) if host is None else host.ipv4)

    def _udp_port(self, child: str) -> int:
        receivers: tuple[Worker, ...] = self.job.workers
        if self.job.server is not None:
            receivers = (*receivers, self.job.server)
        return next((worker.udp_port for worker in receivers if worker.host == child), UDP_PORT)

    def _block(self, switch: str) -> Block:
        if switch not in self.blocks:
            raise ControllerError(f"aggregation job {self.job.number}: it has no cells at {switch}")
        return self.blocks[switch]
