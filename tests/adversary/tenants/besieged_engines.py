"""Centres of a siege whose tasks run elsewhere than as processes of the agent's machine, and what such centres need."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from controller.apiserver.resources import Pod
from controller.apiserver.resources.hardware import Request
from controller.apiserver.resources.pod import Container, PodSpec, Restart
from dataplane.rpc.access import Role
from tests.adversary.tenants.daemons import Daemons, until_answered
from tests.adversary.tenants.engine_attacks import (
    IN_CONTAINERS,
    ON_SLURM,
    ContainersAttack,
    SlurmAttack,
    forging_in,
)
from tests.adversary.tenants.siege import TenantSiege
from tests.controller.workloads.centres.engines.slurm_cluster import SlurmCluster

_PYTHON: Final = "/usr/bin/python3"
_PROFILE: Final = "engines"
"""Scheduler profile: the siege itself binds pods of the default profile."""
_SITE: Final = {"site": "c3"}
_POLL_S: Final = 0.5
_REMEMBERED_S: Final = 300
"""Slurm's default retention of finished jobs; the test cluster forgets them before agents look."""


def attack_words(
    siege: TenantSiege, centre: str, agent: int, *, outside: Path, folders: bool = True
) -> tuple[str, ...]:
    """Return the arguments of a task's attack at a centre; `agent` is the agent's process id.

    Without `folders` it tries only the agent's files: the local engine has empty folders in their place.
    """
    folder, own = siege.folder, siege.folder / centre
    private = [folder / "api.db", own / "token", *(path for path in (own / "state").rglob("*") if path.is_file())]
    if folders:
        private += [own, own / "state"]
    words = (folder / "precious" / "secret", folder / "api.sock", outside, agent, *private)
    return tuple(str(word) for word in words)


async def add_slurm(siege: TenantSiege, daemons: Daemons) -> None:
    """Add a Slurm cluster, and a centre whose tasks all run there as the same user."""
    folder = siege.folder
    cluster = await asyncio.to_thread(SlurmCluster, folder / "slurm")
    daemons.stack.callback(cluster.close)
    configured = cluster.configuration.read_text()
    cluster.configuration.write_text(configured.replace("MinJobAge=2\n", f"MinJobAge={_REMEMBERED_S}\n"))
    await asyncio.to_thread(cluster.run, "scontrol", "reconfigure")
    agent = await daemons.centre(
        "c2",
        {
            "slurm": {"configuration": str(cluster.configuration), "user": "nobody", "poll_s": _POLL_S},
            "jobs_folder": f"{folder}/jobs",
            "python": _PYTHON,
            "look_s": _POLL_S,
        },
    )
    # The open folder is no test here: it is open to the jobs' user, too.
    words = attack_words(siege, "c2", agent, outside=folder / "c2" / "state")
    siege.centres.append("c2")
    siege.attacks.append(
        SlurmAttack(
            siege,
            "c2",
            "batch",
            words,
            counted="slurm task",
            may=ON_SLURM,
            then=forging_in(folder / "jobs"),
        ).attack
    )


async def add_containers(siege: TenantSiege, daemons: Daemons) -> None:
    """Add a scheduler, the workload controller, a node with runc, and a centre whose tasks are pods there."""
    folder = siege.folder
    bundle = _write_bundle(folder / "bundle")
    await daemons.service("scheduler", Role.SERVICE, {"profiles": [{"name": _PROFILE}], "name": "s"})
    await daemons.service("placement", Role.PLACEMENT, {})
    runtime = {"kind": "runc", "bundle_folders": [str(bundle)], "mount_folders": ["/usr"]}
    await daemons.node("h4", {"runtime": runtime, "labels": _SITE, "report_s": _POLL_S})
    request = {"cpu_milli": 200, "memory_bytes": 128 << 20}
    containers: dict[str, Any] = {
        "bundle": str(bundle),
        "token_file": str(await daemons.token("c3-pods", Role.USER)),
        "node_labels": _SITE,
        "units": {"part": {"request": request}},
        "profile": _PROFILE,
        "poll_s": _POLL_S,
    }
    agent = await daemons.centre("c3", {"containers": containers, "python": _PYTHON, "look_s": _POLL_S})
    words = attack_words(siege, "c3", agent, outside=folder / "open")
    siege.nodes.append("h4")
    siege.centres.append("c3")
    spec = PodSpec(
        containers=(Container(name="job", bundle=str(bundle)),),
        request=Request(cpu_milli=50, memory_bytes=64 << 20),
        restart=Restart.NEVER,
        node_labels=_SITE,
        profile=_PROFILE,
    )
    siege.attacks.append(
        ContainersAttack(
            siege,
            "c3",
            "part",
            words,
            counted="container task",
            may=IN_CONTAINERS,
            node="h4",
            spec=spec,
        ).attack
    )

    async def has_pod() -> bool:
        return bool(await siege.admin.of(Pod).get("ada-group-0"))

    # The workload controller makes the pod of Ada's group, which is not to look like an effect later.
    await until_answered(has_pod)


def _write_bundle(bundle: Path) -> Path:
    """Write an OCI bundle that has the machine's /usr, read-only, and nothing else; return its folder."""
    root = bundle / "rootfs"
    for name in ("tmp", "proc", "dev", "sys", "etc", "usr"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    process = {"args": ["/bin/true"], "env": ["PATH=/usr/bin:/bin"], "cwd": "/"}
    mounts = [{"type": "bind", "source": "/usr", "destination": "/usr", "options": ["rbind", "ro"]}]
    config = {"ociVersion": "1.0.2", "process": process, "root": {"path": "rootfs"}, "mounts": mounts}
    (bundle / "config.json").write_text(json.dumps(config))
    return bundle
