"""Images in podman's storage: found by digest or name, loaded from files, pulled from registries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image in podman's storage; `pinned` are NAME@DIGEST: several manifests may name the same content."""

    image: Image
    pinned: tuple[str, ...] = ()

    def matches(self, reference: Reference) -> Image | None:
        """Return the image, with the digest that is asked for, if it is the one that is meant."""
        if reference.digest is not None:
            digests = {self.image.digest, *(each.rpartition("@")[2] for each in self.pinned)}
            return replace(self.image, digest=reference.digest) if reference.digest in digests else None
        names = {reference.text, f"localhost/{reference.text}", f"docker.io/library/{reference.text}"}
        return self.image if names & set(self.image.names) else None

    def named(self, names: Collection[str]) -> Image:
        """Return the image with the digest that goes with one of these names."""
        bare = {name.rpartition(":")[0] for name in names}
        for each in self.pinned:
            name, _, digest = each.rpartition("@")
            if name in bare:
                return replace(self.image, digest=digest)
        return self.image


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
        if reference.is_file:
            reference = parse_reference((await self.pull(name)).digest)
        for image_id, stored in (await self.stored()).items():
            if stored.matches(reference) is not None:
                return image_id
        raise ImageError(f"image {name}: is not there")

    async def list(self) -> tuple[Image, ...]:
        """Return all images."""
        return tuple(stored.image for stored in (await self.stored()).values())

    async def stored(self) -> dict[str, StoredImage]:
        """Return all images by podman's id; one that podman is still storing has no digest yet, and is left out."""
        entries = json.loads(await self._call("GET", "images/json", "images")) or []
        return {
            entry["Id"]: StoredImage(
                Image(entry["Digest"], tuple(entry.get("Names") or ()), entry["Size"]),
                tuple(entry.get("RepoDigests") or ()),
            )
            for entry in entries
            if entry.get("Digest")
        }

    async def _find(self, reference: Reference) -> Image | None:
        found = (stored.matches(reference) for stored in (await self.stored()).values())
        return next((image for image in found if image is not None), None)

    async def _from_layout(self, reference: Reference) -> Image:
        layout = await asyncio.to_thread(Layout.read, Path(reference.name))
        image = await asyncio.to_thread(layout.select, reference)
        if (found := await self._find(parse_reference(image.digest))) is not None:
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
        loaded = [stored for stored in (await self.stored()).values() if names & set(stored.image.names)]
        if len(loaded) != 1:
            raise ImageError(f"image {reference.text}: podman loads {len(loaded)} images of it, it is to be one")
        image = loaded[0].named(names)
        if reference.digest is None:
            return image
        if (found := loaded[0].matches(parse_reference(reference.digest))) is None:
            raise ImageError(f"image {reference.text}: has digest {image.digest}")
        return found

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
        for image_id, stored in (await self.stored()).items():
            if image_id in ids:
                return stored.matches(reference) or stored.image
        raise ImageError(f"image {reference.text}: podman has pulled it and does not have it")


async def _pieces(reference: Reference) -> AsyncIterator[bytes]:
    """Yield a file's bytes; not those of a device or a pipe, which have no end."""
    if Path(reference.name).exists() and not Path(reference.name).is_file():
        raise ImageError(f"image {reference.text}: is no file")
    try:
        with await asyncio.to_thread(Path(reference.name).open, "rb") as opened:
            while piece := await asyncio.to_thread(opened.read, _PIECE_BYTES):
                yield piece
    except OSError as error:
        raise ImageError(f"image {reference.text}: {(error.strerror or str(error)).lower()}") from error
