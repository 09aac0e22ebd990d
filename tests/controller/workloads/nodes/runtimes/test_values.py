"""Image names, system call filters and devices, without containers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from controller.common.image_names import Reference, Transport
from controller.workloads.nodes.runtimes.base import Image
from controller.workloads.nodes.runtimes.devices import DeviceUse, device_environment, device_files, is_cdi
from controller.workloads.nodes.runtimes.errors import ContainerError, ImageError
from controller.workloads.nodes.runtimes.images.limits import ImageLimits
from controller.workloads.nodes.runtimes.images.reference import parse_reference
from controller.workloads.nodes.runtimes.images.staging import ImageFiles
from controller.workloads.nodes.runtimes.podman.images import PodmanImages
from controller.workloads.nodes.runtimes.processes import one_line
from controller.workloads.nodes.runtimes.runc import RuncRuntime
from controller.workloads.nodes.runtimes.seccomp import profile_of, read_profile
from dataplane.topology.values import DeviceKind

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("busybox", (Transport.REGISTRY, "busybox", None, None)),
        ("docker://quay.io/a/b:1.2", (Transport.REGISTRY, "quay.io/a/b:1.2", None, None)),
        ("[::1]:5000/a__b/c--d:x", (Transport.REGISTRY, "[::1]:5000/a__b/c--d:x", None, None)),
        ("Registry.example.org/a.b", (Transport.REGISTRY, "Registry.example.org/a.b", None, None)),
        (f"localhost:5000/a@{DIGEST}", (Transport.REGISTRY, "localhost:5000/a", None, DIGEST)),
        (DIGEST, (Transport.DIGEST, "", None, DIGEST)),
        ("oci:/a/b", (Transport.OCI, "/a/b", None, None)),
        (f"oci:/a/b:latest@{DIGEST}", (Transport.OCI, "/a/b", "latest", DIGEST)),
        ("oci-archive:/a:b/c.tar", (Transport.OCI_ARCHIVE, "/a:b/c.tar", None, None)),
        ("docker-archive:/c.tar:x", (Transport.DOCKER_ARCHIVE, "/c.tar", "x", None)),
    ],
)
def test_names_of_images(text: str, parts: tuple[Transport, str, str | None, str | None]) -> None:
    reference = parse_reference(text)
    assert reference == Reference(reference.text, *parts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "UPPER",
        "a b",
        "a\nb",
        "-x",
        "oci:relative",
        "oci:/a:b c",
        "a@sha256:12",
        "../a",
        "a" * 2000,
        "--tls",
        "sha256:12",
        "a//b",
        "a..b/c",
        "x___y",
        "x.-y",
        "-h.org/x",
        "a/-b",
        "a-" * 500 + "!",
    ],
)
def test_invalid_image_names(text: str) -> None:
    with pytest.raises(ImageError):
        parse_reference(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('time="2026-11-23T05:22:19Z" level=error msg="container does not exist"\n', "container does not exist"),
        (
            'time="2026-11-23T05:22:19Z" level=fatal msg="name \\"a:b\\": no\\nsuch file" x=1',
            'name "a:b": no such file',
        ),
        ("time=2026 level=warning msg=short\n  and more \n", "short; and more"),
        ('time=2026 level=error msg="\\x00"', "\\x00"),
        ("runc: no level=error msg=here", "runc: no level=error msg=here"),
    ],
)
def test_of_a_programs_log_the_messages_are_passed_on(text: str, line: str) -> None:
    assert one_line(text) == line


def test_a_filter_has_the_rules_that_hold_here() -> None:
    profile = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 38,
        "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}],
        "syscalls": [
            {"names": ["read"], "action": "SCMP_ACT_ALLOW", "args": [], "includes": {}, "excludes": {}},
            {"names": ["arch_prctl"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["amd64"]}},
            {"names": ["s390"], "action": "SCMP_ACT_ALLOW", "includes": {"arches": ["s390"]}},
            {"names": ["mount"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_SYS_ADMIN"]}},
            {"names": ["mount"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "excludes": {"caps": ["CAP_SYS_ADMIN"]}},
            {"names": ["chroot"], "action": "SCMP_ACT_ERRNO", "excludes": {"caps": ["CAP_SYS_CHROOT"]}},
        ],
    }
    assert profile_of(profile, "x86_64") == {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 38,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
        "syscalls": [
            {"names": ["read"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["arch_prctl"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["mount"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
        ],
    }


def test_devices_are_files_with_numbers() -> None:
    null, *rest = device_files(("/dev/null", "vendor.com/gpu=0"))
    assert (null.path, null.major, null.minor, rest) == ("/dev/null", 1, 3, [])
    assert is_cdi("vendor.com/gpu=0")
    assert not is_cdi("/dev/a=b")


def test_variables_narrow_a_program_to_its_devices() -> None:
    two = device_environment([DeviceUse(DeviceKind.GPU, 1), DeviceUse(DeviceKind.GPU, 3), DeviceUse(DeviceKind.NPU, 0)])
    assert two["NVIDIA_VISIBLE_DEVICES"] == two["CUDA_VISIBLE_DEVICES"] == two["ROCR_VISIBLE_DEVICES"] == "1,3"
    assert (two["ASCEND_VISIBLE_DEVICES"], two["TPU_VISIBLE_CHIPS"]) == ("0", "")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in two
    assert device_environment([DeviceUse(DeviceKind.GPU, 0, 125)])["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "12.5"
    assert device_environment([])["NVIDIA_VISIBLE_DEVICES"] == "void"
    part = device_environment([DeviceUse(DeviceKind.GPU, 1, handle="MIG-3"), DeviceUse(DeviceKind.NPU, 0)])
    assert (part["CUDA_VISIBLE_DEVICES"], part["NVIDIA_VISIBLE_DEVICES"], part["ROCR_VISIBLE_DEVICES"]) == (
        "MIG-3",
        "MIG-3",
        "1",
    )


def test_runc_does_not_start_without_a_filter_of_system_calls(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match=r"^/nowhere: does not exist [^\n]*`seccomp: none`[^\n]*$"):
        asyncio.run(RuncRuntime(tmp_path, seccomp=Path("/nowhere")).start())


def test_invalid_profile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "seccomp.json").write_text('{"syscalls": []}')
    with pytest.raises(ContainerError, match="is not a seccomp profile"):
        read_profile(tmp_path / "seccomp.json")


def test_image_still_being_stored_does_not_count() -> None:
    stored = {"Id": "1", "Digest": "sha256:1", "Names": ["localhost/a:latest"], "Size": 5, "RepoDigests": []}

    async def answer(*_: object) -> bytes:
        return json.dumps([stored, {"Id": "2", "Names": None, "Size": 0}]).encode()

    images = asyncio.run(PodmanImages(answer, ImageFiles((), ImageLimits(), 1.0), Path("nowhere"), 1.0).list())
    assert images == (Image("sha256:1", ("localhost/a:latest",), 5),)
