"""Texts of heat maps: names, units, measured parts, and plain numbers; read from the SVG."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from collectors.values import Snapshot
from controller.cluster.cost_map import CostMap, CostModel
from controller.cluster.cost_map.picture import draw
from controller.common.errors import PathError
from dataplane.topology.file import load_topology
from tests.controller.cluster.cost_map.fabrics import fabric, route_set, snapshot

IDLE = Snapshot(0, {}, {}, {})


def texts(costs: CostMap, figure: str, folder: Path) -> list[str]:
    """Return the picture's texts, which comments of the SVG repeat."""
    draw(costs, figure, folder / "map.svg")
    return re.findall(r"<!-- (.*?) -->", (folder / "map.svg").read_text(encoding="utf-8"))


def delay_us_of(costs: CostMap, src: str, dst: str) -> float:
    delay_ns = costs.cost(src, dst).delay_ns
    assert delay_ns is not None
    return delay_ns / 1e3


def test_a_small_map_has_each_figure_in_its_field(tmp_path: Path) -> None:
    topology = fabric("leaf-spine:spines=2,leaves=2,hosts=2")
    costs = CostMap.of(CostModel(topology), IDLE)
    shown = texts(costs, "delay", tmp_path)
    assert f"{topology.name}: delay, us, nominal" in shown
    hosts = [host.name for host in topology.hosts]
    pairs = [delay_us_of(costs, src, dst) for src in hosts for dst in hosts if src != dst]
    for text in {f"{delay_us:.3g}" for delay_us in pairs}:
        assert shown.count(text) >= sum(f"{delay_us:.3g}" == text for delay_us in pairs)
    assert all(shown.count(name) == 2 for name in hosts)


def test_figures_that_are_all_the_same_have_one_mark(tmp_path: Path) -> None:
    shown = texts(CostMap.of(CostModel(fabric("fat-tree:k=6")), IDLE), "bandwidth", tmp_path)
    assert "fat-tree-6: free bandwidth, Gbit/s, nominal" in shown
    assert [text for text in shown if text.replace(".", "").isdecimal()] == ["10"]


def test_a_few_short_ways_do_not_make_the_others_look_alike(tmp_path: Path) -> None:
    shown = texts(CostMap.of(CostModel(load_topology("geant")), IDLE), "delay", tmp_path)
    assert "geant: delay, ms, nominal" in shown
    marks = {"0.05", "0.1", "0.2", "0.5", "1", "5", "10", "20", "50"}
    assert marks & set(shown) == {"5", "10", "20", "50"}


def test_picture_says_what_was_measured(tmp_path: Path) -> None:
    topology = fabric("ring:switches=5,hosts=2")
    rng = random.Random(2)
    costs = CostMap.of(CostModel(topology), snapshot(topology, rng), route_set(topology, rng))
    assert any(re.fullmatch(r".*: loss, %, measured( or nominal)?", text) for text in texts(costs, "loss", tmp_path))
    predicted = costs.with_load(topology.hosts[0].name, topology.hosts[1].name, 1_000_000)
    assert any(text.endswith("loss, %, predicted") for text in texts(predicted, "loss", tmp_path))


def test_undrawable_input_is_named(tmp_path: Path) -> None:
    costs = CostMap.of(CostModel(fabric("ring:switches=3,hosts=1")), IDLE)
    with pytest.raises(PathError, match=r"map\.gif: a picture's name ends in \.png or \.svg"):
        draw(costs, "delay", tmp_path / "map.gif")
    with pytest.raises(PathError, match="a picture shows delay, bandwidth or loss, not jitter"):
        draw(costs, "jitter", tmp_path / "map.png")
