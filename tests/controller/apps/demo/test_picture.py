"""The demo's picture: switches and labels do not overlap, and the output is deterministic."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from collectors.collector import Collector
from collectors.values import Snapshot
from controller.apps.demo.labels import Line, crosses, overlap, place_label, rectangle_at
from controller.apps.demo.layout import Layout, layout_of
from controller.apps.demo.picture import Panel, _delay_scale, _grid, _switch_links, arrows_of, draw, figures_of
from dataplane.clock import VirtualClock
from dataplane.topology.file import load_topology, loads
from dataplane.topology.values import LinkKey, Topology

RING = """
millrace: 1
name: ring
defaults: {link: {rate: 1 Gbit/s, delay: 1 ms, queue_frames: 64}}
switches: [{name: s1}, {name: s2}, {name: s3}, {name: s4}, {name: s5}, {name: s6}, {name: s7}]
links: [{a: s1, b: s2}, {a: s2, b: s3}, {a: s3, b: s4}, {a: s4, b: s5}, {a: s5, b: s6}, {a: s6, b: s7}, {a: s7, b: s1}]
"""
ONE_CITY = """
millrace: 1
name: city
defaults: {link: {rate: 1 Gbit/s, delay: 1 ms, queue_frames: 64}}
switches:
  - {name: a, place: {latitude: 50, longitude: 8}}
  - {name: b, place: {latitude: 50, longitude: 8}}
  - {name: c, place: {latitude: 50, longitude: 8}}
links: [{a: a, b: b}, {a: b, b: c}]
"""
NAMES = ["abilene", "geant", "leaf-spine", "fat-tree-4", "fat-tree:k=8", "ring", "city"]


@cache
def topology_of(name: str) -> Topology:
    texts = {"ring": RING, "city": ONE_CITY}
    return loads(texts[name]) if name in texts else load_topology(name)


@cache
def laid_out(name: str) -> Layout:
    return layout_of(topology_of(name))


def snapshot_of(topology: Topology) -> Snapshot:
    return Collector(topology, VirtualClock()).snapshot()


@pytest.mark.parametrize("name", NAMES)
def test_no_box_lies_on_another_or_leaves_the_map(name: str) -> None:
    layout = laid_out(name)
    assert layout.centres.keys() == topology_of(name).switch.keys()
    boxes = {switch: layout.rectangle(switch) for switch in layout.centres}
    for a, b in combinations(boxes, 2):
        assert not overlap(boxes[a], boxes[b]), (a, b)
    for box in boxes.values():
        assert min(box[:2]) >= 0
        assert box[2] <= layout.size[0]
        assert box[3] <= layout.size[1]


@pytest.mark.parametrize("name", NAMES)
def test_no_link_passes_over_a_switch(name: str) -> None:
    layout = laid_out(name)
    for link in topology_of(name).links:
        if link.a.node in layout.centres and link.b.node in layout.centres:
            line = Line(*layout.ends(link.a.node, link.b.node))
            others = layout.centres.keys() - {link.a.node, link.b.node}
            assert [switch for switch in others if crosses(line, layout.rectangle(switch))] == [], link


@pytest.mark.parametrize("name", ["abilene", "geant"])
def test_far_west_or_north_switches_stay_there(name: str) -> None:
    """Switches five degrees apart keep their order along an axis: only crowded ones move."""
    topology, layout = topology_of(name), laid_out(name)
    for a, b in combinations(topology.switches, 2):
        assert a.place
        assert b.place
        (xa, ya), (xb, yb) = layout.centres[a.name], layout.centres[b.name]
        if b.place.longitude - a.place.longitude > 5:
            assert xa < xb, (a.name, b.name)
        if b.place.latitude - a.place.latitude > 5:
            assert ya < yb, (a.name, b.name)


@pytest.mark.parametrize("name", NAMES)
def test_a_layout_is_the_same_every_time(name: str) -> None:
    assert layout_of(topology_of(name)) == laid_out(name)


POINTS = st.tuples(st.floats(0.5, 6), st.floats(0.5, 4))


@given(tail=POINTS, head=POINTS, boxes=st.lists(POINTS, max_size=3))
def test_figure_avoids_boxes_if_there_is_room(
    tail: tuple[float, float], head: tuple[float, float], boxes: list[tuple[float, float]]
) -> None:
    taken = [rectangle_at(box, (0.4, 0.2)) for box in boxes]
    size, bounds = (0.4, 0.15), (6.5, 4.5)
    own = Line(tail, head)
    chosen = rectangle_at(place_label(own, size, taken, [own], bounds).centre, size)
    if any(overlap(chosen, box) for box in taken):
        middle = (tail[0] + head[0]) / 2, (tail[1] + head[1]) / 2
        assert any(overlap(rectangle_at(middle, (0.5, 0.25)), box) for box in taken)


def test_figure_stands_beside_its_arrow_and_avoids_others() -> None:
    own = Line((0.0, 1.0), (4.0, 1.0), 0.05)
    size = 0.4, 0.15
    alone = place_label(own, size, [], [own], (4, 2))
    assert alone.anchor == (2.0, 1.0)
    assert alone.centre[0] == 2.0
    # On the right-hand side, as near as the arrow's reach and the figure's height allow.
    assert 0.05 + 0.075 < 1.0 - alone.centre[1] < 0.25
    across = Line((2.0, 0.0), (2.0, 2.0), 0.05)
    x, y = place_label(own, size, [], [own, across], (4, 2)).centre
    assert abs(x - 2.0) > 0.25
    assert y == alone.centre[1]


def longest_path(topology: Topology) -> tuple[str, ...]:
    """Return the switches of a shortest path between the two ends of the topology that are farthest apart."""
    graph = nx.Graph(
        (key.src, key.dst) for key in topology.directed_links if {key.src, key.dst} <= topology.switch.keys()
    )
    paths: list[list[str]] = [path for _, paths in nx.all_pairs_shortest_path(graph) for path in paths.values()]
    longest = max(paths, key=len)
    return tuple(longest)


@pytest.mark.parametrize("name", sorted({*NAMES} - {"fat-tree:k=8"}))  # which leaves no room between its arrows
def test_figures_stand_clear_of_arrows_and_boxes(name: str) -> None:
    topology, layout = topology_of(name), laid_out(name)
    path = longest_path(topology)
    snapshot = snapshot_of(topology)
    full = {
        key: replace(state, utilisation=1.0) for key, state in snapshot.links.items() if path[0] in {key.src, key.dst}
    }
    panel = Panel("map", replace(snapshot, links={**snapshot.links, **full}), LinkKey(*path[1::-1]), path)
    states = [state for key, state in panel.snapshot.links.items() if {key.src, key.dst} <= topology.switch.keys()]
    arrows = arrows_of(layout, states)
    placed = figures_of(topology, panel, arrows, layout)
    assert len(placed) == len(path)
    areas = [rectangle_at(figure.placement.centre, figure.size) for figure in placed]
    for area in areas:
        assert not any(crosses(arrow, area) for arrow in arrows.values())
        assert not any(overlap(layout.rectangle(switch), area) for switch in layout.centres)
    assert not any(overlap(*pair) for pair in combinations(areas, 2))


def test_colours_and_figures_show_delay_above_propagation() -> None:
    """A long link is not a slow one: only its queue counts."""
    topology = topology_of("ring")
    snapshot = snapshot_of(topology)
    key = LinkKey("s1", "s2")
    waiting = replace(snapshot.links[key], delay_mean_ns=topology.directed_links[key].delay_ns + 2_500_000)
    panel = Panel("map", replace(snapshot, links={**snapshot.links, key: waiting}), key, ("s2", "s3"))
    layout = laid_out("ring")
    figures = figures_of(topology, panel, arrows_of(layout, _switch_links(topology, panel.snapshot)), layout)
    assert [figure.text for figure in figures] == ["+2.5", "+0.0"]
    scale = _delay_scale(topology, [panel])
    assert (scale.vmin, scale.vmax) == (2.5, 10.0)


@pytest.mark.parametrize("name", ["geant", "leaf-spine", "ring"])
def test_the_same_state_makes_the_same_files(name: str, tmp_path: Path) -> None:
    topology = topology_of(name)
    key = next(key for key in topology.directed_links if key.src in topology.switch and key.dst in topology.switch)
    panels = [Panel(title, snapshot_of(topology), key, (key.src, key.dst)) for title in ("one", "two", "three")]
    first = [path.read_bytes() for path in draw(topology, panels, tmp_path / "first", "h-a → h-b")]
    again = [path.read_bytes() for path in draw(topology, panels, tmp_path / "again", "h-a → h-b")]
    assert first == again
    with Image.open(tmp_path / "first.png") as picture:
        assert len(picture.convert("RGB").getcolors(maxcolors=1 << 24) or ()) > 10
    assert ElementTree.parse(tmp_path / "first.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("name", ["abilene", "geant", "leaf-spine", "fat-tree-4", "ring"])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_maps_and_key_lie_in_the_picture_without_overlap(name: str, count: int) -> None:
    _, cells = _grid(laid_out(name), count)
    places = [cell.get_position() for cell in cells]
    assert all(area.x0 >= 0 and area.y0 >= 0 and area.x1 <= 1 and area.y1 <= 1 for area in places)
    assert not any(area.overlaps(other) for area, other in combinations(places, 2))


@pytest.mark.parametrize("count", [0, 1, 2, 4])
def test_any_number_of_maps_fits_with_the_key(count: int, tmp_path: Path) -> None:
    topology = topology_of("city")
    panel = Panel("map", snapshot_of(topology), LinkKey("a", "b"))
    for path in draw(topology, [panel] * count, tmp_path / "network"):
        assert path.stat().st_size > 1000
