"""Connections between hosts of a pool: UNIX sockets of one user, or TCP with TLS and certificates on both sides."""

from __future__ import annotations

import socket
import ssl
import time
import zlib
from pathlib import Path
from typing import Final

from controller.memory.errors import DamagedError, HostDownError, MemoryPoolError, RefusedError
from controller.memory.frames import HEADER, Frame, Header, Status, error_of
from dataplane.closing import Closing
from dataplane.errors import ConfigError, WireError
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.access.tls import check_client, files_of, server_context
from dataplane.rpc.addresses import is_unix, malformed, unavailable

BACKLOG: Final = 64


class ClosedError(Exception):
    """The other side closed the connection between two frames."""


def listening_socket(address: str, tls: TlsSettings | None) -> socket.socket:
    """Return a listening socket; raise ConfigError for an address that cannot be had, or that has no protection."""
    if (problem := unavailable(address)) is not None:
        raise ConfigError(problem, file=address)
    if is_unix(address):
        path = address.removeprefix("unix:").removeprefix("//")
        Path(path).unlink(missing_ok=True)  # left behind by a killed process: `unavailable` has called it
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        Path(path).chmod(0o600)
    else:
        if tls is None:
            raise ConfigError("HOST:PORT needs tls, on loopback, too: any user of the machine could call", file=address)
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=BACKLOG)
    listening.listen(BACKLOG)
    return listening


def server_context_of(tls: TlsSettings | None) -> ssl.SSLContext | None:
    """Return the context for serving; raise ConfigError for unusable files."""
    if tls is None:
        return None
    if tls.tokens is not None:
        raise ConfigError("tokens are not taken: hosts and pools show certificates", file="settings", key="tls.tokens")
    context = server_context(files_of(tls))
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return the context for calling; raise ConfigError or AccessError for unusable files."""
    check_client(tls)
    if tls.certificate is None or tls.private_key is None:
        raise ConfigError("hosts need our certificate and private_key", file="settings", key="tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(tls.ca)
    context.load_cert_chain(tls.certificate, tls.private_key)
    return context


def send_frame(connection: socket.socket, frame: Frame) -> None:
    """Send a frame; OSError if the other side is gone or does not take it in time."""
    connection.sendall(frame.header().encode())
    if len(frame.body):
        connection.sendall(frame.body)


def receive_frame(connection: socket.socket, *, idle_s: float, frame_s: float) -> Frame:
    """Return the next frame, with its checksum verified.

    Waits `idle_s` for the first byte and `frame_s` for the rest. Raise ClosedError at the end, WireError for what is no
    frame, DamagedError for another checksum, OSError if the connection fails or a time passes.
    """
    connection.settimeout(idle_s)
    first = connection.recv(HEADER.size)
    if not first:
        raise ClosedError
    until_s = time.monotonic() + frame_s
    header = Header.decode(_rest(connection, first, HEADER.size, until_s))
    body = _rest(connection, b"", header.length, until_s)
    if zlib.crc32(body) != header.checksum:
        raise DamagedError("a frame arrived changed: its body does not match its checksum")
    return Frame(header.kind, header.tier, header.key, header.version, body, header.status, header.checksum)


def _rest(connection: socket.socket, first: bytes, size: int, until_s: float) -> bytes:
    """Return `size` bytes that begin with `first`; a sender of single bytes has as long as any other."""
    data = bytearray(size)
    data[: len(first)] = first
    view, at = memoryview(data), len(first)
    while at < size:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the rest of a frame takes too long")
        connection.settimeout(left_s)
        count = connection.recv_into(view[at:])
        if not count:
            raise ConnectionResetError("the connection ends within a frame")
        at += count
    return bytes(data)


class Caller(Closing):
    """A connection to a host of a pool; one call at a time."""

    def __init__(self, address: str, context: ssl.SSLContext | None, *, within_s: float, name: str = "") -> None:
        """Raise HostDownError if the host cannot be reached, RefusedError if it does not accept us."""
        self._name, self._within_s = name or address, within_s
        if (problem := malformed(address)) is not None:
            raise RefusedError(f"{address}: {problem}")
        if not is_unix(address) and context is None:
            raise RefusedError(f"{address}: needs tls")
        try:
            self._connection = self._opened(address, context)
        except ssl.SSLCertVerificationError as error:
            raise RefusedError(f"{self._name}: its certificate: {error.verify_message}") from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise HostDownError(self._name, "it closed the connection") from None
        except ssl.SSLError as error:
            raise RefusedError(f"{self._name}: TLS failed: {error.reason or error}") from None
        except OSError as error:
            raise HostDownError(self._name, error.strerror or str(error)) from None

    @property
    def is_open(self) -> bool:
        """True until it is closed, also by a failure."""
        return self._connection.fileno() >= 0

    def _opened(self, address: str, context: ssl.SSLContext | None) -> socket.socket:
        if is_unix(address):
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(self._within_s)
            try:
                connection.connect(address.removeprefix("unix:").removeprefix("//"))
            except BaseException:
                connection.close()
                raise
            return connection
        host, _, port = address.rpartition(":")
        plain = socket.create_connection((host.strip("[]"), int(port)), timeout=self._within_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            assert context is not None
            return context.wrap_socket(plain, server_hostname=host.strip("[]"))
        except BaseException:
            plain.close()
            raise

    def call(self, frame: Frame, within_s: float | None = None) -> Frame:
        """Return the answer; raise the error that it tells of, HostDownError if none comes in time."""
        limit_s = self._within_s if within_s is None else within_s
        try:
            self._connection.settimeout(limit_s)
            send_frame(self._connection, frame)
            answer = receive_frame(self._connection, idle_s=limit_s, frame_s=limit_s)
        except ClosedError:
            self.close()
            raise HostDownError(self._name, "it closed the connection") from None
        except (WireError, DamagedError) as error:
            self.close()
            raise MemoryPoolError(f"{self._name}: {error}") from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            self.close()
            raise HostDownError(self._name, "it closed the connection") from None
        except ssl.SSLError as error:
            # With TLS 1.3 a server refuses our certificate only after the handshake, at the first answer.
            self.close()
            raise RefusedError(f"{self._name}: TLS failed: {error.reason or error}") from None
        except OSError as error:
            self.close()
            raise HostDownError(self._name, error.strerror or str(error) or "no answer in time") from None
        if answer.status is Status.OK:
            return answer
        text = bytes(answer.body).decode("utf-8", "replace")
        if answer.status is Status.UNREACHABLE:
            raise HostDownError(*text.split(": ", 1)) if ": " in text else HostDownError(self._name, text)
        raise error_of(answer.status, f"{self._name}: {text}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
