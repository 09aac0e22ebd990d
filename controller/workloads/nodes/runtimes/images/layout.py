"""Images in OCI layouts: selection, content, and export as an archive.

Source: OCI image specification 1.0, image-layout.md, image-index.md, manifest.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from controller.common.image_names import Reference
from controller.workloads.nodes.runtimes.errors import ImageError

_PIECE_BYTES: Final = 1 << 20
_MOST_BYTES: Final = 4 << 20
"""Largest size of an index, a manifest or a configuration."""
_TAG: Final = "org.opencontainers.image.ref.name"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}
_BLOCK: Final = tarfile.BLOCKSIZE
_LONGEST_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class LayoutImage:
    """An image of a layout: the digest of its manifest, and digests and sizes of all its blobs, manifest first."""

    digest: str
    nbytes: int
    descriptor: dict[str, Any]
    blobs: tuple[str, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        """Digests of the layers to unpack: all blobs but the manifest and the configuration."""
        return self.blobs[2:]


class Layout:
    """A folder that is an OCI layout; errors call it `name`, as it may be a copy."""

    def __init__(self, folder: Path, name: str, index: dict[str, Any]) -> None:
        self.folder, self._name, self._index = folder, name, index

    @classmethod
    def read(cls, folder: Path, name: str) -> Layout:
        """Return the layout; raise ImageError if the folder is not one."""
        try:
            index = json.loads(_content(folder / "index.json"))
        except FileNotFoundError as error:
            raise ImageError(f"image oci:{name}: does not exist (there is no {name}/index.json)") from error
        except (OSError, ValueError, RecursionError) as error:
            raise ImageError(f"image oci:{name}: index.json cannot be read: {error}") from error
        if not isinstance(index, dict) or not isinstance(index.get("manifests"), list):
            raise ImageError(f"image oci:{name}: index.json lists no manifests")
        return cls(folder, name, index)

    def select(self, reference: Reference) -> LayoutImage:
        """Return the image with the tag or the digest, or else the only one; raise ImageError if there is none."""
        try:
            return self._select(reference)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise ImageError(f"image {reference.text}: its layout is malformed: {error!r}") from error

    def _select(self, reference: Reference) -> LayoutImage:
        wanted = [
            each
            for each in self._index["manifests"]
            if (reference.tag is None or (each.get("annotations") or {}).get(_TAG) == reference.tag)
            and (reference.digest is None or reference.tag is not None or each["digest"] == reference.digest)
        ]
        if len({each["digest"] for each in wanted}) != 1:
            what = "has none of that tag or digest" if not wanted else "has several: name a tag or a digest"
            raise ImageError(f"image {reference.text}: the layout {what}")
        descriptor = self._for_this_machine(wanted[0], reference.text)
        if reference.digest not in (None, descriptor["digest"], wanted[0]["digest"]):
            raise ImageError(f"image {reference.text}: has digest {descriptor['digest']}")
        manifest = self._json(descriptor["digest"], reference.text)
        parts = [manifest["config"], *manifest["layers"]]
        return LayoutImage(
            digest=descriptor["digest"],
            nbytes=sum(int(part["size"]) for part in parts),
            descriptor=descriptor,
            blobs=(descriptor["digest"], *dict.fromkeys(_digest_of(part) for part in parts)),
        )

    async def archive(self, image: LayoutImage, name: str) -> AsyncIterator[bytes]:
        """Yield an OCI archive (tar) of only this image, under a name."""
        pieces = self._archive(image, name)
        while (piece := await asyncio.to_thread(next, pieces, b"")) != b"":
            yield piece

    def link(self, image: LayoutImage, folder: Path, name: str) -> None:
        """Create a layout of only this image, under a name, from links to the blobs of this one."""
        blobs = folder / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        for digest in image.blobs:
            (blobs / self.blob(digest).name).symlink_to(self.blob(digest).resolve())
        for member, content in _index_files(image, name).items():
            (folder / member).write_text(json.dumps(content))

    def blob(self, digest: str) -> Path:
        """Return the path of a blob; raise ImageError if it is missing."""
        if not self.has(digest):
            raise ImageError(f"image oci:{self._name}: has no blob {digest[:80]}")
        return self.folder / "blobs" / "sha256" / digest.partition(":")[2]

    def has(self, digest: str) -> bool:
        """Return whether a blob exists."""
        algorithm, _, number = digest.partition(":")
        is_name = algorithm == "sha256" and number.isalnum() and len(number) < _LONGEST_NAME
        return is_name and (self.folder / "blobs" / "sha256" / number).is_file()

    def _for_this_machine(self, descriptor: dict[str, Any], text: str) -> dict[str, Any]:
        """Return the manifest for this machine from an index of several machines' manifests."""
        if descriptor.get("mediaType") != _INDEX:
            return descriptor
        architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
        for each in self._json(descriptor["digest"], text)["manifests"]:
            machine = each.get("platform") or {}
            if machine.get("os") == "linux" and machine.get("architecture") == architecture:
                match: dict[str, Any] = each
                return match
        raise ImageError(f"image {text}: has no variant for linux on {architecture}")

    def _json(self, digest: str, text: str) -> dict[str, Any]:
        content = _content(self.blob(digest))
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise ImageError(f"image {text}: blob {digest} has another digest")
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ImageError(f"image {text}: blob {digest} is not JSON") from error
        if not isinstance(value, dict):
            raise ImageError(f"image {text}: blob {digest} is not a JSON object")
        return value

    def _archive(self, image: LayoutImage, name: str) -> Iterator[bytes]:
        for member, content in _index_files(image, name).items():
            data = json.dumps(content).encode()
            yield from _member(member, len(data), io.BytesIO(data))
        for digest in image.blobs:
            path = self.blob(digest)
            with path.open("rb") as blob:
                yield from _member(f"blobs/sha256/{path.name}", path.stat().st_size, blob)
        yield bytes(2 * _BLOCK)


def _digest_of(part: dict[str, Any]) -> str:
    digest = part["digest"]
    if not isinstance(digest, str):
        raise TypeError(f"{digest!r:.80} is not a digest")
    return digest


def _content(path: Path) -> bytes:
    """Return a file's content; raise ValueError if it is too large, or not a regular file, such as a pipe."""
    # Opening a pipe without a writer would block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is not a regular file")
        with open(descriptor, "rb", closefd=False) as opened:
            content = opened.read(_MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES} bytes")
    return content


def _index_files(image: LayoutImage, name: str) -> dict[str, dict[str, Any]]:
    """Return the two files of a layout with one image."""
    described = image.descriptor | {"annotations": {_TAG: name}}
    return {
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
        "index.json": {"schemaVersion": 2, "manifests": [described]},
    }


def _member(name: str, nbytes: int, content: io.BufferedIOBase) -> Iterator[bytes]:
    header = tarfile.TarInfo(name)
    header.size = nbytes
    yield header.tobuf()
    while piece := content.read(_PIECE_BYTES):
        yield piece
    if nbytes % _BLOCK:
        yield bytes(_BLOCK - nbytes % _BLOCK)
