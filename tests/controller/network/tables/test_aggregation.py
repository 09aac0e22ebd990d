"""Jobs as entries: contents of each switch of a tree, and changes with its members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from finsy import P4MulticastGroupEntry, P4Schema, P4TableAction, P4TableEntry

from controller.common.errors import ControllerError
from controller.network.base_paths import NextHops, next_hops
from controller.network.intents import AggregationJob, AggregationTree, Leaf, Members, Worker
from controller.network.p4runtime.session import FABRIC_AGGREGATION, check_schema, fabric_program, load_schema
from controller.network.reconcile import diff
from controller.network.tables.aggregation import (
    CELLS,
    MAX_JOBS,
    Block,
    PlacedJob,
    clearing,
    congestion_entity,
    job_entities,
    parent_of,
    unwatched_entities,
)
from controller.network.tables.base import FILL_ORDER
from controller.network.tables.entities import Entities, EntityKey, Verb, index
from controller.network.tables.routing import switch_route_entities
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import Topology
from tests.controller.network.base_tables import base_entities

BLOCKS = {"spine1": Block(0, 8), "leaf1": Block(8, 8), "leaf2": Block(0, 8)}
WORKERS = tuple(Worker(f"h{number}", 19000 + number) for number in (1, 2, 3, 4, 5))
NONCE = 2**64 - 3
JOB = AggregationJob(7, WORKERS, capacity=8, window=4, server=Worker("h6", 20000), nonce=NONCE)
TREE = AggregationTree("spine1", (Leaf("leaf1", ("h1", "h2")), Leaf("leaf2", ("h3", "h4")), "h5"))
PLACED = PlacedJob(JOB, TREE, BLOCKS)
ALL = Members(3, frozenset(worker.host for worker in WORKERS))
SPINE, LEAF1 = 10 << 24 | 1 << 8 | 254, 10 << 24 | 3 << 8 | 254
H1, H5, H6 = (10 << 24 | switch << 8 | host for switch, host in ((3, 1), (5, 1), (5, 2)))


@pytest.fixture(scope="module")
def topology() -> Topology:
    return leaf_spine()


@pytest.fixture(scope="module")
def hops(topology: Topology) -> NextHops:
    return next_hops(topology)


@pytest.fixture(scope="module")
def schema() -> P4Schema:
    return load_schema(*fabric_program(FABRIC_AGGREGATION))


def actions(entities: Entities, table: str) -> dict[tuple[object, ...], tuple[str, Mapping[str, object]]]:
    """Return a table's actions by match, in the order of the fields' names."""
    actions_by_match: dict[tuple[object, ...], tuple[str, Mapping[str, object]]] = {}
    for key, entity in entities.items():
        if key.table == table:
            assert isinstance(entity, P4TableEntry)
            assert isinstance(entity.action, P4TableAction)
            actions_by_match[tuple(value for _, value in key.match)] = entity.action.name, entity.action.args
    return actions_by_match


def test_a_root_adds_up_for_leaves_workers_and_the_main_server(topology: Topology, hops: NextHops) -> None:
    root = job_entities(topology, hops, PLACED, ALL)["spine1"]
    job = {
        "nonce": NONCE,
        "epoch": 3,
        "children": 0b111,
        "first_cell": 0,
        "last_cell": 7,
        "group": 1,
        "group_with_server": 2,
    }
    assert actions(root, "aggregation_jobs") == {(7,): ("add_up", job)}
    peers = actions(root, "aggregation_peers")
    assert peers[SPINE, 7, LEAF1, (19777, 0xFFFF)] == ("from_child", {"number": 0})
    assert peers[SPINE, 7, H5, (19005, 0xFFFF)] == ("from_child", {"number": 2})
    assert peers[SPINE, 7, H6, (20000, 0xFFFF)] == ("from_server", {})
    replicas = actions(root, "aggregation_replicas")
    assert replicas[7, 1][1] == {"dst_mac": 0x020100030004, "dst_addr": LEAF1, "dst_port": 19777}
    assert replicas[7, 3][1] == {"dst_mac": 0x020100050003, "dst_addr": H5, "dst_port": 19005}
    assert replicas[7, 65][1] == {"dst_mac": 0x020100050003, "dst_addr": H6, "dst_port": 20000}
    groups = [entity for entity in root.values() if isinstance(entity, P4MulticastGroupEntry)]
    replicas_by_group = {group.multicast_group_id: [str(replica) for replica in group.replicas] for group in groups}
    assert {number: len(replicas) for number, replicas in replicas_by_group.items()} == {1: 3, 2: 4}


def test_leaf_adds_up_for_its_own_hosts(topology: Topology, hops: NextHops) -> None:
    leaf = job_entities(topology, hops, PLACED, ALL)["leaf1"]
    job = {"nonce": NONCE, "epoch": 3, "children": 0b11, "first_cell": 8, "last_cell": 15, "group": 9, "parent": SPINE}
    assert actions(leaf, "aggregation_jobs") == {(7,): ("add_up_for", job)}
    peers = actions(leaf, "aggregation_peers")
    assert len(peers) == 3
    assert peers[LEAF1, (1, 0x1FF), 7, H1, (19001, 0xFFFF)] == ("from_child", {"number": 0})
    assert peers[LEAF1, 7, SPINE, (19777, 0xFFFF)] == ("from_parent", {})
    assert (parent_of(TREE, "h2"), parent_of(TREE, "h5")) == ("leaf1", "spine1")


def test_leaving_member_updates_jobs_and_loses_its_entries(topology: Topology, hops: NextHops) -> None:
    before = job_entities(topology, hops, PLACED, ALL)
    after = job_entities(topology, hops, PLACED, Members(4, ALL.workers - {"h2"}))
    updates = [update for batch in diff(after["leaf1"], before["leaf1"]) for update in batch]
    assert [(update.verb, update.key.table) for update in updates] == [
        (Verb.MODIFY, ""),  # the group
        (Verb.MODIFY, "aggregation_jobs"),
        (Verb.DELETE, "aggregation_peers"),
        (Verb.DELETE, "aggregation_replicas"),
    ]
    assert [str(update) for batch in diff(after["spine1"], before["spine1"]) for update in batch] == [
        "modify entry aggregation_jobs job=0x7"
    ]


def test_a_member_counts_once_its_other_entries_are_there(topology: Topology, hops: NextHops) -> None:
    before = job_entities(topology, hops, PLACED, Members(4, ALL.workers - {"h2"}))
    after = job_entities(topology, hops, PLACED, Members(5, ALL.workers))
    updates = [update for batch in diff(after["leaf1"], before["leaf1"]) for update in batch]
    assert (updates[-1].verb, updates[-1].key.table) == (Verb.MODIFY, "aggregation_jobs")
    assert len(updates) == 4


def test_leaf_without_members_holds_nothing(topology: Topology, hops: NextHops) -> None:
    entities = job_entities(topology, hops, PLACED, Members(4, frozenset(("h3", "h5"))))
    assert entities["leaf1"] == {}
    assert actions(entities["spine1"], "aggregation_jobs")[7,][1]["children"] == 0b110


def test_the_program_has_a_place_for_all_of_it(topology: Topology, hops: NextHops, schema: P4Schema) -> None:
    for switch, entities in job_entities(topology, hops, PLACED, ALL).items():
        check_schema(schema, entities.values())
        check_schema(schema, switch_route_entities(topology, hops, switch))
    check_schema(
        schema, [congestion_entity(20), *unwatched_entities(), *(update.entity for update in clearing(BLOCKS["leaf1"]))]
    )
    assert [update.key.number for update in clearing(BLOCKS["leaf1"])] == list(range(8, 16))
    sizes = {table.alias: table.size for table in schema.tables}
    assert sizes["aggregation_jobs"] == MAX_JOBS
    assert {register.alias: register.size for register in schema.registers}["aggregation_cells"] == CELLS
    assert sizes.keys() >= set(FILL_ORDER)


def test_switch_routes_cover_all_others_and_match_host_routes(topology: Topology, hops: NextHops) -> None:
    base = base_entities(topology)["leaf1"]
    routes = list(switch_route_entities(topology, hops, "leaf1"))
    both = index([*base.values(), *routes])
    keys: list[EntityKey] = [key for key in both if key not in base]
    assert {dict(key.match)["dst_addr"] for key in keys} == {
        (10 << 24 | node.node_id << 8 | 254, 32) for node in topology.switches if node.name != "leaf1"
    }


@pytest.mark.parametrize(
    ("job", "tree", "members", "text"),
    [
        (replace(JOB, number=0), TREE, ALL, "job numbers must be 1 to 65535"),
        (replace(JOB, capacity=4), TREE, ALL, "5 members exceed its capacity of 4"),
        (replace(JOB, capacity=65536), TREE, ALL, "a capacity must be 1 to 65535, not 65536"),
        (replace(JOB, server=Worker("h1", 1)), TREE, ALL, "a host appears twice"),
        (replace(JOB, server=Worker("h99", 1)), TREE, ALL, "there is no host 'h99'"),
        (JOB, replace(TREE, children=TREE.children[:2]), ALL, "the tree must hold each of its workers exactly once"),
        (JOB, replace(TREE, root="leaf1"), ALL, "a switch appears twice in its tree"),
        (JOB, replace(TREE, root="leaf9"), ALL, "there is no switch 'leaf9'"),
        (JOB, TREE, Members(1, frozenset()), "members must be among its workers"),
        (JOB, TREE, Members(1, frozenset(("h6",))), "members must be among its workers"),
        (JOB, replace(TREE, root="spine2"), ALL, "it has no cells at spine2"),
    ],
)
def test_misfitting_job_is_refused(
    job: AggregationJob, tree: AggregationTree, members: Members, text: str, topology: Topology, hops: NextHops
) -> None:
    with pytest.raises(ControllerError, match=text):
        job_entities(topology, hops, PlacedJob(job, tree, BLOCKS), members)


def test_a_switch_has_a_bit_for_64_children(topology: Topology, hops: NextHops) -> None:
    many = leaf_spine(1, 1, 65)
    workers = tuple(Worker(f"h{number + 1}", 1) for number in range(65))
    job = AggregationJob(1, workers, 65, 1)
    tree = AggregationTree("leaf1", tuple(worker.host for worker in workers))
    members = Members(0, frozenset(worker.host for worker in workers))
    with pytest.raises(ControllerError, match="leaf1 has 65 children, more than 64"):
        job_entities(many, next_hops(many), PlacedJob(job, tree, {"leaf1": Block(0, 2)}), members)
