"""Each sentence of "Building a probe task", one test each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.operators import Flow, Operator, OperatorGraph
from controller.probing import files
from controller.probing.building import (
    BuildSettings,
    Unlinked,
    build,
    category_of,
    links_between,
    of_target,
    repetitions,
)
from controller.probing.errors import ProbeError
from controller.probing.library import KernelLibrary
from controller.probing.values import Library, Link, Match, ProbeTask, sizes_of
from dataplane.topology.values import DeviceKind, NumberFormat

LIBRARY = KernelLibrary()
DGEMM = LIBRARY.kernel("dgemm")


def gemm(name: str, executions: int = 1) -> Operator:
    return Operator.of(name, "gemm", {"m": 64, "n": 64, "k": 64}, NumberFormat.FP64, executions)


def plot(name: str) -> Operator:
    return Operator.of(name, "plot", {})


def graph_of(operators: tuple[Operator, ...], *flows: tuple[str, str]) -> OperatorGraph:
    return OperatorGraph("target", operators, tuple(Flow(src, dst) for src, dst in flows), "hpc")


def matches_of(graph: OperatorGraph) -> tuple[Match, ...]:
    """Return matches of all products only."""
    return tuple(
        Match(operator.name, DGEMM, 1.0, operator.shape) if operator.kind == "gemm" else Match(operator.name, None, 0.2)
        for operator in graph.operators
    )


def built(graph: OperatorGraph, settings: BuildSettings | None = None) -> ProbeTask:
    (probe,) = build(graph, matches_of(graph), settings)
    return probe


@pytest.mark.parametrize(("executions", "times"), [(3000, 3), (2000, 2), (1000, 1)])
def test_repetitions_are_executions_divided_by_the_ratio(executions: int, times: int) -> None:
    assert [use.repetitions for use in built(graph_of((gemm("a", executions),))).uses] == [times]


@pytest.mark.parametrize("executions", [1, 2, 10])
def test_a_count_that_is_already_small_stays(executions: int) -> None:
    assert [use.repetitions for use in built(graph_of((gemm("a", executions),))).uses] == [executions]


def test_size_of_small_operators_is_a_setting() -> None:
    assert [repetitions(count, BuildSettings(small=1)) for count in (1, 2, 10)] == [1, 1, 1]


@given(st.integers(1, 1 << 53), st.integers(1, 1 << 53))
def test_repetitions_are_between_one_and_the_executions(executions: int, ratio: int) -> None:
    assert 1 <= repetitions(executions, BuildSettings(ratio=ratio)) <= executions


@given(st.integers(11, 10**12), st.integers(2, 10**6))
def test_repetitions_are_the_nearest_whole_number(executions: int, ratio: int) -> None:
    count = repetitions(executions, BuildSettings(ratio=ratio))
    assert count == 1 or abs(count * ratio - executions) * 2 <= ratio


def test_kernels_are_wired_by_the_operators_data_flow() -> None:
    graph = graph_of((gemm("k1", 3000), gemm("k2", 2000), gemm("k3", 1000)), ("k1", "k3"), ("k2", "k3"))
    probe = built(graph)
    assert [(use.operator, use.repetitions) for use in probe.uses] == [("k1", 3), ("k2", 2), ("k3", 1)]
    assert probe.links == (Link("dgemm-1", "dgemm-3"), Link("dgemm-2", "dgemm-3"))


def test_data_flows_on_through_operators_that_had_no_match() -> None:
    graph = graph_of((gemm("a"), plot("b"), plot("c"), gemm("d")), ("a", "b"), ("b", "c"), ("c", "d"))
    probe = built(graph)
    assert probe.links == (Link("dgemm-1", "dgemm-2"),)
    assert probe.unmatched == ("b", "c")


def test_unlinked_kernels_may_become_separate_probe_tasks() -> None:
    graph = graph_of((gemm("a", 3000), gemm("b"), gemm("c")), ("a", "b"))
    probes = build(graph, matches_of(graph), BuildSettings(unlinked=Unlinked.APART))
    assert [[use.operator for use in probe.uses] for probe in probes] == [["a", "b"], ["c"]]
    assert [probe.name for probe in probes] == ["target-1", "target-2"]
    assert [probe.links for probe in probes] == [(Link("dgemm-1", "dgemm-2"),), ()]


def test_unlinked_kernels_may_become_parts_of_one_probe_task() -> None:
    probe = built(graph_of((gemm("a", 3000), gemm("b"), gemm("c")), ("a", "b")))
    assert set(probe.parts) == {("dgemm-1", "dgemm-2"), ("dgemm-3",)}


def test_separate_probe_tasks_share_the_targets_work_out() -> None:
    graph = graph_of((gemm("a", 3000), gemm("b", 1000)))
    probes = build(graph, matches_of(graph), BuildSettings(unlinked=Unlinked.APART))
    assert [probe.share_matched for probe in probes] == [0.75, 0.25]


def test_no_match_is_an_answer() -> None:
    graph = graph_of((plot("b"),))
    with pytest.raises(ProbeError, match=r"no operator resembles a kernel enough; nearest is b with 0\.20"):
        build(graph, matches_of(graph))


def test_empty_library_is_reported() -> None:
    with pytest.raises(ProbeError, match="the library of kernels is empty"):
        of_target(graph_of((gemm("a"),)), ())


@pytest.mark.parametrize(
    ("task_type", "category"),
    [
        ("dense-solve", "hpc"),
        ("hpc", "hpc"),
        ("resnet50-training", "ai"),
        ("sales.query.daily", "sql"),
        ("nightly-backup", "io"),
        ("image-pull", "network"),
        ("stream", "memory"),
        ("something", ""),
        ("", ""),
    ],
)
def test_the_librarys_category_is_chosen_from_the_tasks_type(task_type: str, category: str) -> None:
    assert category_of(task_type) == category


def test_operators_are_matched_with_the_library_and_recorded() -> None:
    graph = graph_of((gemm("a", 3000), plot("b"), gemm("c", 1000)), ("a", "b"), ("b", "c"))
    (probe,), matches = of_target(graph, LIBRARY.kernels(), task_type="dense-solve")
    assert [match.operator for match in matches] == ["a", "b", "c"]
    assert [(use.kernel, use.operator, use.repetitions) for use in probe.uses] == [("dgemm", "a", 3), ("dgemm", "c", 1)]
    assert [dict(use.sizes) for use in probe.uses] == [{"m": 64, "n": 64, "k": 64}] * 2
    assert probe.links == (Link("dgemm-1", "dgemm-2"),)
    assert (probe.category, probe.task_type, probe.unmatched) == ("hpc", "dense-solve", ("b",))


def test_a_graph_without_operators_is_refused() -> None:
    with pytest.raises(ProbeError, match="it has no operators"):
        build(graph_of(()), ())


def test_kernels_without_code_for_the_device_are_named() -> None:
    graph = graph_of((gemm("a"),))
    with pytest.raises(ProbeError, match="no code for fpga of dgemm"):
        build(graph, matches_of(graph), BuildSettings(device=DeviceKind.FPGA))


def test_a_match_of_another_graphs_operator_is_refused() -> None:
    with pytest.raises(ProbeError, match="a match for x, which is not one of its operators"):
        build(graph_of((gemm("a"),)), (Match("x", DGEMM, 1.0),))


def test_too_many_repetitions_are_refused_with_a_fitting_ratio() -> None:
    with pytest.raises(ProbeError, match="use a ratio of 10000"):
        built(graph_of((gemm("a", 10**9),)))
    assert built(graph_of((gemm("a", 10**9),)), BuildSettings(ratio=10_000)).uses[0].repetitions == 100_000


def test_the_library_that_the_target_uses_is_taken() -> None:
    graph = graph_of((Operator.of("a", "fft", {"n": 1024}, NumberFormat.FP64),))
    for library in (Library.NUMPY, Library.SCIPY):
        (probe,) = build(graph, (Match("a", LIBRARY.kernel("fft"), 1.0, sizes_of({"n": 1024}), library=library),))
        assert probe.uses[0].implementation.library is library


def test_matched_share_is_of_the_measured_time() -> None:
    graph = graph_of((gemm("a"), plot("b")))
    (probe,) = build(graph, matches_of(graph), seconds={"a": 9.0, "b": 1.0})
    assert probe.share_matched == pytest.approx(0.9)


def test_matched_share_is_unknown_without_times_or_counts() -> None:
    assert built(graph_of((gemm("a"), plot("b")))).share_matched is None


@st.composite
def graphs(draw: st.DrawFn) -> OperatorGraph:
    count = draw(st.integers(1, 12))
    operators = tuple(
        draw(st.sampled_from((gemm(f"o{at}", draw(st.integers(1, 5000))), plot(f"o{at}")))) for at in range(count)
    )
    pairs = [(f"o{src}", f"o{dst}") for dst in range(count) for src in range(dst)]
    flows = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return graph_of(operators, *flows)


def ways_between(graph: OperatorGraph, src: str, dst: str, kept: set[str]) -> Iterator[list[str]]:
    """Yield the paths between two operators over dropped ones only (slow, plain)."""
    for flow in graph.out_of[src]:
        if flow.dst == dst:
            yield [src, dst]
        elif flow.dst not in kept:
            for way in ways_between(graph, flow.dst, dst, kept):
                yield [src, *way]


@given(graphs())
def test_links_are_exactly_the_data_paths_of_the_target(graph: OperatorGraph) -> None:
    kept = {operator.name for operator in graph.operators if operator.kind == "gemm"}
    expected = {(src, dst) for src in kept for dst in kept if any(ways_between(graph, src, dst, kept))}
    links = links_between(graph, kept)
    assert set(links) == expected
    assert len(set(links)) == len(links)


@given(graphs(), st.sampled_from(Unlinked))
def test_build_is_deterministic_serialised_and_whole(graph: OperatorGraph, unlinked: Unlinked) -> None:
    matches, settings = matches_of(graph), BuildSettings(unlinked=unlinked)
    kept = {match.operator for match in matches if match.kernel is not None}
    if not kept:
        return
    probes = build(graph, matches, settings)
    assert probes == build(graph, tuple(reversed(matches)), settings)
    assert sorted(use.operator for probe in probes for use in probe.uses) == sorted(kept)
    assert sum(len(probe.links) for probe in probes) == len(links_between(graph, kept))
    for probe in probes:
        assert unlinked is Unlinked.TOGETHER or len(probe.parts) == 1
        for as_json in (False, True):
            assert files.loads(files.dumps(probe, as_json=as_json)) == probe
