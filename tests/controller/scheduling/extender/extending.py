"""An extender in the test's own loop, over state that the test fills."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import msgspec
from kubernetes import client as k8s

from collectors.values import Snapshot as NetworkSnapshot
from controller.cluster.cost_map import CostMap
from controller.scheduling.extender import objects
from controller.scheduling.extender.books import Books
from controller.scheduling.extender.hardware import kinds_of
from controller.scheduling.extender.kube_api import KubernetesApi
from controller.scheduling.extender.metrics import Metrics
from controller.scheduling.extender.service import ExtenderService
from controller.scheduling.extender.settings import ExtenderSettings, KubernetesSettings
from controller.scheduling.pods import PodProfile
from dataplane.clock import MonotonicClock
from dataplane.topology.families import from_text
from tests.controller.scheduling.extender.kube_objects import written

COSTS = CostMap.of(from_text("fat-tree:k=4"), NetworkSnapshot(0, {}, {}, {}))
"""Hosts h1 to h16; h1 and h2 are at the same switch, h1 to h4 in the same pod."""


@dataclass
class Extender:
    """A service, and actions of a test on it."""

    service: ExtenderService
    books: Books
    metrics: Metrics

    def know(self, *models: k8s.V1Node | k8s.V1Pod) -> None:
        """Take nodes and pods as from a watch."""
        for model in models:
            if isinstance(model, k8s.V1Node):
                self.books.take_node(msgspec.json.decode(written(model), type=objects.Node))
            else:
                self.books.take_pod(msgspec.json.decode(written(model), type=objects.Pod))

    async def ask(self, verb: str, body: bytes | dict[str, Any]) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return json.loads(await getattr(self.service, verb)(data))

    def count(self, verb: str, outcome: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "millrace_extender_requests_total", {"verb": verb, "outcome": outcome}
        )


def extending(
    act: Callable[[Extender], Coroutine[Any, Any, None]],
    settings: ExtenderSettings | None = None,
    *,
    kubernetes: KubernetesSettings | None = None,
    costs: CostMap | None = COSTS,
) -> None:
    """Run a function on an extender; with `kubernetes` it knows the test's objects, else only those in requests."""
    settings = settings or ExtenderSettings(host_label="millrace.io/host")
    books = Books(kinds_of(settings.devices), settings.host_label)
    metrics = Metrics(books)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            worker = stack.enter_context(ThreadPoolExecutor(1))
            api = None if kubernetes is None else await stack.enter_async_context(KubernetesApi(kubernetes))
            service = ExtenderService(
                settings,
                PodProfile.by_name(settings.profiles),
                books,
                api=api,
                costs=lambda: costs,
                metrics=metrics,
                clock=MonotonicClock(),
                now_ns=lambda: 7,
                worker=worker,
            )
            await act(Extender(service, books, metrics))

    asyncio.run(main())


def peers(*some: dict[str, object]) -> dict[str, str]:
    """Return annotations that name peers."""
    return {"millrace.io/peers": json.dumps(some)}


def failed(answer: dict[str, Any]) -> dict[str, str]:
    """Return the failures of nodes, resolvable or not."""
    failures: dict[str, str] = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
    return failures


def victims(**by_node: Sequence[str]) -> dict[str, Any]:
    """Return victims of nodes by uid, as sent with nodeCacheCapable."""
    return {
        node.replace("_", "-"): {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 1}
        for node, uids in by_node.items()
    }
