"""The workload assumed by a policy: the one in its settings, else the cluster's requests."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from controller.cluster.hardware import WHOLE, DeviceRequest, Request
from controller.scheduling.pods import Snapshot
from controller.scheduling.pods.workload import Workload
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind


class TypicalPod(Strict, frozen=True):
    """A request and the number of pods that make it; without a kind it asks for no device."""

    pods: Annotated[int, Meta(ge=1, le=1 << 32)] = 1
    cpu_milli: Annotated[int, Meta(ge=0)] = 0
    memory_bytes: Annotated[int, Meta(ge=0)] = 0
    kind: DeviceKind | None = None
    count: Annotated[int, Meta(ge=1)] = 1
    thousandths: Annotated[int, Meta(ge=1, le=WHOLE)] = WHOLE
    models: tuple[str, ...] = ()

    @property
    def request(self) -> Request:
        """The request in the schedulers' form."""
        devices: tuple[DeviceRequest, ...] = ()
        if self.kind is not None:
            devices = (DeviceRequest(self.kind, self.count, self.thousandths, frozenset(self.models)),)
        return Request(self.cpu_milli, self.memory_bytes, devices)


UNKNOWN_WORKLOAD = Workload(())


def workload_of(typical: tuple[TypicalPod, ...]) -> Workload | None:
    """Return the workload of the settings, None if they have none."""
    if not typical:
        return None
    counts: dict[Request, int] = {}
    for pod in typical:
        counts[pod.request] = counts.get(pod.request, 0) + pod.pods
    return Workload.of(counts)


def assumed_workload(stated: Workload | None, snapshot: Snapshot) -> Workload:
    """Return the workload to assume."""
    return stated or snapshot.workload or UNKNOWN_WORKLOAD
