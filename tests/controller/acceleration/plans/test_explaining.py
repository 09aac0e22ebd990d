"""Plans explained: sums of the model, what staying together saves, break-evens that really flip, mixed pipelines."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.acceleration.calibration import DEFAULT
from controller.acceleration.errors import AccelerationError
from controller.acceleration.model import Works, decide, times
from controller.acceleration.plans import Explained, Method, Plan, Quantity, Stated, explain, mixed, plan_of
from controller.acceleration.plans.picture import draw
from controller.acceleration.plans.text import COLUMNS, document_of, plain, rows_of, summary_lines
from controller.acceleration.plans.values import Edge
from controller.acceleration.plans.works import Reading
from controller.acceleration.values import (
    Accelerator,
    Compression,
    Growth,
    Machines,
    Network,
    Round,
    TransferModel,
    Work,
)
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Flow, Operator, OperatorGraph, work_of
from controller.cluster.operators.sql import SqlTable, graph_of_sql
from dataplane.topology.values import DeviceKind, NumberFormat

GPU = Accelerator(DeviceKind.GPU, 64)
PACKING = replace(GPU, compression=Compression(0.3, 0.1))


class RoundFigures:
    """A machine of 1 GB/s that does 10^10 operations a second: t of what it reads, whichever takes longer."""

    def t_of(self, operator: Operator) -> Estimate:
        if (work := work_of(operator)) is None:
            return Estimate.unknown(f"{operator.kind}: never measured")
        if not work.read_bytes:
            return Estimate.unknown(f"{operator.name}: it reads nothing")
        operations = work.operations or 0 if work.unit == "flop" else 0
        seconds = max((work.read_bytes + work.written_bytes) / 1e9, operations / 1e10)
        return Estimate.exactly(seconds / (10 * work.read_bytes / 1e9), Basis.MODELLED)


CALIBRATION = RoundFigures()
TABLES = {"orders": SqlTable(1_500_000, 150_000_000), "lines": SqlTable(6_000_000, 600_000_000)}
QUERY = """select o.customer, sum(l.price) as total from orders o join lines l on o.id = l.order_id
           where o.day > 100 group by o.customer order by total desc"""


def plan_over(works: list[Work], edges: list[tuple[int, int, float]]) -> Plan:
    """Return a plan of works as they are, each of its kind's name."""
    read = {src for src, _, _ in edges}
    ends = frozenset(at for at in range(len(works)) if at not in read)
    graph = OperatorGraph(
        "plan",
        tuple(Operator(one.name, "filter") for one in works),
        tuple(Flow(works[src].name, works[dst].name, int(gb * 1e9)) for src, dst, gb in edges),
    )
    return Plan(graph, tuple(works), tuple(Edge(*edge) for edge in edges), ends)


def chain(t: list[float], gb: float = 1.0) -> Plan:
    """Return operators that each read all that the one before writes."""
    works = [Work(f"o{at}", Growth.LINEAR, one, gb, output_gb=gb, kind="filter") for at, one in enumerate(t)]
    return plan_over(works, [(at, at + 1, gb) for at in range(len(t) - 1)])


def devices(explained: Explained) -> list[str]:
    return [one.device for one in explained.operators]


def test_an_operator_by_itself_is_decided_as_the_model_does() -> None:
    for t in (0.001, 0.005, 0.02, 0.2, 5.0):
        for growth in (Growth.LINEAR, Growth.SQUARE):
            plan = plan_over([Work("o", growth, t, 1.0)], [])
            machines = Machines(Network(80.0), 1000)
            found = explain(plan, machines, [GPU])
            (decision,) = decide(Works.of(plan.works), machines, [GPU])
            assert found.operators[0].decision == decision
            assert devices(found) == [decision.device]
            assert found.placed_s == pytest.approx(decision.times[decision.device].total_s)


def test_alone_times_match_the_model_and_together_save_the_bus() -> None:
    plan, machines = chain([1.0, 1.0, 1.0]), Machines(Network(10.0), 1)
    found = explain(plan, machines, [GPU])
    assert devices(found) == ["gpu"] * 3
    alone = sum(times(Works.of(plan.works), machines, GPU).total_s.tolist())
    assert found.one_by_one_s == pytest.approx(alone)
    # Two results of 1 GB neither leave the GPU nor come back.
    assert found.placed_s == pytest.approx(alone - 2 * 2 * 1.0 / GPU.bus_gb_per_s)
    assert found.method is Method.TREE


def test_small_operator_follows_its_data_to_the_gpu() -> None:
    """By itself 10 t d = 0.1 s is less than 2 GB over the bus; between two on the GPU it is not."""
    found = explain(chain([5.0, 0.01, 5.0]), Machines(Network(10.0), 1), [GPU])
    assert devices(found) == ["gpu", "gpu", "gpu"]
    assert found.operators[1].decision.device == "cpu"
    assert "alone on the cpu" in found.operators[1].why
    assert found.placed_s < found.one_by_one_s < found.cpu_s


def test_intermediate_beyond_device_memory_is_moved_anyway() -> None:
    small = replace(GPU, memory_gb=0.5)
    found = explain(chain([5.0, 5.0]), Machines(Network(10.0), 1), [small])
    assert found.placed_s == pytest.approx(found.one_by_one_s)


def test_readers_of_one_result_bear_parts_of_taking_it_out() -> None:
    works = [Work(name, Growth.LINEAR, 1.0, 1.0, output_gb=1.0) for name in "abcd"]
    plan = plan_over(works, [(0, 1, 1.0), (0, 2, 1.0), (1, 3, 0.5), (2, 3, 0.5)])
    found = explain(plan, Machines(Network(10.0), 1), [GPU])
    assert found.method is Method.CONDITIONED
    # a comes out never, b and c read it where it is; both results stay, and d reads half of each.
    assert found.one_by_one_s - found.placed_s == pytest.approx((1 + 2 + 2 + 1) / GPU.bus_gb_per_s)


def test_unknown_operators_stay_on_the_cpu_and_say_why() -> None:
    unknown = Work("o1", Growth.LINEAR, 0.0, 1.0, output_gb=1.0, basis=Basis.NONE, unknown="never measured")
    plan = chain([5.0, 5.0, 5.0])
    plan = replace(plan, works=(plan.works[0], unknown, plan.works[2]))
    found = explain(plan, Machines(Network(10.0), 1), [GPU])
    assert devices(found) == ["gpu", "cpu", "gpu"]
    assert found.operators[1].decision.ratio is None
    assert found.operators[1].decision.times == {}
    assert found.notes == ("not counted, as their time is unknown: o1",)
    rows = list(rows_of(found))
    assert any("never measured" in row for row in rows)


@given(
    st.lists(st.floats(1e-3, 10), min_size=1, max_size=4),
    st.sampled_from([0.1, 1.0, 80.0]),
    st.sampled_from([1, 8, 1000]),
    st.sampled_from([(1.0, 0.0), (1.5, 0.0), (1.0, 0.02), (1.5, 0.8), (1.5, 0.02)]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_beyond_a_break_even_the_operator_changes_its_device(
    t: list[float], rate: float, count: int, preset_and_band: tuple[float, float], is_packed: bool
) -> None:
    preset, tie_band = preset_and_band
    device, plan = PACKING if is_packed else GPU, chain(t)
    machines = Machines(Network(rate), count)
    found = explain(plan, machines, [device], preset=preset, tie_band=tie_band)
    threshold = max(preset, 1 + tie_band)
    for at, one in enumerate(found.operators):
        for flip in one.flips:
            if flip.factor is None or not 1e-9 < flip.factor < 1e9:
                continue
            for nudge in (0.999, 1.001):
                factor = flip.factor * nudge
                has_flipped = (factor > flip.factor) == (flip.factor > 1)
                better = best_beside(plan, at, machines, device, threshold, found, flip.quantity, factor)
                assert (better != one.device) == has_flipped


def best_beside(
    plan: Plan,
    at: int,
    machines: Machines,
    device: Accelerator,
    threshold: float,
    found: Explained,
    quantity: Quantity,
    factor: float,
) -> str:
    """Return an operator's better device, all else as it is: by the model, and buses counted by hand."""
    work = plan.works[at]
    if quantity is Quantity.RATE:
        machines = replace(machines, network=Network(machines.network.rate_gbit_per_s * factor))
    elif quantity is Quantity.CPU_TIME:
        work = replace(work, cpu_s_per_100mb=work.cpu_s_per_100mb * factor)
    else:
        work = replace(work, input_gb=work.input_gb * factor, output_gb=(work.output_gb or 0) * factor)
    own = Works.of([work])
    on_cpu, other = times(own, machines).total_s.item(), times(own, machines, device).total_s.item()
    crossing = 1 / device.bus_gb_per_s
    beside = [found.operators[one].device for one in (at - 1, at + 1) if 0 <= one < len(plan.works)]
    # Data of a neighbour on the device need not come there, and has to come out of it for the CPU.
    other -= sum(crossing * (1 if quantity is not Quantity.DATA else factor) for one in beside if one == "gpu")
    on_cpu += threshold * sum(
        crossing * (1 if quantity is not Quantity.DATA else factor) for one in beside if one == "gpu"
    )
    return "cpu" if on_cpu <= threshold * other else "gpu"


@given(st.lists(st.floats(1e-3, 1), min_size=1, max_size=6), st.sampled_from([0.02, 0.1, 0.5]))
@settings(max_examples=40, deadline=None)
def test_every_device_that_the_tie_band_changed_says_so(t: list[float], tie_band: float) -> None:
    plan, machines = chain(t), Machines(Network(5.0), 100)
    within = explain(plan, machines, [GPU], tie_band=tie_band)
    without = explain(plan, machines, [GPU])
    as_preset = explain(plan, machines, [GPU], preset=1 + tie_band)
    assert devices(within) == devices(as_preset)
    lines = summary_lines(within)
    for operator, free, written in zip(
        within.operators, without.operators, document_of(within)["operators"], strict=True
    ):
        has_changed = operator.device != free.device
        assert operator.tied == (free.device if has_changed else "")
        assert written["without_tie_band"] == free.device
        assert written["by_itself_without_tie_band"] == free.decision.device
        assert (f"without the tie band of {tie_band:g} on the {free.device}" in operator.why) == has_changed
        has_said = any(line.startswith(f"{operator.decision.work.name}: ") and "tie band" in line for line in lines)
        assert has_said == (has_changed or operator.decision.device != free.decision.device)
    assert not any("tie band" in line for line in summary_lines(without))
    assert lines[1].endswith(f"; preset 1, tie band {tie_band:g}")
    assert (document_of(within)["tie_band"], document_of(without)["tie_band"]) == (tie_band, 0)


@pytest.mark.parametrize("growth", [Growth.SORT, Growth.GROUPED])
def test_sorts_and_groups_flip_with_the_size_of_their_data(growth: Growth) -> None:
    work = Work("o", growth, 0.02, 1.0, groups=1e6, group_bytes=100, kind="sort")
    if growth is Growth.SORT:
        work = replace(work, cpu_s_per_100mb=0.27, output_gb=0.5)
    machines = Machines(Network(10.0), 100)
    found = explain(plan_over([work], []), machines, [GPU], preset=1.2)
    flip = found.operators[0].flips[1]
    assert flip.quantity is Quantity.DATA
    assert flip.factor is not None
    assert flip.value == pytest.approx(100 * flip.factor)
    sides = []
    for nudge in (0.999, 1.001):
        output = None if work.output_gb is None else work.output_gb * flip.factor * nudge
        scaled = replace(work, input_gb=flip.factor * nudge, output_gb=output)
        sides.append(decide(Works.of([scaled]), machines, [GPU], 1.2)[0].device)
    assert set(sides) == {"cpu", "gpu"}


def test_delays_make_small_data_stay() -> None:
    machines = Machines(Network(10.0, (Round(0.8, 0.05),)), 8, transfer=TransferModel.PER_PATH)
    work = Work("o", Growth.LINEAR, 0.05, 1.0, output_gb=0.01)
    found = explain(plan_over([work], []), machines, [GPU], preset=1.5)
    flip = found.operators[0].flips[1]
    assert devices(found) == ["gpu"]
    assert flip.factor is not None
    assert flip.factor < 1
    below = replace(work, input_gb=flip.factor * 0.99, output_gb=0.01 * flip.factor * 0.99)
    assert decide(Works.of([below]), machines, [GPU], 1.5)[0].device == "cpu"


def test_where_all_is_in_proportion_to_data_no_size_flips() -> None:
    found = explain(chain([0.005]), Machines(Network(80.0), 1000), [GPU])
    assert [flip.value for flip in found.operators[0].flips[:2]] == [None, None]
    assert found.operators[0].flips[2].factor is not None


def test_a_query_is_read_as_works_of_each_machine() -> None:
    plan = plan_of(graph_of_sql(QUERY, None, TABLES), 10, CALIBRATION)
    growths = {one.kind: one.growth for one in plan.works}
    assert growths == {
        "filter": Growth.LINEAR,
        "join": Growth.HASH_JOIN,
        "aggregate": Growth.GROUPED,
        "sort": Growth.SORT,
    }
    (filtered,) = (one for one in plan.works if one.kind == "filter")
    assert filtered.input_gb == pytest.approx(150_000_000 / 10 / 1e9)
    (joined,) = (one for one in plan.works if one.kind == "join")
    assert joined.input_gb == pytest.approx(6_000_000 * 16 / 10 / 1e9)
    assert [edge.src < edge.dst for edge in plan.edges] == [True] * len(plan.edges)


def test_specified_reading_has_square_joins_and_tenth_outputs() -> None:
    plan = plan_of(graph_of_sql(QUERY, None, TABLES), 10, CALIBRATION, Reading(Growth.SQUARE, 1.0, has_tenths=True))
    (joined,) = (one for one in plan.works if one.kind == "join")
    assert joined.growth is Growth.SQUARE
    assert joined.other_gb == 0
    assert all(one.output_gb is None and one.groups is None for one in plan.works)
    with pytest.raises(AccelerationError, match="joins are hash-join, square, linear, not sort"):
        Reading(Growth.SORT)


def test_zero_rows_take_no_time_and_stay_on_the_cpu() -> None:
    graph = OperatorGraph(
        "empty",
        (
            Operator.of("filter-1", "filter", {"rows": 0, "row_bytes": 8, "kept_rows": 0}),
            Operator.of("aggregate-1", "aggregate", {"rows": 0, "row_bytes": 8, "groups": 0, "group_bytes": 8}),
        ),
        (Flow("filter-1", "aggregate-1", 0),),
    )
    found = explain(plan_of(graph, 4, CALIBRATION), Machines(Network(1.0), 4), [GPU])
    assert devices(found) == ["cpu", "cpu"]
    assert (found.placed_s, found.cpu_s) == (0.0, 0.0)
    assert [one.decision.ratio for one in found.operators] == [None, None]


def test_an_empty_graph_and_sizes_that_lack_are_told() -> None:
    with pytest.raises(AccelerationError, match="nothing: no operators to place"):
        plan_of(OperatorGraph("nothing", ()), 4, CALIBRATION)
    graph = OperatorGraph("graph", (Operator.of("f", "filter", {"rows": 5}),))
    with pytest.raises(AccelerationError, match="f: filter without"):
        plan_of(graph, 4, CALIBRATION)


def test_a_query_flows_into_a_training_step() -> None:
    query = graph_of_sql("select l.price, l.tax from lines l where l.day > 100", None, TABLES, name="rows")
    step = OperatorGraph(
        "step",
        (
            Operator("gemm-1", "gemm", (("k", 2), ("m", 1_200_000), ("n", 256)), NumberFormat.FP32, 1, 9_600_000, None),
            Operator("relu-1", "some-new-operator", (), NumberFormat.FP32),
        ),
        (Flow("gemm-1", "relu-1", 1_200_000 * 256 * 4),),
    )
    graph = mixed("rows then step", [query, step])
    assert graph.category == "mixed"
    end = next(one for one in query.operators if not query.out_of[one.name])
    assert Flow(f"rows/{end.name}", "step/gemm-1", end.output_bytes) in graph.flows
    assert graph.operator["step/gemm-1"].input_bytes == 0
    found = explain(plan_of(graph, 1, CALIBRATION), Machines(Network(10.0), 1), [GPU])
    by_name = {one.decision.work.name: one for one in found.operators}
    assert by_name["step/gemm-1"].device == "gpu"
    assert by_name["step/relu-1"].device == "cpu"
    assert "some-new-operator" in by_name["step/relu-1"].decision.reasons[0]
    with pytest.raises(AccelerationError, match="distinct names"):
        mixed("twice", [query, query])


def test_a_plan_is_told_as_rows_lines_a_document_and_a_picture(tmp_path: Path) -> None:
    plan = plan_of(graph_of_sql(QUERY, None, TABLES), 8, CALIBRATION)
    found = explain(plan, Machines(Network(1.0), 8), [PACKING], preset=1.2)
    rows = list(rows_of(found))
    assert len(rows) == 2 * len(plan.works)
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert "as placed" in summary_lines(found)[0]
    document = document_of(found)
    assert len(document["operators"]) == len(plan.works)
    for one in document["operators"]:
        for parts in one["times"].values():
            assert math.isclose(sum(parts.values()) - parts["total_s"], parts["total_s"], rel_tol=1e-9)
    draw(found, tmp_path / "plan.svg")
    drawn = (tmp_path / "plan.svg").read_text()
    assert "<svg" in drawn
    draw(found, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == drawn
    with pytest.raises(AccelerationError, match=r"ends in \.png or \.svg"):
        draw(found, tmp_path / "plan.pdf")


def test_the_faster_the_network_the_sooner_the_gpu() -> None:
    """With a preset above 1, transfer that both share keeps an operator on the CPU while it is slow."""
    plan = plan_over([Work("join", Growth.SQUARE, 0.2, 1.0)], [])
    found = [explain(plan, Machines(Network(rate), 1000), [GPU], preset=1.5) for rate in (0.1, 1.0, 10.0, 100.0)]
    placed = [one.operators[0].device for one in found]
    assert placed == sorted(placed)
    assert placed[0] == "cpu"
    assert placed[-1] == "gpu"
    flips = [one.operators[0].flips[0].value for one in found]
    assert all(before == pytest.approx(after) for before, after in pairwise(flips))


def test_plan_times_on_the_cpu_match_the_calibration() -> None:
    """One machine, nothing aggregated: an operator's seconds are those that the calibration tells of its size."""
    graph = graph_of_sql(QUERY, None, TABLES)
    plan = plan_of(graph, 1, DEFAULT)
    found = explain(plan, Machines(Network(1.0), 1), [])
    for one in found.operators:
        name = one.decision.work.name
        seconds = DEFAULT.time_of(graph.operator[name]).seconds
        assert one.decision.times["cpu"].compute_s == pytest.approx(seconds, rel=0.02), name


def test_stated_times_precede_calibrated_ones() -> None:
    known = Stated({"filter": 0.5}, DEFAULT)
    assert known.t_of(Operator.of("f", "filter", {"rows": 100, "row_bytes": 8, "kept_rows": 1})).seconds == 0.5
    plan = plan_of(graph_of_sql(QUERY, None, TABLES), 8, known)
    by_kind = {one.kind: one for one in plan.works}
    assert by_kind["filter"].cpu_s_per_100mb == 0.5
    assert by_kind["join"].cpu_s_per_100mb != by_kind["join"].other_s_per_100mb
    with pytest.raises(AccelerationError, match="t of sort: inf s"):
        Stated({"sort": math.inf})


@pytest.mark.parametrize(
    ("value", "text"),
    [(6240.4, "6240"), (1461.0, "1461"), (12.345, "12.3"), (0.000569, "0.000569")],
)
def test_plain_figures_avoid_exponents(value: float, text: str) -> None:
    assert plain(value) == text
