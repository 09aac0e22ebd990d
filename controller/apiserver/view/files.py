"""Files of the page, as built: read once, served with their types and the page's security policy."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        # The second one is the page's own, for its worker's address.
        "trusted-types svelte-trusted-html millrace",
    )
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_TYPES: Final[Mapping[str, str]] = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file: its bytes, also compressed (gzip), its type, and its entity tag."""

    body: bytes
    gzip: bytes
    media_type: str
    tag: str

    @classmethod
    def of(cls, name: str, body: bytes) -> PageFile | None:
        """Return a file, or None for a type that the page does not have."""
        media_type = _TYPES.get(name.rpartition(".")[2])
        if media_type is None:
            return None
        packer = zlib.compressobj(9, wbits=31)
        packed = packer.compress(body) + packer.flush()
        return cls(body, packed, media_type, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


class PageFiles:
    """The page's files by path, and the digest of its build."""

    def __init__(self, root: Traversable | None = None) -> None:
        root = files("controller").joinpath("web", "build") if root is None else root
        self.by_path: dict[str, PageFile] = {}
        if root.is_dir():
            self._read(root, "/")
        index = self.by_path.get("/index.html")
        if index is not None:
            self.by_path["/"] = index
        self.build = self._digest(root)

    def _read(self, folder: Traversable, path: str) -> None:
        for item in folder.iterdir():
            if item.is_dir():
                self._read(item, f"{path}{item.name}/")
            elif (file := PageFile.of(item.name, item.read_bytes())) is not None:
                self.by_path[path + item.name] = file

    def _digest(self, root: Traversable) -> str:
        stated = root.joinpath("build.json")
        if stated.is_file():
            return str(json.loads(stated.read_bytes())["build"])
        whole = hashlib.sha256()
        for path in sorted(self.by_path):
            whole.update(f"{path} {self.by_path[path].tag}\n".encode())
        return whole.hexdigest()[:16]
