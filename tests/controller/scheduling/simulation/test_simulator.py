"""The simulator: times computed by hand, invariants of any trace, and equal traces for equal seeds."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.values import Snapshot as NetworkSnapshot
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import WHOLE, Cluster, DeviceRequest, Request
from controller.cluster.workloads.families import Batch, Layers, batch, layered_graph
from controller.cluster.workloads.values import Edge, Pod, PodGroup, Task, TaskGraph
from controller.common.errors import SchedulerError
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.pods import Peer, PodProfile, PodProfileSettings
from controller.scheduling.simulation.command import Progress
from controller.scheduling.simulation.network import TCP, Spreading
from controller.scheduling.simulation.queue import Order
from controller.scheduling.simulation.settings import SimulationSettings
from controller.scheduling.simulation.simulator import simulate
from controller.scheduling.simulation.summary import span, summary_of, utilisation
from controller.scheduling.simulation.trace import State, Trace
from controller.scheduling.simulation.workload import GraphArrival, Workload
from dataplane.topology.families import from_text
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.pods.clusters import GIB, node

S = 1_000_000_000
CPU, GPU = DeviceKind.CPU, DeviceKind.GPU
PACK = PodProfile.of(PodProfileSettings(scores=(PolicySettings(policy="most-used"),)))
DEFAULT = PodProfile.of(PodProfileSettings())
TOPOLOGY = from_text("leaf-spine:leaves=2,spines=2,hosts=2")
HOSTS = [host.name for host in TOPOLOGY.hosts if host.name != "collector"]
COSTS = CostMap.of(TOPOLOGY, NetworkSnapshot(0, {}, {}, {}))


def task(name: str, seconds: int = 1, cores: int = 1, arrival_s: int = 0, **more: object) -> Task:
    request = Request(cores * WHOLE)
    return Task(name, arrival_s * S, request, {CPU: seconds * S}, **more)  # type: ignore[arg-type]


def times(trace: Trace) -> dict[str, tuple[float | None, float | None]]:
    """Return the start and end of each unit in seconds."""
    seconds = [
        None if time is None else time / S
        for record in trace.records()
        for time in (record.started_ns, record.finished_ns)
    ]
    return dict(zip(trace.names, zip(seconds[::2], seconds[1::2], strict=True), strict=True))


def test_pod_that_does_not_fit_waits_and_is_overtaken() -> None:
    cluster = Cluster.of([node("a", cores=2)])
    work = Workload((task("first", 10), task("wide", 1, cores=2, arrival_s=1), task("small", 2, arrival_s=2)))
    assert times(simulate(cluster, work, DEFAULT)) == {"first": (0, 10), "wide": (10, 11), "small": (2, 4)}
    strict = simulate(cluster, work, DEFAULT, SimulationSettings(order=Order.STRICT))
    assert times(strict) == {"first": (0, 10), "wide": (10, 11), "small": (11, 13)}


def test_priority_comes_before_age() -> None:
    work = Workload((task("first", 5), task("old", arrival_s=1), task("urgent", arrival_s=2, priority=7)))
    spans = times(simulate(Cluster.of([node("a", cores=1)]), work, DEFAULT))
    assert spans == {"first": (0, 5), "urgent": (5, 6), "old": (6, 7)}


def test_the_quickest_kind_that_is_free() -> None:
    cluster = Cluster.of([node("a", cores=4, gpus=["T4"])])
    either = [dataclasses.replace(task(name), duration_ns={CPU: 8 * S, GPU: S}) for name in ("one", "two")]
    records = list(simulate(cluster, Workload(tuple(either)), DEFAULT).records())
    assert [(record.kind, record.finished_ns) for record in records] == [("gpu", S), ("cpu", 8 * S)]


def test_a_graph_waits_for_inputs_over_the_network() -> None:
    """Two chained tasks on hosts of two leaves: the packets' bits over 10 Gbit/s, plus the last packet's delay."""
    nbytes = 100_000_000
    graph = TaskGraph("g", (task("x"), task("y", cores=8)), (Edge("x", "y", nbytes),))
    leaf = {host: TOPOLOGY.attachment[host].node for host in HOSTS}
    far = next(host for host in HOSTS if leaf[host] != leaf[HOSTS[0]])
    cluster = Cluster.of([node(HOSTS[0], cores=1), node(far, cores=8)])
    x, y = simulate(cluster, Workload(graphs=(GraphArrival(graph, 5 * S),)), PACK, costs=COSTS).records()
    assert (x.nodes, y.nodes) == ((HOSTS[0],), (far,))
    cost = COSTS.cost(HOSTS[0], far)
    rate_bps = 10_000_000_000
    wire_ns = TCP.wire_bits(nbytes) * S / rate_bps
    last_ns = cost.delay_ns + 3 * TCP.packet_bits(nbytes) * S / rate_bps
    assert y.ready_ns == y.started_ns == x.finished_ns == 6 * S
    assert y.transferred_ns == pytest.approx(6 * S + wire_ns + last_ns, abs=8)
    assert y.transferred_ns is not None
    assert y.finished_ns == y.transferred_ns + S


def test_inputs_share_the_link_and_local_ones_take_no_time() -> None:
    inputs = {name: (Peer(HOSTS[0], 10_000_000),) for name in ("near", "far1", "far2")}
    nodes = Cluster.of([node(HOSTS[0], cores=1), node(HOSTS[1], cores=2)])
    work = Workload(tuple(task(name) for name in ("near", "far1", "far2")), inputs=inputs)
    by_name = {record.name: record for record in simulate(nodes, work, DEFAULT, costs=COSTS).records()}
    local = [record for record in by_name.values() if record.nodes == (HOSTS[0],)]
    remote = [record for record in by_name.values() if record.nodes == (HOSTS[1],)]
    assert [record.transferred_ns for record in local] == [0]
    alone_ns = TCP.wire_bits(10_000_000) * S // 10_000_000_000
    assert all(record.transferred_ns == pytest.approx(2 * alone_ns, rel=1e-3) for record in remote)
    assert len(remote) == 2


def test_instances_and_gangs_start_together_or_not_at_all() -> None:
    cluster = Cluster.of([node("a", cores=2), node("b", cores=2)])
    gang = PodGroup("gang", tuple(Pod(f"p{n}", (task(f"t{n}", 3),)) for n in range(4)), 4)
    work = Workload((task("one", 2), task("four", 1, arrival_s=9, instances=4)), groups=(gang,))
    records = {record.name: record for record in simulate(cluster, work, DEFAULT).records()}
    assert records["gang"].started_ns == 2 * S
    assert sorted(records["gang"].nodes) == ["a", "a", "b", "b"]
    assert records["four"].started_ns == 9 * S


def test_impossible_task_and_its_dependants_are_refused() -> None:
    graph = TaskGraph(
        "g", (task("huge", cores=99), task("after"), task("later")), (Edge("huge", "after"), Edge("after", "later"))
    )
    unknown = Task("unknown", 0, Request(WHOLE))
    trace = simulate(Cluster.of([node("a")]), Workload((task("fine"), unknown), (GraphArrival(graph),)), DEFAULT)
    fine, huge, after, later = trace.records()
    assert fine.state is State.FINISHED
    assert "1 by fits, a: cpu: 99000 thousandths of cores wanted, 8000 free" in huge.reason
    assert after.reason == "waits for g/huge, which cannot be placed"
    assert [huge.state, after.state, later.state] == [State.REFUSED] * 3
    assert trace.left_out == (("unknown", "its run time is unknown"),)


def test_pods_pending_at_the_end_have_a_reason() -> None:
    trace = simulate(Cluster.of([node("a", cores=1)]), Workload((task("one", 9), task("two"))), DEFAULT, until_ns=S)
    one, two = trace.records()
    assert (one.state, two.state) == (State.RUNNING, State.WAITING)
    assert "cpu: 1000 thousandths of cores wanted, 0 free" in two.reason


def test_progress_is_said_now_and_then() -> None:
    work = Workload((task("one"), task("two", arrival_s=5)))
    always, never = list[str](), list[str]()
    for said, every_s in ((always, 0.0), (never, 1e6)):
        simulate(Cluster.of([node("a")]), work, DEFAULT, watch=Progress(said.append, every_s))
    assert list(dict.fromkeys(always)) == [f"{count} of 2 tasks have finished" for count in range(3)]
    assert not never


def test_utilisation_over_time() -> None:
    work = Workload((task("x", 4, cores=2), task("y", 2, cores=2, arrival_s=1)))
    trace = simulate(Cluster.of([node("a", cores=4)]), work, DEFAULT)
    assert utilisation(trace, [0, S, 3 * S, 4 * S])["cpu"].tolist() == pytest.approx([0.5, 1.0, 0.5])
    assert summary_of(trace).utilisation["cpu"] == pytest.approx(0.75)
    with pytest.raises(SchedulerError, match="increasing times"):
        utilisation(trace, [0, 0])


def test_utilisation_of_months_overflows_nothing() -> None:
    work = Workload(tuple(task(f"t{n}", 10_000_000) for n in range(8)))
    trace = simulate(Cluster.of([node("a")]), work, DEFAULT)
    assert summary_of(trace).utilisation["cpu"] == pytest.approx(1.0)


def test_nothing_submitted() -> None:
    assert summary_of(simulate(Cluster.of([node("a")]), Workload(), DEFAULT, costs=None)).makespan_ns == 0


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), spreading=st.sampled_from(Spreading), order=st.sampled_from(Order))
def test_invariants_of_every_trace(seed: int, spreading: Spreading, order: Order) -> None:
    graph = layered_graph(Layers(layers=3, width=4, mean_bytes=8 << 20), seed)
    work = Workload(batch(Batch(20, rate_hz=2.0, mean_s=5.0), seed), (GraphArrival(graph, S),))
    cluster = Cluster.of(node(host, cores=8, gib=32, gpus=["T4", "T4"]) for host in HOSTS)
    how = SimulationSettings(order=order, spreading=spreading, seed=seed)
    trace = simulate(cluster, work, DEFAULT, how, COSTS)
    records = list(trace.records())
    assert records == list(simulate(cluster, work, DEFAULT, how, COSTS).records())
    finish = {record.name: record.finished_ns for record in records}
    assert {record.state for record in records} == {State.FINISHED}
    for record in records:
        moments = (record.submitted_ns, record.ready_ns, record.started_ns, record.transferred_ns, record.finished_ns)
        assert list(moments) == sorted(moments)  # type: ignore[type-var]
    for edge in graph.edges:
        ready = trace.ready_ns[trace.names.index(f"{graph.name}/{edge.dst}")]
        before = finish[f"{graph.name}/{edge.src}"]
        assert before is not None
        assert ready >= before
    # Holdings never exceed the capacity.
    changes: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for number, record in enumerate(records):
        for name in ("cpu", "gpu"):
            amount = int(trace.held.amounts[name][number])
            assert record.started_ns is not None
            assert record.finished_ns is not None
            changes[record.nodes[0], name] += [(record.started_ns, amount), (record.finished_ns, -amount)]
    for (_, name), moves in changes.items():
        held = 0
        for _, amount in sorted(moves):
            held += amount
            assert 0 <= held <= {"cpu": 8 * WHOLE, "gpu": 2 * WHOLE}[name]
    begin, end = span(trace)
    assert all(0 <= share[0] <= 1 for share in utilisation(trace, [begin, end]).values())


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (Workload((task("x"), task("x"))), "duplicate x in the workload"),
        (Workload(inputs={"x": (Peer(HOSTS[0], 1),)}), "inputs of x: no such task"),
        (Workload((task("x"),), inputs={"x": (Peer("far", 1),)}), "inputs of x: far is not a host of topology"),
    ],
)
def test_workloads_that_cannot_be(work: Workload, words: str) -> None:
    with pytest.raises(SchedulerError, match=words):
        simulate(Cluster.of([node(HOSTS[0])]), work, DEFAULT, costs=COSTS)


def test_a_node_that_the_topology_does_not_have() -> None:
    with pytest.raises(SchedulerError, match="node nowhere is not a host of topology leaf-spine"):
        simulate(Cluster.of([node("nowhere")]), Workload(), DEFAULT, costs=COSTS)


def test_requests_for_memory_of_devices() -> None:
    cluster = Cluster.of([node("a", gpus=["T4"])])
    half = Request(WHOLE, GIB, (DeviceRequest(GPU, 1, 400, memory_bytes=9 * GIB),))
    pair = tuple(Task(name, 0, half, {GPU: S}) for name in ("x", "y"))
    assert times(simulate(cluster, Workload(pair), DEFAULT)) == {"x": (0, 1), "y": (1, 2)}
