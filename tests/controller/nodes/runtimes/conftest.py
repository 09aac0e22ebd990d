"""Each runtime, for tests that are the same for all."""

from __future__ import annotations

import pytest

from controller.nodes.runtimes.settings import RuntimeKind
from tests.controller.nodes.conftest import PodmanStorage
from tests.controller.nodes.runtimes.real_containers import Run, run_with


@pytest.fixture(params=list(RuntimeKind))
def kind(request: pytest.FixtureRequest) -> RuntimeKind:
    """Return the runtime that is tested."""
    return RuntimeKind(request.param)


@pytest.fixture
def run(kind: RuntimeKind, podman_storage: PodmanStorage) -> Run:
    """Return what does something with a runtime that has a storage of the test's own."""

    return lambda work: run_with(kind, podman_storage, work)
