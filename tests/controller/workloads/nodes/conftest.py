"""A test's own podman: storage and service, removed afterwards."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.controller.workloads.nodes.busybox_image import (
    podman_environment,
    remove_podman_storage,
    skip_without_containers,
    write_layout,
)
from tests.waiting import HANG_S, wait_until


@dataclass(frozen=True, slots=True)
class PodmanStorage:
    """Storage of a test's podman; `environment` names its settings; `image` can be pulled.

    `socket` is that of a running service, or None if each runtime must start its own.
    """

    folder: Path
    environment: dict[str, str]
    image: str
    digest: str
    socket: Path | None = None

    @property
    def image_folders(self) -> tuple[Path, ...]:
        """Return the folder for image files: the image, and the test's own."""
        return (self.folder.parent,)


@contextmanager
def storage_in(folder: Path) -> Iterator[PodmanStorage]:
    """Yield an empty podman storage and an image next to it; remove all containers afterwards."""
    skip_without_containers("podman", "runc", "conmon")
    environment = podman_environment(folder / "podman")
    digest = write_layout(folder / "image")
    try:
        yield PodmanStorage(folder / "podman", environment, f"oci:{folder / 'image'}:latest", digest)
    finally:
        remove_podman_storage(folder / "podman", environment)


@pytest.fixture
def podman_storage(tmp_path: Path) -> Iterator[PodmanStorage]:
    """A storage of the test's own."""
    with storage_in(tmp_path) as storage:
        yield storage


@pytest.fixture
def podman_socket(podman_storage: PodmanStorage) -> Iterator[Path]:
    """The socket of a podman service with this storage; it ends with the test."""
    with service_of(podman_storage) as socket:
        yield socket


@contextmanager
def service_of(podman_storage: PodmanStorage) -> Iterator[Path]:
    """Yield the socket of a podman service with a storage."""
    socket = podman_storage.folder / "podman.sock"
    process = subprocess.Popen(
        ["podman", "system", "service", "--time", "0", f"unix://{socket}"],
        env={**os.environ, **podman_storage.environment},
        cwd=podman_storage.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def is_listening() -> bool:
            assert process.poll() is None, "podman's service has ended"
            return socket.exists()

        wait_until(is_listening, "podman's service does not listen")
        yield socket
    finally:
        process.terminate()
        process.wait(HANG_S)
