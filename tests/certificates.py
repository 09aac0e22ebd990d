"""Certificates of an authority of a test's own, and settings that name their files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from dataplane.rpc.access import Principal, Right, Role
from dataplane.rpc.access.authority import issued, new_authority
from dataplane.rpc.access.certificate_files import write_pair
from dataplane.rpc.access.settings import TlsSettings

DAY = timedelta(days=1)
LOCAL = ("127.0.0.1", "localhost")


class Authority:
    """Signs certificates of 127.0.0.1 and localhost into a folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder, self._name = folder, name
        self._pair = new_authority(f"{name} of tests", now=datetime.now(UTC), lasts=365 * DAY)
        self.file, _ = write_pair(folder, name, self._pair, replaces=True)

    def sign(
        self,
        name: str,
        lasts: timedelta = DAY,
        principal: Principal | None = None,
        addresses: tuple[str, ...] = LOCAL,
    ) -> tuple[Path, Path]:
        """Write a certificate valid for this long, already expired if negative; return it and its key."""
        pair = issued(self._pair, name, principal, addresses, now=datetime.now(UTC), lasts=lasts)
        return write_pair(self.folder, f"{self._name}-{name}", pair, replaces=True)

    def settings(
        self, name: str, role: Role | None = Role.SERVICE, subject: str | None = None, *rights: Right
    ) -> TlsSettings:
        """Return settings with a new certificate of a role, None: without one; a service's has addresses."""
        principal = None if role is None else Principal(name, role, subject, rights)
        addresses = LOCAL if role is Role.SERVICE else ()
        certificate, key = self.sign(name, principal=principal, addresses=addresses)
        return TlsSettings(ca=str(self.file), certificate=str(certificate), private_key=str(key))
