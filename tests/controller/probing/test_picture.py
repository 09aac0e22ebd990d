"""A probe task's graph as a picture and as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.probing import text
from controller.probing.errors import ProbeError
from controller.probing.picture import Node, draw, layers_of
from controller.probing.values import Implementation, KernelUse, Library, Link, ProbeTask, sizes_of
from dataplane.topology.values import DeviceKind

CODE = Implementation(DeviceKind.CPU, Library.NUMPY, "somewhere:dgemm")


def use(name: str, repetitions: int = 1) -> KernelUse:
    return KernelUse(
        name, "dgemm", 1, sizes_of({"n": 64}), repetitions, 1000 * repetitions, CODE, 1e-9, f"{name} <&> $x$"
    )


SOLVE = ProbeTask(
    "solve",
    "hpc",
    (use("k1", 3), use("k2", 2), use("k3"), use("alone")),
    (Link("k1", "k3"), Link("k2", "k3")),
    task_type="dense-solve",
    target="solver",
    unmatched=("plot",),
    share_matched=0.97,
)


@st.composite
def probe_tasks(draw: st.DrawFn) -> ProbeTask:
    count = draw(st.integers(1, 10))
    pairs = [(f"k{src}", f"k{dst}") for dst in range(count) for src in range(dst)]
    links = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return ProbeTask("p", "hpc", tuple(use(f"k{at}") for at in range(count)), tuple(Link(*pair) for pair in links))


@given(probe_tasks())
def test_each_use_appears_once_and_links_join_adjacent_columns(probe: ProbeTask) -> None:
    layers = layers_of(probe)
    column = {node: at for at, nodes in enumerate(layers.columns) for node in nodes}
    nodes: Sequence[Node] = [node for nodes in layers.columns for node in nodes]
    assert len(nodes) == len(set(nodes))
    assert {node for node in nodes if isinstance(node, str)} == set(probe.use)
    assert layers.ways.keys() == set(probe.links)
    for link, way in layers.ways.items():
        assert (way[0], way[-1]) == (link.src, link.dst)
        assert all(column[second] == column[first] + 1 for first, second in pairwise(way))
    assert layers == layers_of(probe)


@pytest.mark.parametrize(("ending", "start"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_the_graph_is_drawn_the_same_each_time(tmp_path: Path, ending: str, start: bytes) -> None:
    first, other = tmp_path / f"one{ending}", tmp_path / f"other{ending}"
    for path in (first, other):
        draw(SOLVE, path)
    assert first.read_bytes() == other.read_bytes()
    assert first.read_bytes().startswith(start)


def test_picture_shows_kernels_repetitions_and_means(tmp_path: Path) -> None:
    draw(SOLVE, tmp_path / "p.svg")
    drawn = (tmp_path / "p.svg").read_text()
    assert all(f"<!-- {comment} -->" in drawn for comment in ("dgemm x 3", "dgemm x 2", "mean of 3", "mean of 2"))
    assert "mean of 1 " not in drawn


def test_a_picture_of_another_ending_or_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=r"ends in \.png or \.svg"):
        draw(SOLVE, tmp_path / "p.gif")
    with pytest.raises(ProbeError, match="No such file or directory"):
        draw(SOLVE, tmp_path / "none" / "p.svg")


def test_text_shows_the_links_of_means() -> None:
    lines = list(text.lines_of(SOLVE))
    assert lines[0] == (
        "solve: hpc, for tasks of type dense-solve, built from solver at 1000:1, stands for 97.0% of it,"
        " 2 parts without a link"
    )
    assert any(line.startswith("  k1 dgemm") and line.endswith("-> mean of 3 to k3") for line in lines)
    assert lines[-2:] == ["kernels: dgemm.1", "without a match: plot"]
