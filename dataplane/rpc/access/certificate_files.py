"""A folder of certificates: NAME.crt and NAME.key (mode 0600) for each; the authority's are under its own name."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Final

from cryptography import x509

from dataplane.errors import AccessError
from dataplane.given import SECRET_BYTES, read_given
from dataplane.rpc.access.authority import Pair, pair_of

AUTHORITY: Final = "authority"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}", re.ASCII)


def files_of(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the paths of a certificate and its key; raise AccessError for an invalid file name."""
    if not _NAME.fullmatch(name):
        raise AccessError(f"{name!r} is not a valid name: use at most 63 letters, digits and ._@-")
    return folder / f"{name}.crt", folder / f"{name}.key"


def write_pair(folder: Path, name: str, pair: Pair, *, replaces: bool) -> tuple[Path, Path]:
    """Write a certificate and its key and return their paths; raise AccessError if they exist and `replaces` is False.

    Files are replaced atomically: a reader finds the old one or the new one.
    """
    certificate, key = files_of(folder, name)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in (key, certificate):
            if not replaces and os.path.lexists(file):
                raise AccessError(f"{file} already exists; --force replaces it")
        _write(key, pair.key_pem, 0o600)
        _write(certificate, pair.certificate_pem, 0o644)
    except OSError as error:
        raise AccessError(f"{error.filename}: {error.strerror}") from None
    return certificate, key


def read_pair(folder: Path, name: str) -> Pair:
    """Return a certificate with its key; raise AccessError."""
    certificate, key = files_of(folder, name)
    try:
        mode = key.stat().st_mode
        if mode & 0o077:
            raise AccessError(f"{key} is readable by others; chmod 600 {key}")
        return pair_of(read_given(certificate, SECRET_BYTES), read_given(key, SECRET_BYTES), str(certificate))
    except OSError as error:
        hint = "; `millrace certs authority` makes one" if name == AUTHORITY else ""
        raise AccessError(f"{error.filename}: {error.strerror}{hint}") from None


def read_certificate(file: Path) -> x509.Certificate:
    """Return the first certificate of a file; raise AccessError."""
    try:
        return x509.load_pem_x509_certificate(read_given(file, SECRET_BYTES))
    except OSError as error:
        raise AccessError(f"{file}: {error.strerror}") from None
    except ValueError:
        raise AccessError(f"{file} holds no PEM certificate") from None


def certificates_in(folder: Path) -> list[Path]:
    """Return the paths of a folder's certificates, sorted by name; raise AccessError if there is no such folder."""
    if not folder.is_dir():
        raise AccessError(f"there is no folder {folder}")
    return sorted(folder.glob("*.crt"))


def _write(file: Path, content: bytes, mode: int) -> None:
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(number, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
