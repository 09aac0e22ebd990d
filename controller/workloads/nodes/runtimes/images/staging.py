"""Users' image files, copied into a private folder of the runtime before use.

A separate process copies files from the folders that the settings allow, within limits, and reports their unpacked
size. Only the copy is checked, measured and unpacked, whatever is swapped or written meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from controller.common.image_names import Reference
from controller.workloads.nodes.runtimes.errors import ImageError
from controller.workloads.nodes.runtimes.images.layout import Layout, LayoutImage
from controller.workloads.nodes.runtimes.images.limits import ImageLimits
from controller.workloads.nodes.runtimes.reading.child import ReadRefusedError, ask

UNFINISHED: Final = "unfinished-"
_INDEX_BYTES: Final = 64 << 20
"""Total size of all indices and manifests of a layout."""


class ImageFiles:
    """Image files below `folders`, copied within limits and a deadline for each step."""

    def __init__(self, folders: tuple[Path, ...], limits: ImageLimits, deadline_s: float) -> None:
        self._folders, self.limits, self._deadline_s = folders, limits, deadline_s

    async def layout(self, reference: Reference, work: Path) -> tuple[Layout, LayoutImage]:
        """Return a layout with its indices copied into a folder, and the selected image; raise ImageError."""
        await self._copy(reference, work, _INDEX_BYTES, do="indices")
        layout = await asyncio.to_thread(Layout.read, work, reference.name)
        return layout, await asyncio.to_thread(layout.select, reference)

    async def complete(self, reference: Reference, layout: Layout, image: LayoutImage) -> None:
        """Copy the rest of a layout's image, and measure it."""
        missing = [digest for digest in image.blobs if not layout.has(digest)]
        await self._copy(reference, layout.folder, self.limits.most_bytes, do="blobs", blobs=missing)
        await self.measure(reference, (layout.blob(digest) for digest in image.layers))

    async def archive(self, reference: Reference, work: Path) -> Path:
        """Return the copy of an archive in a folder."""
        await self._copy(reference, work, self.limits.most_bytes, do="archive")
        return work / "archive"

    async def measure(self, reference: Reference, files: Iterable[Path], *, is_archive: bool = False) -> int:
        """Return the bytes that layers take unpacked, or those in archives; raise ImageError if there are too many."""
        limits, names = self.limits, [str(file) for file in files]
        request = {"do": "measure", "files": names, "archive": is_archive}
        told = await self._ask(reference, request | {"most": limits.most_bytes, "entries": limits.most_files})
        nbytes: int = json.loads(told)[0]
        return nbytes

    async def rename(self, reference: Reference, archive: Path) -> Path:
        """Return a rewritten copy of an archive, next to it, under a name of ours derived from its content."""
        renamed = archive.with_name("renamed")
        await self._ask(reference, {"do": "rename", "source": str(archive), "target": str(renamed)})
        return renamed

    async def _copy(self, reference: Reference, target: Path, most_bytes: int, **more: object) -> None:
        where = {"path": reference.name, "folders": [str(folder) for folder in self._folders]}
        await self._ask(reference, where | {"target": str(target), "most": most_bytes} | more)

    async def _ask(self, reference: Reference, request: dict[str, object]) -> bytes:
        try:
            return await ask(f"read {reference.text}", self._deadline_s, request)
        except ReadRefusedError as error:
            raise ImageError(f"image {reference.text}: {error}") from None


@asynccontextmanager
async def work_folder(parent: Path) -> AsyncIterator[Path]:
    """Yield a new folder for unfinished work; it is removed afterwards, whatever is in it."""
    work = parent / f"{UNFINISHED}{uuid4().hex}"
    work.mkdir(parents=True, mode=0o700)
    try:
        yield work
    finally:
        await asyncio.to_thread(shutil.rmtree, work, ignore_errors=True)


def remove_unfinished(parent: Path) -> None:
    """Remove half-made folders of a process that died; create the parent if it is missing."""
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for unfinished in parent.glob(f"{UNFINISHED}*"):
        shutil.rmtree(unfinished, ignore_errors=True)
