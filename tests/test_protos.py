"""The committed Python of each .proto is what protoc generates from it: after a change, run `make protos`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import HANG_S

ROOT = Path(__file__).parents[1]
PACKAGES = ("dataplane", "collectors", "controller")
MADE = ("_pb2.py", "_pb2.pyi")


def made_in(folder: Path) -> dict[str, str]:
    """Return what protoc has written below a folder, by path."""
    paths = (path for package in PACKAGES for path in (folder / package).rglob("*_pb2.py*"))
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in paths if path.suffix != ".pyc"}


def test_what_is_committed_is_what_protoc_makes(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed")
    environ = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([ROOT / ".ci" / "protos", str(tmp_path)], check=True, env=environ, timeout=HANG_S)
    assert made_in(tmp_path) == made_in(ROOT)


def test_each_proto_has_its_python_and_a_package_with_a_version() -> None:
    protos = [path for package in PACKAGES for path in (ROOT / package).rglob("*.proto")]
    made = {str(path.relative_to(ROOT).with_suffix("")) + end for path in protos for end in MADE}
    assert made == made_in(ROOT).keys()
    for proto in protos:
        lines = proto.read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if re.fullmatch(r"package millrace\.[a-z.]+\.v\d+;", line)], proto
