"""Channels to our services: plain to a UNIX socket or loopback, else TLS unless the address says `plain:`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from dataplane.errors import AccessError, ConfigError
from dataplane.rpc.access.settings import TlsSettings, from_environment
from dataplane.rpc.access.tls import client_credentials
from dataplane.rpc.addresses import exposed, is_plain, is_unix, malformed, target_of

LOGGER: Final = logging.getLogger("millrace.tls")

Options = Sequence[tuple[str, Any]]
_CHANNELS: Final = 2


def uncallable(address: str, tls: TlsSettings | None) -> str | None:
    """Return why an address cannot be called with these settings, or the environment's; None if it can."""
    return malformed(address) or exposed(address, has_tls=tls_of(tls) is not None)


def open_channel(address: str, tls: TlsSettings | None, options: Options) -> grpc.Channel:
    """Open a channel; raise ConfigError or AccessError for unusable files."""
    credentials = credentials_of(address, tls)
    if credentials is None:
        return grpc.insecure_channel(target_of(address), options=options)
    return grpc.secure_channel(target_of(address), credentials, options=[*options, *_name(tls)])


def open_aio_channel(address: str, tls: TlsSettings | None, options: Options) -> grpc.aio.Channel:
    """Open a channel for asyncio, like `open_channel`."""
    credentials = credentials_of(address, tls)
    if credentials is None:
        return grpc.aio.insecure_channel(target_of(address), options=options)
    return grpc.aio.secure_channel(target_of(address), credentials, options=[*options, *_name(tls)])


class RenewingChannel:
    """A channel for asyncio that is replaced once the files of its certificates have changed.

    Running streams continue over the previous channel; when a channel is two generations old, its streams end and are
    restarted.
    """

    def __init__(self, address: str, tls: TlsSettings | None, options: Options) -> None:
        """Raise ConfigError or AccessError for unusable files."""
        self._address, self._tls, self._options = address, tls, options
        used = tls_of(tls) if is_encrypted(address, tls) else None
        self._files = [] if used is None else [used.ca, used.certificate, used.private_key, used.token_file]
        self._versions = self._now()
        self._channels = [open_aio_channel(address, tls, options)]

    async def current(self) -> grpc.aio.Channel:
        """Return the channel for new calls; unusable files change nothing."""
        versions = self._now()
        if versions != self._versions:
            self._versions = versions
            try:
                self._channels.append(open_aio_channel(self._address, self._tls, self._options))
            except (ConfigError, AccessError) as error:
                LOGGER.warning("reload failed; keeping the previous certificates: %s", error)
            if len(self._channels) > _CHANNELS:
                await self._channels.pop(0).close(grace=None)
        return self._channels[-1]

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._channels:
            await channel.close(grace=None)

    def _now(self) -> list[int | None]:
        return [_version(Path(file)) for file in self._files if file is not None]


def _version(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None  # the error is reported when it is read


def credentials_of(address: str, tls: TlsSettings | None) -> grpc.ChannelCredentials | None:
    """Return the credentials for an address, None if it is not encrypted; raise like `open_channel`."""
    settings = tls_of(tls) if is_encrypted(address, tls) else None
    return None if settings is None else client_credentials(settings)


def is_encrypted(address: str, tls: TlsSettings | None) -> bool:
    """Return whether an address is called over TLS, with these settings or the environment's."""
    return not is_unix(address) and not is_plain(address) and tls_of(tls) is not None


def tls_of(tls: TlsSettings | None) -> TlsSettings | None:
    """Return these settings, or else the environment's; raise ConfigError if those are incomplete."""
    try:
        return tls or from_environment()
    except ValueError as error:
        raise ConfigError(str(error), file="environment") from None


def _name(tls: TlsSettings | None) -> Options:
    return [("grpc.ssl_target_name_override", tls.server_name)] if tls is not None and tls.server_name else []
