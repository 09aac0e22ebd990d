"""Users' bundles: run as specified, and confined to their folder."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from controller.workloads.nodes.runtimes.base import ContainerOrder, ContainerState, Runtime
from controller.workloads.nodes.runtimes.bundle import read_bundle
from controller.workloads.nodes.runtimes.errors import ContainerError, OrderError
from controller.workloads.nodes.runtimes.security import HostFolders
from controller.workloads.nodes.runtimes.settings import RuntimeKind
from tests.controller.workloads.nodes.busybox_image import layer_of, skip_without_containers
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.controller.workloads.nodes.runtimes.real_containers import DEADLINE_S, logged, run_with, until_ended

pytestmark = [pytest.mark.root, pytest.mark.containers]

CONFIG: dict[str, Any] = {
    "ociVersion": "1.0.2",
    "process": {"args": ["/bin/sh", "-c", "pwd; echo $COLOUR; hostname"], "env": ["COLOUR=blue"], "cwd": "/work"},
    "root": {"path": "rootfs"},
    "hostname": "brought",
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
}


def write_bundle(folder: Path, **parts: object) -> Path:
    (folder / "rootfs").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | parts))
    return folder


def read(folder: Path, *allowed: Path) -> None:
    """Read and close a bundle."""
    with ExitStack() as stack:
        asyncio.run(read_bundle(folder, HostFolders(bundles=allowed), stack, DEADLINE_S))


def run_bundle(storage: PodmanStorage, bundle: Path, **more: object) -> tuple[ContainerState, bytes]:
    outcomes = []

    async def work(runtime: Runtime) -> None:
        order = ContainerOrder(name="c1", labels={"millrace.node": "n1"}, bundle=bundle, **more)  # type: ignore[arg-type]
        made = await runtime.create(order)
        try:
            await runtime.start_container(made)
            outcomes.append((await until_ended(runtime), await logged(runtime, made)))
        finally:
            await runtime.remove(made)

    run_with(RuntimeKind.RUNC, storage, work, bundle_folders=(bundle.parent,))
    return outcomes[0]


def unpack(folder: Path) -> None:
    """Write busybox and the names of its applets."""
    with tarfile.open(fileobj=io.BytesIO(layer_of({}))) as layer:
        # Python before 3.11.4 has no filters; since 3.14 it refuses links by default.
        layer.extraction_filter = lambda member, _: member
        layer.extractall(folder)


def test_a_bundle_is_run_and_not_written_to(podman_storage: PodmanStorage, tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundles" / "b1")
    unpack(bundle / "rootfs")
    before = sorted(bundle.rglob("*"))
    state, text = run_bundle(podman_storage, bundle)
    assert (state.exit_code, text) == (0, b"/work\nblue\nbrought\n")
    _, text = run_bundle(podman_storage, bundle, command=("/bin/sh", "-c", "touch /new; ls -d /new"))
    assert text == b"/new\n"
    assert sorted(bundle.rglob("*")) == before


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"hooks": {"prestart": [{"path": "/bin/true"}]}}, "hooks: not allowed"),
        ({"root": {"path": "/"}}, "not a folder inside the bundle"),
        ({"root": {"path": ".."}}, "not a folder inside the bundle"),
        ({"root": {"path": "way-out"}}, "not a folder inside the bundle"),
        ({"root": {"path": "."}}, "not a folder inside the bundle"),
        (
            {"mounts": [{"destination": "/h", "source": "/etc", "options": ["rbind"]}]},
            "none of the node's mount_folders",
        ),
        ({"mounts": [{"destination": "/h", "type": "bind", "source": "/etc"}]}, "none of the node's mount_folders"),
        (
            {"mounts": [{"destination": "/h", "type": "ext4", "source": "/dev/vda"}]},
            "mounts of type ext4 are not allowed",
        ),
        ({"process": {"args": "sh"}}, "malformed"),
        ({"process": {}}, "malformed"),
        ({"process": {"args": ["sh"], "user": {"uid": float("inf")}}}, "malformed"),
    ],
)
def test_paths_out_of_a_bundle_are_refused(tmp_path: Path, parts: dict[str, Any], problem: str) -> None:
    bundle = write_bundle(tmp_path / "b1", **parts)
    (bundle / "way-out").symlink_to("/etc")
    with pytest.raises(OrderError, match=problem) as refused:
        read(bundle, tmp_path)
    assert "\n" not in str(refused.value)


def test_a_bundle_of_too_many_brackets_is_refused(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "b1")
    (bundle / "config.json").write_text("[" * 100_000)
    with pytest.raises(OrderError, match=r"config\.json: cannot be read"):
        read(bundle, tmp_path)


def test_bundles_are_only_in_allowed_folders(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "other" / "b1")
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles" / "link").symlink_to(bundle)
    for path in (bundle, tmp_path / "bundles" / ".." / "other" / "b1", Path("/")):
        with pytest.raises(OrderError, match="none of the node's bundle_folders"):
            read(path, tmp_path / "bundles")
    with pytest.raises(OrderError, match="has a link in its path"):
        read(tmp_path / "bundles" / "link", tmp_path / "bundles")
    for name in ("nowhere", "no\0where"):
        with pytest.raises(OrderError, match="does not exist"):
            read(tmp_path / name, tmp_path)


def test_limits_and_rights_in_a_bundle_are_ignored(podman_storage: PodmanStorage, tmp_path: Path) -> None:
    skip_without_containers("runc", "conmon")
    process = {
        "args": ["/bin/sh", "-c", "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status; ls /sys/class/net"],
        "capabilities": {"effective": ["CAP_SYS_ADMIN"], "bounding": ["CAP_SYS_ADMIN"]},
        "noNewPrivileges": False,
    }
    bundle = write_bundle(tmp_path / "bundles" / "b1", process=process, linux={"namespaces": [], "resources": {}})
    unpack(bundle / "rootfs")
    _, text = run_bundle(podman_storage, bundle)
    assert text.decode().split() == ["CapEff:", "00000000800405fb", "NoNewPrivs:", "1", "Seccomp:", "2", "lo"]


def test_missing_program_is_reported_without_the_log_prefix(podman_storage: PodmanStorage, tmp_path: Path) -> None:
    skip_without_containers("runc", "conmon")
    bundle = write_bundle(tmp_path / "bundles" / "b1", process={"args": ["/bin/nothing"], "cwd": "/"})
    unpack(bundle / "rootfs")
    with pytest.raises(ContainerError, match=r"/bin/nothing.*no such file") as refused:
        run_bundle(podman_storage, bundle)
    assert "level=" not in str(refused.value)


def test_podman_runs_no_bundles(podman_storage: PodmanStorage, tmp_path: Path) -> None:
    async def work(runtime: Runtime) -> None:
        with pytest.raises(ContainerError, match="podman runs images; only the runc runtime runs bundles"):
            await runtime.create(ContainerOrder(name="c1", bundle=tmp_path))

    run_with(RuntimeKind.PODMAN, podman_storage, work)
