"""Invalid and malicious layouts: one line each, and no hanging."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes.errors import ImageError
from controller.workloads.nodes.runtimes.images.layout import Layout
from controller.workloads.nodes.runtimes.images.reference import parse_reference


def select(folder: Path) -> None:
    reference = parse_reference(f"oci:{folder}")
    Layout.read(Path(reference.name), reference.name).select(reference)


def write(folder: Path, manifest: bytes) -> None:
    digest = hashlib.sha256(manifest).hexdigest()
    (folder / "blobs" / "sha256").mkdir(parents=True)
    (folder / "blobs" / "sha256" / digest).write_bytes(manifest)
    (folder / "index.json").write_text(json.dumps({"manifests": [{"digest": f"sha256:{digest}"}]}))


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (b'{"config": {"digest": "sha256:0", "size": "large"}, "layers": []}', "its layout is malformed"),
        (b'{"config": {"digest": "sha256:0", "size": Infinity}, "layers": []}', "its layout is malformed"),
        (b'{"config": {"digest": "sha256:0", "size": 1}, "layers": [{"digest": 5, "size": 1}]}', "is malformed"),
        (b"[" * 100_000, "is not JSON"),
        (b" " * ((4 << 20) + 1), "more than 4194304 bytes"),
        (b"[]", "is not a JSON object"),
    ],
)
def test_invalid_manifests(tmp_path: Path, manifest: bytes, problem: str) -> None:
    write(tmp_path, manifest)
    with pytest.raises(ImageError, match=rf"^image oci:[^\n]*{problem}[^\n]*$"):
        select(tmp_path)


def test_invalid_indices(tmp_path: Path) -> None:
    index = tmp_path / "index.json"
    for content in ("[" * 100_000, " " * ((4 << 20) + 1), "{"):
        index.write_text(content)
        with pytest.raises(ImageError, match=r"^image oci:[^\n]*index.json cannot be read[^\n]*$"):
            select(tmp_path)
    index.unlink()
    os.mkfifo(index)
    with pytest.raises(ImageError, match=r"index\.json cannot be read: it is not a regular file"):
        select(tmp_path)
