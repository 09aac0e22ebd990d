"""deploy/kubernetes/daemons: valid by the official client's models, and settings that fit the manifests."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as k8s

from controller.apps.cli import main
from controller.apps.cli.config import SETTINGS
from dataplane.config import load
from dataplane.topology.file import load_topology
from tests.controller.scheduling.extender.kube_objects import plain, read_as

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes/daemons"
SETTINGS_FOLDER = FOLDER / "settings"
DAEMONS = sorted(file.stem for file in SETTINGS_FOLDER.glob("*.yaml") if file.stem != "topology")
MANIFESTS = [
    document
    for file in sorted(FOLDER.glob("*.yaml"))
    if file.name != "kustomization.yaml"
    for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
]
SERVICES = {
    document["metadata"]["name"]: document["spec"]["ports"] for document in MANIFESTS if "ports" in document["spec"]
}
every_daemon = pytest.mark.parametrize("daemon", DAEMONS)


def name_of(daemon: str) -> str:
    """Return the name of a daemon's objects; the extender's kube-scheduler is millrace-scheduler."""
    return {"scheduler": "millrace-pod-scheduler"}.get(daemon, f"millrace-{daemon}")


def pod_of(daemon: str) -> dict[str, Any]:
    (found,) = (
        document
        for document in MANIFESTS
        if document["metadata"]["name"] == name_of(daemon) and "template" in document["spec"]
    )
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def text_of(daemon: str) -> str:
    return (SETTINGS_FOLDER / f"{daemon}.yaml").read_text(encoding="utf-8")


def normal(data: Any) -> Any:
    """Return data without empty values, which models omit."""
    if isinstance(data, dict):
        return {key: normal(value) for key, value in data.items() if value not in (None, {}, [])}
    return [normal(item) for item in data] if isinstance(data, list) else data


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_manifests_match_the_api_servers_models(manifest: dict[str, Any]) -> None:
    kind = f"{manifest['apiVersion'].rpartition('/')[2].capitalize()}{manifest['kind']}"
    assert hasattr(k8s, kind)
    assert normal(plain(read_as(manifest, kind))) == normal(manifest)


def test_all_files_are_applied() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
    here = {file.name for file in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == here | {"../namespace.yaml"}
    (settings,) = kustomization["configMapGenerator"]
    assert set(settings["files"]) == {f"settings/{file.name}" for file in SETTINGS_FOLDER.glob("*.yaml")}
    assert {path.stem for path in FOLDER.glob("*.yaml")} - {"kustomization", "network-policy"} == set(DAEMONS)


@every_daemon
def test_settings_are_read_and_their_ports_are_open(daemon: str) -> None:
    module, name = SETTINGS[daemon]
    settings = load(SETTINGS_FOLDER / f"{daemon}.yaml", getattr(import_module(module), name))
    (container,) = pod_of(daemon)["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    listening = {int(port) for port in re.findall(r"0\.0\.0\.0:(\d+)", text_of(daemon))}
    if daemon == "collector":
        listening.add(load_topology(str(SETTINGS_FOLDER / "topology.yaml")).collector.udp_port)  # type: ignore[union-attr]
    assert set(ports.values()) == listening | {settings.metrics.port}
    assert ports["metrics"] == settings.metrics.port


@every_daemon
def test_files_of_settings_are_mounted(daemon: str) -> None:
    pod = pod_of(daemon)
    (container,) = pod["containers"]
    volumes = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    named = {
        Path(file)
        for file in re.findall(r"/(?:etc|var)/[\w./-]+", text_of(daemon) + yaml.safe_dump(container.get("env")))
    }
    assert {str(file.parent) for file in named} <= volumes.keys()
    assert set(volumes.values()) <= {volume["name"] for volume in pod["volumes"]} | {"state"}
    secret = next(volume["secret"] for volume in pod["volumes"] if volume["name"] == "tls")
    assert secret["secretName"] == f"{name_of(daemon)}-tls"


@every_daemon
def test_services_that_settings_name_are_there(daemon: str) -> None:
    for name, port in re.findall(r"(millrace-\w+)\.millrace\.svc:(\d+)", text_of(daemon)):
        assert int(port) in {each["port"] for each in SERVICES[name]}


@every_daemon
def test_daemons_run_without_rights(daemon: str) -> None:
    pod = pod_of(daemon)
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    context = container["securityContext"]
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"] == {"drop": ["ALL"]}


@every_daemon
def test_commands_are_there(daemon: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (container,) = pod_of(daemon)["containers"]
    monkeypatch.setattr("sys.argv", ["millrace", *container["args"]])
    with pytest.raises(SystemExit):
        main()
    assert f"/etc/millrace/{daemon}.yaml: No such file or directory" in capsys.readouterr().err


def test_prometheus_reaches_the_metrics_of_all() -> None:
    (policy,) = (document for document in MANIFESTS if document["metadata"]["name"] == "millrace-daemons")
    allowed = {port["port"] for port in policy["spec"]["ingress"][1]["ports"]}
    ports = [port for daemon in DAEMONS for port in pod_of(daemon)["containers"][0]["ports"]]
    assert allowed == {port["containerPort"] for port in ports if port["name"] == "metrics"}


def test_names_are_not_those_of_the_extenders_manifests() -> None:
    others = {
        (document["kind"], document["metadata"]["name"])
        for file in FOLDER.parent.glob("*.yaml")
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        if "metadata" in document
    }
    assert not others & {(document["kind"], document["metadata"]["name"]) for document in MANIFESTS}
