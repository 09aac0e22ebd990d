"""Kernels in images: driven by lines of JSON, and always ended."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels import container, loading
from controller.probing.values import Implementation, Library
from dataplane.topology.values import DeviceKind
from tests.controller.workloads.nodes.busybox_image import (
    podman_environment,
    remove_podman_storage,
    skip_without_containers,
    write_layout,
)
from tests.waiting import HANG_S

PROGRAM = r"""#!/bin/sh
read line
case "$line" in *'"n": 13'*) echo '{"problem": "n is unlucky"}'; exit 1;; esac
case "$line" in *'"n": 14'*) echo 'hello'; exit 0;; esac
case "$line" in *'"n": 15'*) echo 'no more' >&2; exit 3;; esac
case "$line" in *'"n": 16'*) sleep 1000;; esac
echo '{"ready": true}'
while read line; do
  case "$line" in
    *'"run"'*) echo "{\"output\": [$(echo "$line" | tr -cd '0-9.'), 2]}";;
    *) echo '{"accuracy": 0.25}';;
  esac
done
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    skip_without_containers("podman", "runc", "conmon")
    folder = tmp_path_factory.mktemp("layout")
    write_layout(folder, tag="kernel", command=("/bin/kernel",), files={"bin/kernel": PROGRAM.encode()})
    storage = folder / "podman"
    environment = podman_environment(storage)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield f"oci:{folder}:kernel"
    remove_podman_storage(storage, environment)


def ready(image: str, n: int) -> loading.Checked:
    code = Implementation(DeviceKind.CPU, Library.CONTAINER, image)
    return loading.prepare("boxed.1", code, {"n": n}, 7)


@pytest.mark.containers
def test_an_image_is_asked_and_ended(image: str) -> None:
    with closing(ready(image, 4)) as prepared:
        assert prepared.run((2.5,)).tolist() == [2.5, 2.0]
        assert prepared.accuracy(None) == 0.25
    listed = subprocess.run(["podman", "ps", "--format=json"], check=True, capture_output=True, timeout=HANG_S).stdout
    assert not [container for container in json.loads(listed) if container["Names"][0].startswith("millrace-kernel-")]


@pytest.mark.containers
def test_an_image_that_fails_is_one_line(image: str) -> None:
    for n, problem in (
        (13, "make: n is unlucky"),
        (14, "make: its answer is not a JSON object: b'hello'"),
        (15, "make: no more"),
    ):
        with pytest.raises(ProbeKernelError) as caught:
            ready(image, n)
        assert str(caught.value) == f"kernel boxed.1: image {image}: {problem}"


@pytest.mark.containers
def test_silent_image_is_ended(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_START_S", 1.0)
    monkeypatch.setattr(container, "_END_S", 0.1)
    with pytest.raises(ProbeKernelError, match="make: no answer in 1 s"):
        ready(image, 16)


def test_image_named_like_an_option_is_refused() -> None:
    with pytest.raises(ProbeKernelError, match="not an image name"):
        ready("--privileged", 1)


def test_without_podman_an_image_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProbeKernelError, match="image busybox: needs podman, which is not installed"):
        ready("busybox", 1)
