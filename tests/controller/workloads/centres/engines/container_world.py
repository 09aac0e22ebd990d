"""Pods for the suite of engines: an API server, a scheduler, the workload controller, two nodes with runc."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from controller.apiserver.resources import Node, Pod
from controller.apiserver.resources.hardware import Request
from controller.common.errors import NotFoundError
from controller.workloads.centres.engines.base import JobOrder
from controller.workloads.centres.engines.containers import ContainersEngine, ContainersSettings
from controller.workloads.centres.engines.containers.pods import CENTRE
from controller.workloads.centres.engines.containers.settings import ContainerUnit
from controller.workloads.nodes.process import serve as serve_node
from controller.workloads.nodes.runtimes.settings import RuntimeKind, RuntimeSettings
from dataplane.closing import Closing
from tests.controller.workloads.centres.engines.doors import UnixDoor
from tests.controller.workloads.nodes.busybox_image import skip_without_containers, write_layout
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.integration.placement_world import PlacementWorld

NODES: Final = ("h1", "h3")
_UNIT: Final = ContainerUnit(request=Request(cpu_milli=500, memory_bytes=64 << 20))
_PYTHON: Final = Path("/usr/bin/python3")


class Containers(Closing):
    """All components that run pods, shared by all tests; the bundle has Debian's Python, the image busybox."""

    def __init__(self, folder: Path) -> None:
        skip_without_containers("runc", "conmon", "skopeo", "umoci")
        self.folder, self.bundle = folder, folder / "bundle"
        self.image = f"oci:{folder / 'image'}:latest"
        digest = write_layout(folder / "image")
        self.gates = folder / "gates"
        self.gates.mkdir()
        _write_bundle(self.bundle, self.gates)
        storage = PodmanStorage(folder / "podman", {}, self.image, digest)
        self.world = PlacementWorld(folder, storage)
        self.world.__enter__()
        try:
            runtime = RuntimeSettings(
                kind=RuntimeKind.RUNC,
                bundle_folders=(self.bundle,),
                image_folders=(folder,),
                mount_folders=(Path("/usr"), self.gates),
            )
            for node in NODES:
                self.world.start(serve_node, self.world.node_settings(node, runtime=runtime))
            self.world.until_ready(*NODES)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop all components."""
        self.world.__exit__(None, None, None)


class ContainersWorld:
    """Adapter for the suite: the API server behind a socket that can be closed or silenced."""

    unit = "half"

    def __init__(self, containers: Containers, root: Path) -> None:
        self.containers, self.root, self.centre = containers, root, root.name
        self._door = UnixDoor(containers.folder / f"door-{root.name}", containers.folder / "api.sock")

    def close(self) -> None:
        """Close the door and delete the test's pods."""
        self._door.close()
        pods = self.containers.world.client.of(Pod)
        for pod in pods.list(labels=f"{CENTRE}={self.centre}").items:
            with suppress(NotFoundError):  # deleted meanwhile
                pods.delete(pod.metadata.name)

    def gate(self, order: JobOrder) -> Path:
        """Return a folder of the machine that the bundle mounts."""
        folder = self.containers.gates / order.mark.job_name
        folder.mkdir(exist_ok=True)
        return folder

    def has_process(self, number: int, name: str) -> bool:
        """Containers end with their first process, by the kernel: none is left if no process has this test's gate."""
        del number, name
        gates = f"GATE={self.containers.gates}/"
        return any(gates.encode() in _environment(process) for process in Path("/proc").glob("[0-9]*"))

    def engine(self, centre: str | None = None, deadline_s: float = 10.0) -> ContainersEngine:
        """Return an engine for the nodes."""
        settings = ContainersSettings(
            api=f"unix:{self._door.path}",
            bundle=str(self.containers.bundle),
            python=_PYTHON,
            units={self.unit: _UNIT},
            deadline_s=deadline_s,
            poll_s=0.1,
        )
        name = centre or self.centre
        return ContainersEngine(settings, centre=name, records=self.root / f"records-{name}")

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Accept requests without answering."""
        self._door.is_silent = True
        try:
            yield
        finally:
            self._door.is_silent = False

    def away(self) -> AbstractContextManager[None]:
        """Close the door."""
        return self._door.shut()

    @contextmanager
    def smaller(self) -> Iterator[None]:
        """Make a node unschedulable."""
        self._close(NODES[1], unschedulable=True)
        try:
            yield
        finally:
            self._close(NODES[1], unschedulable=False)

    def _close(self, name: str, *, unschedulable: bool) -> None:
        nodes = self.containers.world.client.of(Node)
        node = nodes.get(name)
        metadata = replace(node.metadata, revision=0)
        spec = replace(node.spec, unschedulable=unschedulable, reason="test" if unschedulable else "")
        nodes.replace(replace(node, metadata=metadata, spec=spec))


def _environment(process: Path) -> bytes:
    with suppress(OSError):
        return (process / "environ").read_bytes()
    return b""


def _write_bundle(bundle: Path, gates: Path) -> None:
    """Write an OCI bundle with only the machine's /usr, read-only."""
    root = bundle / "rootfs"
    for directory in ("tmp", "proc", "dev", "sys", "etc", "usr"):
        (root / directory).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / gates.relative_to("/")).mkdir(parents=True)
    mounts = [
        {"type": "bind", "source": str(path), "destination": str(path), "options": ["rbind", how]}
        for path, how in ((Path("/usr"), "ro"), (gates, "rw"))
    ]
    process = {"args": ["/bin/true"], "env": ["PATH=/usr/bin:/bin"], "cwd": "/"}
    config = {"ociVersion": "1.0.2", "process": process, "root": {"path": "rootfs"}, "mounts": mounts}
    (bundle / "config.json").write_text(json.dumps(config), encoding="utf-8")
