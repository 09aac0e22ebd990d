"""Disk limits of one image, and their enforcement while external programs fetch or unpack it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from controller.workloads.nodes.runtimes.errors import ImageError

T = TypeVar("T")
_LOOK_S: Final = 0.5
_BLOCK_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits of one image: bytes and files once it is unpacked, and as many bytes before."""

    most_bytes: int = 20 << 30
    most_files: int = 2_000_000


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes and files on a disk."""

    nbytes: int
    files: int


def taken_by(folder: Path) -> Taken:
    """Return the usage of a folder; files removed meanwhile are left out."""
    nbytes = files = 0
    for path, folders, names in os.walk(folder):
        for name in (*folders, *names):
            try:
                nbytes += os.lstat(f"{path}/{name}").st_blocks * _BLOCK_BYTES
            except OSError:
                continue
            files += 1
    return Taken(nbytes, files)


def taken_on(disk: Path) -> Taken:
    """Return the usage of a folder's whole disk."""
    usage = os.statvfs(disk)
    return Taken((usage.f_blocks - usage.f_bfree) * usage.f_frsize, usage.f_files - usage.f_ffree)


async def held_to(
    limits: Callable[[], ImageLimits], taken: Callable[[], Taken], image: str, work: Coroutine[Any, Any, T]
) -> T:
    """Return the result of `work`; cancel it and raise ImageError once it exceeds `limits`."""
    try:
        before = await asyncio.to_thread(taken)
    except BaseException:
        work.close()
        raise
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_LOOK_S)
            now, most = await asyncio.to_thread(taken), limits()
            if now.nbytes - before.nbytes > most.most_bytes:
                raise ImageError(f"image {image}: takes more than {most.most_bytes} bytes, this node's limit")
            if now.files - before.files > most.most_files:
                raise ImageError(f"image {image}: has more than {most.most_files} files, this node's limit")
        return await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
