"""The Grafana dashboard: valid, and all its expressions use metrics that a collector serves."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from collectors.metrics.families import StateCollector
from tests.collectors.metrics.test_metrics import reading
from tests.collectors.reports import build_topology
from tests.dashboards import NAME, Dashboard, check_expressions, check_form, targets


@pytest.fixture(scope="module")
def dashboard() -> Dashboard:
    content: Dashboard = json.loads(files("collectors").joinpath("grafana/dashboard.json").read_text("utf-8"))
    return content


@pytest.fixture(scope="module")
def served() -> dict[str, set[str]]:
    """Return the names of all samples with their labels; where it is scraped from comes to them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StateCollector(build_topology(), reading))
    ProcessCollector(registry=registry)
    names: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            names.setdefault(sample.name, {"instance", "job"}).update(sample.labels)
    return names


def test_every_expression_asks_for_what_is_served(dashboard: Dashboard, served: dict[str, set[str]]) -> None:
    check_expressions(dashboard, served)


def test_every_bracket_and_quotation_of_an_expression_ends(dashboard: Dashboard) -> None:
    """PromQL has no parser here; this is what a slip of the hand breaks."""
    for _, target in targets(dashboard):
        bare, rest = re.subn(r'"[^"]*"', "", target["expr"])[0], ""
        while bare != rest:
            rest, bare = bare, re.sub(r"\([^][(){}]*\)|\[[^][(){}]+\]|\{[^][(){}]*\}", "", bare)
        assert not set(bare) & set('()[]{}"'), target["expr"]


def test_every_metric_of_ours_is_shown_or_known_not_to_be(dashboard: Dashboard, served: dict[str, set[str]]) -> None:
    shown = {name for _, target in targets(dashboard) for name in NAME.findall(target["expr"])}
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


def test_it_is_a_dashboard(dashboard: Dashboard) -> None:
    check_form(dashboard)
