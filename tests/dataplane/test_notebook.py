"""Values in notebooks: tables and pictures in which names are text."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

from collectors.state.nominal import nominal_snapshot
from collectors.values import LinkCondition, LinkStatus
from controller.acceleration.running.comparing import Comparison
from controller.acceleration.values import Times
from controller.apiserver.resources import Decision, Metadata
from controller.apiserver.resources.decision import DecisionSpec, Outcome, Placement, Refusal, Score
from controller.network.intents import FlowSpec
from controller.network.paths.deciding import decide
from controller.network.paths.deciding.graph import PathFigures
from dataplane.notebook import table_html
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey

ODD = "<script>alert('1')</script>"


def cells(html: str) -> tuple[str, list[list[str]]]:
    """Return a table's caption and rows; fails if it is no well-formed markup."""
    table = ET.fromstring(html)
    rows = [[cell.text or "" for cell in row] for row in table.findall("tbody/tr")]
    return table.findtext("caption") or "", rows


def test_markup_in_names_is_text() -> None:
    html = table_html(ODD, (ODD,), ((ODD,), (None,)))
    assert "<script>" not in html
    assert cells(html) == (ODD, [[ODD], [""]])


def test_snapshot_shows_its_fullest_links() -> None:
    topology = load_topology("abilene")
    nominal = nominal_snapshot(topology, 5)
    key = LinkKey("chin", "ipls")
    busy = replace(nominal.links[key], utilisation=0.93, age_ns=1_000_000, loss=0.015)
    snapshot = replace(
        nominal, links={**nominal.links, key: busy}, statuses={key: LinkStatus(LinkCondition.DOWN, 5, "no hello")}
    )
    caption, rows = cells(snapshot._repr_html_())
    assert caption == f"20 fullest of {len(nominal.links)} links; 0 flows"
    assert len(rows) == 20
    assert rows[0] == ["chin->ipls", "93.0%", f"{busy.delay_mean_ns / 1e6:.3f}", "1.50%", "1.000", "down"]


def test_topology_draws_every_node_and_cable() -> None:
    topology = load_topology("abilene")
    picture = ET.fromstring(topology._repr_svg_())
    name = "{http://www.w3.org/2000/svg}"
    assert {text.text for text in picture.iter(f"{name}text")} == set(topology.switch)
    assert len(list(picture.iter(f"{name}line"))) == len(topology.links)
    assert len(list(picture.iter(f"{name}rect"))) == len(topology.hosts)


def test_move_shows_the_compared_paths() -> None:
    flow = FlowSpec("h1", "h2")
    old = PathFigures(("a", "b"), 5_000_000, 1_000_000, 0, LinkKey("a", "b"))
    new = PathFigures(("a", "c", "b"), 7_000_000, 2_000_000, 2_000_000, None)
    move = decide.Decision(5, flow, old.switches, new.switches, (old, new), "link a->b is dead")
    caption, rows = cells(move._repr_html_())
    assert caption == "h1 to h2: a-b to a-c-b. link a->b is dead"
    assert rows == [["a-b", "5.000", "1.000", "left", "dead: a->b"], ["a-c-b", "7.000", "2.000", "taken", ""]]


def test_placement_shows_points_and_refusals() -> None:
    spec = DecisionSpec(
        subject_kind="pod",
        subjects=("p",),
        outcome=Outcome.BOUND,
        placements=(Placement(pod="p", node="n1"),),
        scores=(Score(node="n1", total=80.0, reasons=("fits best",)), Score(node="n2", total=7.5)),
        refused=(Refusal(reason="no GPU", nodes=("n3", "n4")),),
    )
    caption, rows = cells(Decision(metadata=Metadata(name="d"), spec=spec)._repr_html_())
    assert caption == "pod p: bound. p on n1"
    assert rows == [["n1", "80", "fits best"], ["n2", "7.5", ""], ["n3, n4", "", "refused: no GPU"]]


def test_comparison_shows_prediction_and_measurement() -> None:
    comparison = Comparison(Times(8.0, 0.0, 0.0), Times(1.5, 0.25, 0.25), 9.0, 3.0)
    caption, rows = cells(comparison._repr_html_())
    assert caption == "error 33.3%"
    assert rows == [["predicted", "8", "2", "4.000"], ["measured", "9", "3", "3.000"]]
