"""Server credentials from PEM files, checked before gRPC sees them, as gRPC only fails when a client calls."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from dataplane.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of the server; with `client_ca` every client must show a certificate that this authority signed."""

    certificate: Path
    private_key: Path
    client_ca: Path | None = None


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Return gRPC's credentials; raise ConfigError naming the file that is missing or not what it should be."""
    certificate, key = _read(files.certificate, "certificate"), _read(files.private_key, "private key")
    client_ca = None if files.client_ca is None else _read(files.client_ca, "client CA")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.private_key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        file = files.private_key if _has_certificate(files.certificate) else files.certificate
        problem = f"not a PEM certificate with its unencrypted private key: {_reason(error)}"
        raise ConfigError(problem, file=str(file), key="tls") from error
    if files.client_ca is not None and not _has_certificate(files.client_ca):
        raise ConfigError("it holds no PEM certificate", file=str(files.client_ca), key="tls")
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=client_ca, require_client_auth=client_ca is not None
    )


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the {what}: {error.strerror}", file=str(path), key="tls") from error


def _has_certificate(path: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error) or type(error).__name__
