"""Requirements for any Grafana dashboard: whole panels that do not overlap, expressions that query served metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from itertools import combinations
from typing import Any

Panel = dict[str, Any]
Dashboard = dict[str, Any]
NAME = re.compile(r"\b(?:millrace|process)_\w+")
_LABELS = re.compile(r"((?:millrace|process)_\w+)\{([^}]*)\}")
_LEGEND = re.compile(r"\{\{(\w+)\}\}")
_RESULTS = re.compile(r"\bby \(([\w, ]*)\)")


def targets(dashboard: Dashboard) -> Iterator[tuple[Panel, dict[str, Any]]]:
    """Yield each expression's target with its panel."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel, target


def expressions(dashboard: Dashboard) -> list[str]:
    """Return all that a dashboard asks Prometheus for."""
    variables = [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    return [target["expr"] for _, target in targets(dashboard)] + variables


def check_expressions(dashboard: Dashboard, served: Mapping[str, Set[str]]) -> None:
    """Every metric is served with the labels used; every legend names a remaining label."""
    for expression in expressions(dashboard):
        names = set(NAME.findall(expression))
        assert names <= served.keys(), expression
        assert names or re.search(r"\b(?:up|ALERTS)\b", expression), expression
        for name, matchers in _LABELS.findall(expression):
            asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert asked <= served[name], expression
    for panel, target in targets(dashboard):
        legend = set(_LEGEND.findall(target["legendFormat"]))
        labels = set[str]().union(*(served[name] for name in NAME.findall(target["expr"])))
        assert legend <= labels or not NAME.search(target["expr"]), panel["title"]
        grouped = _RESULTS.search(target["expr"])
        assert grouped is None or legend <= set(re.split(r",\s*", grouped[1])), panel["title"]


def check_form(dashboard: Dashboard) -> None:
    """It is a dashboard whose panels have ids of their own, a place of their own, and variables that are declared."""
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
    for first, other in combinations(dashboard["panels"], 2):
        assert not _cells(first) & _cells(other), (first["title"], other["title"])


def _cells(panel: Panel) -> set[tuple[int, int]]:
    grid = panel["gridPos"]
    assert grid["x"] + grid["w"] <= 24
    return {(grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"])}
