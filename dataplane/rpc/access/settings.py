"""Files with which our daemons and commands authenticate themselves and others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from dataplane.config import Strict

CA: Final = "MILLRACE_CA"
CERTIFICATE: Final = "MILLRACE_CERTIFICATE"
PRIVATE_KEY: Final = "MILLRACE_PRIVATE_KEY"
TOKEN_FILE: Final = "MILLRACE_TOKEN_FILE"  # noqa: S105 - a variable's name


class TlsSettings(Strict, frozen=True):
    """PEM files for TLS: for calls to HOST:PORT, and for what this daemon serves there."""

    ca: str
    """Certificate of the authority that signed the peers' certificates."""
    certificate: str | None = None
    """Our own certificate, shown to servers we call and to our clients."""
    private_key: str | None = None
    """The key of that certificate; a file, so that it appears on no command line."""
    server_name: str = ""
    """The name in the certificates of servers we call, if it is not the address."""
    token_file: str | None = None
    """Our own token, shown to servers we call."""
    tokens: str | None = None
    """Tokens accepted where we serve, made by `millrace certs token`: callers show one instead of a certificate."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key belong together")
        if self.tokens is not None and self.certificate is None:
            raise ValueError("tokens are for serving, which needs certificate and private_key")


def from_environment(environ: Mapping[str, str] = os.environ) -> TlsSettings | None:
    """Return the settings in a user's environment, None if there are none; raise ValueError for incomplete ones."""
    values = {name: environ.get(name) or None for name in (CA, CERTIFICATE, PRIVATE_KEY, TOKEN_FILE)}
    ca = values[CA]
    if ca is None:
        if values[CERTIFICATE] or values[PRIVATE_KEY]:
            raise ValueError(f"{CERTIFICATE} and {PRIVATE_KEY} need {CA}")
        return None
    if (values[CERTIFICATE] is None) != (values[PRIVATE_KEY] is None):
        raise ValueError(f"{CERTIFICATE} and {PRIVATE_KEY} belong together")
    return TlsSettings(
        ca=ca, certificate=values[CERTIFICATE], private_key=values[PRIVATE_KEY], token_file=values[TOKEN_FILE]
    )
