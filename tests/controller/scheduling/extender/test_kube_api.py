"""Requests to an API server: lists, watches, bindings. The server is a double, checked by the official client first."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubernetes import client as k8s
from kubernetes import watch

from controller.common.errors import SchedulerError
from controller.scheduling.extender import objects
from controller.scheduling.extender.kube_api import Change, KubernetesApi, KubernetesError
from controller.scheduling.extender.settings import KubernetesSettings
from dataplane.local.deadline import local_timeout
from tests.controller.scheduling.extender.api_double import KubeDouble, kube_double
from tests.controller.scheduling.extender.kube_objects import a_node, a_pod

WAIT_S = 30.0


@contextmanager
def official(double: KubeDouble) -> Iterator[k8s.CoreV1Api]:
    configuration = k8s.Configuration()
    configuration.host = double.url
    client = k8s.ApiClient(configuration)
    try:
        yield k8s.CoreV1Api(client)
    finally:
        client.rest_client.pool_manager.clear()


def settings(double: KubeDouble, **more: object) -> KubernetesSettings:
    return KubernetesSettings(server=double.url, ca=None, **{"token_file": None, **more})  # type: ignore[arg-type]


def test_the_double_is_an_api_server_to_the_official_client() -> None:
    selector = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
    with kube_double() as double, official(double) as api:
        for number in range(5):
            double.put(a_node(f"n{number}", nvidia_com__gpu="2"))
        double.put(a_pod("p"))
        first = api.list_node(limit=2)
        assert [node.metadata.name for node in first.items] == ["n0", "n1"]
        rest = api.list_node(limit=3, _continue=first.metadata._continue)
        assert [node.metadata.name for node in rest.items] == ["n2", "n3", "n4"]
        assert rest.items[0].status.allocatable["nvidia.com/gpu"] == "2"
        before = api.list_pod_for_all_namespaces(field_selector=selector)
        assert before.items == []
        target = k8s.V1ObjectReference(api_version="v1", kind="Node", name="n3")
        binding = k8s.V1Binding(metadata=k8s.V1ObjectMeta(name="p", namespace="default"), target=target)
        api.create_namespaced_pod_binding("p", "default", binding, _preload_content=False).read()
        assert api.read_namespaced_pod("p", "default").spec.node_name == "n3"
        with pytest.raises(k8s.ApiException) as caught:
            api.create_namespaced_pod_binding("p", "default", binding)
        assert caught.value.status == 409
        watching = watch.Watch()
        version = before.metadata.resource_version
        for event in watching.stream(
            api.list_pod_for_all_namespaces, resource_version=version, field_selector=selector, timeout_seconds=20
        ):
            assert (event["type"], event["object"].spec.node_name) == ("ADDED", "n3")
            watching.stop()


async def until(changes: AsyncIterator[Change], holds: Callable[[Change], bool]) -> Change:
    async for change in changes:
        if holds(change):
            return change
    raise AssertionError("the watch ended")


def test_all_pages_then_each_change() -> None:
    async def main(double: KubeDouble) -> None:
        double.page = 2
        for number in range(5):
            double.put(a_node(f"n{number}"))
        async with local_timeout(WAIT_S, "a test"), KubernetesApi(settings(double)) as api:
            changes = api.follow(objects.Node)
            first = await anext(changes)
            assert first.all is not None
            assert [node.metadata.name for node in first.all] == [f"n{number}" for number in range(5)]
            double.put(a_node("n5", nvidia_com__gpu="1"))
            assert (await anext(changes)).one.status.allocatable["nvidia.com/gpu"] == "1"
            double.delete("Node", "n0")
            gone = await anext(changes)
            assert (gone.is_gone, gone.one.metadata.name) == (True, "n0")
            await changes.aclose()

    with kube_double() as double:
        asyncio.run(main(double))


def test_only_pods_on_nodes_are_followed() -> None:
    async def main(double: KubeDouble) -> None:
        double.put(a_pod("waits"))
        double.put(a_pod("runs", "n1", phase="Running"))
        double.put(a_pod("done", "n1", phase="Succeeded"))
        async with local_timeout(WAIT_S, "a test"), KubernetesApi(settings(double)) as api:
            changes = api.follow(objects.Pod)
            first = await anext(changes)
            assert first.all is not None
            assert [pod.metadata.name for pod in first.all] == ["runs"]
            await api.bind("default", "waits", "uid-waits", "n2")
            told = await anext(changes)
            assert (told.one.metadata.name, told.one.spec.node_name) == ("waits", "n2")
            double.put(a_pod("waits", "n2", phase="Failed"))
            assert (await anext(changes)).is_gone
            await changes.aclose()

    with kube_double() as double:
        asyncio.run(main(double))


def test_forgotten_history_is_listed_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main(double: KubeDouble) -> None:
        double.put(a_node("n0"))
        async with local_timeout(WAIT_S, "a test"), KubernetesApi(settings(double)) as api:
            changes = api.follow(objects.Node)
            assert (await anext(changes)).all is not None
            double.put(a_node("n1"))
            assert (await anext(changes)).one.metadata.name == "n1"
            double.delete("Node", "n0")
            double.forget_history()
            again = await until(changes, lambda change: change.all is not None)
            assert again.all is not None
            assert [node.metadata.name for node in again.all] == ["n1"]
            await changes.aclose()

    with kube_double() as double, caplog.at_level(logging.WARNING):
        asyncio.run(main(double))


def test_an_api_server_that_fails_is_asked_again_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(double: KubeDouble) -> None:
        double.fail["GET /api/v1/nodes"] = 500
        double.put(a_node("n0"))
        async with local_timeout(WAIT_S, "a test"), KubernetesApi(settings(double)) as api:
            changes = api.follow(objects.Node)
            assert (await anext(changes)).all is not None
            double.put(a_node("n1"))
            await anext(changes)
            await changes.aclose()

    with kube_double() as double, caplog.at_level(logging.INFO, "millrace.extender"):
        asyncio.run(main(double))
        assert [record.message for record in caplog.records if record.name == "millrace.extender"] == [
            f"watch of nodes failed: {double.url}: GET /api/v1/nodes: 500: as the test wants it",
            "watch of nodes recovered",
        ]


def test_official_client_reads_the_binding() -> None:
    async def main(double: KubeDouble) -> None:
        double.put(a_pod("p"))
        async with KubernetesApi(settings(double)) as api:
            await api.bind("default", "p", "uid-p", "n1")
            await api.bind("default", "p", "uid-p", "n1")  # again, after a lost answer
            with pytest.raises(KubernetesError, match="409: pod default/p is already assigned"):
                await api.bind("default", "p", "uid-p", "n2")
            with pytest.raises(KubernetesError, match='404: pods "q" not found'):
                await api.bind("default", "q", "", "n2")

    with kube_double() as double:
        asyncio.run(main(double))
        binding = double.bindings[0]
        assert (binding.kind, binding.api_version) == ("Binding", "v1")
        assert (binding.metadata.name, binding.metadata.namespace, binding.metadata.uid) == ("p", "default", "uid-p")
        assert (binding.target.kind, binding.target.name) == ("Node", "n1")


def test_another_pod_of_the_same_name_is_not_bound() -> None:
    async def main(double: KubeDouble) -> None:
        double.put(a_pod("p"))
        async with KubernetesApi(settings(double)) as api:
            with pytest.raises(KubernetesError, match="UID in precondition differs"):
                await api.bind("default", "p", "uid-of-before", "n1")

    with kube_double() as double:
        asyncio.run(main(double))
        assert "nodeName" not in double.pod("p")["spec"]


def test_an_answer_that_gets_lost_is_looked_for() -> None:
    async def main(double: KubeDouble) -> None:
        double.put(a_pod("p"))
        double.lose_answers = True
        async with KubernetesApi(settings(double)) as api:
            await api.bind("default", "p", "uid-p", "n1")

    with kube_double() as double:
        asyncio.run(main(double))
        assert double.pod("p")["spec"]["nodeName"] == "n1"


def test_names_with_path_parts_are_refused() -> None:
    async def main(double: KubeDouble) -> None:
        async with KubernetesApi(settings(double)) as api:
            for name in ("../../secrets", "a/b", "..", "", "p?x"):
                with pytest.raises(KubernetesError, match="is not a valid name"):
                    await api.bind("default", name, "", "n1")

    with kube_double() as double:
        asyncio.run(main(double))
        assert double.asked == []


def test_a_token_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")

    async def main(double: KubeDouble) -> None:
        double.put(a_pod("p"))
        async with KubernetesApi(settings(double, token_file=str(file))) as api:
            await api.bind("default", "p", "", "n1")
            double.token = "second"
            with pytest.raises(KubernetesError, match="401: Unauthorized"):
                await api.bind("default", "p", "", "n1")
            (tmp_path / "new").write_text("second")
            (tmp_path / "new").replace(file)
            await api.bind("default", "p", "", "n1")

    with kube_double("first") as double:
        asyncio.run(main(double))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"server": None}, "kubernetes: no server is given, and this is not a pod of a cluster"),
        ({"server": "https://127.0.0.1:1", "ca": "nothing.pem"}, "kubernetes: nothing.pem: "),
    ],
)
def test_settings_that_cannot_be(given: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SchedulerError) as caught:
        KubernetesApi(KubernetesSettings(**given))  # type: ignore[arg-type]
    assert str(caught.value).startswith(problem)


def test_in_a_cluster_the_server_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")

    async def main() -> None:
        async with KubernetesApi(KubernetesSettings(ca=None)) as api:
            assert api.server == "https://[fd00::1]:443"

    asyncio.run(main())
