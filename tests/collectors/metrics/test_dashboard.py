"""The Grafana dashboard: a whole dashboard, every expression of which asks for metrics that a collector serves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from itertools import combinations
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from collectors.metrics.families import StateCollector
from tests.collectors.metrics.test_metrics import reading
from tests.collectors.reports import build_topology

Panel = dict[str, Any]
_NAME = re.compile(r"\b(?:millrace|process)_\w+")
_LABELS = re.compile(r"((?:millrace|process)_\w+)\{([^}]*)\}")
_LEGEND = re.compile(r"\{\{(\w+)\}\}")


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files("collectors").joinpath("grafana/dashboard.json").read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """Return the names of all samples with their labels; where it is scraped from comes to them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StateCollector(build_topology(), reading))
    ProcessCollector(registry=registry)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {"instance", "job"}).update(sample.labels)
    return found


def targets(dashboard: dict[str, Any]) -> Iterator[tuple[Panel, dict[str, Any]]]:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel, target


def test_every_expression_asks_for_what_is_served(dashboard: dict[str, Any], served: dict[str, set[str]]) -> None:
    variables = [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    for expression in [target["expr"] for _, target in targets(dashboard)] + variables:
        names = set(_NAME.findall(expression))
        assert names, expression
        assert names <= served.keys(), expression
        for name, matchers in _LABELS.findall(expression):
            asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert asked <= served[name], expression


def test_every_bracket_and_quotation_of_an_expression_ends(dashboard: dict[str, Any]) -> None:
    """PromQL has no parser here; this is what a slip of the hand breaks."""
    for _, target in targets(dashboard):
        bare, rest = re.subn(r'"[^"]*"', "", target["expr"])[0], ""
        while bare != rest:
            rest, bare = bare, re.sub(r"\([^][(){}]*\)|\[[^][(){}]+\]|\{[^][(){}]*\}", "", bare)
        assert not set(bare) & set('()[]{}"'), target["expr"]


def test_every_legend_names_a_label(dashboard: dict[str, Any], served: dict[str, set[str]]) -> None:
    for panel, target in targets(dashboard):
        (name,) = set(_NAME.findall(target["expr"]))
        assert set(_LEGEND.findall(target["legendFormat"])) <= served[name], panel["title"]


def test_every_metric_of_ours_is_shown_or_known_not_to_be(
    dashboard: dict[str, Any], served: dict[str, set[str]]
) -> None:
    shown = {name for _, target in targets(dashboard) for name in _NAME.findall(target["expr"])}
    ours = {name for name in served if name.startswith("millrace_")}
    assert ours - shown == {
        "millrace_link_rate_bps",  # the lists of nodes are made of it
        "millrace_link_buffer_frames",
        "millrace_link_delay_source",
        "millrace_clock_drift_ratio",
        "millrace_job_items_total",
        "millrace_job_items_reported_total",
        "millrace_job_age_seconds",
        "millrace_job_epoch",
    }


def test_it_is_a_dashboard(dashboard: dict[str, Any]) -> None:
    assert dashboard["schemaVersion"] >= 36
    assert dashboard["uid"]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        assert panel["type"] in {"row", "stat", "timeseries", "table"}
        assert panel["title"]
        references = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(references)) == len(references)
    for panel, target in targets(dashboard):
        assert panel["datasource"] == target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    declared = {variable["name"] for variable in dashboard["templating"]["list"]} | {"__rate_interval"}
    used = {name for _, target in targets(dashboard) for name in re.findall(r"\$(\w+)", target["expr"])}
    assert used <= declared


def test_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    def cells(panel: Panel) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        return {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}

    for one, other in combinations(dashboard["panels"], 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
