"""The secret shared by workers and their client: 32 bytes in a file that only its user can read."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from controller.acceleration.running.channels import SECRET_BYTES
from controller.acceleration.running.errors import RunError
from dataplane.given import MIB, read_given_text

_OTHERS = 0o077


def read(file: Path) -> bytes:
    """Return the secret in a file; RunError names a file that is missing, accessible to others, or malformed."""
    try:
        if file.stat().st_mode & _OTHERS:
            raise RunError(f"secret file {file} is accessible to others; chmod 600 {file}")
        secret = bytes.fromhex(read_given_text(file, MIB, encoding="ascii"))
    except OSError as error:
        raise RunError(f"secret file {file}: {error.strerror}") from None
    except ValueError:
        raise RunError(f"secret file {file}: not hexadecimal text") from None
    if len(secret) != SECRET_BYTES:
        raise RunError(f"secret file {file}: {len(secret)} bytes, not {SECRET_BYTES}")
    return secret


def read_or_make(file: Path) -> bytes:
    """Return the secret in a file, creating it for its user alone if missing."""
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return read(file)
    except OSError as error:
        raise RunError(f"secret file {file}: {error.strerror}") from None
    secret = secrets.token_bytes(SECRET_BYTES)
    with os.fdopen(number, "w", encoding="ascii") as out:
        out.write(f"{secret.hex()}\n")
    return secret
