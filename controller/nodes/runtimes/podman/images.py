"""Images in podman's storage: found by digest or name, loaded from files, pulled from registries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from controller.nodes.runtimes.base import Image
from controller.nodes.runtimes.errors import ContainerError, ImageError, RuntimeTimeoutError
from controller.nodes.runtimes.images.layout import Layout
from controller.nodes.runtimes.images.reference import Reference, Transport, parse_reference
from controller.nodes.runtimes.processes import one_line

_PIECE_BYTES: Final = 1 << 20
_NAME_DIGITS: Final = 16
Call = Callable[..., Coroutine[Any, Any, Any]]


class PodmanImages:
    """Images, by calls of podman's service."""

    def __init__(self, call: Call, deadline_s: float) -> None:
        self._call, self._deadline_s = call, deadline_s

    async def pull(self, name: str) -> Image:
        """Return an image, brought if it is not there; a digest that is named is checked."""
        reference = parse_reference(name)
        match reference.transport:
            case Transport.DIGEST:
                found = await self._find(reference)
                if found is None:
                    raise ImageError(f"image {name}: is not there, and a digest alone says of no registry")
                return found
            case Transport.REGISTRY:
                found = await self._find(reference)
                return found if found is not None else await self._from_registry(reference)
            case Transport.OCI:
                return await self._from_layout(reference)
            case Transport.OCI_ARCHIVE | Transport.DOCKER_ARCHIVE:
                return await self._load(reference, _pieces(reference))

    async def id_of(self, name: str) -> str:
        """Return podman's id of an image that is there."""
        reference = parse_reference(name)
        image = await self.pull(name) if reference.is_file else await self._find(reference)
        for image_id, each in (await self.by_id()).items() if image is not None else ():
            if each == image:
                return image_id
        raise ImageError(f"image {name}: is not there")

    async def list(self) -> tuple[Image, ...]:
        """Return all images."""
        return tuple((await self.by_id()).values())

    async def by_id(self) -> dict[str, Image]:
        """Return all images by podman's id."""
        entries = json.loads(await self._call("GET", "images/json", "images")) or []
        return {
            entry["Id"]: Image(entry["Digest"], tuple(entry.get("Names") or ()), entry["Size"]) for entry in entries
        }

    async def by_digest(self, digest: str) -> Image | None:
        """Return the image whose manifest has a digest."""
        return next((image for image in (await self.by_id()).values() if image.digest == digest), None)

    async def _find(self, reference: Reference) -> Image | None:
        if reference.digest is not None:
            return await self.by_digest(reference.digest)
        names = {reference.text, f"localhost/{reference.text}", f"docker.io/library/{reference.text}"}
        return next((image for image in (await self.by_id()).values() if names & set(image.names)), None)

    async def _from_layout(self, reference: Reference) -> Image:
        layout = await asyncio.to_thread(Layout.read, Path(reference.name))
        image = await asyncio.to_thread(layout.select, reference)
        if (found := await self.by_digest(image.digest)) is not None:
            return found
        # A name of its own: of two images of one name podman would take it from the first.
        name = f"localhost/millrace:{image.digest.removeprefix('sha256:')[:_NAME_DIGITS]}"
        return await self._load(replace(reference, digest=image.digest), layout.archive(image, name))

    async def _load(self, reference: Reference, content: AsyncIterator[bytes]) -> Image:
        doing = f"load {reference.text}"
        try:
            answer = await self._call("POST", "images/load", doing, content=content, deadline_s=self._deadline_s)
        except RuntimeTimeoutError:
            raise
        except ContainerError as error:
            raise ImageError(f"image {reference.text}: {error}") from error
        names = set(json.loads(answer).get("Names") or ())
        loaded = [image for image in (await self.by_id()).values() if names & set(image.names)]
        if len(loaded) != 1:
            raise ImageError(f"image {reference.text}: podman loads {len(loaded)} images of it, it is to be one")
        if reference.digest not in (None, loaded[0].digest):
            raise ImageError(f"image {reference.text}: has digest {loaded[0].digest}")
        return loaded[0]

    async def _from_registry(self, reference: Reference) -> Image:
        doing, query = f"pull {reference.text}", {"reference": reference.text, "quiet": "true"}
        try:
            answer = await self._call("POST", "images/pull", doing, query=query, deadline_s=self._deadline_s)
        except RuntimeTimeoutError:
            raise
        except ContainerError as error:
            raise ImageError(f"image {reference.text}: {error}") from error
        lines = [json.loads(line) for line in answer.splitlines() if line.strip()]
        if errors := [line["error"] for line in lines if "error" in line]:
            raise ImageError(f"image {reference.text}: does not come: {one_line(errors[-1])}")
        ids = {image_id for line in lines for image_id in line.get("images") or ()}
        for image_id, image in (await self.by_id()).items():
            if image_id in ids:
                return image
        raise ImageError(f"image {reference.text}: podman has pulled it and does not have it")


async def _pieces(reference: Reference) -> AsyncIterator[bytes]:
    """Yield a file's bytes."""
    try:
        with await asyncio.to_thread(Path(reference.name).open, "rb") as opened:
            while piece := await asyncio.to_thread(opened.read, _PIECE_BYTES):
                yield piece
    except OSError as error:
        raise ImageError(f"image {reference.text}: {(error.strerror or str(error)).lower()}") from error
