"""Podman of a test's own: storage, service, and nothing of them left behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.controller.nodes.busybox_image import (
    podman_environment,
    remove_podman_storage,
    skip_without_containers,
    write_layout,
)


@dataclass(frozen=True, slots=True)
class PodmanStorage:
    """Where a test's podman keeps its things; `environment` names its settings; `image` is one that may be pulled."""

    folder: Path
    environment: dict[str, str]
    image: str
    digest: str


@pytest.fixture
def podman_storage(tmp_path: Path) -> Iterator[PodmanStorage]:
    """A storage of podman's with nothing in it, and an image beside it; all containers are gone afterwards."""
    skip_without_containers("podman", "runc", "conmon")
    environment = podman_environment(tmp_path / "podman")
    digest = write_layout(tmp_path / "image")
    try:
        yield PodmanStorage(tmp_path / "podman", environment, f"oci:{tmp_path / 'image'}:latest", digest)
    finally:
        remove_podman_storage(tmp_path / "podman", environment)


@pytest.fixture
def podman_socket(podman_storage: PodmanStorage) -> Iterator[Path]:
    """The socket of a podman service with this storage; it ends with the test."""
    socket = podman_storage.folder / "podman.sock"
    process = subprocess.Popen(
        ["podman", "system", "service", "--time", "0", f"unix://{socket}"],
        env={**os.environ, **podman_storage.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while not socket.exists():
            assert process.poll() is None, "podman's service ends at once"
            assert time.monotonic() < deadline, "podman's service does not come"
            time.sleep(0.02)
        yield socket
    finally:
        process.terminate()
        process.wait(timeout=30)
