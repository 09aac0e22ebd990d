"""CUDA's multi-process service (MPS) on a node: whether its control daemon runs, and its way into containers.

Source: NVIDIA's Multi-Process Service, appendix "Tools and Interface Reference", and the Container Device Interface
(CDI) 0.5.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from collectors.devices.root import Root
from controller.workloads.nodes.deciding.shares import Mps
from controller.workloads.nodes.runtimes.settings import RuntimeKind
from controller.workloads.nodes.settings import MpsSection

_KIND: Final = "millrace.local/mps"
_PID: Final = "nvidia-cuda-mps-control.pid"
_DAEMON: Final = "nvidia-cuda-mps"
"""Its name as the kernel cuts it off."""


def finder(settings: MpsSection | None, runtime: RuntimeKind, node: str, root: Root) -> Callable[[], Mps | str]:
    """Return a function that returns the service as it is now, or a line that says why it limits nothing.

    `node` names the node and its manager on this machine.
    """

    def find() -> Mps | str:
        if settings is None:
            return "`mps` of the node's settings is off"
        if runtime is not RuntimeKind.PODMAN:
            return f"the {runtime} runtime takes no CDI names"
        pid = root.integer(settings.pipes.lstrip("/"), _PID)
        if pid is None or not (root.text("proc", str(pid), "comm") or "").startswith(_DAEMON):
            return f"no MPS control daemon runs with pipes in {settings.pipes}"
        file = Path(settings.cdi) / f"millrace-mps-{node}.json"
        try:
            _write(file, _specification(settings, node))
        except OSError as error:
            return f"{file}: {error.strerror or error}"
        return Mps(settings.pipes, f"{_KIND}={node}")

    return find


def _specification(settings: MpsSection, node: str) -> str:
    """Return the CDI file: clients reach the service by its pipes and by shared memory."""
    mounts = [
        {"hostPath": settings.pipes, "containerPath": settings.pipes, "options": ["rw", "nosuid", "nodev", "bind"]},
        {"hostPath": settings.shared_memory, "containerPath": "/dev/shm", "options": ["rw", "nosuid", "nodev", "bind"]},  # noqa: S108 - where clients look
    ]
    devices = [{"name": node, "containerEdits": {"mounts": mounts}}]
    return json.dumps({"cdiVersion": "0.5.0", "kind": _KIND, "devices": devices})


def _write(file: Path, text: str) -> None:
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    # Runtimes read all files of the folder at any time, and refuse those that end in the middle.
    new = file.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.replace(file)
