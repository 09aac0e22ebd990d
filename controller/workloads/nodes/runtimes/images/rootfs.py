"""Images unpacked into folders, for runtimes that run folders: by skopeo and umoci, each image once, by digest.

An image's folder has `rootfs`, the config.json that umoci made of the image's configuration, and `image.json`. It is
built under another name and renamed, so that an existing one is always whole.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec

from controller.common.image_names import Reference, Transport
from controller.workloads.nodes.runtimes.base import Image
from controller.workloads.nodes.runtimes.bundle import Process, process_of
from controller.workloads.nodes.runtimes.errors import ContainerError, ImageError, RuntimeAwayError, RuntimeTimeoutError
from controller.workloads.nodes.runtimes.images.layout import Layout, LayoutImage
from controller.workloads.nodes.runtimes.images.limits import ImageLimits, held_to, taken_by
from controller.workloads.nodes.runtimes.images.reference import parse_reference
from controller.workloads.nodes.runtimes.images.staging import UNFINISHED, ImageFiles, remove_unfinished, work_folder
from controller.workloads.nodes.runtimes.processes import run_program

_MADE: Final = "image.json"
_DECODER: Final = msgspec.json.Decoder(Image)
_TAG: Final = "image"
_REGISTRIES: Final = "CONTAINERS_REGISTRIES_CONF"
"""Variable for the registries file that podman reads; passed on to skopeo."""
_FILE_WITH_COPY: Final = 2
"""An archive needs room for its own bytes and for the layout made from it."""


@dataclass(frozen=True, slots=True)
class UnpackedImage:
    """An image, its root folder (never written to), and its process."""

    image: Image
    root: Path
    process: Process


class UnpackedImages:
    """The images in a folder, made from `files` and registries' images."""

    def __init__(self, folder: Path, environment: Mapping[str, str], files: ImageFiles, deadline_s: float) -> None:
        self._folder, self._environment, self._files, self._deadline_s = folder, environment, files, deadline_s
        self._pulling = asyncio.Lock()

    def clean(self) -> None:
        """Remove half-made images of a process that died."""
        remove_unfinished(self._folder)

    def list(self) -> tuple[Image, ...]:
        """Return all images."""
        return tuple(_DECODER.decode(made.read_bytes()) for made in self._folder.glob(f"*/{_MADE}"))

    def find(self, reference: Reference) -> UnpackedImage | None:
        """Return an existing image, by its digest or the name that it was pulled by."""
        for image in self.list():
            if image.digest == reference.digest or reference.text in image.names:
                folder = self._folder / _folder_name(image.digest)
                process = process_of(json.loads((folder / "config.json").read_bytes())["process"])
                return UnpackedImage(image, folder / "rootfs", process)
        return None

    async def pull(self, name: str) -> Image:
        """Return an image, fetched and unpacked if missing; a digest in the name is checked."""
        reference = parse_reference(name)
        async with self._pulling:
            is_fixed = reference.digest is not None or reference.transport is Transport.REGISTRY
            if is_fixed and (existing := self.find(reference)) is not None:
                return existing.image
            if reference.transport is Transport.DIGEST:
                raise ImageError(f"image {name}: does not exist here, and a digest alone names no registry")
            try:
                async with work_folder(self._folder) as work:
                    return await self._bring(reference, work)
            except RuntimeTimeoutError:
                raise
            except RuntimeAwayError as error:
                raise ImageError(f"image {name}: {error} (Debian packages skopeo and umoci)") from error
            except ImageError:
                raise
            except ContainerError as error:
                raise ImageError(f"image {name}: cannot be fetched: {error}") from error
            except OSError as error:
                raise ImageError(f"image {name}: {(error.strerror or str(error)).lower()}") from error

    async def remove(self, digest: str) -> None:
        """Remove an image; a missing one is fine."""
        async with self._pulling:
            doomed = self._folder / f"{UNFINISHED}{uuid4().hex}"
            with suppress(FileNotFoundError):
                (self._folder / _folder_name(digest)).rename(doomed)
                await asyncio.to_thread(shutil.rmtree, doomed, ignore_errors=True)

    async def _bring(self, reference: Reference, work: Path) -> Image:
        layout, image = await self._layout(reference, work)
        folder = self._folder / _folder_name(image.digest)
        names: tuple[str, ...] = (reference.text,)
        if (existing := self.find(replace(reference, digest=image.digest))) is not None:
            names = tuple(dict.fromkeys((*existing.image.names, *names)))
        else:
            if reference.transport is Transport.OCI:
                await self._files.complete(reference, layout, image)
            else:
                await self._files.measure(reference, (layout.blob(digest) for digest in image.layers))
            await self._unpack(reference, layout, image, work)
        made = Image(image.digest, names, image.nbytes)
        if existing is not None:
            return await asyncio.to_thread(_write, folder, made)
        await asyncio.to_thread(_write, work / "bundle", made)
        (work / "bundle").rename(folder)
        return made

    async def _layout(self, reference: Reference, work: Path) -> tuple[Layout, LayoutImage]:
        """Return a layout that contains the image."""
        if reference.transport is Transport.OCI:
            (work / "copy").mkdir()
            return await self._files.layout(reference, work / "copy")
        if reference.transport is Transport.REGISTRY:
            source = f"docker://{reference.name}" if reference.digest is None else f"docker://{_pinned(reference)}"
        else:
            copy = await self._files.archive(reference, work)
            source = f"{reference.transport}:{copy}" + (f":{reference.tag}" if reference.tag else "")
        how = () if await self._is_of_docker(source, reference) else ("--preserve-digests",)
        copied = await self._copy(source, work / "layout", reference, *how)
        if reference.is_file and reference.digest not in (None, copied[1].digest):
            raise ImageError(f"image {reference.text}: has digest {copied[1].digest}")
        return copied

    async def _is_of_docker(self, source: str, reference: Reference) -> bool:
        """Return whether a manifest is in Docker's format: umoci takes only OCI's, in which it has another digest."""
        if reference.transport is Transport.REGISTRY:
            raw = await self._run(
                "skopeo", *self._options(), "inspect", "--raw", source, doing=f"look at {reference.text}"
            )
            return b"application/vnd.docker.distribution" in raw
        return reference.transport is Transport.DOCKER_ARCHIVE

    async def _copy(self, source: str, target: Path, reference: Reference, *how: str) -> tuple[Layout, LayoutImage]:
        """Copy an image into a new layout."""
        words = ("copy", "--quiet", "--format", "oci", *how, source, f"oci:{target}:{_TAG}")
        copying = self._run("skopeo", *self._options(), *words, doing=f"copy {reference.text}")
        await self._held(reference, target.parent, copying)
        layout = await asyncio.to_thread(Layout.read, target, reference.name)
        return layout, await asyncio.to_thread(layout.select, replace(reference, tag=None, digest=None))

    def _options(self) -> tuple[str, ...]:
        registries = {**os.environ, **self._environment}.get(_REGISTRIES)
        return () if registries is None else ("--registries-conf", registries)

    async def _run(self, *command: str, doing: str) -> bytes:
        return await run_program(command, doing, deadline_s=self._deadline_s, environment=self._environment)

    async def _held(self, reference: Reference, work: Path, doing: Coroutine[Any, Any, bytes]) -> None:
        """Run a program while its output in a folder stays within the limits."""
        limits = self._files.limits
        most = ImageLimits(limits.most_bytes * _FILE_WITH_COPY, limits.most_files)
        await held_to(lambda: most, lambda: taken_by(work), reference.text, doing)

    async def _unpack(self, reference: Reference, layout: Layout, image: LayoutImage, work: Path) -> None:
        """Unpack an image's layers, digests checked, into a bundle."""
        named = work / "named"
        await asyncio.to_thread(layout.link, image, named, _TAG)
        words = ("umoci", "unpack", "--image", f"{named}:{_TAG}", str(work / "bundle"))
        await self._held(reference, work, self._run(*words, doing=f"unpack {image.digest}"))


def _write(folder: Path, image: Image) -> Image:
    new = folder / f"{_MADE}.new"
    new.write_bytes(msgspec.json.encode(image))
    new.rename(folder / _MADE)
    return image


def _folder_name(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _pinned(reference: Reference) -> str:
    """Return a registry's name with its digest and without its tag: skopeo takes only one of them."""
    name, colon, tag = reference.name.rpartition(":")
    return f"{name if colon and '/' not in tag else reference.name}@{reference.digest}"
