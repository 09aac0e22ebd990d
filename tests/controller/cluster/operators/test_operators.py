"""Operator graphs: checked when made, distinguished by their computation, strictly parsed, round-tripped."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.operators import (
    KINDS,
    Counting,
    Flow,
    Operator,
    OperatorError,
    OperatorGraph,
    canonical,
    dumps,
    is_same,
    load,
    loads,
    signature,
    work_of,
)
from dataplane.errors import ConfigError
from dataplane.topology.values import NumberFormat

FP64 = NumberFormat.FP64
GEMM = Operator.of("factor", "gemm", {"n": 20, "m": 10, "k": 30}, FP64, executions=3)
TEXT = """\
millrace: 1
name: solve
category: hpc
operators:
- {name: factor, kind: gemm, shape: {m: 10, n: 20, k: 30}, format: fp64, executions: 3000}
- {name: waves, kind: fft, shape: {n: 1024, batch: 2}, format: fp32, executions: 2000, input_bytes: 7}
- {name: own, kind: my-kernel}
flows:
- {src: factor, dst: own, nbytes: 1600}
- {src: waves, dst: own}
"""


def graph_of(edges: str, name: str = "g") -> OperatorGraph:
    """Return the graph of 'a-b b-c': operators whose kind is their name's first letter."""
    pairs = [tuple(edge.split("-")) for edge in edges.split()]
    names = sorted({end for pair in pairs for end in pair})
    operators = tuple(Operator(end, end[0]) for end in names)
    return OperatorGraph(name, operators, tuple(Flow(src, dst) for src, dst in pairs))


def test_signature_is_of_an_operators_computation() -> None:
    assert GEMM.signature == "gemm fp64 k=30 m=10 n=20"
    assert Operator("x", "own").signature == "own"


@pytest.mark.parametrize(
    ("kind", "shape", "operations", "read", "written"),
    [
        ("gemm", {"m": 10, "n": 20, "k": 30}, 12_000, 8 * 900, 8 * 200),
        ("gemv", {"m": 10, "n": 20}, 400, 8 * 220, 8 * 10),
        ("axpy", {"n": 7}, 14, 8 * 14, 8 * 7),
        ("fft", {"n": 1024, "batch": 2}, 2 * 51_200, 2 * 16 * 1024, 2 * 16 * 1024),
        ("fft", {"n": 1}, 0, 16, 16),
        ("spmv", {"rows": 3, "columns": 4, "nonzeros": 5}, 10, 5 * 12 + 4 * 4 + 4 * 8, 24),
        ("trigonometric", {"n": 6}, 6, 48, 48),
        ("filter", {"rows": 10, "row_bytes": 4, "kept_rows": 3}, 10, 40, 12),
        ("aggregate", {"rows": 10, "row_bytes": 4, "groups": 2, "group_bytes": 8}, 10, 40, 16),
        ("sort", {"rows": 5, "row_bytes": 2}, 7, 10, 10),
        ("sort", {"rows": 2, "row_bytes": 2}, 1, 4, 4),
        (
            "join",
            {
                "left_rows": 2,
                "left_row_bytes": 3,
                "right_rows": 5,
                "right_row_bytes": 7,
                "out_rows": 1,
                "out_row_bytes": 9,
            },
            *(None, 41, 9),
        ),
    ],
)
def test_work_of_known_kinds(kind: str, shape: dict[str, int], operations: int | None, read: int, written: int) -> None:
    work = work_of(Operator.of("x", kind, shape, FP64))
    assert work is not None
    assert (work.operations, work.read_bytes, work.written_bytes) == (operations, read, written)


def test_a_convolution_layer_is_counted_as_published() -> None:
    # The second layer of VGG-16, 224 x 224 with 64 channels in and out, is 1.85 G multiply-adds (Simonyan 2014).
    layer = {
        "batch": 1,
        "in_channels": 64,
        "in_height": 224,
        "in_width": 224,
        "out_channels": 64,
        "out_height": 224,
        "out_width": 224,
        "kernel_height": 3,
        "kernel_width": 3,
    }
    work = work_of(Operator.of("conv1_2", "conv2d", layer, NumberFormat.FP32))
    assert work is not None
    assert work.operations == 2 * 1_849_688_064
    grouped = work_of(Operator.of("depthwise", "conv2d", layer | {"groups": 64}, NumberFormat.FP32))
    assert grouped is not None
    assert grouped.operations == work.operations // 64
    for groups in (0, 3):
        with pytest.raises(OperatorError, match=f"depthwise: channels cannot be divided into {groups} groups"):
            work_of(Operator.of("depthwise", "conv2d", layer | {"groups": groups}, NumberFormat.FP32))


def test_a_product_is_counted_by_doing_it() -> None:
    m, n, k = 3, 4, 5
    done = sum(2 for _ in range(m) for _ in range(n) for _ in range(k))
    work = work_of(Operator.of("x", "gemm", {"m": m, "n": n, "k": k}, NumberFormat.INT4))
    assert work is not None
    assert (work.operations, work.unit) == (done, "op")
    assert (work.read_bytes, work.written_bytes) == (math.ceil(35 / 2), 6)
    assert work.intensity == done / 24


def test_unknown_kinds_have_no_work_and_bad_shapes_are_refused() -> None:
    assert work_of(Operator.of("x", "my-kernel", {"anything": 1})) is None
    for operator, problem in (
        (Operator.of("x", "gemm", {"m": 1, "n": 1}, FP64), "x: gemm without k"),
        (Operator.of("x", "axpy", {"n": 1, "o": 1}, FP64), "x: axpy has no o, only n"),
        (Operator.of("x", "axpy", {"n": 1}), "x: axpy needs a number format"),
    ):
        with pytest.raises(OperatorError, match=problem):
            work_of(operator)


def test_every_kind_names_its_source() -> None:
    assert all(kind.source and kind.meaning for kind in KINDS.values())
    assert {name for name, kind in KINDS.items() if kind.counting is Counting.LOWER_BOUND} == {"scan", "sort", "top-n"}


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Operator("", "gemm"), "not a valid operator name"),
        (lambda: Operator("x", "GEMM"), "not a valid operator kind"),
        (lambda: Operator("x", "gemm", (("n", 1), ("m", 1))), "in order of their names"),
        (lambda: Operator("x", "gemm", (("n", 1), ("n", 1))), "must be unique"),
        (lambda: Operator("x", "gemm", (("n", -1),)), "n is -1"),
        (lambda: Operator("x", "gemm", executions=0), "executions is 0"),
        (lambda: Operator("x", "gemm", input_bytes=-1), "input_bytes is -1"),
        (lambda: OperatorGraph("g", (GEMM, GEMM)), "g: duplicate factor"),
        (lambda: OperatorGraph("g", (GEMM,), (Flow("factor", "x"),)), "g: there is no operator x"),
        (lambda: graph_of("a-b a-b"), "g: duplicate a -> b"),
        (lambda: graph_of("a-b b-c c-a"), "g: data flows in a cycle: a, b, c"),
        (lambda: graph_of("a-a"), "g: data flows in a cycle: a"),
    ],
)
def test_invalid_graphs_are_refused(make: object, problem: str) -> None:
    with pytest.raises(OperatorError, match=problem):
        make()  # type: ignore[operator]


def shuffled(graph: OperatorGraph, seed: int) -> OperatorGraph:
    """Return the graph with other names and in another order."""
    rng = random.Random(seed)
    new = list(range(len(graph.operators)))
    rng.shuffle(new)
    names = {operator.name: f"op{number}" for operator, number in zip(graph.operators, new, strict=True)}
    operators = [
        Operator(names[old.name], old.kind, old.shape, old.number_format, old.executions) for old in graph.operators
    ]
    flows = [Flow(names[flow.src], names[flow.dst], flow.nbytes) for flow in graph.flows]
    rng.shuffle(operators)
    rng.shuffle(flows)
    return OperatorGraph("other", tuple(operators), tuple(flows), graph.category)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 32))
def test_names_and_order_make_no_difference(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(1, 9)
    operators = tuple(Operator(f"n{i}", rng.choice("ab"), executions=rng.choice((1, 1, 2))) for i in range(count))
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count) if rng.random() < 0.3]
    graph = OperatorGraph("g", operators, tuple(Flow(f"n{i}", f"n{j}", rng.choice((None, 8))) for i, j in pairs))
    other = shuffled(graph, seed)
    assert signature(graph) == signature(other)
    assert is_same(graph, other)
    assert canonical(graph) == canonical(other)
    assert is_same(graph, canonical(graph))
    assert loads(dumps(graph)) == graph


@pytest.mark.parametrize(
    ("flows", "other"),
    [("a-b b-c", "a-b a-c"), ("a1-b1 a2-b2", "a1-b1 a2-b1 a2-b2"), ("a1-b1 a1-b2 a2-b2", "a1-b1 a2-b2 a2-b1 a1-b2")],
)
def test_other_flows_make_another_signature(flows: str, other: str) -> None:
    assert signature(graph_of(flows)) != signature(graph_of(other))
    assert not is_same(graph_of(flows), graph_of(other))


def test_graphs_with_equal_colours_are_distinguished() -> None:
    # A ring of eight against two rings of four: all operators have equal neighbourhoods.
    ring = graph_of("a1-b1 a1-b2 a2-b2 a2-b3 a3-b3 a3-b4 a4-b4 a4-b1")
    two = graph_of("a1-b1 a1-b2 a2-b2 a2-b1 a3-b3 a3-b4 a4-b4 a4-b3")
    assert signature(ring) == signature(two)
    assert not is_same(ring, two)
    assert is_same(two, shuffled(two, 1))


def test_many_equal_operators_have_a_canonical_form() -> None:
    fan = graph_of(" ".join(f"s-w{number} w{number}-t" for number in range(300)))
    assert canonical(fan) == canonical(shuffled(fan, 3))


def test_counts_shapes_and_bytes_make_a_difference() -> None:
    def alone(operator: Operator) -> str:
        return signature(OperatorGraph("g", (operator,)))

    signatures = {
        alone(GEMM),
        alone(Operator.of("factor", "gemm", dict(GEMM.shape), FP64, executions=4)),
        alone(Operator.of("factor", "gemm", dict(GEMM.shape), NumberFormat.FP32, executions=3)),
        alone(Operator.of("factor", "gemm", {"m": 1, "n": 1, "k": 1}, FP64, executions=3)),
    }
    assert len(signatures) == 4


def test_file_round_trips(tmp_path: Path) -> None:
    (tmp_path / "solve.yaml").write_text(TEXT)
    graph = load(tmp_path / "solve.yaml")
    assert graph.order == ("factor", "waves", "own")
    assert graph.operator["factor"].executions == 3000
    assert graph.operator["waves"].input_bytes == 7
    assert graph.flows == (Flow("factor", "own", 1600), Flow("waves", "own"))
    assert loads(dumps(graph)) == graph
    assert loads(dumps(graph, as_json=True)) == graph
    assert json.loads(dumps(graph, as_json=True))["category"] == "hpc"


@pytest.mark.parametrize(
    ("right", "wrong", "line", "key"),
    [
        ("kind: fft", "kind: FFT", 6, "operators[1].kind"),
        ("kind: fft, ", "", 6, "operators[1]"),
        ("k: 30", "l: 30", 5, "operators[0].shape"),
        ("k: 30", "k: 30, z: 1", 5, "operators[0].shape.z"),
        ("k: 30", "k: many", 5, "operators[0].shape.k"),
        ("format: fp64", "format: fp65", 5, "operators[0].format"),
        ("format: fp64, ", "", 5, "operators[0].format"),
        ("executions: 3000", "executions: 0", 5, "operators[0].executions"),
        ("name: own, kind", "name: waves, kind", 7, "operators[2].name"),
        ("nbytes: 1600", "nbytes: -1", 9, "flows[0].nbytes"),
        ("nbytes: 1600", "bytes: 1600", 9, "flows[0].bytes"),
        ("src: waves", "src: wave", 10, "flows[1].src"),
        ("src: waves, dst: own", "src: own, dst: factor", 8, "flows"),
        ("src: waves", "src: factor", 10, "flows[1]"),
    ],
)
def test_a_wrong_file_is_refused_with_line_and_key(right: str, wrong: str, line: int, key: str) -> None:
    assert TEXT.count(right) == 1
    with pytest.raises(ConfigError) as caught:
        loads(TEXT.replace(right, wrong), file="t.yaml")
    assert (caught.value.file, caught.value.line, caught.value.key) == ("t.yaml", line, key)
