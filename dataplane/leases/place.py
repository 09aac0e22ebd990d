"""Address of an etcd and its certificates, as settings name them."""

from __future__ import annotations

from typing import Annotated

import grpc
from msgspec import Meta

from dataplane.config import Settings
from dataplane.errors import MillraceError
from dataplane.given import SECRET_BYTES, read_given
from dataplane.rpc.addresses import exposed, target_of


class EtcdPlace(Settings, frozen=True):
    """An etcd, version 3; with several members any one that answers."""

    addresses: Annotated[tuple[str, ...], Meta(min_length=1)] = ("127.0.0.1:2379",)
    """HOST:PORT; several must be IP addresses. Without `ca`, addresses other than loopback are plain:HOST:PORT."""

    root: str = "/millrace"
    """Prefix of all keys there."""

    timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 5.0
    """Timeout of a call."""

    ca: str | None = None
    """PEM file of the authority that signed etcd's certificate; without it the connection is not encrypted."""

    certificate: str | None = None
    """PEM file of the client certificate, if etcd requires one."""

    private_key: str | None = None
    """PEM file of the certificate's key."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.private_key is None):
            raise ValueError("certificate and private_key belong together")
        if self.certificate is not None and self.ca is None:
            raise ValueError("a certificate requires a ca")
        problem = next(
            (found for address in self.addresses if (found := exposed(address, has_tls=self.ca is not None))), None
        )
        if problem is not None:
            raise ValueError(f"addresses: {problem}")

    @property
    def target(self) -> str:
        """The address in gRPC's form."""
        targets = [target_of(address) for address in self.addresses]
        return targets[0] if len(targets) == 1 else f"ipv4:{','.join(targets)}"

    def credentials(self, error: type[MillraceError]) -> grpc.ChannelCredentials | None:
        """Return gRPC's credentials, None without `ca`; raise `error` for an unreadable file."""
        if self.ca is None:
            return None
        try:
            ca, key, certificate = (
                None if file is None else read_given(file, SECRET_BYTES)
                for file in (self.ca, self.private_key, self.certificate)
            )
        except OSError as problem:
            raise error(f"etcd's {problem.filename}: {problem.strerror}") from None
        return grpc.ssl_channel_credentials(ca, key, certificate)
