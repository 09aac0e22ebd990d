"""deploy/kubernetes: valid by the official client's models, with existing references."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as k8s

from controller.apps.cli import main
from controller.scheduling.extender.http import VERBS
from controller.scheduling.extender.settings import ExtenderSettings
from dataplane.config import loads
from dataplane.topology.file import load_topology
from tests.controller.scheduling.extender.kube_objects import plain, read_as

FOLDER = Path(__file__).parents[4] / "deploy/kubernetes"
OF_OTHER_APIS = {"kustomization.yaml", "scheduler-configuration.yaml"}


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(FOLDER.glob("*.yaml")):
        if file.name not in OF_OTHER_APIS:
            for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8")):
                yield f"{file.name}/{manifest['kind']}/{manifest['metadata']['name']}", manifest


ALL = dict(manifests())
CONFIGURATION = yaml.safe_load((FOLDER / "scheduler-configuration.yaml").read_text(encoding="utf-8"))


def of_kind(kind: str, name: str = "millrace-extender") -> Any:
    document = next(entry for entry in ALL.values() if (entry["kind"], entry["metadata"]["name"]) == (kind, name))
    return read_as(document, _model(document))


def _model(manifest: dict[str, Any]) -> str:
    name = f"{manifest['apiVersion'].rpartition('/')[2].capitalize()}{manifest['kind']}"
    assert hasattr(k8s, name)
    return name


@pytest.mark.parametrize("name", ALL)
def test_manifests_match_the_api_servers_models(name: str) -> None:
    """No field is unknown to the model: it would be dropped or refused."""
    manifest = ALL[name]
    model = read_as(manifest, _model(manifest))
    assert normal(plain(model)) == normal(manifest)
    assert manifest["metadata"].get("namespace", "millrace") in {"millrace", "kube-system"}


def normal(data: Any) -> Any:
    """Return data without empty values, which models omit."""
    if isinstance(data, dict):
        return {key: normal(value) for key, value in data.items() if value not in (None, {}, [])}
    return [normal(item) for item in data] if isinstance(data, list) else data


def test_all_manifests_are_applied() -> None:
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
    files = {file.name for file in FOLDER.glob("*.yaml")} - OF_OTHER_APIS
    assert set(kustomization["resources"]) == files
    assert kustomization["configMapGenerator"][0]["files"] == ["scheduler-configuration.yaml"]
    assert kustomization["configMapGenerator"][0]["namespace"] == "millrace"


def test_the_settings_and_the_topology_are_read(tmp_path: Path) -> None:
    data = of_kind("ConfigMap").data
    settings = loads(data["extender.yaml"], ExtenderSettings)
    (tmp_path / "topology.yaml").write_text(data["topology.yaml"])
    assert [host.name for host in load_topology(str(tmp_path / "topology.yaml")).hosts] == ["h1", "h2", "h3"]
    deployment = of_kind("Deployment").spec.template.spec
    container = deployment.containers[0]
    mounts = {mount.mount_path: mount.name for mount in container.volume_mounts}
    assert settings.tls is not None
    assert settings.topology is not None
    for file in (settings.tls.certificate, settings.tls.private_key, settings.tls.client_ca, settings.topology):
        assert str(Path(str(file)).parent) in mounts
    ports = {port.name: port.container_port for port in container.ports}
    assert settings.metrics is not None
    assert ports == {"extender": int(settings.listen.rpartition(":")[2]), "metrics": settings.metrics.port}
    assert of_kind("Service").spec.ports[0].target_port == "extender"


def test_the_command_is_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    args = of_kind("Deployment").spec.template.spec.containers[0].args
    monkeypatch.setattr("sys.argv", ["millrace", *args])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == "millrace: /etc/millrace/extender.yaml: No such file or directory\n"


def test_rights_are_those_that_are_used() -> None:
    """The role grants exactly the requests of KubernetesApi."""
    rules = {(tuple(rule.resources), tuple(rule.verbs)) for rule in of_kind("ClusterRole").rules}
    assert rules == {
        (("nodes",), ("list", "watch")),
        (("pods",), ("get", "list", "watch")),
        (("pods/binding",), ("create",)),
    }


@pytest.mark.parametrize("name", ["millrace-extender", "millrace-scheduler"])
def test_pods_run_without_rights(name: str) -> None:
    pod = of_kind("Deployment", name).spec.template.spec
    assert pod.security_context.run_as_non_root
    for container in pod.containers:
        assert container.security_context.read_only_root_filesystem
        assert container.security_context.allow_privilege_escalation is False
        assert container.security_context.capabilities.drop == ["ALL"]
    # The scheduler of all pods must not wait for itself.
    assert pod.scheduler_name == "default-scheduler"


def test_network_policy_admits_the_scheduler_to_the_extender() -> None:
    policy = of_kind("NetworkPolicy").spec
    labels = of_kind("Deployment").spec.template.metadata.labels
    assert policy.pod_selector.match_labels.items() <= labels.items()
    allowed = policy.ingress[0]._from[0].pod_selector.match_labels
    assert allowed.items() <= of_kind("Deployment", "millrace-scheduler").spec.template.metadata.labels.items()


def test_scheduler_configuration_names_the_extender() -> None:
    """Its API is not in the client: fields are those of kubescheduler.config.k8s.io/v1."""
    assert CONFIGURATION["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    (extender,) = CONFIGURATION["extenders"]
    assert {extender[f"{verb}Verb"] for verb in VERBS} == set(VERBS)
    service = of_kind("Service")
    url = f"https://{service.metadata.name}.{service.metadata.namespace}.svc:{service.spec.ports[0].port}"
    assert (extender["urlPrefix"], extender["enableHTTPS"]) == (url, True)
    assert extender["nodeCacheCapable"] is True  # as `kubernetes` is in the extender's settings
    limits = loads(of_kind("ConfigMap").data["extender.yaml"], ExtenderSettings).limits
    assert float(extender["httpTimeout"].removesuffix("s")) > limits.answer_s
    mounts = of_kind("Deployment", "millrace-scheduler").spec.template.spec.containers[0].volume_mounts
    folders = {mount.mount_path for mount in mounts}
    assert {str(Path(file).parent) for file in extender["tlsConfig"].values()} <= folders
