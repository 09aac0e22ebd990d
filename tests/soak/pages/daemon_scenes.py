"""Daemons that a page's commands ask: of `millrace up`, of a fabric in the kernel, or single ones."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from typing import Final

from tests.controller.workloads.nodes.busybox_image import (
    BUSYBOX,
    podman_environment,
    remove_podman_storage,
    write_layout,
)
from tests.docs.shell_blocks import ROOT, File, parts_of
from tests.soak.pages.workspace import LackingError, Workspace

REGISTRY = ("127.0.0.1", 5000)
_READER = """
import time

from dataplane.store.client import StoreClient

client = StoreClient("10.0.6.2")
client.put("/model/weights", bytes(1000))
begin_s = time.monotonic()
while True:
    client.get("/model/weights")
    if time.monotonic() - begin_s > 5:
        print("has read", flush=True)
    time.sleep(0.01)
"""


def _products_have_run(workspace: Workspace) -> None:
    """The example of docs/cluster/task-scheduler.md has run: two centres are up, its task has succeeded."""
    for part in parts_of(ROOT / "docs/cluster/task-scheduler.md"):
        if isinstance(part, File):
            workspace.write(part.name, part.text)
    workspace.call("millrace up --settings centres.yaml --detach")
    workspace.stack.callback(workspace.call, "millrace down")
    workspace.call("millrace task submit products.yaml --wait")


def _node_with_containers(workspace: Workspace) -> None:
    """`millrace up` with a node that has podman; docker.io is a registry of this machine that has its busybox."""
    workspace.need("podman", "runc", "conmon", "skopeo", "docker-registry")
    if not BUSYBOX.exists():
        raise LackingError("busybox-static")
    folder = workspace.room / "containers"
    environment = podman_environment(folder / "podman")
    workspace.stack.callback(remove_podman_storage, folder / "podman", environment)
    host, port = REGISTRY
    settings = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "registry")}},
        "http": {"addr": f"{host}:{port}"},
    }
    (folder / "registry.yml").write_text(json.dumps(settings))
    workspace.start(f"docker-registry serve {folder}/registry.yml", "listening on")
    write_layout(folder / "image")
    target = f"docker://{host}:{port}/library/busybox:latest"
    workspace.call(f"skopeo copy --quiet --dest-tls-verify=false oci:{folder}/image:latest {target}")
    mirror = folder / "registries.conf"
    mirror.write_text(f'[[registry]]\nprefix = "docker.io"\nlocation = "{host}:{port}"\ninsecure = true\n')
    runtime = {"kind": "podman", "environment": environment | {"CONTAINERS_REGISTRIES_CONF": str(mirror)}}
    _up(workspace, f"topology: leaf-spine\nnodes: {{h1: {{runtime: {json.dumps(runtime)}}}}}\n")


def _store_in_a_fabric(workspace: Workspace) -> None:
    """leaf-spine in the kernel; h8 has /model/weights, which is read often, and workers return parameters."""
    workspace.write(
        "fabric-controller.yaml",
        textwrap.dedent(
            """
            topology: leaf-spine
            switches: "unix:{name}.sock"
            store:
              producers: [h8]
              recorded: [{name: /job/parameters, bytes: 1000, writers: [h1, h2], server: h8}]
            """
        ),
    )
    workspace.start("millrace fabric up leaf-spine --name page", "fabric: ready", 120)
    for node in json.loads(workspace.call("millrace fabric list page --format json")):
        if node["kind"] == "switch":
            (workspace.folder / f"{node['node']}.sock").symlink_to(node["address"].removeprefix("unix:"))
    workspace.start("millrace controller serve --settings fabric-controller.yaml", "ready")
    on_h8 = "millrace fabric exec h8 millrace store serve producer.db --address 10.0.6.2 --anyone"
    workspace.start(on_h8, "ready")
    workspace.write("reader.py", _READER)
    workspace.start("millrace fabric exec h1 python reader.py", "has read")


def _p4runtime_shell(workspace: Workspace) -> None:
    """The environment of p4runtime-shell."""
    del workspace
    if not (ROOT / ".venv-shell/.ready").exists():
        raise LackingError("p4runtime-shell: make .venv-shell/.ready")


def _up(workspace: Workspace, settings: str) -> None:
    folder = workspace.home / ".local/state/millrace/up"
    folder.mkdir(parents=True)
    (folder / "millrace.yaml").write_text(textwrap.dedent(settings))
    topology = next(line for line in settings.split("\n") if "topology:" in line).partition(":")[2].strip()
    workspace.call(f"millrace up {topology} --detach")
    workspace.stack.callback(workspace.call, "millrace down")


SCENES: Final[dict[str, Callable[[Workspace], None]]] = {
    "products have run": _products_have_run,
    "node with containers": _node_with_containers,
    "store in a fabric": _store_in_a_fabric,
    "p4runtime-shell": _p4runtime_shell,
}
