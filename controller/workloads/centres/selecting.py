"""Selection of a centre's engine: the one with a section in the settings, otherwise processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from collectors.devices.nvml import Nvml
from controller.apiserver.agents.access import namespace_of
from controller.apiserver.client import find_place
from controller.workloads.centres.engines.base import Engine
from controller.workloads.centres.engines.containers.engine import ContainersEngine
from controller.workloads.centres.engines.containers.settings import ContainersSettings
from controller.workloads.centres.engines.local.engine import LocalEngine
from controller.workloads.centres.engines.local.isolation import Isolation
from controller.workloads.centres.engines.local.machine import look
from controller.workloads.centres.engines.ray.engine import RayEngine
from controller.workloads.centres.engines.ray.settings import RaySettings
from controller.workloads.centres.engines.slurm.engine import SlurmEngine
from controller.workloads.centres.engines.slurm.settings import SlurmSettings
from controller.workloads.centres.folder import CentreFolder
from controller.workloads.centres.programs import python_of
from controller.workloads.centres.settings import CentreSettings
from dataplane.rpc.access.settings import TOKEN_FILE


class ServedCentre(CentreSettings, frozen=True):
    """Settings of `millrace centre serve`: the centre's, and those of its engine."""

    slurm: SlurmSettings | None = None
    """Jobs run on a Slurm cluster: `units` and `local` do not apply, its own `units` do."""
    ray: RaySettings | None = None
    """Jobs run on a Ray cluster; the same applies."""
    containers: ContainersSettings | None = None
    """Jobs are pods, which placement puts on nodes; the same applies."""

    def __post_init__(self) -> None:
        CentreSettings.__post_init__(self)
        if sum(section is not None for section in (self.slurm, self.ray, self.containers)) > 1:
            raise ValueError("a centre has one engine: slurm, ray or containers, or none of them")


def make_engine(settings: CentreSettings, folder: CentreFolder, jobs: Path, identity: str, nvml: Nvml | str) -> Engine:
    """Return the engine that the settings name; `jobs` is the parent of jobs' folders."""
    if isinstance(settings, ServedCentre) and settings.slurm is not None:
        return SlurmEngine(settings.slurm, centre=settings.centre, records=folder.engine)
    if isinstance(settings, ServedCentre) and settings.ray is not None:
        return RayEngine(settings.ray, centre=settings.centre, records=folder.engine)
    if isinstance(settings, ServedCentre) and settings.containers is not None:
        containers = replace(settings.containers, api=settings.containers.api or settings.api)
        return ContainersEngine(containers, centre=settings.centre, records=folder.engine)
    own = (folder.path, jobs, *_secrets_of(settings))
    paths = [Path(part) for part in settings.environment.get("PYTHONPATH", "").split(":") if part.startswith("/")]
    return LocalEngine(
        settings.local,
        settings.units,
        folder.engine,
        f"/millrace/centres/{settings.centre}-{identity}",
        lambda now: look(now, nvml),
        isolation=lambda now: Isolation(now, own, Path(python_of(settings)), paths),
        network_namespace=namespace_of(settings.local.network_namespace),
    )


def _secrets_of(settings: CentreSettings) -> Iterator[Path]:
    """Yield the agent's files that jobs must not see: its API server's address and its identity there.

    Without root jobs have the agent's user, and replacing a hidden file uncovers it: then the folder is hidden, if it
    belongs to this user.
    """
    server = find_place(settings.api)
    tokens = [Path(text) for text in (settings.token_file, os.environ.get(TOKEN_FILE)) if text]
    sockets = [Path(server.address.removeprefix("unix:"))] if server.address.startswith("unix:") else []
    keys = [] if server.private_key is None else [server.private_key]
    for path in (*tokens, *sockets, *keys):
        absolute = path.absolute()
        yield absolute
        with suppress(OSError):
            if os.geteuid() != 0 and absolute.parent.stat().st_uid == os.geteuid():
                yield absolute.parent
