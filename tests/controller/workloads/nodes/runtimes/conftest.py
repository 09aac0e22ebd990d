"""Fixtures for tests common to all runtimes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.workloads.nodes.runtimes.settings import RuntimeKind
from tests.controller.workloads.nodes.conftest import PodmanStorage, service_of, storage_in
from tests.controller.workloads.nodes.runtimes.real_containers import Run, run_with


@pytest.fixture(params=list(RuntimeKind))
def kind(request: pytest.FixtureRequest) -> RuntimeKind:
    """Return the runtime under test."""
    return RuntimeKind(request.param)


@pytest.fixture(scope="module")
def shared_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStorage]:
    """A storage and a podman service for all tests of a file that leave no containers or other images."""
    with storage_in(tmp_path_factory.mktemp("shared")) as storage, service_of(storage) as socket:
        yield replace(storage, socket=socket)


@pytest.fixture
def run(kind: RuntimeKind, podman_storage: PodmanStorage) -> Run:
    """Return a function that runs work on a runtime with this storage."""

    return lambda work: run_with(kind, podman_storage, work)
