"""Pictures of plans: every text whole, within its box or the figure, and clear of all others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxBase

from controller.acceleration.plans import Explained, Stated, explain, plan_of
from controller.acceleration.plans.picture import Style, figure_of, wrapped
from controller.acceleration.values import Accelerator, Machines, Network
from controller.cluster.operators import Flow, Operator, OperatorGraph
from controller.cluster.operators.sql import SqlTable, graph_of_sql
from dataplane.topology.values import DeviceKind, NumberFormat

TABLES = {"orders": SqlTable(15_000_000, 1_500_000_000), "lines": SqlTable(60_000_000, 6_000_000_000)}
QUERY = """
    with r as (
        select o.customer, o.region, sum(l.price * (1 - l.discount)) as revenue
        from orders o join lines l on o.id = l.order_id where o.day > 100 and l.quantity < 20 group by all
    ), t as (select region, max(revenue) as most from r group by region)
    select r.customer, r.revenue, t.most from r join t on r.region = t.region
    where r.revenue > 10 order by revenue desc limit 10
"""
LONG = "a-rather-long-name-of-a-report-over-all-regions-and-quarters"
T = Stated(dict.fromkeys(("filter", "project", "join", "aggregate", "sort", "top-n", "gemm"), 0.1))
DEVICES = (
    Accelerator(DeviceKind.GPU, 64, name="nvidia-a100-sxm4-80gb-of-the-second-rack"),
    Accelerator(DeviceKind.NPU, 600, bus_gb_per_s=25, name="another_accelerator_with_a_long_name"),
    Accelerator(DeviceKind.GPU, 64),
    Accelerator(DeviceKind.FPGA, 2),
)


def planned(graph: OperatorGraph, *devices: Accelerator) -> Explained:
    return explain(plan_of(graph, 8, T), Machines(Network(10.0), 8), devices)


def long_query() -> Explained:
    return planned(graph_of_sql(QUERY, None, TABLES, name=LONG), *DEVICES)


def many_operators() -> Explained:
    """Return a plan in which results skip rows, many have one reader, and one has many."""
    shape = (("k", 1_500_000), ("m", 2), ("n", 2))
    known = [
        Operator(f"part-of-{LONG}/operator-{at}", "gemm", shape, NumberFormat.FP64, input_bytes=24_000_000)
        for at in range(24)
    ]
    operators = tuple(
        operator if at % 7 else Operator(operator.name, "unheard-of", ()) for at, operator in enumerate(known)
    )
    pairs = (
        [(at, 23) for at in range(23)] + [(at, at + 5) for at in range(0, 15, 3)] + [(0, at) for at in range(10, 14)]
    )
    flows = tuple(Flow(operators[src].name, operators[dst].name, 1000 * src + 7) for src, dst in pairs)
    return planned(OperatorGraph(f"{LONG} then {LONG} then {LONG}", operators, flows, "ai"), *DEVICES[:2])


def tied_operators() -> Explained:
    plan = plan_of(graph_of_sql(QUERY, None, TABLES, name=LONG), 8, T)
    return explain(plan, Machines(Network(10.0), 8), DEVICES, tie_band=100.0)


def single_operator() -> Explained:
    return planned(graph_of_sql("select l.price from lines l where l.day > 9", None, TABLES))


@pytest.mark.parametrize("plan", [long_query, many_operators, tied_operators, single_operator])
def test_no_text_of_a_picture_is_cut_or_covered(plan: Callable[[], Explained]) -> None:
    explained = plan()
    canvas = FigureCanvasAgg(figure_of(explained))
    canvas.draw()  # type: ignore[no-untyped-call] # matplotlib's
    (axes,) = canvas.figure.axes
    texts = [text for text in axes.texts if text.get_text()]
    extents = [text.get_window_extent() for text in texts]
    boxes = [patch.get_window_extent() for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    assert len(boxes) == len(explained.operators)
    for text, extent in zip(texts, extents, strict=True):
        assert "..." not in text.get_text()
        assert _holds(canvas.figure.bbox, extent), text.get_text()
        assert all(_holds(box, extent) or not _overlap(box, extent) for box in boxes), text.get_text()
    for (one, first), (other, second) in combinations(zip(texts, extents, strict=True), 2):
        assert not _overlap(first, second), (one.get_text(), other.get_text())
    assert not any(_overlap(one, other) for one, other in combinations(boxes, 2))
    _assert_complete(explained, texts)


def _assert_complete(explained: Explained, texts: list[Text]) -> None:
    shown = "".join("".join(text.get_text() for text in texts).split())
    assert "".join(explained.name.split()) in shown
    for operator in explained.operators:
        assert f"{operator.decision.work.name}on{operator.device}" in shown
        assert not operator.tied or f"{operator.tied}withoutthetieband" in shown
        assert all(f"{label}" in shown for label in operator.decision.times)


def _holds(outer: BboxBase, inner: BboxBase) -> bool:
    return bool(outer.x0 <= inner.x0 and inner.x1 <= outer.x1 and outer.y0 <= inner.y0 and inner.y1 <= outer.y1)


def _overlap(one: BboxBase, other: BboxBase) -> bool:
    """Return whether two share more than a pixel, which is rounding."""
    shared = Bbox.intersection(one, other)
    return shared is not None and min(shared.width, shared.height) > 1


@pytest.mark.parametrize("text", ["", "one", "several words and a long-name/of.parts_too", "x" * 200, " and ends "])
def test_wrapped_lines_fit_and_lose_nothing_but_spaces(text: str) -> None:
    style = Style(9)
    lines = list(wrapped(text, style, 0.8))
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(style.width_in(line) <= 0.8 for line in lines)
