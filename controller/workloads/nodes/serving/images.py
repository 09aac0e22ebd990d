"""Removes images that no pod uses any more, by age and by bytes: only those that this node has fetched itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from controller.common.errors import reason_of
from controller.workloads.nodes.runtimes.base import Image, Runtime
from dataplane.clock import NS_PER_S

LOGGER: Final = logging.getLogger("millrace.node")
_FRESH_NS: Final = 300 * NS_PER_S
"""Time after a request in which an image may still be about to get its container."""


@dataclass(frozen=True, slots=True)
class ImageTerms:
    """Retention of an unused image, and the total bytes of images above which unused ones are removed."""

    kept_ns: int
    kept_bytes: int


class ImageCollector:
    """Records the images fetched here, in a file, and since when each is unused, by `now_ns`.

    Images count as unused from this manager's start at the earliest.
    """

    def __init__(self, runtime: Runtime, file: Path, terms: ImageTerms, now_ns: Callable[[], int]) -> None:
        self._runtime, self._file, self._terms, self._now_ns = runtime, file, terms, now_ns
        self._used: dict[str, int] = {}
        self._there: set[str] | None = None
        self._brought: set[str] | None = None

    def note_pulled(self, image: Image) -> None:
        """Note that a pod wants an image; if it was missing before, it was fetched for the pod."""
        self._used[image.digest] = self._now_ns()
        brought = self._read()
        if self._there is None or image.digest in self._there | brought:
            return
        brought.add(image.digest)
        self._write(brought)

    async def collect(self, in_use: Iterable[str]) -> None:
        """Remove the images due; `in_use` are the digests of images with containers."""
        before = set(self._read())
        images = {image.digest: image for image in await self._runtime.images()}
        self._there, now_ns = set(images), self._now_ns()
        for digest in in_use:
            self._used[digest] = now_ns
        if gone := before - images.keys():
            self._brought = self._read() - gone
            self._write(self._brought)
        self._used = {digest: self._used.get(digest, now_ns) for digest in (*images, *self._read())}
        for digest in doomed(images, before & images.keys(), self._used, now_ns, self._terms):
            if self._used[digest] > now_ns:
                continue  # it was requested meanwhile
            try:
                await self._runtime.remove_image(digest)
            except Exception as error:  # noqa: BLE001 - somebody else uses it; it is tried again
                LOGGER.debug("%s", reason_of(error))
                self._used[digest] = now_ns
            else:
                LOGGER.info("image %s: removed, as no pod uses it", digest)

    def _read(self) -> set[str]:
        if self._brought is None:
            try:
                self._brought = set(msgspec.json.decode(self._file.read_bytes(), type=list[str]))
            except (OSError, msgspec.DecodeError):
                self._brought = set()
        return self._brought

    def _write(self, brought: set[str]) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_bytes(msgspec.json.encode(sorted(brought)))
            new.rename(self._file)
        except OSError as error:
            LOGGER.warning("%s: %s", self._file, error.strerror or error)


def doomed(
    images: dict[str, Image], brought: set[str], used: dict[str, int], now_ns: int, terms: ImageTerms
) -> list[str]:
    """Return the digests of images to remove, the longest unused first: old ones, then until bytes are few enough."""
    unused = sorted((used[digest], digest) for digest in brought if now_ns - used[digest] > _FRESH_NS)
    left = sum(images[digest].nbytes for digest in brought)
    digests = []
    for last_ns, digest in unused:
        if now_ns - last_ns > terms.kept_ns or left > terms.kept_bytes:
            digests.append(digest)
            left -= images[digest].nbytes
    return digests
