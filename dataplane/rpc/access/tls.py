"""Credentials from PEM files, for gRPC and HTTP, validated in advance: gRPC itself fails only at the first call."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc

from dataplane.errors import AccessError, ConfigError
from dataplane.given import SECRET_BYTES, read_given
from dataplane.rpc.access.certificates import now_utc, validity_of
from dataplane.rpc.access.settings import TlsSettings

LOGGER: Final = logging.getLogger("millrace.tls")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a server; with `client_ca` every client must show a certificate signed by this authority.

    With `tokens`, a file as `millrace certs token` makes it, clients show one of these tokens instead.
    """

    certificate: Path
    private_key: Path
    client_ca: Path | None = None
    tokens: Path | None = None


def files_of(tls: TlsSettings) -> TlsFiles:
    """Return the files of one of our servers: its clients show a certificate, or a token if it has tokens.

    Raises ConfigError for settings that only a client can use.
    """
    if tls.certificate is None or tls.private_key is None:
        raise ConfigError("serving at HOST:PORT needs certificate and private_key", file="settings", key="tls")
    tokens = None if tls.tokens is None else Path(tls.tokens)
    ca = Path(tls.ca) if tokens is None else None
    return TlsFiles(Path(tls.certificate), Path(tls.private_key), ca, tokens)


def check_files(files: TlsFiles) -> None:
    """Raise ConfigError naming the missing or invalid file."""
    _read(files.certificate, "certificate")
    _read(files.private_key, "private key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # The empty password refuses encrypted keys, for which OpenSSL would prompt on the terminal.
        context.load_cert_chain(files.certificate, files.private_key, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        file = files.private_key if _has_certificate(files.certificate) else files.certificate
        problem = f"not a PEM certificate with its unencrypted private key: {_reason(error)}"
        raise ConfigError(problem, file=str(file), key="tls") from error
    if files.client_ca is not None:
        check_authority(files.client_ca)


def check_authority(file: Path) -> None:
    """Raise ConfigError for a file without an authority's certificate."""
    _read(file, "authority's certificate")
    if not _has_certificate(file):
        raise ConfigError("it holds no PEM certificate", file=str(file), key="tls")


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Return gRPC's credentials, which follow changes of the files.

    Raises ConfigError naming the missing or invalid file, AccessError for an expired certificate.
    """
    check_current(files.certificate)
    kept = _Kept(files, _configuration(files), _versions(files))
    changed: Any = kept.changed  # gRPC documents that it may return None, its stubs do not
    return grpc.dynamic_ssl_server_credentials(kept.configuration, changed, files.client_ca is not None)


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the TLS context of an HTTP server; raise ConfigError naming the invalid file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_into(context, files)
    if files.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def load_into(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Load the files' current content into a context, for new connections; on ConfigError leave it unchanged."""
    check_files(files)
    context.load_cert_chain(files.certificate, files.private_key)
    if files.client_ca is not None:
        context.load_verify_locations(files.client_ca)


def check_client(tls: TlsSettings) -> None:
    """Raise ConfigError or AccessError for unusable files: gRPC would abort the process over some."""
    check_authority(Path(tls.ca))
    if tls.certificate is not None and tls.private_key is not None:
        check_files(TlsFiles(Path(tls.certificate), Path(tls.private_key)))
        check_current(Path(tls.certificate))


def client_credentials(tls: TlsSettings) -> grpc.ChannelCredentials:
    """Return a client's credentials, including its token if it has one; raise like `check_client`."""
    check_client(tls)
    key, certificate = (
        None if file is None else read_given(file, SECRET_BYTES) for file in (tls.private_key, tls.certificate)
    )
    credentials = grpc.ssl_channel_credentials(read_given(tls.ca, SECRET_BYTES), key, certificate)
    if tls.token_file is None:
        return credentials
    from dataplane.rpc.access.token_files import read_token  # noqa: PLC0415

    token = grpc.access_token_call_credentials(read_token(Path(tls.token_file)))
    return grpc.composite_channel_credentials(credentials, token)


def check_current(certificate: Path) -> None:
    """Raise AccessError for a certificate that is not valid now; log a warning if it soon expires."""
    warning = validity_of(certificate).check(now_utc())
    if warning is not None:
        LOGGER.warning("%s", warning)


@dataclass(slots=True)
class _Kept:
    """Current credentials of a server; gRPC checks for changes at each connection, in one of its own threads."""

    files: TlsFiles
    configuration: grpc.ServerCertificateConfiguration
    versions: tuple[tuple[int, int], ...]

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the files' content if it has changed, else None; unusable files change nothing."""
        try:
            versions = _versions(self.files)
            if versions == self.versions:
                return None
            self.versions = versions
            check_current(self.files.certificate)
            self.configuration = _configuration(self.files)
        except (ConfigError, AccessError) as error:
            LOGGER.warning("reload failed; keeping the previous certificates: %s", error)
            return None
        LOGGER.info("certificate %s is in use", self.files.certificate)
        return self.configuration


def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    check_files(files)
    pair = _read(files.private_key, "private key"), _read(files.certificate, "certificate")
    ca = None if files.client_ca is None else _read(files.client_ca, "authority's certificate")
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=ca)


def _versions(files: TlsFiles) -> tuple[tuple[int, int], ...]:
    paths = (files.certificate, files.private_key, files.client_ca)
    try:
        stats = [file.stat() for file in paths if file is not None]
    except OSError as error:
        raise ConfigError(f"cannot read it: {error.strerror}", file=str(error.filename), key="tls") from error
    return tuple((stat.st_ino, stat.st_mtime_ns) for stat in stats)


def _read(path: Path, what: str) -> bytes:
    try:
        return read_given(path, SECRET_BYTES)
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
