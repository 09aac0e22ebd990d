"""Images in podman's storage: found by digest or name, loaded from files, pulled from registries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from controller.common.image_names import Reference, Transport
from controller.workloads.nodes.runtimes.base import Image
from controller.workloads.nodes.runtimes.errors import (
    ContainerError,
    ImageError,
    NoSuchContainerError,
    RuntimeTimeoutError,
)
from controller.workloads.nodes.runtimes.images.limits import ImageLimits, held_to, taken_on
from controller.workloads.nodes.runtimes.images.reference import parse_reference
from controller.workloads.nodes.runtimes.images.staging import ImageFiles, work_folder
from controller.workloads.nodes.runtimes.processes import one_line

_PIECE_BYTES: Final = 1 << 20
_NAME_DIGITS: Final = 16
_UNDO_LOOKS, _UNDO_S = 10, 0.2
Call = Callable[..., Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image in podman's storage; `pinned` are NAME@DIGEST: several manifests may name the same content."""

    image: Image
    pinned: tuple[str, ...] = ()

    def matches(self, reference: Reference) -> Image | None:
        """Return the image, with the requested digest, if the reference means it."""
        if reference.digest is not None:
            digests = {self.image.digest, *(each.rpartition("@")[2] for each in self.pinned)}
            return replace(self.image, digest=reference.digest) if reference.digest in digests else None
        names = {reference.text, f"localhost/{reference.text}", f"docker.io/library/{reference.text}"}
        return self.image if names & set(self.image.names) else None

    def named(self, names: Collection[str]) -> Image:
        """Return the image with the digest that belongs to one of these names."""
        bare = {name.rpartition(":")[0] for name in names}
        for each in self.pinned:
            name, _, digest = each.rpartition("@")
            if name in bare:
                return replace(self.image, digest=digest)
        return self.image


class PodmanImages:
    """Images, by calls of podman's service; files are copied into a folder in `folder` first."""

    def __init__(self, call: Call, files: ImageFiles, folder: Path, deadline_s: float) -> None:
        self._call, self._files, self._folder, self._deadline_s = call, files, folder, deadline_s
        self._pulling = 0

    async def pull(self, name: str) -> Image:
        """Return an image, fetched if missing; a digest in the name is checked."""
        reference = parse_reference(name)
        match reference.transport:
            case Transport.DIGEST:
                existing = await self._find(reference)
                if existing is None:
                    raise ImageError(f"image {name}: does not exist here, and a digest alone names no registry")
                return existing
            case Transport.REGISTRY:
                existing = await self._find(reference)
                image = existing or await self._from_registry(reference)
                return await self._within_limits(reference, image, is_new=existing is None)
            case Transport.OCI:
                return await self._from_layout(reference)
            case Transport.OCI_ARCHIVE | Transport.DOCKER_ARCHIVE:
                return await self._from_archive(reference)

    async def id_of(self, name: str) -> str:
        """Return podman's id of an existing image."""
        reference = parse_reference(name)
        if reference.is_file:
            reference = parse_reference((await self.pull(name)).digest)
        for image_id, stored in (await self.stored()).items():
            if stored.matches(reference) is not None:
                return image_id
        raise ImageError(f"image {name}: does not exist here")

    async def annotations_of(self, image_id: str) -> Mapping[str, str]:
        """Return the annotations that an image's maker gave it."""
        inspected = json.loads(await self._call("GET", f"images/{image_id}/json", f"look at image {image_id[:12]}"))
        return inspected.get("Annotations") or {}

    async def list(self) -> tuple[Image, ...]:
        """Return all images."""
        return tuple(stored.image for stored in (await self.stored()).values())

    async def stored(self) -> dict[str, StoredImage]:
        """Return all images by podman's id, except those without a digest that podman is still storing."""
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
        matches = (stored.matches(reference) for stored in (await self.stored()).values())
        return next((image for image in matches if image is not None), None)

    async def _from_layout(self, reference: Reference) -> Image:
        async with work_folder(self._folder) as work:
            layout, image = await self._files.layout(reference, work)
            if (existing := await self._find(parse_reference(image.digest))) is not None:
                return existing
            await self._files.complete(reference, layout, image)
            # A unique name: of two images of one name podman would take it from the first.
            name = f"localhost/millrace:{image.digest.removeprefix('sha256:')[:_NAME_DIGITS]}"
            return await self._load(replace(reference, digest=image.digest), layout.archive(image, name))

    async def _from_archive(self, reference: Reference) -> Image:
        async with work_folder(self._folder) as work:
            archive = await self._files.archive(reference, work)
            await self._files.measure(reference, (archive,), is_archive=True)
            # The names in it would hijack references of others to an image of a registry.
            return await self._load(reference, _pieces(await self._files.rename(reference, archive)))

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
            raise ImageError(f"image {reference.text}: podman loaded {len(loaded)} images from it, expected one")
        image = loaded[0].named(names)
        if reference.digest is None:
            return image
        if (loaded_image := loaded[0].matches(parse_reference(reference.digest))) is None:
            raise ImageError(f"image {reference.text}: has digest {image.digest}")
        return loaded_image

    async def _from_registry(self, reference: Reference) -> Image:
        doing, query = f"pull {reference.text}", {"reference": reference.text, "quiet": "true"}
        pulling = self._call("POST", "images/pull", doing, query=query, deadline_s=self._deadline_s)
        try:
            answer = await self._held(reference, pulling)
        except ImageError:
            await self._undo(reference)
            raise
        except RuntimeTimeoutError:
            raise
        except ContainerError as error:
            raise ImageError(f"image {reference.text}: {error}") from error
        lines = [json.loads(line) for line in answer.splitlines() if line.strip()]
        if errors := [line["error"] for line in lines if "error" in line]:
            raise ImageError(f"image {reference.text}: cannot be fetched: {one_line(errors[-1])}")
        ids = {image_id for line in lines for image_id in line.get("images") or ()}
        for image_id, stored in (await self.stored()).items():
            if image_id in ids:
                return stored.matches(reference) or stored.image
        raise ImageError(f"image {reference.text}: podman pulled it, but does not list it")

    async def _within_limits(self, reference: Reference, image: Image, *, is_new: bool) -> Image:
        """Return an image unless it exceeds the limits; then remove it if it is new."""
        most = self._files.limits.most_bytes
        if image.nbytes <= most:
            return image
        if is_new:
            with suppress(ContainerError):
                await self._remove_named(reference)
        raise ImageError(f"image {reference.text}: takes {image.nbytes} bytes, more than this node's limit of {most}")

    async def _undo(self, reference: Reference) -> None:
        """Remove what podman may still store of a cancelled pull: it finishes work in progress."""
        for _ in range(_UNDO_LOOKS):
            with suppress(ContainerError):
                if await self._remove_named(reference):
                    return
            await asyncio.sleep(_UNDO_S)

    async def _remove_named(self, reference: Reference) -> bool:
        """Remove the referenced image; return whether there was one."""
        for stored in (await self.stored()).values():
            if stored.matches(reference) is not None:
                await self.remove(stored.image.digest)
                return True
        return False

    async def remove(self, digest: str) -> None:
        """Remove an image by all of its names; raise ContainerError if a container uses it."""
        for image_id, stored in (await self.stored()).items():
            if stored.image.digest == digest:
                for name in (*stored.image.names, image_id):
                    with suppress(NoSuchContainerError):
                        await self._call("DELETE", f"images/{quote(name, safe='')}", f"remove image {digest}")

    async def _held(self, reference: Reference, pulling: Coroutine[Any, Any, bytes]) -> bytes:
        """Let podman continue while its disk holds no more than the images being pulled may take."""
        store = json.loads(await self._call("GET", "info", "info"))["store"]["graphRoot"]
        self._pulling += 1
        most, limits = self._pulling, self._files.limits

        def at_most() -> ImageLimits:
            nonlocal most
            most = max(most, self._pulling)
            # Compressed and unpacked bytes exist at the same time.
            return ImageLimits(2 * most * limits.most_bytes, 2 * most * limits.most_files)

        try:
            return await held_to(at_most, lambda: taken_on(Path(store)), reference.text, pulling)
        finally:
            self._pulling -= 1


async def _pieces(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while piece := await asyncio.to_thread(opened.read, _PIECE_BYTES):
            yield piece
