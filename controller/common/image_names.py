"""Users' references to images: a name in a registry, a digest, or a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_DOMAIN: Final = r"[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\]"
_PART: Final = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_NAME: Final = re.compile(
    rf"(({_DOMAIN})(:\d{{1,5}})?/)?{_PART}(/{_PART})*(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?", re.ASCII
)
"""The grammar of github.com/distribution/reference."""
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_LONGEST: Final = 1024


class Transport(StrEnum):
    """Source of an image; the words are those of containers-transports(5)."""

    REGISTRY = "docker"
    DIGEST = "sha256"
    OCI = "oci"
    OCI_ARCHIVE = "oci-archive"
    DOCKER_ARCHIVE = "docker-archive"


@dataclass(frozen=True, slots=True)
class Reference:
    """An image's name in parts: `name` is that in a registry with its tag, or a file's path, with a separate `tag`."""

    text: str
    transport: Transport
    name: str = ""
    tag: str | None = None
    digest: str | None = None

    @property
    def is_file(self) -> bool:
        """True if it names a folder or a file of this machine."""
        return self.transport in (Transport.OCI, Transport.OCI_ARCHIVE, Transport.DOCKER_ARCHIVE)


def parse_reference(text: str) -> Reference:
    """Return a name's parts; raise ValueError, naming it, for an invalid one."""
    if not text or len(text) > _LONGEST or not text.isprintable():
        raise ValueError(f"image {text[:80]!r}: is not an image name")
    if _DIGEST.fullmatch(text):
        return Reference(text, Transport.DIGEST, digest=text)
    name, at, digest = text.partition("@")
    if name.startswith("sha256:"):
        raise ValueError(f"image {text}: is not a digest (sha256: and 64 hexadecimal digits)")
    if at and not _DIGEST.fullmatch(digest):
        raise ValueError(f"image {text}: {digest!r} is not a digest (sha256: and 64 hexadecimal digits)")
    transport, colon, rest = name.partition(":")
    if colon and transport in (Transport.OCI, Transport.OCI_ARCHIVE, Transport.DOCKER_ARCHIVE):
        return _file(text, Transport(transport), rest, digest or None)
    name = name.removeprefix("docker://")
    if not _NAME.fullmatch(name):
        raise ValueError(f"image {text}: is not an image name")
    return Reference(text.removeprefix("docker://"), Transport.REGISTRY, name, digest=digest or None)


def _file(text: str, transport: Transport, rest: str, digest: str | None) -> Reference:
    path, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        path, tag = rest, ""
    if not path.startswith("/"):
        raise ValueError(f"image {text}: the path must begin with /")
    if tag and transport is not Transport.DOCKER_ARCHIVE and not _TAG.fullmatch(tag):
        raise ValueError(f"image {text}: {tag!r} is not a tag")
    return Reference(text, transport, path, tag or None, digest)
