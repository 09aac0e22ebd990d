"""deploy/container and deploy/prometheus: existing files, valid settings, served metrics."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric

from collectors.metrics.families import StateCollector
from controller.apps.up.plan import make_plan
from controller.apps.up.settings import UpSettings
from controller.apps.up.state import StateFolder
from controller.network.aggregation.service import metrics as jobs
from controller.network.paths.service import metrics as paths
from controller.network.status import metrics as status
from controller.scheduling.serving.metrics import Metrics as SchedulerMetrics
from controller.workloads.placement.driver import Metrics as PlacementMetrics
from dataplane.config import load
from dataplane.fabric.live.metrics import fabric_families
from dataplane.fabric.live.values import FabricCounters
from dataplane.load.metrics import load_families
from dataplane.load.values import DaemonLoad, DropRate, Overload, QueueLoad, ThreadLoad
from dataplane.switch.arguments import parse_arguments
from dataplane.switch.counters import SwitchFigures
from dataplane.switch.drivers import make_driver
from dataplane.switch.metrics import SwitchCollector
from tests.collectors.metrics.test_metrics import reading
from tests.collectors.reports import build_topology
from tests.controller.network.status.test_metrics import JOB, PATHS, STATUS
from tests.dashboards import NAME, Dashboard, check_expressions, check_form, expressions
from tests.waiting import HANG_S

DEPLOY = Path(__file__).parents[2] / "deploy"
CONTAINER = DEPLOY / "container"
DASHBOARDS = sorted((CONTAINER / "grafana/dashboards").glob("*.json"))
COMPOSE: dict[str, Any] = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CONFIG: dict[str, Any] = yaml.safe_load((CONTAINER / "prometheus.yml").read_text())


def labels_of(families: Iterable[Metric]) -> dict[str, set[str]]:
    """Return the names of samples with their labels and those of their scrape targets."""
    labels: dict[str, set[str]] = {}
    for family in families:
        for sample in family.samples:
            labels.setdefault(sample.name, {"instance", "job"}).update(sample.labels)
    return labels


LOAD = DaemonLoad(
    threads=(ThreadLoad("MainThread", 0.5),),
    queues=(QueueLoad("watches", 1, 2, 3),),
    drops=(DropRate("full", 1.0),),
    overloads=(Overload("watches: 1 of at most 1", "raise limits.watches", 5, "watches"),),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the metrics of collector, controller, jobs, path server, switches, fabric, scheduler and placement."""
    scheduler, placement, process = SchedulerMetrics(time.time_ns), PlacementMetrics(), CollectorRegistry()
    scheduler.decisions.labels("bound").inc()
    placement.actions.labels("create").inc()
    ProcessCollector(registry=process)
    families = [*status.families(STATUS), *jobs.families([JOB]), *paths.families(PATHS), *process.collect()]
    families += [*scheduler.registry.collect(), *placement.registry.collect()]
    for daemon in ("paths", "controller", "api", "scheduler"):
        families += load_families(daemon, LOAD)
    families += StateCollector(build_topology(), reading).collect()
    path = tmp_path_factory.mktemp("port") / "p1"
    with ExitStack() as stack:
        stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)).bind(str(path))
        settings = parse_arguments(["--no-p4", "--pipeline", "interpreter", "-i", f"1@unix:{path}"])
        alone = make_driver(stack, settings)
        families += SwitchCollector(alone, lambda: {"digest_full": 3}).collect()
        counters = alone.counters()
        states = alone.control.port_states()
    figures = SwitchFigures(counters.ports, {"digest_full": 3}, states)
    # Those of a fabric last: their labels are those of a switch alone and the switch's name.
    return labels_of([*families, *fabric_families(FabricCounters(1, 0, 1), {"s1": figures})])


@pytest.mark.parametrize(
    "file", sorted(path for path in DEPLOY.rglob("*") if path.suffix in {".yaml", ".yml", ".json"}), ids=str
)
def test_every_file_is_of_its_language(file: Path) -> None:
    text = file.read_text()
    assert json.loads(text) if file.suffix == ".json" else list(yaml.safe_load_all(text)) != [None]


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda path: path.name)
def test_a_dashboard_asks_for_what_is_served(file: Path, served: dict[str, set[str]]) -> None:
    dashboard: Dashboard = json.loads(file.read_text())
    check_form(dashboard)
    check_expressions(dashboard, served)


def test_a_dashboard_that_asks_for_something_else_is_told(served: dict[str, set[str]]) -> None:
    dashboard: Dashboard = json.loads(DASHBOARDS[0].read_text())
    target = next(
        candidate
        for panel in dashboard["panels"]
        for candidate in panel.get("targets", ())
        if NAME.search(candidate["expr"])
    )
    target["expr"] = "millrace_controller_switches_that_are_not"
    with pytest.raises(AssertionError, match="switches_that_are_not"):
        check_expressions(dashboard, served)


def test_alerts_are_on_what_is_served(served: dict[str, set[str]]) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"][0]["rules"]
    for rule in rules:
        names = set(NAME.findall(rule["expr"]))
        assert names <= served.keys(), rule["alert"]
        named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert all(named <= served[name] for name in names), rule["alert"]


def test_prometheus_asks_each_daemon_where_it_serves_metrics(tmp_path: Path) -> None:
    settings = load(CONTAINER / "millrace.yaml", UpSettings)
    sections = ("fabric", "collector", "paths", "controller", "scheduler", "placement")
    places = {f"millrace-{name}": getattr(settings, name).metrics for name in sections}
    asked = {
        job["job_name"]: f"http://{target}/metrics"
        for job in CONFIG["scrape_configs"]
        for static in job["static_configs"]
        for target in static["targets"]
    }
    assert asked == {name: f"http://{endpoint.address}:{endpoint.port}/metrics" for name, endpoint in places.items()}
    assert make_plan(settings, StateFolder(tmp_path)).daemons


def test_what_is_mounted_is_there_and_grafana_finds_it() -> None:
    mounts = [mount.split(":") for service in SERVICES.values() for mount in service["volumes"]]
    assert [source for source, *_ in mounts if source[0] == "." and not (CONTAINER / source).exists()] == []
    assert {source for source, *_ in mounts if source[0] != "."} == COMPOSE["volumes"].keys()
    (provider,) = yaml.safe_load((CONTAINER / "grafana/provisioning/dashboards/millrace.yaml").read_text())["providers"]
    shown = {
        target: CONTAINER / source for source, target, *_ in mounts if target.startswith(provider["options"]["path"])
    }
    assert sum(len(list(folder.glob("*.json"))) for folder in shown.values()) == 2
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (shown[str(home.parent)] / home.name).is_file()
    assert [(CONTAINER / "../prometheus" / file).is_file() for file in CONFIG["rule_files"]] == [True]


def test_nothing_can_be_reached_from_other_machines() -> None:
    assert [
        port for service in SERVICES.values() for port in service.get("ports", ()) if port[:10] != "127.0.0.1:"
    ] == []
    assert {name for name, service in SERVICES.items() if service.get("network_mode") == "service:millrace"} == {
        "prometheus",
        "grafana",
    }


def test_the_image_takes_the_arguments_that_it_is_built_with() -> None:
    build = SERVICES["millrace"]["build"]
    file = CONTAINER / build["context"] / build["dockerfile"]
    assert set(build["args"]) == set(re.findall(r"^ARG (\w+)", file.read_text(), re.MULTILINE))


OWN = re.compile(r"millrace(:[\d.]+)?")
IMMUTABLE_TAGS = "registry.k8s.io/"  # Kubernetes' release process never moves a tag
CONTAINERFILE = (CONTAINER / "Containerfile").read_text()


def images_of(text: str) -> list[str]:
    """Return the images that a file under deploy/ names, with the defaults of its variables."""
    named = re.findall(r"^ *(?:- )?(?:image|BASE): *([^\s#]+)|^ARG BASE=(\S+)", text, re.MULTILINE)
    return [re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", first or second) for first, second in named]


def test_every_image_of_others_is_named_by_its_digest() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.suffix in {".yaml", ".yml"} or path.name == "Containerfile"]
    images = [image for file in files for image in images_of(file.read_text())]
    assert len(images) >= 6
    for image in images:
        pinned = re.search(r"@sha256:[0-9a-f]{64}$", image)
        assert pinned or OWN.fullmatch(image) or image.startswith(IMMUTABLE_TAGS), image


def test_the_image_and_compose_agree_on_the_base() -> None:
    (default,) = images_of(CONTAINERFILE)
    assert images_of(f"BASE: {SERVICES['millrace']['build']['args']['BASE']}") == [default]


@pytest.mark.parametrize(
    ("base", "code"),
    [
        ("python:3.11", 1),
        ("docker.io/library/python:3.11-slim-bookworm", 1),
        ("python@sha256:" + "0" * 64, 0),
        ("python:3.11@sha256:" + "0" * 64, 0),
        ("localhost/base", 0),
        ("evil.example/localhost/base", 1),
    ],
)
def test_a_base_by_tag_is_refused(base: str, code: int) -> None:
    stage = CONTAINERFILE[CONTAINERFILE.index("FROM ${BASE} AS build") :]
    check = stage[stage.index("RUN case") + len("RUN ") :].split("\n\n")[0]
    script = re.split(r"\n(?=[A-Z#])", check)[0].replace("\\\n", "\n")
    done = subprocess.run(["/bin/sh", "-c", script], env={"BASE": base}, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("name the image by its digest" in done.stderr) == bool(code)


def test_compose_takes_it() -> None:
    compose = shutil.which("docker-compose")
    if compose is None:
        pytest.skip("docker-compose is not on the PATH (Debian package docker-compose)")
    done = subprocess.run(
        [compose, "-f", CONTAINER / "compose.yaml", "config", "--quiet"],
        env={"PATH": "/usr/bin:/bin", "GRAFANA_PASSWORD": "x"},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_promtool_takes_the_configuration_and_every_expression(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on the PATH (Debian package prometheus)")
    for file in (CONTAINER / "prometheus.yml", DEPLOY / "prometheus/alerts.yaml"):
        shutil.copy(file, tmp_path)
    asked = [
        expression
        for file in DASHBOARDS
        for expression in expressions(json.loads(file.read_text()))
        if "label_values" not in expression
    ]
    as_rules = [
        {"record": f"shown:{number}", "expr": expression.replace("$__rate_interval", "1m")}
        for number, expression in enumerate(asked)
    ]
    (tmp_path / "shown.yaml").write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": as_rules}]}))
    for words in (("check", "config", "prometheus.yml"), ("check", "rules", "shown.yaml")):
        done = subprocess.run(
            [promtool, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANG_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
