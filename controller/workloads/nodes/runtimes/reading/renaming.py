"""An image archive, rewritten without the names that its maker gave it.

Others who refer to an image of a registry get the one with its name: an archive must not claim that name.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import Any

_MOST_BYTES = 4 << 20
_PIECE = 1 << 20
_TAG = "org.opencontainers.image.ref.name"
_NAME_DIGITS = 32


class NotAnArchiveError(Exception):
    """An archive cannot be read: one phrase."""


def rename(source: str, target: str) -> None:
    """Write an archive of an image under a name derived from its content."""
    name = f"localhost/millrace:archive-{_digest_of(source)[:_NAME_DIGITS]}"
    try:
        with tarfile.open(source, "r:*") as reading, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as writing:
            while (member := reading.next()) is not None:
                reading.members = []  # type: ignore[attr-defined]  # it would keep them all
                _copy(member, reading, writing, name)
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise NotAnArchiveError(f"is not an image archive: {error}") from None


def _copy(member: tarfile.TarInfo, reading: tarfile.TarFile, writing: tarfile.TarFile, name: str) -> None:
    path = member.name.removeprefix("./")
    if path == "repositories":  # names in archives from before 2016
        return
    content = reading.extractfile(member) if member.isreg() else None
    if content is not None and path in ("index.json", "manifest.json"):
        if member.size > _MOST_BYTES:
            raise NotAnArchiveError(f"is not an image archive: its {path} has {member.size} bytes")
        data = json.dumps(_named(json.loads(content.read()), name)).encode()
        member.size, content = len(data), io.BytesIO(data)
    elif content is None and path in ("index.json", "manifest.json"):
        raise NotAnArchiveError(f"is not an image archive: its {path} is not a file")
    member.pax_headers = {}
    writing.addfile(member, content)


def _named(content: Any, name: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return an index of an OCI layout, or the manifest of Docker's archives, with only this name."""
    if isinstance(content, dict) and isinstance(content.get("manifests"), list):
        manifests = [each for each in content["manifests"] if isinstance(each, dict)]
        return content | {"manifests": [each | {"annotations": {_TAG: name}} for each in manifests]}
    if isinstance(content, list):
        return [each | {"RepoTags": [name]} for each in content if isinstance(each, dict)]
    raise NotAnArchiveError("is not an image archive: its index is malformed")


def _digest_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes long to load
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
