"""The address of the API server, and the client's credentials.

The address is `--api ADDRESS`, else MILLRACE_API from the environment, else the socket in the user's own folder.
MILLRACE_TOKEN_FILE names a file with the token, MILLRACE_CA a private authority; neither is passed on the command line.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controller.apiserver.default_socket import default_socket
from controller.common.errors import InvalidError
from dataplane.errors import AccessError, ConfigError
from dataplane.rpc.access import token_files
from dataplane.rpc.access.settings import TOKEN_FILE, from_environment
from dataplane.rpc.addresses import is_loopback, is_unix, malformed

API: Final = "MILLRACE_API"


@dataclass(frozen=True, slots=True)
class Place:
    """An address: unix:PATH, HOST:PORT, http://HOST:PORT or https://HOST:PORT; HOST:PORT is https but on loopback."""

    address: str
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    """The client's certificate and key, for servers that require one or identify clients by it."""
    private_key: Path | None = None

    def __post_init__(self) -> None:
        if self.socket is None and "://" in self.address and self.scheme not in {"http", "https"}:
            raise InvalidError(f"API at {self.address}: the scheme must be http or https")
        problem = malformed(self.address if self.socket is not None else self._host_and_port)
        if problem is not None:
            raise InvalidError(f"API at {self.address}: {problem}")
        if self.token is not None and self.scheme == "http" and self.socket is None and not self._is_loopback:
            raise InvalidError(f"API at {self.address}: a token is sent to another machine over https only")

    @property
    def socket(self) -> str | None:
        """The path of a UNIX socket; None for a network address."""
        return self.address.removeprefix("unix:").removeprefix("//") if is_unix(self.address) else None

    @property
    def scheme(self) -> str:
        """URL scheme: http or https."""
        if self.socket is not None:
            return "http"
        scheme, separator, _ = self.address.partition("://")
        return scheme if separator else "http" if self._is_loopback else "https"

    @property
    def url(self) -> str:
        """Base of all URLs."""
        return "http://api" if self.socket is not None else f"{self.scheme}://{self._host_and_port}"

    def context(self) -> ssl.SSLContext:
        """Return the TLS context with authorities and client certificate; raise InvalidError for unusable files."""
        try:
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
        except (OSError, ssl.SSLError) as error:
            raise InvalidError(f"authority {self.ca}: {getattr(error, 'strerror', None) or error}") from None
        if self.certificate is not None and self.private_key is not None:
            from dataplane.rpc.access.tls import TlsFiles, check_files  # noqa: PLC0415 - loads gRPC

            try:
                # load_cert_chain's own error does not name the file that is unusable.
                check_files(TlsFiles(self.certificate, self.private_key))
            except ConfigError as error:
                raise InvalidError(str(error)) from None
            context.load_cert_chain(self.certificate, self.private_key)
        return context

    @property
    def _host_and_port(self) -> str:
        authority = self.address.partition("://")[2].rstrip("/") if "://" in self.address else self.address
        host, _, port = authority.rpartition(":")
        return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else authority

    @property
    def _is_loopback(self) -> bool:
        return is_loopback(self._host_and_port)


def find_place(address: str | None = None, environ: Mapping[str, str] = os.environ) -> Place:
    """Return the API's address and the user's token; raise InvalidError."""
    try:
        tls = from_environment(environ)
    except ValueError as error:
        raise InvalidError(str(error)) from None
    token = environ.get(TOKEN_FILE)
    ca, certificate, key = (None, None, None) if tls is None else (tls.ca, tls.certificate, tls.private_key)
    return Place(
        address or environ.get(API) or default_socket(),
        None if not token else read_token(Path(token)),
        None if ca is None else Path(ca),
        None if certificate is None else Path(certificate),
        None if key is None else Path(key),
    )


def read_token(file: Path) -> str:
    """Return the token in a file; raise InvalidError if others may read the file, too."""
    try:
        return token_files.read_token(file)
    except AccessError as error:
        raise InvalidError(str(error)) from None
