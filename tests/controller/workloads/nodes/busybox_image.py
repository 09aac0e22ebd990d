"""A busybox image as an OCI layout, and a separate podman storage for a test."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.waiting import HANG_S, wait_until

BUSYBOX = Path("/bin/busybox")
_PROGRAMS = {
    "podman": "podman",
    "runc": "runc",
    "conmon": "conmon",
    "skopeo": "skopeo",
    "umoci": "umoci",
}
_APPLETS = (
    *(
        "sh",
        "cat",
        "sleep",
        "echo",
        "ls",
        "id",
        "nc",
        "ping",
        "dd",
        "tail",
        "head",
        "stty",
        "ip",
        "mount",
        "wget",
        "httpd",
    ),
    *(
        "true",
        "false",
        "yes",
        "seq",
        "env",
        "pwd",
        "hostname",
        "touch",
        "rm",
        "mkdir",
        "grep",
        "kill",
        "ps",
        "tr",
        "nproc",
    ),
    *("mknod", "chown", "date", "test", "wc", "stat", "printf", "cut", "awk"),
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def skip_without_containers(*programs: str) -> None:
    """Skip the test unless it runs as root with these programs and busybox; name packages to install."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    missing = [package for program, package in _PROGRAMS.items() if program in programs and not shutil.which(program)]
    if not BUSYBOX.exists() or _is_dynamic(BUSYBOX):
        missing.append("busybox-static")
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: apt install --no-install-recommends {' '.join(missing)}")


def write_layout(
    folder: Path,
    *,
    tag: str = "latest",
    command: Sequence[str] = ("/bin/sh",),
    environment: Mapping[str, str] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> str:
    """Write an OCI layout with one image: busybox under its applets' names, and `files`; return the image's digest."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def put(content: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    layer = put(layer_of(files or {}), "layer.v1.tar")
    variables = {"PATH": "/bin", **(environment or {})}
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": [f"{name}={value}" for name, value in variables.items()], "Cmd": list(command)},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put(json.dumps(config).encode(), "config.v1+json"),
        "layers": [layer],
    }
    described = put(json.dumps(manifest).encode(), "manifest.v1+json")
    named = described | {"annotations": {"org.opencontainers.image.ref.name": tag}}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [named]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return str(described["digest"])


def layer_of(files: Mapping[str, bytes]) -> bytes:
    """Return a layer (tar): /bin/busybox under its applets' names, empty folders to mount on, and `files`."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name in ("bin", "dev", "etc", "proc", "sys", "tmp", "work"):
            header = tarfile.TarInfo(name)
            header.type, header.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(header)
        for name, content in {"bin/busybox": BUSYBOX.read_bytes(), **files}.items():
            header = tarfile.TarInfo(name)
            header.size, header.mode = len(content), 0o755
            tar.addfile(header, io.BytesIO(content))
        for applet in _APPLETS:
            header = tarfile.TarInfo(f"bin/{applet}")
            header.type, header.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(header)
    return written.getvalue()


def podman_environment(folder: Path) -> dict[str, str]:
    """Write podman settings that keep everything in `folder`; return the environment for them."""
    folder.mkdir(parents=True, exist_ok=True)
    # Podman puts sockets below these two. If their paths are too long for the kernel, as in the folders of
    # pytest-xdist, podman works, but each command attached to a container waits five seconds at its end.
    short = _short_folder(folder)
    short.mkdir(mode=0o700, exist_ok=True)
    containers, storage = folder / "containers.conf", folder / "storage.conf"
    containers.write_text(
        '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\nnetns = "none"\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\nlock_type = "file"\n'
        f'tmp_dir = "{short}/tmp"\n'
    )
    storage.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{short}/run"\n')
    return {"CONTAINERS_CONF": str(containers), "CONTAINERS_STORAGE_CONF": str(storage)}


def remove_podman_storage(folder: Path, environment: Mapping[str, str]) -> None:
    """Remove all containers of a storage, and podman's mounts on it."""
    subprocess.run(
        ["podman", "rm", "--all", "--force", "--time", "0"],
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        timeout=HANG_S,
    )
    for path in (_short_folder(folder), folder):
        _end_processes(path)
        for point in _mounts_below(path):
            subprocess.run(["umount", "--lazy", point], check=False, capture_output=True, timeout=10)
        shutil.rmtree(path, ignore_errors=True)


def _short_folder(folder: Path) -> Path:
    return Path("/tmp", f"podman-{hashlib.sha256(bytes(folder)).hexdigest()[:12]}")


def _end_processes(folder: Path) -> None:
    """Kill this storage's remaining podman helpers of ended containers and commands.

    conmon stays for five minutes after a command; the podman that it starts for an ended container mounts the
    storage again.
    """

    def are_gone() -> bool:
        numbers = [number for number in _processes() if _is_of(number, folder)]
        for number in numbers:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        return not numbers

    wait_until(are_gone, "podman's processes do not end")


def _processes() -> Iterator[int]:
    return (int(process.name) for process in Path("/proc").glob("[0-9]*"))


def _is_of(process: int, folder: Path) -> bool:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return Path(os.fsdecode(words[0])).name in ("conmon", "podman") and any(
        bytes(folder) + b"/" in word for word in words
    )


def _mounts_below(folder: Path) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in reversed(points) if point.startswith(f"{folder}/")]


def _is_dynamic(program: Path) -> bool:
    """Return whether a program names an interpreter (ld.so): it needs libraries, which the image lacks."""
    return b"/ld-linux" in program.read_bytes()[:4096]
